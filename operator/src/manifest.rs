//! One ModelDeployment from a file, checked as an API server would check it: schema, then CEL rules. Nothing here needs a cluster.

use std::io::Read;

use kube::core::cel::ValidationError;
use model_deployment_crds::definition::definition;
use model_deployment_crds::{AGGREGATED_API_VERSION, KIND, ModelDeployment, STORED_API_VERSION};
use serde_json::{Value, json};
use thiserror::Error;

use crate::schema::{self, SchemaError};

/// Why a file is not a ModelDeployment.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// The file is not there, or not readable.
    #[error("cannot read {file}")]
    Unreadable {
        /// As named on the command line.
        file: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Neither YAML nor JSON.
    #[error("the manifest is neither YAML nor JSON")]
    Malformed(#[source] Box<serde_saphyr::Error>),
    /// Two members of one name, of which kubectl would take neither.
    #[error("the manifest has the key {key} twice in one object, the second time in line {line}")]
    Repeated {
        /// As written.
        key: String,
        /// Counted from 1.
        line: u64,
    },
    /// Infinite, or not a number.
    #[error("the manifest holds {value} in line {line}, which is no number to an API server")]
    NotFinite {
        /// As written.
        value: String,
        /// Counted from 1.
        line: u64,
    },
    /// Not exactly one object.
    #[error("the manifest holds {0} objects, not one")]
    Count(usize),
    /// Another resource.
    #[error(
        "the manifest is of apiVersion {api_version} and kind {kind}, not {STORED_API_VERSION} or {AGGREGATED_API_VERSION} and {KIND}"
    )]
    OtherResource {
        /// `apiVersion`.
        api_version: String,
        /// `kind`.
        kind: String,
    },
    /// The schema does not accept it.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A type that the schema leaves to Kubernetes.
    #[error("the manifest is not a ModelDeployment")]
    Types(#[source] serde_json::Error),
    /// A CEL rule does not accept it.
    #[error("{0}")]
    Rule(String),
}

/// Reads `file`, or standard input for `-`.
///
/// # Errors
/// See [`parse`]; and a file that cannot be read.
pub fn read(file: &str) -> Result<ModelDeployment, ManifestError> {
    let text = if file == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    parse(&text.map_err(|source| ManifestError::Unreadable {
        file: file.to_owned(),
        source,
    })?)
}

/// One ModelDeployment, `v1alpha1` or `v1`, as YAML or JSON, with the resource's defaults filled in.
///
/// # Errors
/// The first thing that an API server would refuse.
pub fn parse(text: &str) -> Result<ModelDeployment, ManifestError> {
    let [manifest] =
        <[Value; 1]>::try_from(documents(text)?).map_err(|documents| ManifestError::Count(documents.len()))?;
    let manifest = with_whole_numbers(manifest);
    check_resource(&manifest)?;
    check_schema(&manifest)?;
    check_namespace(&manifest)?;
    let deployment: ModelDeployment = serde_json::from_value(without_nulls(manifest)).map_err(ManifestError::Types)?;
    deployment.validate_cel().map_err(|errors| {
        // One sentence: the rules that follow are often broken by the same value.
        ManifestError::Rule(errors.as_slice().first().map(sentence).unwrap_or_default())
    })?;
    Ok(deployment)
}

/// The documents of a file, read as kubectl reads them: YAML 1.1, in which `yes` is true and `0644` octal, and no key stands twice.
fn documents(text: &str) -> Result<Vec<Value>, ManifestError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    serde_saphyr::from_multiple_with_options(text, options).or_else(|error| match error {
        serde_saphyr::Error::DuplicateMappingKey { key, location } => Err(ManifestError::Repeated {
            key: key.unwrap_or_default(),
            line: location.line(),
        }),
        serde_saphyr::Error::NonFiniteFloat { value, location } => Err(ManifestError::NotFinite {
            value,
            line: location.line(),
        }),
        // To a reader of YAML the pairs of `\u` escapes of JSON are no characters.
        error => match serde_json::from_str(text) {
            Ok(document) => Ok(vec![document]),
            Err(_) => Err(ManifestError::Malformed(Box::new(error))),
        },
    })
}

