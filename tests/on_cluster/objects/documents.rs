//! What is said about v1, and what kubectl makes of it: `explain`, `diff`, dry runs and unknown fields.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::{refused, v1, with_input};
use crate::scenario::{Failure, Outcome, Scenario, Test, ensure, patient, test, vllm};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![
        test!(kubectl_explains_and_checks_under_v1),
        test!(the_openapi_of_v1_is_that_of_v1alpha1),
    ]
}

/// What kubectl says once the API server has fetched the document of v1, which it does within a minute.
async fn published(scenario: &Scenario, arguments: &[&str]) -> Result<String, Failure> {
    let started = tokio::time::Instant::now();
    loop {
        match scenario.kubectl(arguments).await {
            Ok(said) => return Ok(said),
            Err(failure) => patient!(started, "{failure}"),
        }
    }
}

async fn kubectl_explains_and_checks_under_v1(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("explain").await?;
    let explained = published(
        &scenario,
        &[
            "explain",
            "modeldeployments.spec.engine",
            "--api-version=worker.gpustack.ai/v1",
        ],
    )
    .await?;
    let stored = scenario
        .kubectl(&[
            "explain",
            "modeldeployments.spec.engine",
            "--api-version=worker.gpustack.ai/v1alpha1",
        ])
        .await?;
    ensure!(
        explained.contains("VERSION:    v1\n") && explained == stored.replace("v1alpha1", "v1"),
        "{explained}{stored}"
    );
    let explained = scenario
        .kubectl(&[
            "explain",
            "modeldeployments.metadata.name",
            "--api-version=worker.gpustack.ai/v1",
        ])
        .await?;
    ensure!(explained.contains("name <string>"), "{explained}");

    let manifest = v1(&vllm("chat", 0, ""));
    for flags in [&["--dry-run=server"][..], &["--dry-run=server", "--server-side"]] {
        let arguments = [&["apply", "--namespace", namespace, "-f", "-"][..], flags].concat();
        with_input(&scenario, &arguments, &manifest).await?;
        let left = scenario
            .kubectl(&["get", "md", "--namespace", namespace, "-o", "name"])
            .await?;
        ensure!(left.is_empty(), "a dry run wrote {left}");
    }
    let unknown = manifest.replace("spec:", "spec:\n  colour: red");
    let said = refused(&scenario, &["apply", "--namespace", namespace, "-f", "-"], &unknown).await?;
    ensure!(said.contains("unknown field \"spec.colour\""), "{said}");
    with_input(&scenario, &["apply", "--namespace", namespace, "-f", "-"], &manifest).await?;

    let same = ["diff", "--namespace", namespace, "-f", "-"];
    with_input(&scenario, &same, &manifest).await?;
    let changed = manifest.replace("replicas: 0", "replicas: 2");
    for flags in [&[][..], &["--server-side", "--force-conflicts"]] {
        let output = scenario
            .cluster
            .kubectl_with_input(&[&same[..], flags].concat(), &changed)
            .await?;
        ensure!(
            output.status.code() == Some(1)
                && output.stdout.contains("+  - ") | output.stdout.contains("+    replicas: 2"),
            "diff: {}{}",
            output.stdout,
            output.stderr
        );
    }
    let live = scenario.get(namespace, "md/chat").await?;
    ensure!(
        live["spec"]["roles"][0]["replicas"] == 0,
        "a diff wrote: {}",
        live["spec"]
    );
    let served = scenario
        .kubectl(&["api-resources", "--api-group=worker.gpustack.ai", "-o", "wide"])
        .await?;
    ensure!(served.contains("md") && !served.contains("error"), "{served}");
    Ok(())
}

/// The first place where two values differ, and how.
fn difference(own: &Value, other: &Value) -> Option<String> {
    match (own, other) {
        (Value::Object(own), Value::Object(other)) => {
            let names: BTreeSet<_> = own.keys().chain(other.keys()).collect();
            names.into_iter().find_map(|name| {
                let of = |members: &serde_json::Map<String, Value>| members.get(name).cloned().unwrap_or_default();
                difference(&of(own), &of(other)).map(|difference| format!("/{name}{difference}"))
            })
        }
        (own, other) => (own != other).then(|| format!(": {own}, and not {other}")),
    }
}

/// What the API server itself publishes of the definition, in the version that it serves, is what we publish of ours.
async fn the_openapi_of_v1_is_that_of_v1alpha1(scenario: Arc<Scenario>) -> Outcome {
    let read = async |version: &str| -> Result<Value, Failure> {
        let path = format!("/openapi/v3/apis/worker.gpustack.ai/{version}");
        let text = published(&scenario, &["get", "--raw", &path]).await?;
        Ok(serde_json::from_str(&text.replace("v1alpha1", "v1"))?)
    };
    let (own, stored) = (read("v1").await?, read("v1alpha1").await?);
    let kind = "/components/schemas/ai.gpustack.worker.v1.ModelDeployment/properties";
    for part in ["spec", "status"] {
        let pointer = format!("{kind}/{part}");
        let (own, stored) = own.pointer(&pointer).zip(stored.pointer(&pointer)).ok_or("no schema")?;
        if let Some(difference) = difference(own, stored) {
            return Err(format!("{part}{difference}").into());
        }
    }
    for (path, item) in stored["paths"]
        .as_object()
        .ok_or("no paths")?
        .iter()
        .filter(|(path, _)| path.contains("modeldeployments"))
    {
        let mine = &own["paths"][path];
        for (method, _) in item
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(method, _)| *method != "parameters")
        {
            let facts = |item: &Value| -> (Value, Value, BTreeSet<String>) {
                let operation = &item[method];
                // What is common to the operations of a path may stand with the path.
                let lists = [&item["parameters"], &operation["parameters"]];
                let parameters = lists.into_iter().filter_map(Value::as_array).flatten();
                (
                    operation["x-kubernetes-group-version-kind"].clone(),
                    operation["x-kubernetes-action"].clone(),
                    parameters.map(|parameter| parameter["name"].to_string()).collect(),
                )
            };
            let ((own_kind, own_action, own_names), (kind, action, mut names)) = (facts(mine), facts(item));
            if action == "deletecollection" {
                // Named there, and of no meaning: nothing is watched by deleting it.
                names.retain(|name| !["\"watch\"", "\"allowWatchBookmarks\""].contains(&name.as_str()));
            }
            // One document serves every Kubernetes, so that it may name what this one does not know.
            ensure!(
                own_kind == kind && own_action == action && names.is_subset(&own_names),
                "{method} {path}: {own_action} {own_names:?}, and not {action} {names:?}"
            );
        }
    }
    Ok(())
}
