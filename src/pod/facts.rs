//! The facts of one Pod: the only thing that the metrics side knows of what was rendered.
//!
//! They are decided by the renderer, written beside the Pod as an annotation, and never found out by parsing text that we wrote
//! (resource contract, "Role facts").

use model_deployment_crds::model_deployment::{EngineName, KvCacheConnector, TransferConnector};
use model_deployment_crds::role::RoleKind;
use model_deployment_crds::router::RouterName;
use serde::{Deserialize, Serialize};

/// The version of the JSON form.
pub const VERSION: u32 = 1;
/// Where every program that we render serves its metrics.
pub const METRICS_PATH: &str = "/metrics";

/// What was rendered into a Pod. JSON: exactly these members in camelCase, every one always present, `null` for none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Facts {
    /// Version of this form, [`VERSION`].
    pub version: u32,
    /// The program whose metrics the Pod serves.
    pub producer: Producer,
    /// The role's name, `router` or `coordinator`.
    pub role: String,
    /// The role's kind; none for router and coordinator.
    pub kind: Option<RoleKind>,
    /// Whether the deployment is a prefill/decode pair.
    pub paired: bool,
    /// Leader or follower of its replica; none for router and coordinator.
    pub member: Option<Member>,
    /// The metrics listener, or why there is none to read.
    pub endpoint: Endpoint,
    /// Whether a KV cache pool is attached.
    pub pool: bool,
    /// The KV cache connector.
    pub connector: Option<KvCacheConnector>,
    /// The prefill-to-decode connector.
    pub transfer_connector: Option<TransferConnector>,
    /// Whether the engine builds a cache tier in host memory.
    pub host_tier: bool,
    /// Whether the engine builds a storage tier (SGLang).
    pub storage_tier: bool,
    /// Whether vLLM's native offloading is on.
    pub native_offload: bool,
    /// Whether the router's policy keeps a gauge of running requests; none for engines and the coordinator.
    pub tracks_load: Option<TracksLoad>,
    /// Tensor × pipeline × data parallel ranks, as the arguments say; none for router and coordinator.
    pub ranks: Option<u32>,
    /// Whether the engine exports its statistics.
    pub stats_enabled: bool,
    /// Whether a user's `command` took the role over.
    pub take_over: bool,
    /// Hash of the rendered Pod.
    pub revision: String,
}

/// A program that exports metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Producer {
    /// The vLLM engine.
    #[serde(rename = "vLLM")]
    Vllm,
    /// The SGLang engine.
    #[serde(rename = "SGLang")]
    Sglang,
    /// llm-d's endpoint picker.
    #[serde(rename = "llm-d-router")]
    LlmDRouter,
    /// vllm-router.
    #[serde(rename = "vllm-router")]
    VllmRouter,
    /// The SGLang model gateway.
    #[serde(rename = "sglang-gateway")]
    SglangGateway,
    /// llm-d's coordinator.
    #[serde(rename = "coordinator")]
    Coordinator,
}

impl From<EngineName> for Producer {
    fn from(engine: EngineName) -> Self {
        match engine {
            EngineName::Vllm => Self::Vllm,
            EngineName::Sglang => Self::Sglang,
        }
    }
}

impl From<RouterName> for Producer {
    fn from(router: RouterName) -> Self {
        match router {
            RouterName::LlmD => Self::LlmDRouter,
            RouterName::Vllm => Self::VllmRouter,
            RouterName::SglangGateway => Self::SglangGateway,
        }
    }
}

/// A Pod's part in its replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Member {
    /// Member 0, which alone serves HTTP.
    Leader,
    /// Any other member.
    Follower,
}

/// The metrics listener, or why there is none to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Endpoint {
    /// Read here.
    Listener(Listener),
    /// Not read.
    None {
        /// Why.
        none: NoEndpoint,
    },
}

/// Where a Pod serves metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Transport.
    pub scheme: Scheme,
    /// Port on the Pod's address.
    pub port: u16,
    /// Absolute path.
    pub path: String,
}

/// Transport of a metrics listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

/// Why a Pod has no metrics listener of ours. `TakeOver` comes first where both hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoEndpoint {
    /// A user's `command` owns the endpoint.
    TakeOver,
    /// A follower serves no HTTP.
    Follower,
}

/// Whether a router's policy keeps a gauge of running requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TracksLoad {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// It depends on what we do not know.
    Unknown,
}
