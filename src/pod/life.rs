//! One life of a container: what tells counters that go on from counters that began anew.

use jiff::Timestamp;

/// One life of a container: counters of another life are not comparable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Restarts so far.
    pub restart_count: i32,
    /// Start of this life, once known.
    pub started_at: Option<Timestamp>,
}

impl Life {
    /// Whether both are one life. A start that is not known yet is no other start.
    pub fn is_same(self, other: Self) -> bool {
        let starts = self.started_at.zip(other.started_at);
        self.restart_count == other.restart_count && starts.is_none_or(|(one, two)| one == two)
    }
}
