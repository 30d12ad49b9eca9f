//! One figure of a family over all its series: the values read so far, and what is wrong with them. Knows no text.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

/// Why a figure that stands in the body cannot be used (code `NotUsable` of the metrics contract, section 6). `Display` completes "the
/// series holds".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A line of it does not parse.
    Malformed,
    /// A series stands twice, with two values.
    Repeated,
    /// A value is NaN or infinite.
    NotFinite,
    /// A value is below zero.
    Negative,
    /// A series of a histogram has no sum or no count.
    Lacking,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "a line that does not parse",
            Self::Repeated => "one label set twice with two values",
            Self::NotFinite => "a value that is not finite",
            Self::Negative => "a value below zero",
            Self::Lacking => "a label set without a sum or without a count",
        })
    }
}

/// The values of one figure.
#[derive(Clone, Debug)]
pub(super) struct Part<K> {
    pub(super) series: BTreeMap<K, f64>,
    /// The first damage met.
    pub(super) damage: Option<Damage>,
}

impl<K> Default for Part<K> {
    fn default() -> Self {
        Self {
            series: BTreeMap::new(),
            damage: None,
        }
    }
}

/// What became of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// Its series is a new one.
    New,
    /// Its series was there before, or it is no value.
    Known,
    /// Its series would have been a new one.
    NoRoom,
}

impl<K: Ord> Part<K> {
    /// Adds the value of one line. A series given twice with one value counts once. Without `room`, no series becomes a new one.
    pub(super) fn add(&mut self, key: K, value: f64, room: bool) -> Added {
        if !value.is_finite() {
            self.spoil(Damage::NotFinite);
            return Added::Known;
        }
        if value < 0.0 {
            self.spoil(Damage::Negative);
            return Added::Known;
        }
        match self.series.entry(key) {
            Entry::Vacant(_) if !room => Added::NoRoom,
            Entry::Vacant(series) => {
                series.insert(value);
                Added::New
            }
            Entry::Occupied(series) => {
                if *series.get() != value {
                    self.spoil(Damage::Repeated);
                }
                Added::Known
            }
        }
    }

    /// Remembers damage, unless there was some before.
    pub(super) fn spoil(&mut self, damage: Damage) {
        self.damage.get_or_insert(damage);
    }

    /// Whether no line of it was met.
    pub(super) fn is_absent(&self) -> bool {
        self.series.is_empty() && self.damage.is_none()
    }
}
