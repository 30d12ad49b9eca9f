//! The schemas that the operations refer to, under Kubernetes' names for them.
//!
//! The metrics' are derived from their Rust types, the objects' are the definition's own.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use model_deployment_crds::definition::definition;
use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::super::{GROUP, KIND, VERSION};

const COMPONENTS: &str = "#/components/schemas/";
/// Group and version as Kubernetes names the components of a group: host labels turned round.
const PREFIX: &str = "ai.gpustack.worker.v1.";

/// Schemas by name, gathered as they are referred to.
#[derive(Debug)]
pub(super) struct Components {
    generator: SchemaGenerator,
    own: Map<String, Value>,
    kinds: Vec<String>,
}

impl Default for Components {
    fn default() -> Self {
        Components {
            generator: SchemaSettings::openapi3().for_serialize().into_generator(),
            own: Map::new(),
            kinds: Vec::new(),
        }
    }
}

impl Components {
    /// A reference to a type of Kubernetes'.
    pub(super) fn of<T: JsonSchema>(&mut self) -> Value {
        self.generator.subschema_for::<T>().to_value()
    }

    /// A reference to a kind of ours.
    pub(super) fn kind<T: JsonSchema>(&mut self) -> Value {
        self.kinds.push(T::schema_name().into_owned());
        self.of::<T>()
    }

    /// References to ModelDeployment and its list.
    pub(super) fn objects(&mut self) -> (Value, Value) {
        let list_kind = format!("{KIND}List");
        let object = json!({"$ref": format!("{COMPONENTS}{PREFIX}{KIND}")});
        let list = json!({"$ref": format!("{COMPONENTS}{PREFIX}{list_kind}")});
        let (metadata, list_metadata) = (self.of::<ObjectMeta>(), self.of::<ListMeta>());
        let mut schema = object_schema();
        schema["properties"]["metadata"] =
            json!({"description": "Name, namespace, labels and the like.", "allOf": [metadata]});
        schema["x-kubernetes-group-version-kind"] = gvk(KIND);
        self.own.insert(format!("{PREFIX}{KIND}"), schema);
        let list_schema = json!({
            "description": "A list of ModelDeployments.",
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"description": "Where the list stands and whether it goes on.", "allOf": [list_metadata]},
                "items": {"description": "The ModelDeployments.", "type": "array", "items": object},
            },
            "x-kubernetes-group-version-kind": gvk(&list_kind),
        });
        self.own.insert(format!("{PREFIX}{list_kind}"), list_schema);
        (object, list)
    }

    /// Everything that was referred to.
    pub(super) fn schemas(mut self) -> Value {
        let derived = self.generator.take_definitions(true);
        let mut schemas: Map<String, Value> = derived
            .into_iter()
            .map(|(name, schema)| (component(&name), schema))
            .collect();
        for kind in &self.kinds {
            if let Some(Value::Object(schema)) = schemas.get_mut(&component(kind)) {
                schema.insert("x-kubernetes-group-version-kind".into(), gvk(kind));
            }
        }
        schemas.extend(self.own);
        let mut schemas = Value::Object(schemas);
        settle(&mut schemas);
        schemas
    }
}

/// As the definition declares it for this version.
fn object_schema() -> Value {
    let versions = definition().spec.versions;
    let version = versions.into_iter().find(|version| version.name == VERSION);
    let schema = version.and_then(|version| version.schema?.open_api_v3_schema);
    let mut schema = serde_json::to_value(schema).unwrap_or_default();
    spell_out(&mut schema);
    for (name, description) in [
        ("apiVersion", "Version of this object's schema."),
        ("kind", "Kind of this object."),
    ] {
        schema["properties"][name] = json!({"description": description, "type": "string"});
    }
    schema
}

/// As the API server publishes a definition: what may be a number or a text is said in plain OpenAPI too, and a whole number is written
/// as one.
fn spell_out(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("x-kubernetes-int-or-string").is_some_and(|is| is == true) {
                members.insert("anyOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
            }
            members.values_mut().for_each(spell_out);
        }
        Value::Array(items) => items.iter_mut().for_each(spell_out),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|value| number.is_f64() && value.fract() == 0.0);
            if let Some(whole) = whole {
                *number = (whole as i64).into();
            }
        }
        _ => {}
    }
}

fn gvk(kind: &str) -> Value {
    json!([{"group": GROUP, "version": VERSION, "kind": kind}])
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
pub(super) fn settle(value: &mut Value) {
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
