//! What the operator reports of a `ModelDeployment`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::role::RoleKind;
use crate::router::RouterName;

/// What the operator last saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelDeploymentStatus {
    /// Generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The whole in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// URL inside the cluster at which requests are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Ready instances by kind, such as `1R2S` or `1R3P4D`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_summary: Option<String>,
    /// Each role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub roles: Vec<RoleStatus>,
    /// The router, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<RouterStatus>,
    /// `Available`, `Progressing`, `RouterReady`, `RolesReady`, `SpecAccepted`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// The whole in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Nothing is ready yet.
    Starting,
    /// Every desired replica and the router are ready.
    Ready,
    /// Some replicas, or the router, are not ready.
    Degraded,
    /// Being deleted.
    Deleting,
}

/// One role. Counts are of replicas, not of Pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleStatus {
    /// The role's name.
    pub name: String,
    /// The role's kind.
    pub kind: RoleKind,
    /// Replicas wanted.
    pub desired: i32,
    /// Replicas of which every Pod is ready.
    pub ready: i32,
    /// Replicas of the current revision.
    pub updated: i32,
    /// Whether a user `command` took the role over.
    pub unmanaged: bool,
}

/// The router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterStatus {
    /// Which router.
    pub name: RouterName,
    /// Pods wanted.
    pub desired: i32,
    /// Pods ready.
    pub ready: i32,
    /// URL inside the cluster at which the router takes requests.
    pub endpoint: String,
    /// Port of the router's Prometheus listener.
    pub metrics_port: i32,
}
