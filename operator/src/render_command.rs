//! `render`: what the reconciler would create for a manifest, without a cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use model_deployment::render::{Defaults, Object, Refusal, render};
use serde::Serialize;
use thiserror::Error;

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
            let documents: Vec<_> = objects
                .map(|object| serde_yaml::to_string(&object).expect("an object is YAML"))
                .collect();
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
            let mut text = serde_json::to_string_pretty(&list).expect("a list of objects is JSON");
            text.push('\n');
            text
        }
    }
}