/// A broken rule's own message, which names its field or is told after it.
fn sentence(error: &ValidationError) -> String {
    let names_its_field = ["spec.", "metadata."].iter().any(|field| error.message.contains(field));
    if names_its_field {
        error.message.clone()
    } else {
        error.to_string()
    }
}

fn check_resource(manifest: &Value) -> Result<(), ManifestError> {
    let member = |name: &str| manifest[name].as_str().unwrap_or("(none)").to_owned();
    let (api_version, kind) = (member("apiVersion"), member("kind"));
    if kind != KIND || ![STORED_API_VERSION, AGGREGATED_API_VERSION].contains(&api_version.as_str()) {
        return Err(ManifestError::OtherResource { api_version, kind });
    }
    Ok(())
}

fn check_schema(manifest: &Value) -> Result<(), SchemaError> {
    let definition = definition();
    let schema = definition.spec.versions[0]
        .schema
        .as_ref()
        .and_then(|schema| schema.open_api_v3_schema.as_ref());
    let mut schema = serde_json::to_value(schema).expect("a schema is JSON");
    // Every object has these; the API server knows them without being told.
    schema["properties"]["apiVersion"] = json!({ "type": "string" });
    schema["properties"]["kind"] = json!({ "type": "string" });
    schema["properties"]["metadata"] = metadata_schema();
    if let Some(required) = schema["required"].as_array_mut() {
        required.push("metadata".into());
    }
    schema::check(&schema, manifest, "")
}

/// What `metadata` may hold. What its lists hold is for the types to say.
fn metadata_schema() -> Value {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "object", "additionalProperties": text });
    let number = json!({ "type": "integer" });
    let objects = json!({ "type": "array", "items": { "type": "object" } });
    json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "annotations": texts,
            "creationTimestamp": text,
            "deletionGracePeriodSeconds": number,
            "deletionTimestamp": text,
            "finalizers": { "type": "array", "items": text },
            "generateName": text,
            "generation": number,
            "labels": texts,
            "managedFields": objects,
            "name": text,
            "namespace": text,
            "ownerReferences": objects,
            "resourceVersion": text,
            "selfLink": text,
            "uid": text,
        },
    })
}

/// The API server takes no object into a namespace that cannot exist.
fn check_namespace(manifest: &Value) -> Result<(), SchemaError> {
    let Some(namespace) = manifest.pointer("/metadata/namespace").and_then(Value::as_str) else {
        return Ok(());
    };
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let outer = |c: char| inner(c) && c != '-';
    let label = namespace.len() <= 63
        && namespace.chars().all(inner)
        && namespace.starts_with(outer)
        && namespace.ends_with(outer);
    if label || namespace.is_empty() {
        return Ok(());
    }
    Err(SchemaError {
        path: "metadata.namespace".into(),
        problem: format!("{namespace:?} is no name of a namespace (up to 63 lower-case letters, digits and '-')"),
    })
}

/// `8000.0` is written as `8000` on its way to the API server, where every number without a fraction is a whole one.
fn with_whole_numbers(value: Value) -> Value {
    /// Beyond it not every whole number is a double.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            #[expect(clippy::cast_possible_truncation, reason = "it is whole and exact")]
            Some(double) if double.fract() == 0.0 && double.abs() <= EXACT => (double as i64).into(),
            _ => Value::Number(number),
        },
        Value::Object(members) => members
            .into_iter()
            .map(|(name, member)| (name, with_whole_numbers(member)))
            .collect(),
        Value::Array(items) => items.into_iter().map(with_whole_numbers).collect(),
        scalar => scalar,
    }
}

