//! One role of a `ModelDeployment`: a group of equal replicas.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, LocalObjectReference, PodSecurityContext, ResourceRequirements, SecurityContext, Toleration,
    TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A group of equal replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("!has(self.command) || self.command.size() == 0 || !has(self.extraArgs) || self.extraArgs.size() == 0")
    .message("extraArgs is refused beside command: a role with a command is used as it is, write the arguments there"))]
#[serde(rename_all = "camelCase")]
pub struct Role {
    /// Name of the role, part of its Pods' names. `router` and `coordinator` are taken. Immutable.
    #[schemars(length(min = 1, max = 40), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    #[x_kube(validation = Rule::new("self != 'router' && self != 'coordinator'").message("a role cannot be named router or coordinator"))]
    pub name: String,
    /// `Server` answers whole requests; `Prefill` and `Decode` are the halves of a pair. Immutable.
    #[serde(default)]
    pub kind: RoleKind,
    /// Number of replicas.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1024))]
    pub replicas: i32,
    /// Pods a replica. Member 0 leads and alone serves HTTP.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub size: i32,
    /// Compute resources of one Pod's engine container; accelerators by their own resource name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Container image. Default: the engine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// When to pull the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Secrets for pulling the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Take-over: used as the whole argument vector. No arguments, probes or scrape annotations of the operator are added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), inner(length(max = 32768)))]
    pub command: Vec<String>,
    /// Appended after the operator's arguments. Flags that the operator owns are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), inner(length(max = 32768)))]
    pub extra_args: Vec<String>,
    /// Environment of the engine container. Names that the operator owns are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
    /// Serving port.
    #[serde(default = "serving_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Volumes of the Pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub volumes: Vec<Volume>,
    /// Mounts of the engine container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["mountPath".into()]))]
    pub volume_mounts: Vec<VolumeMount>,
    /// Nodes that may run the Pods, by label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the Pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,
    /// Scheduling constraints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// How Pods spread over topology domains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Security settings of the engine container; each member given here replaces the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
    /// Security settings of the Pod; each member given here replaces the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_security_context: Option<PodSecurityContext>,
    /// RuntimeClass of the Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub runtime_class_name: Option<String>,
    /// PriorityClass of the Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
    /// ServiceAccount of the Pods. Its token is not mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// Seconds that a Pod has to end. Default: Kubernetes' own 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub termination_grace_period_seconds: Option<i64>,
    /// Size of `/dev/shm`.
    #[serde(default = "shm_size")]
    pub shm_size: Quantity,
    /// A Decode role under llm-d-router: a routing proxy on the serving port in front of the engine, which then listens on 8200.
    #[serde(default = "yes")]
    pub direct_decode: bool,
}

/// What a role does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RoleKind {
    /// Answers whole requests.
    #[default]
    Server,
    /// The half of a pair that computes a prompt's KV cache.
    Prefill,
    /// The half of a pair that generates tokens.
    Decode,
}

/// When an image is pulled; Kubernetes' own values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// At each start.
    Always,
    /// Where the node lacks it.
    IfNotPresent,
    /// Never.
    Never,
}

fn one() -> i32 {
    1
}

fn serving_port() -> i32 {
    8000
}

fn shm_size() -> Quantity {
    Quantity("16Gi".into())
}

fn yes() -> bool {
    true
}
