//! The router in front of a `ModelDeployment`'s roles.

use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::role::ImagePullPolicy;

/// The router in front of the roles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("self.name != 'llm-d-router' || !(has(self.policy) || has(self.prefillPolicy) || has(self.decodePolicy))")
        .message("spec.router policies are refused on llm-d-router, which scores endpoints by its own configuration"),
    validation = Rule::new("self.name != 'vllm-router' || [has(self.policy) ? self.policy : 'random', has(self.prefillPolicy) ? self.prefillPolicy : 'random', has(self.decodePolicy) ? self.decodePolicy : 'random'].all(p, p in ['random', 'round_robin', 'cache_aware', 'power_of_two', 'consistent_hash', 'kv_aware', 'sticky_least_loaded'])")
        .message("spec.router policies of vllm-router: random, round_robin, cache_aware, power_of_two, consistent_hash, kv_aware, sticky_least_loaded"),
    validation = Rule::new("self.name != 'sglang-gateway' || !has(self.policy) || self.policy in ['random', 'round_robin', 'cache_aware', 'power_of_two', 'manual']")
        .message("spec.router.policy of sglang-gateway: random, round_robin, cache_aware, power_of_two, manual"),
    validation = Rule::new("self.name != 'sglang-gateway' || [has(self.prefillPolicy) ? self.prefillPolicy : 'random', has(self.decodePolicy) ? self.decodePolicy : 'random'].all(p, p in ['random', 'round_robin', 'cache_aware', 'power_of_two', 'manual', 'bucket'])")
        .message("spec.router.prefillPolicy and decodePolicy of sglang-gateway: random, round_robin, cache_aware, power_of_two, manual, bucket"),
    validation = Rule::new("!has(self.decodePolicy) || self.decodePolicy != 'bucket'")
        .message("spec.router.decodePolicy cannot be bucket, which the gateway takes for prefillPolicy alone")
)]
#[serde(rename_all = "camelCase")]
pub struct Router {
    /// Which router. `vllm-router` serves vLLM only, `sglang-gateway` SGLang only. Not changed in place.
    pub name: RouterName,
    /// Number of router Pods.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1024))]
    pub replicas: i32,
    /// Container image. Default: the image pinned by the operator.
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
    /// Compute resources of the router container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// How requests are spread over workers. Default: the router's own. Decides whether `router-running` exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// Policy towards the prefill half of a pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill_policy: Option<Policy>,
    /// Policy towards the decode half of a pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode_policy: Option<Policy>,
    /// Appended after the operator's arguments. Flags that the operator owns are refused; the first one begins with `--`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), inner(length(max = 32768)))]
    #[x_kube(validation = Rule::new("self.size() == 0 || self[0].startsWith('--')").message("the first of spec.router.extraArgs must begin with '--'"))]
    pub extra_args: Vec<String>,
    /// Seconds after which the router gives a request up. Default: the router's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub request_timeout_seconds: Option<i32>,
    /// The coordinator of a pair under llm-d-router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<Coordinator>,
}

/// The routers that the operator renders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RouterName {
    /// llm-d's Envoy and endpoint picker.
    #[serde(rename = "llm-d-router")]
    LlmD,
    /// vllm-router.
    #[serde(rename = "vllm-router")]
    Vllm,
    /// The SGLang model gateway.
    #[serde(rename = "sglang-gateway")]
    SglangGateway,
}

/// How a router spreads requests over workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Any worker.
    Random,
    /// Each in turn.
    RoundRobin,
    /// The worker with the longest cached prefix, load permitting.
    CacheAware,
    /// The less loaded of two.
    PowerOfTwo,
    /// By a hash of the request.
    ConsistentHash,
    /// By the engines' own KV events.
    KvAware,
    /// A session's worker, else the least loaded.
    StickyLeastLoaded,
    /// As the request says.
    Manual,
    /// By prompt length; the prefill half of a pair only.
    Bucket,
}

/// The coordinator of a pair under llm-d-router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Coordinator {
    /// Container image. Default: the image pinned by the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// Number of coordinator Pods.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1024))]
    pub replicas: i32,
    /// Name of a TLS Secret: metrics are then served over HTTPS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub metrics_cert_secret: Option<String>,
    /// Appended after the operator's arguments; the first one begins with `--`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), inner(length(max = 32768)))]
    #[x_kube(validation = Rule::new("self.size() == 0 || self[0].startsWith('--')").message("the first of spec.router.coordinator.extraArgs must begin with '--'"))]
    pub extra_args: Vec<String>,
}

fn one() -> i32 {
    1
}
