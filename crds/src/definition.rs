//! The CustomResourceDefinition: two versions with one schema, in the form that an API server takes.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::CustomResourceExt;
use serde_json::Value;

use crate::{AGGREGATED_VERSION, ModelDeployment};

/// The CRD of `ModelDeployment`: `v1alpha1` served and stored; `v1` declared with the same schema and unserved, so that a
/// `managedFields` entry of that version can always be converted.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = ModelDeployment::crd();
    let stored = &mut definition.spec.versions[0];
    stored.schema = stored.schema.take().map(|schema| {
        let mut schema = serde_json::to_value(schema).expect("a derived schema is JSON");
        refuse_nulls(&mut schema);
        hold_quantities(&mut schema);
        describe_core_types_by_name(&mut schema);
        serde_json::from_value(schema).expect("the schema is still one")
    });
    let aggregated = CustomResourceDefinitionVersion {
        name: AGGREGATED_VERSION.into(),
        served: false,
        storage: false,
        ..stored.clone()
    };
    definition.spec.versions.push(aggregated);
    definition
}

/// The CRD as the YAML file that is committed and installed.
pub fn yaml() -> String {
    serde_yaml::to_string(&definition()).expect("a CRD is YAML")
}

/// Optional members are absent, never null: the API server then drops a null before it defaults or validates, and `has()` in a
/// rule means what it says.
fn refuse_nulls(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("nullable").is_some_and(Value::is_boolean) {
                members.remove("nullable");
            }
            members.values_mut().for_each(refuse_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(refuse_nulls),
        _ => {}
    }
}

/// How Kubernetes spells a quantity.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// A quantity is written as a number or a string, and every such member here is one: a string that is none is refused where it is
/// written, not where a Pod is made of it.
fn hold_quantities(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("x-kubernetes-int-or-string").is_some_and(|is| is == true) {
                members.insert("pattern".into(), QUANTITY.into());
            }
            members.values_mut().for_each(hold_quantities);
        }
        Value::Array(items) => items.iter_mut().for_each(hold_quantities),
        _ => {}
    }
}

/// Descriptions below a role's core/v1 members are Kubernetes' own and long: left out, so that the definition stays small enough for
/// `kubectl apply`.
fn describe_core_types_by_name(schema: &mut Value) {
    const CORE: [&str; 10] = [
        "affinity",
        "env",
        "imagePullSecrets",
        "podSecurityContext",
        "resources",
        "securityContext",
        "tolerations",
        "topologySpreadConstraints",
        "volumeMounts",
        "volumes",
    ];
    let spec = "/openAPIV3Schema/properties/spec/properties";
    for properties in [
        format!("{spec}/roles/items/properties"),
        format!("{spec}/router/properties"),
    ] {
        let members = schema
            .pointer_mut(&properties)
            .and_then(Value::as_object_mut)
            .expect("roles and router have members");
        for name in CORE {
            if let Some(member) = members.get_mut(name) {
                let own = member.get("description").cloned();
                drop_descriptions(member, false);
                if let (Some(own), Some(member)) = (own, member.as_object_mut()) {
                    member.insert("description".into(), own);
                }
            }
        }
    }
}

/// Drops every `description` keyword; `names` says that the keys at this level are names of members, not keywords.
fn drop_descriptions(schema: &mut Value, names: bool) {
    match schema {
        Value::Object(members) => {
            if !names {
                members.remove("description");
            }
            for (key, member) in members {
                drop_descriptions(member, !names && key == "properties");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| drop_descriptions(item, false)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_have_one_schema_and_only_v1alpha1_is_served_and_stored() {
        let versions = definition().spec.versions;
        let facts: Vec<_> = versions
            .iter()
            .map(|v| (v.name.as_str(), v.served, v.storage))
            .collect();
        assert_eq!(facts, [("v1alpha1", true, true), ("v1", false, false)]);
        assert_eq!(versions[0].schema, versions[1].schema);
        assert_eq!(versions[0].subresources, versions[1].subresources);
        assert_eq!(
            versions[0].additional_printer_columns,
            versions[1].additional_printer_columns
        );
    }

    #[test]
    fn the_definition_fits_into_the_annotation_of_kubectl_apply() {
        let size = serde_json::to_string(&definition()).unwrap().len();
        assert!(size < 262_144, "{size} bytes");
    }

    #[test]
    fn every_member_of_ours_is_described() {
        fn walk(path: &str, schema: &Value, bare: &mut Vec<String>) {
            let Some(members) = schema.get("properties").and_then(Value::as_object) else {
                return;
            };
            for (name, member) in members {
                let path = format!("{path}.{name}");
                if member.get("description").is_none() {
                    bare.push(path.clone());
                }
                let core = member.pointer("/properties").is_some()
                    && ["affinity", "resources", "securityContext", "podSecurityContext"].contains(&name.as_str());
                if !core {
                    walk(&path, member, bare);
                }
            }
        }
        let definition = serde_json::to_value(definition()).unwrap();
        let mut bare = Vec::new();
        for part in ["spec", "status"] {
            let schema = definition
                .pointer(&format!("/spec/versions/0/schema/openAPIV3Schema/properties/{part}"))
                .unwrap();
            walk(part, schema, &mut bare);
            if let Some(items) = schema.pointer("/properties/roles/items") {
                walk(&format!("{part}.roles[]"), items, &mut bare);
            }
        }
        assert_eq!(bare, Vec::<String>::new());
    }
}
