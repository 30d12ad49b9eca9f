//! What the controller counts of itself. Its one label is a word of ours: no series is about one ModelDeployment.

use std::time::Duration;

use kube::runtime::controller::Action;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::PassError;
use crate::telemetry::{Histograms, Label};

/// Upper bounds of a pass's time, in seconds: a pass that finds nothing to do takes microseconds, one that makes a router some calls.
const SECONDS: [f64; 9] = [0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug, Clone)]
pub(super) struct Meters {
    passes: Histograms<Label>,
}

impl Default for Meters {
    fn default() -> Self {
        Meters {
            passes: Histograms::new_with_constructor(|| Histogram::new(SECONDS)),
        }
    }
}

impl Meters {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "reconcile_duration_seconds",
            "How long passes over a ModelDeployment took, by what came of them",
            self.passes.clone(),
        );
    }

    pub(super) fn passed(&self, passed: &Result<Action, PassError>, took: Duration) {
        let result = match passed {
            Ok(_) => "Done",
            Err(PassError::Blocked(_)) => "Blocked",
            Err(PassError::Status(_)) => "StatusNotWritten",
            Err(PassError::Panicked) => "Panicked",
        };
        let passes = self.passes.get_or_create(&[("result", result)]);
        passes.observe(took.as_secs_f64());
    }
}
