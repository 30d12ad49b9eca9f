//! The command lines of llm-d's endpoint picker and coordinator, and what a user may not give the coordinator.

use super::line::Line;
use super::owned::Owned;
use crate::pod::labels::Map;

/// `epp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPicker {
    /// Labels of the Pods that are endpoints.
    pub selector: Map,
    /// Port of every endpoint.
    pub port: u16,
    /// Path of the configuration.
    pub configuration: String,
    /// Where the picker tells its health.
    pub health_port: u16,
}

impl EndpointPicker {
    /// The arguments up to where a user's follow.
    pub fn line(&self) -> Line {
        let selector: Vec<_> = self
            .selector
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let mut line = Line::default();
        line.assign("--endpoint-selector", selector.join(","))
            .assign("--endpoint-target-ports", self.port)
            .assign("--config-file", &self.configuration)
            .assign("--secure-serving", false)
            .assign("--grpc-health-port", self.health_port)
            .assign("--metrics-endpoint-auth", false);
        line
    }
}

/// `coordinator`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorLine {
    /// Folder of the metrics listener's certificate and key.
    pub certificates: Option<&'static str>,
}

impl CoordinatorLine {
    /// The arguments up to where a user's follow. Serving is secure by the program's own default (compatibility notes, finding R).
    pub fn line(&self) -> Line {
        let mut line = Line::default();
        line.assign("--secure-serving", false);
        if let Some(folder) = self.certificates {
            line.assign("--metrics-cert-dir", folder);
        }
        line
    }
}

/// What a user may not give the coordinator.
pub fn coordinator_owned() -> &'static [Owned] {
    const OWNED: [Owned; 3] = [
        Owned::rendered("--secure-serving"),
        Owned {
            flag: "--metrics-port",
            why: "would move the metrics listener away from where it is looked for",
        },
        Owned {
            flag: "--metrics-cert-dir",
            why: "is the field spec.router.coordinator.metricsCertSecret",
        },
    ];
    &OWNED
}
