//! Figures in as many digits as a person compares: three.

/// A count or a rate. Whole numbers keep all their digits.
pub(super) fn short(value: f64) -> String {
    if value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    digits(value)
}

fn digits(value: f64) -> String {
    let magnitude = value.abs().log10().floor();
    let decimals = (2.0 - magnitude).clamp(0.0, 9.0) as usize;
    format!("{value:.decimals$}")
}

/// A part of one.
pub(super) fn percent(part: f64) -> String {
    format!("{}%", short(part * 100.0))
}

/// A time in seconds.
pub(super) fn seconds(value: f64) -> String {
    match value {
        0.0 => "0s".to_owned(),
        _ if value < 1e-3 => format!("{}µs", digits(value * 1e6)),
        _ if value < 1.0 => format!("{}ms", digits(value * 1e3)),
        _ => format!("{}s", digits(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (12_345.0, "12345"),
            (0.25, "0.250"),
            (0.004_123, "0.00412"),
            (3.456_7, "3.46"),
            (45.67, "45.7"),
            (1234.5, "1234"),
        ] {
            assert_eq!(short(value), text, "{value}");
        }
        for (value, text) in [(0.0, "0%"), (1.0, "100%"), (0.741_23, "74.1%")] {
            assert_eq!(percent(value), text, "{value}");
        }
        for (value, text) in [
            (0.0, "0s"),
            (0.000_25, "250µs"),
            (0.018_234, "18.2ms"),
            (0.5, "500ms"),
            (1.5, "1.50s"),
            (90.0, "90.0s"),
            (0.005, "5.00ms"),
        ] {
            assert_eq!(seconds(value), text, "{value}");
        }
    }
}
