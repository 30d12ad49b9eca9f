//! The command lines of vllm-router and the SGLang gateway, which differ in few options; and what a user may not give any router.

use model_deployment_crds::router::RouterName;

use super::grammar::Grammar;
use super::line::Line;
use super::owned::Owned;
use crate::pod::labels::Map;

/// Options of a router that finds its workers in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterLine {
    /// The program.
    pub program: &'static str,
    /// Port at which requests are taken.
    pub port: u16,
    /// Port of the metrics listener.
    pub metrics_port: u16,
    /// Seconds after which a request is given up.
    pub request_timeout: Option<i32>,
    /// `--kv-connector` (vllm-router in a pair).
    pub kv_connector: Option<&'static str>,
    /// Namespace of the workers.
    pub namespace: String,
    /// Which Pods are workers.
    pub discovery: Discovery,
    /// Port of every worker.
    pub worker_port: u16,
    /// `--policy`, `--prefill-policy`, `--decode-policy`.
    pub policies: Vec<(&'static str, &'static str)>,
}

/// Labels of the Pods that are workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// Workers that answer whole requests.
    Ordinary(Map),
    /// The halves of a pair, and the switch that says so.
    Pair {
        /// The switch.
        switch: &'static str,
        /// The prefill half.
        prefill: Map,
        /// The decode half.
        decode: Map,
    },
}

impl RouterLine {
    /// The command line up to where a user's arguments follow: its last option is a scalar one, so that a stray word of the user's joins
    /// no list of ours (compatibility notes, finding E).
    pub fn line(&self) -> Line {
        let mut line = Line::program([self.program]);
        line.assign("--host", "0.0.0.0")
            .assign("--port", self.port)
            .assign("--prometheus-host", "0.0.0.0")
            .assign("--prometheus-port", self.metrics_port);
        if let Some(seconds) = self.request_timeout {
            line.assign("--request-timeout-secs", seconds);
        }
        for (flag, policy) in &self.policies {
            line.assign(flag, policy);
        }
        if let Some(connector) = self.kv_connector {
            line.assign("--kv-connector", connector);
        }
        line.word("--service-discovery")
            .assign("--service-discovery-namespace", &self.namespace);
        match &self.discovery {
            Discovery::Ordinary(labels) => {
                line.list("--selector", selector(labels));
            }
            Discovery::Pair {
                switch,
                prefill,
                decode,
            } => {
                line.word(*switch)
                    .list("--prefill-selector", selector(prefill))
                    .list("--decode-selector", selector(decode));
            }
        }
        line.assign("--service-discovery-port", self.worker_port);
        line
    }
}

fn selector(labels: &Map) -> impl Iterator<Item = String> {
    labels.iter().map(|(key, value)| format!("{key}={value}"))
}

/// The grammars by which a router may read a user's arguments: an image of one's own may be of another major version.
pub fn router_grammars(router: RouterName) -> &'static [Grammar] {
    match router {
        RouterName::Vllm => &[Grammar::VllmRouter],
        RouterName::SglangGateway => &[Grammar::SglangRouter, Grammar::Smg],
        RouterName::LlmD => &[Grammar::LlmD],
    }
}

/// What a user may not give a router.
pub fn router_owned(router: RouterName) -> &'static [Owned] {
    match router {
        RouterName::Vllm => &VLLM_ROUTER,
        RouterName::SglangGateway => &SGLANG_GATEWAY,
        RouterName::LlmD => &LLM_D,
    }
}

const fn field(flag: &'static str, why: &'static str) -> Owned {
    Owned { flag, why }
}

const VLLM_ROUTER: [Owned; 16] = [
    Owned::rendered("--host"),
    Owned::rendered("--port"),
    Owned::rendered("--prometheus-host"),
    Owned::rendered("--prometheus-port"),
    Owned::rendered("--kv-connector"),
    Owned::rendered("--service-discovery"),
    Owned::rendered("--service-discovery-namespace"),
    Owned::rendered("--service-discovery-port"),
    Owned::rendered("--selector"),
    Owned::rendered("--prefill-selector"),
    Owned::rendered("--decode-selector"),
    Owned::rendered("--vllm-pd-disaggregation"),
    field("--policy", "is the field spec.router.policy"),
    field("--prefill-policy", "is the field spec.router.prefillPolicy"),
    field("--decode-policy", "is the field spec.router.decodePolicy"),
    field(
        "--request-timeout-secs",
        "is the field spec.router.requestTimeoutSeconds",
    ),
];

const SGLANG_GATEWAY: [Owned; 15] = [
    Owned::rendered("--host"),
    Owned::rendered("--port"),
    Owned::rendered("--prometheus-host"),
    Owned::rendered("--prometheus-port"),
    Owned::rendered("--pd-disaggregation"),
    Owned::rendered("--service-discovery"),
    Owned::rendered("--service-discovery-namespace"),
    Owned::rendered("--service-discovery-port"),
    Owned::rendered("--selector"),
    Owned::rendered("--prefill-selector"),
    Owned::rendered("--decode-selector"),
    field("--policy", "is the field spec.router.policy"),
    field("--prefill-policy", "is the field spec.router.prefillPolicy"),
    field("--decode-policy", "is the field spec.router.decodePolicy"),
    field(
        "--request-timeout-secs",
        "is the field spec.router.requestTimeoutSeconds",
    ),
];

const LLM_D: [Owned; 8] = [
    Owned::rendered("--endpoint-selector"),
    Owned::rendered("--endpoint-target-ports"),
    Owned::rendered("--config-file"),
    Owned::rendered("--secure-serving"),
    Owned::rendered("--grpc-health-port"),
    Owned::rendered("--metrics-endpoint-auth"),
    field(
        "--metrics-port",
        "would move the metrics listener away from where it is looked for",
    ),
    field("--metrics-cert-dir", "would change the scheme of the metrics listener"),
];
