//! The upper bound of a histogram's bucket. Knows no histogram.

/// The label that holds the bound.
pub(super) const LABEL: &str = "le";

/// An upper bound, `le` of its line as a number, so that `1`, `1.0` and `1e0` are one bucket. Never NaN; positive infinity is the last
/// bucket of every histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound(f64);

impl Bound {
    /// The bound in the family's own unit.
    pub fn value(self) -> f64 {
        self.0
    }

    /// Reads the value of an `le` label.
    pub(super) fn parse(text: &str) -> Option<Self> {
        // Adding a zero turns -0 into 0: they are one bound.
        text.parse::<f64>()
            .ok()
            .filter(|bound| !bound.is_nan())
            .map(|bound| Self(bound + 0.0))
    }
}

impl Eq for Bound {}

impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bound {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
