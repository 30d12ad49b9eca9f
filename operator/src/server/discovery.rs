//! The discovery documents: what this server serves, in both of Kubernetes' forms.
//!
//! Static. A discovery document that fails blocks the deletion of every namespace of the cluster, so nothing here asks anyone.

use http::{HeaderMap, Response};
use serde_json::{Value, json};

use super::negotiation::{Offer, choose};
use super::objects::Mode;
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
    groups: Document,
    group: Document,
    by_mode: [(Mode, ByMode); 3],
}

/// Those that differ by what may be done with the objects.
#[derive(Debug)]
struct ByMode {
    aggregated: Document,
    resources: Document,
}

impl Discovery {
    /// Builds the documents.
    pub fn new() -> Self {
        let of_mode = |mode| ByMode {
            aggregated: Document::new(&aggregated(mode), AGGREGATED_TYPE),
            resources: Document::new(&resources(mode), JSON),
        };
        Discovery {
            groups: Document::new(
                &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]}),
                JSON,
            ),
            group: Document::new(&with_type("APIGroup", group()), JSON),
            by_mode: Mode::ALL.map(|mode| (mode, of_mode(mode))),
        }
    }

    fn of(&self, mode: Mode) -> &ByMode {
        let [(_, full), rest @ ..] = &self.by_mode;
        rest.iter()
            .find(|(of, _)| *of == mode)
            .map_or(full, |(_, documents)| documents)
    }

    /// `/apis`: aggregated discovery where it is asked for, the list of groups otherwise.
    pub fn groups(&self, mode: Mode, request: &HeaderMap) -> Result<Response<Body>, Failure> {
        match choose(request, &[AGGREGATED, Offer::Json]) {
            Some(Offer::JsonAs { .. }) => Ok(self.of(mode).aggregated.respond(request, CACHED)),
            Some(Offer::Json) => Ok(self.groups.respond(request, NOT_CACHED)),
            None => Err(Failure::not_acceptable(&format!("{JSON}, {AGGREGATED_TYPE}"))),
        }
    }

    /// `/apis/<group>`.
    pub fn group(&self, request: &HeaderMap) -> Result<Response<Body>, Failure> {
        plain(&self.group, request, NOT_CACHED)
    }

    /// `/apis/<group>/<version>`, which is also what the API server's availability check asks for.
    pub fn resources(&self, mode: Mode, request: &HeaderMap) -> Result<Response<Body>, Failure> {
        plain(&self.of(mode).resources, request, NOT_CACHED)
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

const SINGULAR: &str = "modeldeployment";
const SHORT_NAMES: [&str; 1] = ["md"];
const CATEGORIES: [&str; 1] = ["gpustack"];

fn resources(mode: Mode) -> Value {
    let resource = |name: String, kind: &str, verbs: &[&str]| json!({"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": verbs});
    let mut resources = Vec::new();
    if mode != Mode::Off {
        let mut objects = resource(RESOURCE.to_owned(), KIND, mode.verbs());
        objects["singularName"] = SINGULAR.into();
        objects["shortNames"] = json!(SHORT_NAMES);
        objects["categories"] = json!(CATEGORIES);
        resources.push(objects);
        resources.push(resource(format!("{RESOURCE}/status"), KIND, mode.status_verbs()));
    }
    resources.push(resource(format!("{RESOURCE}/metrics"), METRICS_KIND, &["get"]));
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": resources})
}

/// A subresource needs its parent here. Where the objects are not served, the parent's verbs are empty, not null (null crashes
/// clients), so that nothing lists, watches or deletes them through this server.
fn aggregated(mode: Mode) -> Value {
    let kind = |kind: &str| json!({"group": GROUP, "version": VERSION, "kind": kind});
    let mut subresources =
        vec![json!({"subresource": "metrics", "responseKind": kind(METRICS_KIND), "verbs": ["get"]})];
    if mode != Mode::Off {
        subresources.push(json!({"subresource": "status", "responseKind": kind(KIND), "verbs": mode.status_verbs()}));
    }
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
                    "singularResource": SINGULAR,
                    "verbs": mode.verbs(),
                    "shortNames": SHORT_NAMES,
                    "categories": CATEGORIES,
                    "subresources": subresources,
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
        for (mode, expected) in [(Mode::Full, 3), (Mode::ReadOnly, 3), (Mode::Off, 2)] {
            let mut kinds = 0;
            walk(&aggregated(mode), &mut kinds);
            assert_eq!(kinds, expected);
        }
    }

    /// Verbs of each resource, as both forms say.
    fn verbs(mode: Mode) -> Vec<(String, Value)> {
        let resources = resources(mode);
        let entries = resources["resources"].as_array().unwrap().iter();
        let mut legacy: Vec<_> = entries
            .map(|entry| (entry["name"].as_str().unwrap().to_owned(), entry["verbs"].clone()))
            .collect();
        legacy.sort_by(|(a, _), (b, _)| a.cmp(b));
        let aggregated = aggregated(mode);
        let parent = &aggregated["items"][0]["versions"][0]["resources"][0];
        let mut other = vec![("modeldeployments".to_owned(), parent["verbs"].clone())];
        for entry in parent["subresources"].as_array().unwrap() {
            let name = format!("modeldeployments/{}", entry["subresource"].as_str().unwrap());
            other.push((name, entry["verbs"].clone()));
        }
        // Where the objects are not served, only their metrics' parent stands there, without verbs.
        other.retain(|(_, verbs)| verbs != &json!([]));
        assert_eq!(legacy, other);
        legacy
    }

    #[test]
    fn both_forms_offer_the_verbs_of_the_mode() {
        let all = json!([
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch"
        ]);
        for (mode, expected) in [
            (
                Mode::Full,
                vec![
                    ("modeldeployments", all),
                    ("modeldeployments/metrics", json!(["get"])),
                    ("modeldeployments/status", json!(["get", "patch", "update"])),
                ],
            ),
            (
                Mode::ReadOnly,
                vec![
                    ("modeldeployments", json!(["get", "list", "watch"])),
                    ("modeldeployments/metrics", json!(["get"])),
                    ("modeldeployments/status", json!(["get"])),
                ],
            ),
            (Mode::Off, vec![("modeldeployments/metrics", json!(["get"]))]),
        ] {
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(name, verbs)| (name.to_owned(), verbs))
                .collect();
            assert_eq!(verbs(mode), expected);
        }
    }

    /// Other names than the definition's would make kubectl's short names ambiguous.
    #[test]
    fn names_are_those_of_the_definition() {
        let names = model_deployment_crds::definition::definition().spec.names;
        assert_eq!(names.singular.as_deref(), Some(SINGULAR));
        assert_eq!(names.short_names.unwrap_or_default(), SHORT_NAMES);
        assert_eq!(names.categories.unwrap_or_default(), CATEGORIES);
        assert_eq!((names.plural.as_str(), names.kind.as_str()), (RESOURCE, KIND));
    }
}
