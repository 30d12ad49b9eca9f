//! Paths, operations and parameters, as the API server itself describes a custom resource's.
//!
//! kubectl looks here for whether a kind takes `dryRun` and `fieldValidation`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Status};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::super::metrics::{VIEW_DESCRIPTION, WINDOW_DESCRIPTION};
use super::super::objects::Mode;
use super::super::response::JSON;
use super::super::{GROUP, GROUP_VERSION, KIND, METRICS_KIND, RESOURCE, VERSION};
use super::components::{Components, settle};

/// Name, description and type.
type Parameter = (&'static str, &'static str, &'static str);

const PRETTY: Parameter = ("pretty", "If 'true', the output is indented.", "string");
const DRY_RUN: Parameter = ("dryRun", "'All': everything is checked and nothing is kept.", "string");
const FIELD_MANAGER: Parameter = (
    "fieldManager",
    "Who changes the object, as its managedFields name them.",
    "string",
);
const FIELD_VALIDATION: Parameter = (
    "fieldValidation",
    "What becomes of unknown and repeated fields: Ignore, Warn or Strict.",
    "string",
);
const FORCE: Parameter = (
    "force",
    "Take over fields of other managers. For apply patches only.",
    "boolean",
);
const RESOURCE_VERSION: Parameter = ("resourceVersion", "How old an answer may be.", "string");
const WRITING: [Parameter; 3] = [DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
const SELECTING: [Parameter; 9] = [
    ("continue", "Where an earlier list of the same kind ended.", "string"),
    ("fieldSelector", "Only objects with these fields.", "string"),
    ("labelSelector", "Only objects with these labels.", "string"),
    (
        "limit",
        "At most this many objects; the list says where to continue.",
        "integer",
    ),
    RESOURCE_VERSION,
    ("resourceVersionMatch", "How resourceVersion is meant.", "string"),
    ("sendInitialEvents", "A watch begins with what is there.", "boolean"),
    (
        "shardSelector",
        "Only a part of the objects, where the API server cuts them into parts.",
        "string",
    ),
    (
        "timeoutSeconds",
        "How long a list may take or a watch may last.",
        "integer",
    ),
];
const WATCHING: [Parameter; 2] = [
    (
        "allowWatchBookmarks",
        "A watch may tell how far it is without a change.",
        "boolean",
    ),
    ("watch", "Tell changes as they happen.", "boolean"),
];
const DELETING: [Parameter; 5] = [
    DRY_RUN,
    ("gracePeriodSeconds", "How long the object is given to end.", "integer"),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "Delete an object that cannot be read.",
        "boolean",
    ),
    ("orphanDependents", "Superseded by propagationPolicy.", "boolean"),
    (
        "propagationPolicy",
        "What becomes of dependents: Orphan, Background or Foreground.",
        "string",
    ),
];

/// One operation of the objects.
struct Operation {
    method: &'static str,
    /// As `x-kubernetes-action` has it.
    action: &'static str,
    /// Kubernetes verb, as rights and discovery have it.
    verb: &'static str,
    parameters: Vec<Parameter>,
    body: Option<Value>,
    codes: &'static [&'static str],
    answer: Value,
}

/// The path of the metrics.
pub(super) fn metrics<T: JsonSchema>(components: &mut Components) -> Map<String, Value> {
    let (answer, status) = (components.kind::<T>(), components.of::<Status>());
    let path = format!("/apis/{GROUP_VERSION}/namespaces/{{namespace}}/{RESOURCE}/{{name}}/metrics");
    let mut view = parameter(&("view", VIEW_DESCRIPTION, "string"));
    view["schema"]["enum"] = json!(["standard"]);
    let mut item = json!({
        "parameters": [in_path("name"), in_path("namespace")],
        "get": {
            "tags": ["workerGpustackAi_v1"],
            "description": "read metrics of the specified ModelDeployment",
            "operationId": "readWorkerGpustackAiV1NamespacedModelDeploymentMetrics",
            "parameters": [
                parameter(&("window", WINDOW_DESCRIPTION, "string")),
                view,
                parameter(&PRETTY),
                parameter(&("timeout", "How long to wait for the answer, as a Go duration.", "string")),
            ],
            "responses": {
                "200": response("OK", &answer),
                "400": response("Bad Request: a query parameter is not understood", &status),
                "401": response("Unauthorized", &status),
                "403": response("Forbidden", &status),
                "404": response("Not Found: no such ModelDeployment", &status),
                "406": response("Not Acceptable: only JSON is served", &status),
                "429": response("Too Many Requests", &status),
                "500": response("Internal Server Error", &status),
                "503": response("Service Unavailable: no Pod exists or could be read, or rights could not be reviewed", &status),
                "504": response("Gateway Timeout", &status),
            },
            "x-kubernetes-action": "get",
            "x-kubernetes-group-version-kind": {"group": GROUP, "version": VERSION, "kind": METRICS_KIND},
        },
    });
    settle(&mut item);
    Map::from_iter([(path, item)])
}

