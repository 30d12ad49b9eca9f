//! The discovery documents: what this server serves, in both of Kubernetes' forms.
//!
//! Static. A discovery document that fails blocks the deletion of every namespace of the cluster, so nothing here asks anyone.

use http::{HeaderMap, Response};
use serde_json::{Value, json};

use super::negotiation::{Offer, choose};
use super::response::{Body, Document, JSON, NOT_CACHED};
use super::status::Failure;
use super::{GROUP, GROUP_VERSION, KIND, METRICS_KIND, RESOURCE, VERSION};

const AGGREGATED: Offer = Offer::JsonAs {
    group: "apidiscovery.k8s.io",
    version: "v2",
    kind: "APIGroupDiscoveryList",
};
const AGGREGATED_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// As the API server's own aggregated discovery answers.
const CACHED: &str = "public";

/// The documents, built once.
#[derive(Debug)]
pub struct Discovery {
    aggregated: Document,
    groups: Document,
    group: Document,
    resources: Document,
}

impl Discovery {
    /// Builds the documents.
    pub fn new() -> Self {
        Discovery {
            aggregated: Document::new(&aggregated(), AGGREGATED_TYPE),
            groups: Document::new(
                &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]}),
                JSON,
            ),
            group: Document::new(&with_type("APIGroup", group()), JSON),
            resources: Document::new(&resources(), JSON),
        }
    }

    /// `/apis`: aggregated discovery where it is asked for, the list of groups otherwise.
    pub fn groups(&self, request: &HeaderMap) -> Result<Response<Body>, Failure> {
        match choose(request, &[AGGREGATED, Offer::Json]) {
            Some(Offer::JsonAs { .. }) => Ok(self.aggregated.respond(request, CACHED)),
            Some(Offer::Json) => Ok(self.groups.respond(request, NOT_CACHED)),
            None => Err(Failure::not_acceptable(&format!("{JSON}, {AGGREGATED_TYPE}"))),
        }
    }

    /// `/apis/<group>`.
    pub fn group(&self, request: &HeaderMap) -> Result<Response<Body>, Failure> {
        plain(&self.group, request, NOT_CACHED)
    }

    /// `/apis/<group>/<version>`, which is also what the API server's availability check asks for.
    pub fn resources(&self, request: &HeaderMap) -> Result<Response<Body>, Failure> {
        plain(&self.resources, request, NOT_CACHED)
    }
}

impl Default for Discovery {
    fn default() -> Self {
        Self::new()
    }
}

/// A document that has one form only.
pub(super) fn plain(
    document: &Document,
    request: &HeaderMap,
    cache_control: &'static str,
) -> Result<Response<Body>, Failure> {
    match choose(request, &[Offer::Json]) {
        Some(_) => Ok(document.respond(request, cache_control)),
        None => Err(Failure::not_acceptable(JSON)),
    }
}

fn group() -> Value {
    let version = json!({"groupVersion": GROUP_VERSION, "version": VERSION});
    json!({"name": GROUP, "versions": [version], "preferredVersion": version})
}

fn with_type(kind: &str, mut value: Value) -> Value {
    value["kind"] = kind.into();
    value["apiVersion"] = "v1".into();
    value
}

fn resources() -> Value {
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": GROUP_VERSION,
        "resources": [{
            "name": format!("{RESOURCE}/metrics"),
            "singularName": "",
            "namespaced": true,
            "kind": METRICS_KIND,
            "verbs": ["get"],
        }],
    })
}

/// A subresource needs its parent here. The parent's verbs are empty, not null (null crashes clients): its objects are not
/// served in this version, so that nothing lists, watches or deletes them through this server.
fn aggregated() -> Value {
    let kind = |kind: &str| json!({"group": GROUP, "version": VERSION, "kind": kind});
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [{
            "metadata": {"name": GROUP, "creationTimestamp": null},
            "versions": [{
                "version": VERSION,
                "freshness": "Current",
                "resources": [{
                    "resource": RESOURCE,
                    "responseKind": kind(KIND),
                    "scope": "Namespaced",
                    "singularResource": "modeldeployment",
                    "verbs": [],
                    "shortNames": ["md"],
                    "categories": ["gpustack"],
                    "subresources": [{
                        "subresource": "metrics",
                        "responseKind": kind(METRICS_KIND),
                        "verbs": ["get"],
                    }],
                }],
            }],
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Null kinds and verbs have crashed clients (kubernetes/kubernetes#119840, #116603).
    #[test]
    fn no_kind_and_no_verbs_are_null() {
        fn walk(value: &Value, kinds: &mut usize) {
            match value {
                Value::Object(members) => {
                    for (key, value) in members {
                        if key == "responseKind" {
                            assert!(value["kind"].is_string(), "{value}");
                            *kinds += 1;
                        }
                        if key == "verbs" {
                            assert!(value.is_array(), "{value}");
                        }
                        walk(value, kinds);
                    }
                    assert_eq!(members.contains_key("responseKind"), members.contains_key("verbs"));
                }
                Value::Array(items) => items.iter().for_each(|item| walk(item, kinds)),
                _ => {}
            }
        }
        let mut kinds = 0;
        walk(&aggregated(), &mut kinds);
        assert_eq!(kinds, 2);
    }

    #[test]
    fn both_forms_offer_get_on_metrics_alone() {
        let resources = resources();
        assert_eq!(resources["resources"][0]["name"], "modeldeployments/metrics");
        assert_eq!(resources["resources"][0]["verbs"], json!(["get"]));
        assert_eq!(resources["resources"].as_array().unwrap().len(), 1);
        let aggregated = aggregated();
        let parent = &aggregated["items"][0]["versions"][0]["resources"][0];
        assert_eq!(parent["verbs"], json!([]));
        assert_eq!(parent["subresources"][0]["verbs"], json!(["get"]));
    }
}
