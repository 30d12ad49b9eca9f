//! What came of the reads that were handed to another replica, counted.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::forward::Unanswered;
use crate::telemetry::Label;

/// Counters of forwarded reads. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    forwarded: Family<Label, Counter>,
}

/// The outcome of a read that the owner answered.
const ANSWERED: &str = "Answered";

impl Counts {
    /// Puts the counters on a page, every outcome from 0 on.
    pub fn register(&self, registry: &mut Registry) {
        for outcome in Unanswered::OUTCOMES.into_iter().chain([ANSWERED]) {
            self.of(outcome);
        }
        registry.register(
            "forwarded_reads",
            "Reads of metrics that were handed to the replica that owns their windows",
            self.forwarded.clone(),
        );
    }

    pub(super) fn answered(&self) {
        self.of(ANSWERED).inc();
    }

    pub(super) fn unanswered(&self, unanswered: &Unanswered) {
        self.of(unanswered.outcome()).inc();
    }

    fn of(&self, outcome: &'static str) -> Counter {
        self.forwarded.get_or_create_owned(&[("outcome", outcome)])
    }
}