/// The paths of the objects, with the operations of `mode`.
pub(super) fn objects(mode: Mode, components: &mut Components) -> Map<String, Value> {
    if mode == Mode::Off {
        return Map::new();
    }
    let (object, list) = components.objects();
    let (status, options) = (components.of::<Status>(), components.of::<DeleteOptions>());
    let written = body(&[JSON, "application/yaml"], &object);
    let selecting: Vec<Parameter> = [&SELECTING[..], &WATCHING[..]].concat();
    let deleting: Vec<Parameter> = [&SELECTING[..], &DELETING[..]].concat();
    let patching: Vec<Parameter> = [&WRITING[..], &[FORCE]].concat();
    let get = || operation("get", "get", "get", &[RESOURCE_VERSION], None, &["200"], &object);
    let put = || {
        operation(
            "put",
            "put",
            "update",
            &WRITING,
            Some(written.clone()),
            &["200", "201"],
            &object,
        )
    };
    let patch = || {
        operation(
            "patch",
            "patch",
            "patch",
            &patching,
            Some(patches(&object)),
            &["200", "201"],
            &object,
        )
    };
    let read = || operation("get", "list", "list", &selecting, None, &["200"], &list);
    let deletion = || Some(body(&[JSON], &options));
    let collection = vec![
        read(),
        operation(
            "post",
            "post",
            "create",
            &WRITING,
            Some(written.clone()),
            &["200", "201", "202"],
            &object,
        ),
        operation(
            "delete",
            "deletecollection",
            "deletecollection",
            &deleting,
            deletion(),
            &["200"],
            &status,
        ),
    ];
    let single = vec![
        get(),
        put(),
        patch(),
        operation(
            "delete",
            "delete",
            "delete",
            &DELETING,
            deletion(),
            &["200", "202"],
            &status,
        ),
    ];
    let base = format!("/apis/{GROUP_VERSION}");
    let namespaced = format!("{base}/namespaces/{{namespace}}/{RESOURCE}");
    let paths = [
        (
            format!("{base}/{RESOURCE}"),
            "AllNamespaces",
            vec![],
            vec![read()],
            mode.verbs(),
        ),
        (
            namespaced.clone(),
            "Namespaced",
            vec!["namespace"],
            collection,
            mode.verbs(),
        ),
        (
            format!("{namespaced}/{{name}}"),
            "Namespaced",
            vec!["name", "namespace"],
            single,
            mode.verbs(),
        ),
        (
            format!("{namespaced}/{{name}}/status"),
            "NamespacedStatus",
            vec!["name", "namespace"],
            vec![get(), put(), patch()],
            mode.status_verbs(),
        ),
    ];
    let mut items = Map::new();
    for (path, place, in_its_path, operations, verbs) in paths {
        let parameters: Vec<Value> = in_its_path
            .into_iter()
            .map(in_path)
            .chain([parameter(&PRETTY)])
            .collect();
        let mut item = json!({"parameters": parameters});
        for operation in operations
            .into_iter()
            .filter(|operation| verbs.contains(&operation.verb))
        {
            let method = operation.method;
            item[method] = operation.describe(place, &status);
        }
        settle(&mut item);
        items.insert(path, item);
    }
    items
}

fn operation(
    method: &'static str,
    action: &'static str,
    verb: &'static str,
    parameters: &[Parameter],
    body: Option<Value>,
    codes: &'static [&'static str],
    answer: &Value,
) -> Operation {
    Operation {
        method,
        action,
        verb,
        parameters: parameters.to_vec(),
        body,
        codes,
        answer: answer.clone(),
    }
}

impl Operation {
    fn describe(self, place: &str, status: &Value) -> Value {
        let mut responses = Map::new();
        for code in self.codes {
            responses.insert((*code).to_owned(), response("OK", &self.answer));
        }
        let mut refusals = vec![
            ("400", "Bad Request"),
            ("401", "Unauthorized"),
            ("403", "Forbidden"),
            ("404", "Not Found"),
            ("405", "Method Not Allowed"),
            ("406", "Not Acceptable: only JSON is served"),
            ("410", "Gone: the resourceVersion is too old"),
            ("422", "Unprocessable Entity: the object or a parameter is not valid"),
            ("429", "Too Many Requests"),
            ("500", "Internal Server Error"),
            ("503", "Service Unavailable"),
            ("504", "Gateway Timeout"),
        ];
        if self.verb != "get" && self.verb != "list" {
            refusals.extend([
                ("409", "Conflict"),
                ("413", "Request Entity Too Large"),
                ("415", "Unsupported Media Type"),
            ]);
        }
        for (code, description) in refusals {
            responses.insert(code.to_owned(), response(description, status));
        }
        let parameters: Vec<Value> = self.parameters.iter().map(parameter).collect();
        let mut operation = json!({
            "tags": ["workerGpustackAi_v1"],
            "description": format!("{} ModelDeployments", self.verb),
            "operationId": format!("{}WorkerGpustackAiV1{place}{KIND}", self.action),
            "parameters": parameters,
            "responses": responses,
            "x-kubernetes-action": self.action,
            "x-kubernetes-group-version-kind": {"group": GROUP, "version": VERSION, "kind": KIND},
        });
        if let Some(body) = self.body {
            operation["requestBody"] = body;
        }
        operation
    }
}

fn patches(object: &Value) -> Value {
    let operations = json!({"type": "array", "items": {"type": "object"}});
    json!({"required": true, "content": {
        "application/apply-patch+yaml": {"schema": object},
        "application/json-patch+json": {"schema": operations},
        "application/merge-patch+json": {"schema": {"type": "object"}},
    }})
}

fn body(media_types: &[&str], schema: &Value) -> Value {
    let content: Map<String, Value> = media_types
        .iter()
        .map(|media_type| ((*media_type).to_owned(), json!({"schema": schema})))
        .collect();
    json!({"content": content})
}

fn response(description: &str, schema: &Value) -> Value {
    json!({"description": description, "content": {JSON: {"schema": schema}}})
}

fn parameter((name, description, kind): &Parameter) -> Value {
    json!({"name": name, "in": "query", "description": description, "schema": {"type": kind}})
}

fn in_path(name: &str) -> Value {
    let description = format!("{name} of the ModelDeployment");
    json!({"name": name, "in": "path", "required": true, "description": description, "schema": {"type": "string"}})
}
