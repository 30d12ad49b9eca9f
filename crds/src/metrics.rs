//! `ModelDeploymentMetrics`: what the `metrics` subresource answers (metrics contract, section 2).
//!
//! Members stand in the order in which they are written. Every member that is not an `Option` is always written, so that a measured
//! zero is a zero; empty lists are left out.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::role::RoleKind;

/// One reading of a deployment's engines and router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelDeploymentMetrics {
    /// `worker.gpustack.ai/v1`.
    pub api_version: String,
    /// `ModelDeploymentMetrics`.
    pub kind: String,
    /// Name and namespace of the ModelDeployment.
    pub metadata: Metadata,
    /// When the answer was assembled.
    pub timestamp: MicroTime,
    /// Work in progress, summed over readable Pods by role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processing: Vec<Gauge>,
    /// Work waiting, summed over readable Pods by role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queueing: Vec<Gauge>,
    /// Cache hits by Pod and cache scope, over a window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache_hits: Vec<CacheHit>,
    /// Mean latencies by Pod, over a window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<Windowed>,
    /// Router rates by Pod, over a window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<Windowed>,
    /// KV cache transfers of a pair by Pod, over a window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfer: Vec<Windowed>,
    /// Every source that did not contribute, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
    /// Whether a required source did not contribute.
    pub partial: bool,
}

/// Which ModelDeployment an answer speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Metadata {
    /// Name of the ModelDeployment.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// A present value, summed over the Pods of one role or of the router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gauge {
    /// Name of the figure.
    pub name: String,
    /// Exact series name.
    pub source: String,
    /// `engine` or `router`.
    pub scope: String,
    /// The role; absent for routers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The role's kind; absent for routers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_kind: Option<RoleKind>,
    /// Unit of `value`.
    pub unit: String,
    /// The sum over `podCount` Pods.
    #[serde(serialize_with = "number")]
    pub value: f64,
    /// Pods that contributed.
    pub pod_count: u32,
    /// Pods that were to contribute.
    pub expected_pods: u32,
    /// The earliest of the contributing reads.
    pub observed_at: MicroTime,
}

/// Cache hits of one Pod and cache scope, over a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CacheHit {
    /// The Pod.
    pub pod: String,
    /// Exact series names, joined with `+`.
    pub source: String,
    /// The cache: `local-prefix`, `external-store`, `device-prefix`, `host-prefix`, `storage-prefix`.
    pub scope: String,
    /// The role.
    pub role: String,
    /// The role's kind.
    pub role_kind: RoleKind,
    /// `tokens`.
    pub unit: String,
    /// Tokens found.
    #[serde(serialize_with = "number")]
    pub hits: f64,
    /// Tokens looked up.
    #[serde(serialize_with = "number")]
    pub queries: f64,
    /// `hits / queries`.
    #[serde(serialize_with = "number")]
    pub rate: f64,
    /// Seconds between the two reads.
    #[serde(serialize_with = "number")]
    pub window_seconds: f64,
    /// 1: ratios are never averaged over Pods.
    pub pod_count: u32,
    /// Time of the later read.
    pub observed_at: MicroTime,
}

/// A mean or rate of one Pod, over a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Windowed {
    /// Name of the figure.
    pub name: String,
    /// The Pod.
    pub pod: String,
    /// Exact series name; two are joined with `+`.
    pub source: String,
    /// `engine` or `router`.
    pub scope: String,
    /// The role; absent for routers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The role's kind; absent for routers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_kind: Option<RoleKind>,
    /// Unit of `value`.
    pub unit: String,
    /// The mean, rate or ratio.
    #[serde(serialize_with = "number")]
    pub value: f64,
    /// New observations of a histogram, or the counter's increase.
    #[serde(serialize_with = "number")]
    pub samples: f64,
    /// Seconds between the two reads.
    #[serde(serialize_with = "number")]
    pub window_seconds: f64,
    /// Time of the later read.
    pub observed_at: MicroTime,
    /// From the bucket deltas of the same window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantiles: Option<Quantiles>,
}

/// Quantiles of a window's new observations, as PromQL's `histogram_quantile` computes them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantiles {
    /// Median.
    #[serde(serialize_with = "number")]
    pub p50: f64,
    /// 90th percentile.
    #[serde(serialize_with = "number")]
    pub p90: f64,
    /// 95th percentile.
    #[serde(serialize_with = "number")]
    pub p95: f64,
    /// 99th percentile.
    #[serde(serialize_with = "number")]
    pub p99: f64,
}

/// A source that did not contribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// The Pod, or empty where the entry is not about one Pod.
    pub pod: String,
    /// The series, the cache scope, `scrape`, `pod-discovery`, `engine/<role>`, `router` or `coordinator`.
    pub source: String,
    /// The cache scope of a cache source, else `engine`, `router` or `coordinator`; absent for `pod-discovery`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The role; absent for routers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The role's kind; absent for routers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_kind: Option<RoleKind>,
    /// The machine's word: one of the codes that `model-deployment-operator fields` lists.
    pub code: String,
    /// One plain sentence.
    pub reason: String,
    /// Whether this entry makes the answer partial.
    pub required: bool,
}

/// Writes a whole number without a fraction, as the rest of the Kubernetes API does: `3`, not `3.0`.
fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    /// Integers up to here are exact in a double.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        serializer.serialize_i64(*value as i64)
    } else {
        serializer.serialize_f64(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_write_them() {
        let written = |value: f64| {
            let mut out = Vec::new();
            number(&value, &mut serde_json::Serializer::new(&mut out)).unwrap();
            String::from_utf8(out).unwrap()
        };
        for (value, text) in [
            (0.0, "0"),
            (3.0, "3"),
            (0.25, "0.25"),
            (1.5e-6, "1.5e-6"),
            (9e15, "9000000000000000"),
            (-1.0, "-1"),
        ] {
            assert_eq!(written(value), text, "{value}");
        }
    }
}
