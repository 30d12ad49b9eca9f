//! The OpenAPI v3 document of what this server serves, built once from the Rust types that are served.
//!
//! Names our own group and version only: a server that lists another's document may be given its traffic.

use http::header::EXPIRES;
use http::{HeaderMap, HeaderValue, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::discovery::plain;
use super::query::Query;
use super::response::{Body, Document, JSON, NOT_CACHED};
use super::status::Failure;
use super::{GROUP, GROUP_VERSION, METRICS_KIND, VERSION};

const COMPONENTS: &str = "#/components/schemas/";
/// Group and version as Kubernetes names the components of a group: host labels turned round.
const PREFIX: &str = "ai.gpustack.worker.v1.";

/// The index and the one document.
#[derive(Debug)]
pub struct OpenApi {
    index: Document,
    document: Document,
}

impl OpenApi {
    /// Builds the document around `T`, the type that `modeldeployments/metrics` answers with.
    pub fn of<T: JsonSchema>() -> Self {
        let document = Document::new(&document::<T>(), JSON);
        let path = format!("apis/{GROUP_VERSION}");
        let url = format!("/openapi/v3/{path}?hash={}", document.hash);
        let index = json!({"paths": {path: {"serverRelativeURL": url}}});
        OpenApi {
            index: Document::new(&index, JSON),
            document,
        }
    }

    /// `/openapi/v3`.
    pub fn index(&self, request: &HeaderMap) -> Result<Response<Body>, Failure> {
        plain(&self.index, request, NOT_CACHED)
    }

    /// `/openapi/v3/apis/<group>/<version>`. Under its own hash it never changes. A wrong hash is answered like none: a redirect
    /// does not survive the API aggregator.
    pub fn document(&self, request: &HeaderMap, query: &Query) -> Result<Response<Body>, Failure> {
        if query.get("hash") != Some(self.document.hash.as_str()) {
            return plain(&self.document, request, NOT_CACHED);
        }
        let mut response = plain(&self.document, request, "public, immutable")?;
        let year = jiff::SignedDuration::from_hours(365 * 24);
        let expires = (jiff::Timestamp::now() + year)
            .strftime("%a, %d %b %Y %H:%M:%S GMT")
            .to_string();
        if let Ok(expires) = HeaderValue::try_from(expires) {
            response.headers_mut().insert(EXPIRES, expires);
        }
        Ok(response)
    }
}

fn document<T: JsonSchema>() -> Value {
    let mut generator = SchemaSettings::openapi3().for_serialize().into_generator();
    let answer = generator.subschema_for::<T>().to_value();
    let status = generator.subschema_for::<Status>().to_value();
    let own_kind = json!([{"group": GROUP, "version": VERSION, "kind": METRICS_KIND}]);
    let mut schemas: Map<String, Value> = generator
        .take_definitions(true)
        .into_iter()
        .map(|(name, schema)| (component(&name), schema))
        .collect();
    if let Some(Value::Object(schema)) = schemas.get_mut(&component(&T::schema_name())) {
        schema.insert("x-kubernetes-group-version-kind".into(), own_kind.clone());
    }
    let path = format!("/apis/{GROUP_VERSION}/namespaces/{{namespace}}/modeldeployments/{{name}}/metrics");
    let mut document = json!({
        "openapi": "3.0.0",
        "info": {"title": "model-deployment-operator", "version": concat!("v", env!("CARGO_PKG_VERSION"))},
        "paths": {path: {
            "parameters": [
                parameter("name", "path", "name of the ModelDeployment", json!({"type": "string", "uniqueItems": true})),
                parameter("namespace", "path", "namespace of the ModelDeployment", json!({"type": "string", "uniqueItems": true})),
            ],
            "get": {
                "tags": ["workerGpustackAi_v1"],
                "description": "read metrics of the specified ModelDeployment",
                "operationId": "readWorkerGpustackAiV1NamespacedModelDeploymentMetrics",
                "parameters": [
                    parameter("window", "query", super::metrics::WINDOW_DESCRIPTION, json!({"type": "string"})),
                    parameter("view", "query", super::metrics::VIEW_DESCRIPTION, json!({"type": "string", "enum": ["standard"]})),
                    parameter("pretty", "query", "If 'true', the output is indented.", json!({"type": "string"})),
                    parameter("timeout", "query", "How long to wait for the answer, as a Go duration.", json!({"type": "string"})),
                ],
                "responses": responses(&answer, &status),
                "x-kubernetes-action": "get",
                "x-kubernetes-group-version-kind": own_kind[0],
            },
        }},
        "components": {"schemas": schemas},
    });
    settle(&mut document);
    document
}

fn parameter(name: &str, place: &str, description: &str, schema: Value) -> Value {
    let mut parameter = json!({"name": name, "in": place, "description": description, "schema": schema});
    if place == "path" {
        parameter["required"] = true.into();
    }
    parameter
}

fn responses(answer: &Value, status: &Value) -> Value {
    let of =
        |description: &str, schema: &Value| json!({"description": description, "content": {JSON: {"schema": schema}}});
    json!({
        "200": of("OK", answer),
        "400": of("Bad Request: a query parameter is not understood", status),
        "401": of("Unauthorized", status),
        "403": of("Forbidden", status),
        "404": of("Not Found: no such ModelDeployment", status),
        "406": of("Not Acceptable: only JSON is served", status),
        "429": of("Too Many Requests", status),
        "500": of("Internal Server Error", status),
        "503": of("Service Unavailable: no Pod exists or could be read, or rights could not be reviewed", status),
        "504": of("Gateway Timeout", status),
    })
}

/// The component's name: Kubernetes' own types keep theirs.
fn component(name: &str) -> String {
    match name.contains('.') {
        true => name.to_owned(),
        false => format!("{PREFIX}{name}"),
    }
}

/// Gives every reference to a component the component's whole name, and takes null out of every schema: what is not known is left
/// out of an answer, never written as null.
fn settle(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("nullable");
            if let Some(Value::Array(choices)) = members.get_mut("anyOf") {
                choices.retain(|choice| choice["enum"] != json!([null]));
                if let [only] = choices.as_slice() {
                    let only = json!([only]);
                    members.remove("anyOf");
                    members.insert("allOf".to_owned(), only);
                }
            }
            for (key, member) in members {
                match member {
                    Value::String(target) if key == "$ref" => {
                        if let Some(name) = target.strip_prefix(COMPONENTS) {
                            *target = format!("{COMPONENTS}{}", component(name));
                        }
                    }
                    member => settle(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle),
        _ => {}
    }
}
