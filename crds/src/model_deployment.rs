//! `ModelDeployment`: one model, served by one engine, in one or two kinds of role.
//!
//! Every rule that a schema or a CEL expression can hold stands here, so that a plain API server refuses bad input with a clear
//! message even while the operator is down.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::role::{Role, RoleKind};
use crate::router::Router;
use crate::status::ModelDeploymentStatus;

/// A model served by an inference engine on Kubernetes.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "worker.gpustack.ai",
    version = "v1alpha1",
    kind = "ModelDeployment",
    plural = "modeldeployments",
    singular = "modeldeployment",
    shortname = "md",
    category = "gpustack",
    namespaced,
    cel,
    derive = "PartialEq",
    status = "ModelDeploymentStatus",
    doc = "A model served by an inference engine (vLLM or SGLang): its roles, and perhaps a router and a KV cache.",
    printcolumn(name = "Engine", type_ = "string", json_path = ".spec.engine.name"),
    printcolumn(name = "Roles", type_ = "string", json_path = ".status.roleSummary"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status"
    ),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.model.name", priority = 1),
    printcolumn(name = "Router", type_ = "string", json_path = ".spec.router.name", priority = 1),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name must be a DNS-1035 label (lower-case letters, digits and '-', beginning with a letter), since Services are named after it"),
    validation = Rule::new("self.spec.roles.all(r, size(self.metadata.name) + size(r.name) + 2 + size(string(r.replicas > 0 ? r.replicas - 1 : 0)) + (r.size > 1 ? 1 + size(string(r.size - 1)) : 0) <= 63)")
        .message("a Pod name '<metadata.name>-<role>-<ordinal>[-<member>]' would exceed 63 characters: shorten metadata.name or the role's name"),
    validation = Rule::new("!has(self.spec.router) || size(self.metadata.name) + (has(self.spec.router.coordinator) ? 12 : 7) <= 63")
        .message("a Service name '<metadata.name>-router' or '<metadata.name>-coordinator' would exceed 63 characters: shorten metadata.name")
)]
#[x_kube(
    validation = Rule::new("has(self.kvCache) == has(oldSelf.kvCache) && (!has(self.kvCache) || self.kvCache == oldSelf.kvCache)")
        .message("spec.kvCache is immutable: create a new ModelDeployment to change it"),
    validation = Rule::new("!has(self.router) || !has(oldSelf.router) || self.router.name == oldSelf.router.name")
        .message("spec.router.name cannot be changed in place: remove spec.router, then add the other router"),
    validation = Rule::new("self.roles.size() == oldSelf.roles.size() && self.roles.all(r, oldSelf.roles.exists(o, o.name == r.name && o.kind == r.kind))")
        .message("names and kinds of spec.roles are immutable: create a new ModelDeployment to change them"),
    validation = Rule::new("!self.roles.exists(r, r.kind == 'Server') || self.roles.all(r, r.kind == 'Server')")
        .message("spec.roles: kind Server cannot be mixed with Prefill or Decode"),
    validation = Rule::new("self.roles.filter(r, r.kind == 'Prefill').size() <= 1 && self.roles.filter(r, r.kind == 'Decode').size() <= 1")
        .message("spec.roles: at most one role of kind Prefill and one of kind Decode"),
    validation = Rule::new("self.roles.exists(r, r.kind == 'Prefill') == self.roles.exists(r, r.kind == 'Decode')")
        .message("spec.roles: Prefill and Decode only come together"),
    validation = Rule::new("!has(self.router) || self.router.name != 'vllm-router' || self.engine.name == 'vLLM'")
        .message("spec.router.name vllm-router serves engine vLLM only"),
    validation = Rule::new("!has(self.router) || self.router.name != 'sglang-gateway' || self.engine.name == 'SGLang'")
        .message("spec.router.name sglang-gateway serves engine SGLang only"),
    validation = Rule::new("!has(self.router) || !has(self.router.coordinator) || (self.router.name == 'llm-d-router' && self.roles.exists(r, r.kind == 'Prefill'))")
        .message("spec.router.coordinator needs llm-d-router and a Prefill/Decode pair"),
    validation = Rule::new("!has(self.router) || !(has(self.router.prefillPolicy) || has(self.router.decodePolicy)) || self.roles.exists(r, r.kind == 'Prefill')")
        .message("spec.router.prefillPolicy and decodePolicy need a Prefill/Decode pair"),
    validation = Rule::new("!has(self.kvTransfer) || self.roles.exists(r, r.kind == 'Prefill')")
        .message("spec.kvTransfer needs a Prefill/Decode pair"),
    validation = Rule::new("!has(self.kvTransfer) || !has(self.kvTransfer.connector) || self.kvTransfer.connector != 'Mooncake' || !has(self.router) || self.router.name != 'vllm-router' || has(self.router.image)")
        .message("spec.kvTransfer.connector Mooncake moves no KV blocks under the default vllm-router image: use Nixl, or name a router.image that supports it")
)]
#[serde(rename_all = "camelCase")]
pub struct ModelDeploymentSpec {
    /// The model to serve.
    pub model: Model,
    /// The inference engine.
    pub engine: Engine,
    /// Where KV cache blocks go beyond the accelerator's own memory. Absent: nowhere. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache: Option<KvCache>,
    /// How the prefill half of a pair hands KV cache blocks to the decode half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_transfer: Option<KvTransfer>,
    /// The router in front of the roles. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<Router>,
    /// Groups of equal replicas: any number of kind Server, or one Prefill and one Decode.
    #[schemars(length(min = 1, max = 10))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub roles: Vec<Role>,
}

