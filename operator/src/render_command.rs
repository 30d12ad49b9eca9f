//! `render`: what the reconciler would create for a manifest, without a cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use model_deployment::render::{Defaults, Object, Refusal, render};
use serde::Serialize;
use thiserror::Error;

use crate::format;
use crate::manifest::{self, ManifestError};

/// How the objects are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// A YAML stream.
    #[default]
    Yaml,
    /// A JSON `List`.
    Json,
}

/// Why nothing is rendered: the input is wrong, which is exit status 2.
#[derive(Debug, Error)]
pub enum RenderError {
    /// Not a ModelDeployment.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The sentence that `SpecAccepted` would carry.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// What the reconciler would create for the manifest in `file`, in the order of creation. `-` is standard input.
///
/// # Errors
/// The first thing that is wrong with the manifest.
pub fn run(file: &str, output: Output, defaults: &Defaults) -> Result<String, RenderError> {
    let plan = render(&manifest::read(file)?, defaults)?;
    Ok(write(plan.objects(), output))
}

fn write(objects: impl Iterator<Item = Object>, output: Output) -> String {
    match output {
        Output::Yaml => {
            let documents: Vec<_> = objects.map(|object| format::yaml(&object)).collect();
            documents.join("---\n")
        }
        Output::Json => {
            #[derive(Serialize)]
            #[serde(rename_all = "camelCase")]
            struct List {
                api_version: &'static str,
                kind: &'static str,
                metadata: ListMeta,
                items: Vec<Object>,
            }
            let list = List {
                api_version: "v1",
                kind: "List",
                metadata: ListMeta::default(),
                items: objects.collect(),
            };
            format::json(&list)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::Value;

    use super::*;

    fn example(name: &str) -> String {
        format!("{}/../examples/{name}.yaml", env!("CARGO_MANIFEST_DIR"))
    }

    #[test]
    fn both_outputs_hold_the_same_objects_in_the_order_of_creation() {
        let run = |output| run(&example("vllm-router"), output, &Defaults::default()).unwrap();
        let yaml = run(Output::Yaml);
        let stream: Vec<Value> = serde_yaml::Deserializer::from_str(&yaml)
            .map(|document| Value::deserialize(document).unwrap())
            .collect();
        let list: Value = serde_json::from_str(&run(Output::Json)).unwrap();
        assert_eq!(
            (list["apiVersion"].as_str(), list["kind"].as_str()),
            (Some("v1"), Some("List"))
        );
        assert_eq!(list["items"].as_array(), Some(&stream));
        let kinds: Vec<_> = stream.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        assert_eq!(
            kinds,
            [
                "Service",
                "Service",
                "ServiceAccount",
                "Role",
                "RoleBinding",
                "Deployment",
                "Service",
                "Pod",
                "Pod"
            ]
        );
        for object in &stream {
            assert_eq!(
                object["metadata"]["ownerReferences"][0]["uid"],
                "00000000-0000-0000-0000-000000000000"
            );
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = run("no-such-file", Output::Yaml, &Defaults::default()).unwrap_err();
        assert_eq!(error.to_string(), "cannot read no-such-file");
    }
}
