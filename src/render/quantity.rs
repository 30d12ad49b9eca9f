//! Kubernetes quantities in whole units.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The quantity in whole units, rounded down. None where it is not one, is negative, or exceeds 64 bits.
pub(super) fn whole(quantity: &Quantity) -> Option<u64> {
    let text = quantity.0.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '+')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (integer, fraction) = number
        .trim_start_matches('+')
        .split_once('.')
        .unwrap_or((number.trim_start_matches('+'), ""));
    if integer.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits = |part: &str| {
        if part.is_empty() {
            Some(0)
        } else {
            part.parse::<u128>().ok()
        }
    };
    let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let value = digits(integer)?.checked_mul(scale)?.checked_add(digits(fraction)?)?;
    let (multiplier, divisor) = factor(suffix)?;
    let whole = value.checked_mul(multiplier)? / scale.checked_mul(divisor)?;
    u64::try_from(whole).ok()
}

/// What a suffix multiplies and divides by.
fn factor(suffix: &str) -> Option<(u128, u128)> {
    const DECIMAL: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const SMALL: [&str; 3] = ["m", "u", "n"];
    let index = |list: &[&str]| {
        list.iter()
            .position(|known| *known == suffix)
            .and_then(|at| u32::try_from(at).ok())
    };
    if let Some(at) = index(&DECIMAL) {
        return Some((1000u128.pow(at), 1));
    }
    if let Some(at) = index(&BINARY) {
        return Some((1024u128.pow(at + 1), 1));
    }
    if let Some(at) = index(&SMALL) {
        return Some((1, 1000u128.pow(at + 1)));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = 10u128.checked_pow(exponent.unsigned_abs())?;
    Some(if exponent < 0 { (1, power) } else { (power, 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_count_as_kubernetes_counts_them() {
        let table = [
            ("1", Some(1)),
            ("64Gi", Some(68_719_476_736)),
            ("1.5Gi", Some(1_610_612_736)),
            ("10G", Some(10_000_000_000)),
            ("500M", Some(500_000_000)),
            ("1e3", Some(1000)),
            ("12E3", Some(12_000)),
            ("2E", Some(2_000_000_000_000_000_000)),
            ("1500m", Some(1)),
            ("100u", Some(0)),
            ("0.5", Some(0)),
            (".5Ki", Some(512)),
            ("", None),
            (".", None),
            ("-1Gi", None),
            ("1gb", None),
            ("ten", None),
            ("1 Gi", None),
            ("1..5", None),
            ("99999999E", None),
        ];
        for (text, expected) in table {
            assert_eq!(whole(&Quantity(text.into())), expected, "{text:?}");
        }
    }
}
