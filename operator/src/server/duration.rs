//! Durations as Go writes them (`1.5s`, `1m30s`, `300ms`), which is what Kubernetes' query parameters hold.
//!
//! Knows nothing of what a duration is for, nor of its permitted range.

/// The text is not a Go duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a duration such as 1.5s or 300ms")]
pub struct Malformed;

/// The longest magnitude that Go's `time.Duration` holds, in nanoseconds.
const LIMIT: u128 = i64::MAX as u128;

/// Reads `text` by the grammar of Go's `time.ParseDuration` and returns nanoseconds, which may be negative.
///
/// Digits beyond the nanosecond are cut, as Go does.
pub fn parse(text: &str) -> Result<i64, Malformed> {
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(Malformed);
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(Malformed);
        }
        let end = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let unit = nanoseconds(&after[..end]).ok_or(Malformed)?;
        rest = &after[end..];
        total += number(whole)?.checked_mul(unit).ok_or(Malformed)? + part(fraction, unit);
        if total > LIMIT {
            return Err(Malformed);
        }
    }
    let total = i64::try_from(total).map_err(|_| Malformed)?;
    Ok(if negative { -total } else { total })
}

/// Splits the leading decimal digits off.
fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn number(digits: &str) -> Result<u128, Malformed> {
    digits.bytes().try_fold(0u128, |number, digit| {
        let number = number * 10 + u128::from(digit - b'0');
        if number > LIMIT { Err(Malformed) } else { Ok(number) }
    })
}

/// The part of `unit` that the digits after the point stand for, in floating point as Go works it out.
fn part(digits: &str, unit: u128) -> u128 {
    let (mut sum, mut scale) = (0u64, 1f64);
    for digit in digits.bytes() {
        // What Go's 63 bits no longer hold, it drops.
        let next = u128::from(sum) * 10 + u128::from(digit - b'0');
        let Some(next) = u64::try_from(next).ok().filter(|next| u128::from(*next) <= LIMIT) else {
            break;
        };
        (sum, scale) = (next, scale * 10.0);
    }
    (sum as f64 * (unit as f64 / scale)) as u128
}

fn nanoseconds(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        // Both micro signs, as Go reads them.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Expected values are those of Go 1.19's `time.ParseDuration`, from its own test table.
    #[test]
    fn reads_what_go_reads() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("5s", 5_000_000_000),
            ("30s", 30_000_000_000),
            ("1478s", 1_478_000_000_000),
            ("-5s", -5_000_000_000),
            ("+5s", 5_000_000_000),
            ("-0", 0),
            ("5.0s", 5_000_000_000),
            ("5.6s", 5_600_000_000),
            ("5.s", 5_000_000_000),
            (".5s", 500_000_000),
            ("1.0040s", 1_004_000_000),
            ("100.00100s", 100_001_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12µs", 12_000),
            ("12μs", 12_000),
            ("13ms", 13_000_000),
            ("15m", 900_000_000_000),
            ("16h", 57_600_000_000_000),
            ("3h30m", 12_600_000_000_000),
            ("10.5s4m", 250_500_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("52763797000ns", 52_763_797_000),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("0.9223372036854775807h", 3_320_413_933_267),
            ("9223372036854775807ns", i64::MAX),
            ("9223372036.854775807s", i64::MAX),
        ] {
            assert_eq!(parse(text), Ok(nanoseconds), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in [
            "",
            "3",
            "-",
            "s",
            ".",
            "-.",
            ".s",
            "+.s",
            "1d",
            "1 s",
            " 1s",
            "1s ",
            "1S",
            "--1s",
            "1s-2s",
            "9223372036854775808ns",
            "9223372036854775.808us",
            "3000000h",
            "99999999999999999999999999999999999999999999s",
            "1e3s",
            "\u{0661}s",
        ] {
            assert_eq!(parse(text), Err(Malformed), "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn milliseconds_round_trip(milliseconds in 0i64..1_000_000_000) {
            prop_assert_eq!(parse(&format!("{milliseconds}ms")), Ok(milliseconds * 1_000_000));
        }
    }
}
