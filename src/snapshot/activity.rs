//! Whether a Pod served anything in a window (metrics contract, section 6, `Idle`). Probe traffic moves token counters, not these.

use std::iter;

use model_deployment_crds::role::RoleKind;

use super::subject::Subject;
use crate::fields::{self, Field, Measure};
use crate::pod::Producer;
use crate::window::{Baseline, Increase, State};

/// The transfers of an SGLang prefill half.
const TRANSFERS: [&str; 3] = ["transfer-latency", "transfer-speed", "transfer-size"];

/// The two counters that decide about a router.
const REQUESTS: &str = "requests";
const ERRORS: [&str; 2] = ["errors", "request-errors"];

impl Subject<'_> {
    /// Whether the Pod served no request since this baseline. Where that cannot be told, it is not idle.
    pub(super) fn is_idle(&self, since: Baseline) -> bool {
        match self.facts.producer {
            Producer::Vllm => self.stood_still("ttft", since),
            Producer::Sglang if self.is_prefill() => self.is_idle_prefill(since),
            Producer::Sglang => self.stood_still("ttft", since),
            _ => self.never_moved(REQUESTS, since) && ERRORS.iter().any(|errors| self.never_moved(errors, since)),
        }
    }

    /// Whether a first token was counted in the Pod's own window; none where that cannot be told.
    pub(super) fn served(&self) -> Option<bool> {
        let ttft = fields::find(self.facts.producer, "ttft")?;
        let baseline = self.trail.baseline(ttft.families()).ok()?;
        Some(self.gained(ttft, baseline)? > 0.0)
    }

    /// The half that prefills has no TTFT: its own transfers decide, and then its cache queries or the other halves.
    fn is_idle_prefill(&self, since: Baseline) -> bool {
        let transfers = TRANSFERS.map(|name| self.gained_or_never(name, since));
        transfers.contains(&Some(0.0))
            && transfers.iter().all(|gained| gained.is_none_or(|gained| gained == 0.0))
            && (self.stood_still("device-prefix", since) || self.decodes_stood_still)
    }

    fn is_prefill(&self) -> bool {
        self.facts.paired && self.facts.kind == Some(RoleKind::Prefill)
    }

    fn stood_still(&self, name: &str, since: Baseline) -> bool {
        fields::find(self.facts.producer, name).and_then(|field| self.gained(field, since)) == Some(0.0)
    }

    /// As [`Self::stood_still`], and also where the series was never exported, under no name and no type: what is not there has not
    /// happened.
    fn never_moved(&self, name: &str, since: Baseline) -> bool {
        self.gained_or_never(name, since) == Some(0.0)
    }

    fn gained_or_never(&self, name: &str, since: Baseline) -> Option<f64> {
        let field = fields::find(self.facts.producer, name)?;
        let is_absent = |family| matches!(self.trail.last().state(family), State::Absent { near: None, .. });
        let never = |family| is_absent(family) && !self.trail.had(family);
        if field.families().all(never) {
            return Some(0.0);
        }
        self.gained(field, since)
    }

    /// What all series of a field's family gained since the newest baseline that is not after this one.
    fn gained(&self, field: &Field, since: Baseline) -> Option<f64> {
        let family = match field.measure {
            Measure::Mean { histogram, .. } => histogram,
            Measure::Rate(pick) | Measure::Ratio { whole: pick, .. } => pick.family,
            Measure::Gauge(_) => return None,
        };
        let baseline = self.trail.baseline_before(since, iter::once(family)).ok()?;
        Some(match self.trail.increase(baseline, family).ok()?? {
            Increase::Counter(series) => series.iter().map(|(_, gained)| gained).sum(),
            Increase::Histogram(series) => series.iter().map(|(_, gained)| gained.count).sum(),
        })
    }
}