impl ModelDeploymentSpec {
    /// Whether the roles are a prefill/decode pair.
    pub fn is_pair(&self) -> bool {
        self.roles.iter().any(|role| role.kind == RoleKind::Prefill)
    }
}

/// The model to serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("!self.name.startsWith('-')")
        .message("spec.model.name cannot begin with '-': the engine would take it for an option"),
    validation = Rule::new("!has(self.path) || !self.path.startsWith('-')")
        .message("spec.model.path cannot begin with '-': the engine would take it for an option; write './-...' for a file of that name")
)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Name under which the model is served.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// What the engine loads: a hub name, or a path in a mounted volume. Default: `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub path: Option<String>,
}

/// The inference engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Engine {
    /// Which engine. Immutable.
    #[x_kube(validation = Rule::new("self == oldSelf").message("spec.engine.name is immutable: create a new ModelDeployment to change it"))]
    pub name: EngineName,
    /// Container image of the engine.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
}

/// The engines that the operator renders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum EngineName {
    /// vLLM.
    #[serde(rename = "vLLM")]
    Vllm,
    /// SGLang.
    #[serde(rename = "SGLang")]
    Sglang,
}

/// Where KV cache blocks go beyond the accelerator's own memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("has(self.pool) == (self.connector == 'Mooncake')")
        .message("spec.kvCache.pool is required for connector Mooncake and refused for Offloading"),
    validation = Rule::new("has(self.hostMemory) == (self.connector == 'Offloading')")
        .message("spec.kvCache.hostMemory is required for connector Offloading and refused for Mooncake")
)]
#[serde(rename_all = "camelCase")]
pub struct KvCache {
    /// `Mooncake`: a pool shared by Pods. `Offloading`: the engine's own tier in host memory, which is not a pool.
    #[serde(default)]
    pub connector: KvCacheConnector,
    /// The Mooncake store to attach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
    /// Host memory of one replica's tier (`Offloading`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_memory: Option<Quantity>,
}

/// What holds KV cache blocks beyond the accelerator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum KvCacheConnector {
    /// A Mooncake store shared by Pods.
    #[default]
    Mooncake,
    /// The engine's own tier in host memory.
    Offloading,
}

/// A Mooncake store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("self.masterAddress.matches(':([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$')")
    .message("spec.kvCache.pool.masterAddress must end in a port from 1 to 65535"))]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// Address of the store's master, `host:port`.
    #[schemars(
        length(min = 3, max = 261),
        regex(pattern = r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?):[0-9]{1,5}$")
    )]
    pub master_address: String,
    /// Transport between Pods and the store.
    #[serde(default)]
    pub protocol: Protocol,
    /// Tenant in the store. Default: the store's own `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub tenant: Option<String>,
}

/// Transport of KV cache blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// TCP.
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    /// RDMA.
    #[serde(rename = "RDMA")]
    Rdma,
}

/// How the prefill half of a pair hands KV cache blocks to the decode half.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KvTransfer {
    /// Default: `Nixl` under vllm-router, `Mooncake` elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connector: Option<TransferConnector>,
    /// Transport between the halves.
    #[serde(default)]
    pub protocol: Protocol,
}

/// The prefill-to-decode connector of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TransferConnector {
    /// Mooncake's transfer engine.
    Mooncake,
    /// NIXL.
    Nixl,
}