/// Null members are dropped, as the API server drops them.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .filter(|(_, member)| !member.is_null())
            .map(|(name, member)| (name, without_nulls(member)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        scalar => scalar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: worker.gpustack.ai/v1alpha1\nkind: ModelDeployment\nmetadata: {name: chat}\n";

    fn answer(text: &str) -> String {
        parse(text)
            .map(|_| String::new())
            .unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn each_example_is_a_modeldeployment() {
        let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
        let mut count = 0;
        for entry in std::fs::read_dir(examples).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                read(path.to_str().unwrap()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                count += 1;
            }
        }
        assert!(count > 10, "{count} examples");
    }

    #[test]
    fn both_versions_both_forms_and_nulls_are_read_and_defaults_filled_in() {
        let spec = r#""spec": {"model": {"name": "m"}, "engine": {"name": "vLLM", "image": "i"}, "router": null, "roles": [{"name": "a"}]}"#;
        let json = |version: &str| {
            format!(
                r#"{{"apiVersion": "worker.gpustack.ai/{version}", "kind": "ModelDeployment", "metadata": {{"name": "chat"}}, {spec}}}"#
            )
        };
        let deployment = parse(&json("v1")).unwrap();
        assert_eq!(deployment.spec, parse(&json("v1alpha1")).unwrap().spec);
        assert_eq!(deployment.spec.roles[0].port, 8000);
        assert_eq!(deployment.spec.router, None);
        let yaml = format!(
            "---\n{HEAD}spec: {{model: {{name: m}}, engine: {{name: vLLM, image: i}}, roles: [{{name: a}}]}}\n---\n"
        );
        assert_eq!(parse(&yaml).unwrap().spec, deployment.spec);
    }

    #[test]
    fn json_of_a_model_beyond_the_basic_plane_is_read() {
        let text = r#"{"apiVersion": "worker.gpustack.ai/v1", "kind": "ModelDeployment", "metadata": {"name": "chat"},
            "spec": {"model": {"name": "\u6a21\u578b-\ud83d\ude42"}, "engine": {"name": "vLLM", "image": "i"}, "roles": [{"name": "a"}]}}"#;
        assert_eq!(parse(text).unwrap().spec.model.name, "模型-🙂");
    }

    #[test]
    fn a_number_without_a_fraction_is_a_whole_one() {
        let port = |port: &str| {
            let spec = "model: {name: m}, engine: {name: vLLM, image: i}";
            parse(&format!("{HEAD}spec: {{{spec}, roles: [{{name: a, port: {port}}}]}}"))
        };
        for spelled in ["8000", "8000.0", "8e3", "8.0e+3"] {
            assert_eq!(port(spelled).unwrap().spec.roles[0].port, 8000, "{spelled}");
        }
        assert_eq!(
            port("8000.5").unwrap_err().to_string(),
            "spec.roles[0].port: must be of type integer, not number"
        );
    }

    #[test]
    fn a_manifest_is_read_as_kubectl_reads_it() {
        let spec = "spec:\n  model: {name: m}\n  engine: {name: vLLM, image: i}\n";
        let anchored = format!(
            "\u{feff}{HEAD}{spec}  roles:\n  - &first {{name: a, port: 1_000, extraArgs: [\"yes\", 2001-01-01, 1:30]}}\n  - {{<<: *first, name: b}}\n"
        );
        let roles = parse(&anchored).unwrap().spec.roles;
        assert_eq!([&*roles[0].name, &*roles[1].name], ["a", "b"]);
        for role in &roles {
            assert_eq!(role.port, 1000);
            assert_eq!(role.extra_args, ["yes", "2001-01-01", "1:30"]);
        }
        for (plain, meant) in [("yes", true), ("on", true), ("Y", true), ("OFF", false), ("n", false)] {
            let roles =
                format!("roles: [{{name: a, kind: Prefill}}, {{name: b, kind: Decode, directDecode: {plain}}}]");
            let text = format!("{HEAD}{spec}  {roles}\n");
            assert_eq!(parse(&text).unwrap().spec.roles[1].direct_decode, meant, "{plain}");
        }
    }

    #[test]
    fn bad_input_gives_one_sentence() {
        let spec = |more: &str| format!("{HEAD}spec: {{model: {{name: m}}, engine: {{name: vLLM, image: i}}, {more}}}");
        let table = [
            ("".to_owned(), "the manifest holds 0 objects, not one"),
            (format!("{HEAD}---\n{HEAD}"), "the manifest holds 2 objects, not one"),
            ("a: [".into(), "the manifest is neither YAML nor JSON"),
            (
                "apiVersion: v1\nkind: Pod".into(),
                "the manifest is of apiVersion v1 and kind Pod, not worker.gpustack.ai/v1alpha1 or worker.gpustack.ai/v1 and ModelDeployment",
            ),
            (HEAD.into(), "spec: is required"),
            (
                spec("roles: [{name: a}]").replace("name: chat", ""),
                "metadata.name: is required",
            ),
            (spec("role: []"), "spec.roles: is required"),
            (
                spec("roles: [{name: a}], routr: {}"),
                "spec.routr: is no field of the resource",
            ),
            (
                spec("roles: [{name: a, port: 0}]"),
                "spec.roles[0].port: must be at least 1, is 0",
            ),
            (
                spec("roles: [{name: a}, {name: a}]"),
                "spec.roles: two items have name \"a\"",
            ),
            (
                spec("roles: [{name: a, shmSize: 1.5}]"),
                "spec.roles[0].shmSize: must be a whole number or a string",
            ),
            (
                spec("roles: [{name: a, shmSize: 16GB}]"),
                r#"spec.roles[0].shmSize: "16GB" does not match ^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"#,
            ),
            (
                spec("roles: [{name: a}]").replace("name: chat", "name: chat, namespace: Not_One"),
                "metadata.namespace: \"Not_One\" is no name of a namespace (up to 63 lower-case letters, digits and '-')",
            ),
            (
                spec("roles: [{name: a}]").replace("name: chat", "name: chat, labels: {version: 1}"),
                "metadata.labels.version: must be of type string, not integer",
            ),
            (
                spec("roles: [{name: a}]").replace("name: chat", "name: chat, annotations: {loud: yes}"),
                "metadata.annotations.loud: must be of type string, not boolean",
            ),
            (
                spec("roles: [{name: a}]").replace("name: chat", "name: chat, labls: {}"),
                "metadata.labls: is no field of the resource",
            ),
            (
                spec("roles: [{name: a}]").replace("name: chat", "name: 1"),
                "metadata.name: must be of type string, not integer",
            ),
            (
                spec("roles: [{name: a}]").replace("{name: m}", "{name: yes}"),
                "spec.model.name: must be of type string, not boolean",
            ),
            (
                spec("roles: [{name: a, port: .inf}]"),
                "the manifest holds .inf in line 4, which is no number to an API server",
            ),
            (
                spec("roles: [{name: a, port: 1, port: 2}]"),
                "the manifest has the key port twice in one object, the second time in line 4",
            ),
            (
                r#"{"kind": "ModelDeployment", "kind": "ModelDeployment"}"#.into(),
                "the manifest has the key kind twice in one object, the second time in line 1",
            ),
            (
                spec("roles: [{name: a}], kvCache: {pool: {masterAddress: 'm:99999'}}"),
                "spec.kvCache.pool.masterAddress must end in a port from 1 to 65535",
            ),
            (
                spec("roles: [{name: a}], kvCache: {pool: {masterAddress: 'm:0'}}"),
                "spec.kvCache.pool.masterAddress must end in a port from 1 to 65535",
            ),
            (
                spec("roles: [{name: a}]").replace("{name: m}", "{name: --uds=x}"),
                "spec.model.name cannot begin with '-': the engine would take it for an option",
            ),
            (
                spec("roles: [{name: a}]").replace("{name: m}", "{name: m, path: -m}"),
                "spec.model.path cannot begin with '-': the engine would take it for an option; write './-...' for a file of that name",
            ),
            (
                spec("roles: [{name: router}]"),
                "spec.roles[0].name: a role cannot be named router or coordinator",
            ),
            (
                spec("roles: [{name: a}], router: {name: sglang-gateway}"),
                "spec.router.name sglang-gateway serves engine SGLang only",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(answer(&text), expected, "{text}");
        }
    }
}
