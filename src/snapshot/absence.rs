//! Why a family is not in a body that was read: never there, not there yet, or not any more.

use std::iter;

use super::fault::Fault;
use super::subject::Subject;
use crate::exposition::Flaw;
use crate::fields::{self, Birth, Code, Field, Measure, Support};
use crate::window::{Increase, NoBaseline, State};

impl Subject<'_> {
    /// The fault of a family that the last body does not hold.
    pub(super) fn absence(&self, field: &Field, support: Support, family: &str, state: State<'_>) -> Fault {
        let absent = |reason: String| Fault::new(Code::Absent, reason);
        let had = self.trail.had(family);
        if let (Support::IfThere(reason), false) = (support, had) {
            return Fault::new(Code::Unsupported, reason);
        }
        let kind = kind(field.measure);
        if let State::Flawed(Flaw::OtherType(other)) = state {
            return absent(format!(
                "{family} is declared as a {other} in the Pod's metrics, not as a {kind}."
            ));
        }
        let (declared, near) = match state {
            State::Absent { declared, near } => (declared, near),
            _ => (false, None),
        };
        let gone = if had { " any more" } else { "" };
        let lacks = match declared {
            true => "is declared in the Pod's metrics but has no sample",
            false => "is not in the Pod's metrics",
        };
        let reason = match near {
            Some(near) if near == family => {
                format!("{family} is in the Pod's metrics as a single value, not as a {kind}{gone}.")
            }
            Some(near) => format!("{family} {lacks}{gone}; {near} is there instead."),
            None => format!("{family} {lacks}{gone}."),
        };
        // A series that vanished or was renamed is not one that waits for its first use.
        if had || near.is_some() || !self.trail.last().holds_prefix() {
            return absent(reason);
        }
        let not_yet = |required| {
            let reason = format!("{family} does not exist before its first use, and was not used yet.");
            Fault::not_exported_yet(reason, required)
        };
        match field.birth {
            Birth::Start => absent(reason),
            Birth::Perhaps => not_yet(false),
            Birth::Late { pair } => not_yet(!pair.is_some_and(|pair| self.was_read(pair))),
            Birth::FirstStream if self.may_await_a_stream() => not_yet(false),
            Birth::FirstStream => absent(reason),
        }
    }

    /// Whether the last body holds the figure of this name in a usable form.
    fn was_read(&self, name: &str) -> bool {
        fields::find(self.facts.producer, name).is_some_and(|pair| {
            pair.families()
                .all(|family| matches!(self.trail.last().state(family), State::Values(_) | State::Histograms(_)))
        })
    }

    /// Whether TTFT was read, and did not move or is itself a first sample.
    fn may_await_a_stream(&self) -> bool {
        let Some(ttft) = fields::find(self.facts.producer, "ttft") else {
            return false;
        };
        let Measure::Mean { histogram, .. } = ttft.measure else {
            return false;
        };
        if !self.was_read(ttft.name) {
            return false;
        }
        match self.trail.baseline(iter::once(histogram)) {
            Err(NoBaseline::FirstSample) => true,
            Err(NoBaseline::Restarted) => false,
            Ok(baseline) => match self.trail.increase(baseline, histogram) {
                Ok(Some(Increase::Histogram(series))) => series.iter().all(|(_, gained)| gained.count == 0.0),
                _ => false,
            },
        }
    }
}

fn kind(measure: Measure) -> &'static str {
    match measure {
        Measure::Gauge(_) => "gauge",
        Measure::Mean { .. } => "histogram",
        Measure::Rate(_) | Measure::Ratio { .. } => "counter",
    }
}
