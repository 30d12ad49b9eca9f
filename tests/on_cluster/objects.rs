//! ModelDeployments under `worker.gpustack.ai/v1`, with kubectl and Kubernetes' own clients: the objects that are stored as `v1alpha1`.

mod documents;
mod rights;

use std::sync::Arc;

use futures::{StreamExt, pin_mut};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::scenario::{Failure, Outcome, PATIENCE, Scenario, Test, ensure, patient, test, vllm};

/// kubectl's name of the objects under v1.
const V1: &str = "modeldeployments.v1.worker.gpustack.ai";

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    let own = vec![
        test!(both_versions_are_applied_in_turn),
        test!(kubectl_works_under_v1),
        test!(dynamic_clients_work_under_v1),
        test!(a_watch_under_v1_tells_every_change),
    ];
    [own, documents::tests(), rights::tests()].concat()
}

/// The manifest of a deployment under v1.
fn v1(manifest: &str) -> String {
    manifest.replace("worker.gpustack.ai/v1alpha1", "worker.gpustack.ai/v1")
}

/// Path of the collection under a version.
fn collection(version: &str, namespace: &str) -> String {
    format!("/apis/worker.gpustack.ai/{version}/namespaces/{namespace}/modeldeployments")
}

/// Runs kubectl with a manifest as its input; fails unless it ends well.
async fn with_input(scenario: &Scenario, arguments: &[&str], input: &str) -> Result<String, Failure> {
    let output = scenario.cluster.kubectl_with_input(arguments, input).await?;
    ensure!(
        output.status.success(),
        "kubectl {} failed: {}{}",
        arguments.join(" "),
        output.stdout,
        output.stderr
    );
    Ok(output.stdout)
}

/// Runs kubectl with a manifest that is to be refused, and returns its standard error.
async fn refused(scenario: &Scenario, arguments: &[&str], input: &str) -> Result<String, Failure> {
    let output = scenario.cluster.kubectl_with_input(arguments, input).await?;
    ensure!(
        !output.status.success(),
        "kubectl {} was expected to fail: {}",
        arguments.join(" "),
        output.stdout
    );
    Ok(output.stderr)
}

/// kubernetes/kubernetes#111937, knative/operator#1184: a version that the definition does not know, once in managedFields, would make
/// every later apply fail.
async fn both_versions_are_applied_in_turn(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("turns").await?;
    let stored = vllm("chat", 0, "");
    let served = v1(&stored);
    let client = ["apply", "--namespace", namespace, "-f", "-"];
    let server = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--namespace",
        namespace,
        "-f",
        "-",
    ];
    for (arguments, manifest, replicas) in [
        (&client[..], &served, 1),
        (&client, &stored, 2),
        (&server, &served, 3),
        (&server, &stored, 1),
        (&client, &served, 2),
        (&server, &served, 0),
    ] {
        let manifest = manifest.replace("replicas: 0", &format!("replicas: {replicas}"));
        let said = with_input(&scenario, arguments, &manifest).await?;
        ensure!(said.contains("modeldeployment.worker.gpustack.ai/chat"), "{said}");
        for object in ["md/chat", &format!("{V1}/chat")] {
            let live = scenario.get(namespace, object).await?;
            ensure!(
                live["spec"]["roles"][0]["replicas"] == replicas,
                "{object}: {}",
                live["spec"]
            );
        }
    }
    // What was read as v1 is written back as it is. (kubectl replace would write what kubectl apply compares with.)
    let api = api(&scenario, namespace);
    let (live, replaced) = replace(&api, |_| ()).await?;
    ensure!(
        replaced.metadata.resource_version == live.metadata.resource_version,
        "what is the same was changed: {replaced:?}"
    );
    for (object, version) in [("md/chat".to_owned(), "v1alpha1"), (format!("{V1}/chat"), "v1")] {
        let live = scenario
            .kubectl(&[
                "get",
                &object,
                "--namespace",
                namespace,
                "--show-managed-fields",
                "-o",
                "json",
            ])
            .await?;
        let live: Value = serde_json::from_str(&live)?;
        let version = format!("worker.gpustack.ai/{version}");
        ensure!(live["apiVersion"] == *version, "{}", live["apiVersion"]);
        let fields = live["metadata"]["managedFields"].as_array().ok_or("no managedFields")?;
        ensure!(
            !fields.is_empty() && fields.iter().all(|entry| entry["apiVersion"] == *version),
            "{object}: {fields:?}"
        );
    }
    for (arguments, manifest) in [
        (&client[..], &stored),
        (&server, &stored),
        (&client, &served),
        (&server, &served),
    ] {
        with_input(&scenario, arguments, manifest).await?;
    }
    Ok(())
}

async fn kubectl_works_under_v1(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("kubectl").await?;
    let chat = &format!("{V1}/chat");
    let on = |arguments: &[&'static str]| -> Vec<String> {
        let mut all: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        all.extend(["--namespace".to_owned(), namespace.clone()]);
        all
    };
    let run = async |arguments: Vec<String>| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        scenario.kubectl(&arguments).await
    };
    let created = with_input(
        &scenario,
        &["create", "--namespace", namespace, "-f", "-"],
        &v1(&vllm("chat", 1, "")),
    )
    .await?;
    ensure!(created.contains("chat created"), "{created}");
    scenario.wait(namespace, "condition=Available", chat).await?;

    // The same columns as under v1alpha1, which a Table brings.
    let table = run(on(&["get", V1])).await?;
    let stored = run(on(&["get", "md"])).await?;
    let words = |table: &str| table.split_whitespace().map(str::to_owned).take(6).collect::<Vec<_>>();
    ensure!(
        words(&table) == ["NAME", "ENGINE", "ROLES", "READY", "ENDPOINT", "AGE"] && words(&table) == words(&stored),
        "{table}{stored}"
    );
    let described = run(on(&["describe", V1, "chat"])).await?;
    ensure!(
        described.contains("API Version:  worker.gpustack.ai/v1\n") && described.contains("Available"),
        "{described}"
    );
    let all = scenario
        .kubectl(&["get", V1, "--all-namespaces", "--chunk-size=1", "-o", "name"])
        .await?;
    ensure!(all.contains("modeldeployment.worker.gpustack.ai/chat"), "{all}");

    let patch = |kind: &'static str, patch: &'static str| on(&["patch", V1, "chat", kind, "-p", patch]);
    run(patch("--type=merge", r#"{"metadata":{"labels":{"one":"1"}}}"#)).await?;
    run(patch(
        "--type=json",
        r#"[{"op":"add","path":"/metadata/labels/two","value":"2"}]"#,
    ))
    .await?;
    run(on(&["label", V1, "chat", "three=3"])).await?;
    let live = scenario.get(namespace, "md/chat").await?;
    ensure!(
        live["metadata"]["labels"] == json!({"one": "1", "two": "2", "three": "3"}),
        "{}",
        live["metadata"]["labels"]
    );
    let strategic = patch("--type=strategic", "{}");
    let strategic: Vec<&str> = strategic.iter().map(String::as_str).collect();
    let said = scenario.kubectl_refused(&strategic).await?;
    ensure!(
        said.contains("media type") || said.contains("415") || said.contains("UnsupportedMediaType"),
        "{said}"
    );

    // kubectl edit, with an editor that needs no terminal.
    let output = scenario
        .cluster
        .kubectl_with_editor("sed -i s/tiny/small/", &["edit", V1, "chat", "--namespace", namespace])
        .await?;
    ensure!(output.status.success(), "edit: {}{}", output.stdout, output.stderr);
    let live = scenario.get(namespace, chat).await?;
    ensure!(live["spec"]["model"]["name"] == "small", "{}", live["spec"]);

    // Status, which is a subresource under v1 too.
    let status = run(on(&["get", V1, "chat", "--subresource=status", "-o", "name"])).await?;
    ensure!(status.contains("chat"), "{status}");
    write_back(&scenario, namespace, &[], &["--subresource=status"]).await?;
    write_back(&scenario, namespace, &[], &[]).await?;

    let said = refused(
        &scenario,
        &["create", "--namespace", namespace, "-f", "-"],
        &v1(&vllm("chat", 1, "")),
    )
    .await?;
    ensure!(said.contains("\"chat\" already exists"), "{said}");
    let said = refused(
        &scenario,
        &["create", "-f", "-"],
        &v1(&vllm("chat", 1, "")).replace("  name: chat", "  name: chat\n  namespace: absent"),
    )
    .await?;
    ensure!(said.contains("namespaces \"absent\" not found"), "{said}");

    run(on(&["delete", V1, "chat", "--cascade=foreground", "--wait=true"])).await?;
    let left = run(on(&["get", "pods,md", "-o", "name"])).await?;
    ensure!(left.is_empty(), "left behind: {left}");
    let said = scenario
        .kubectl_refused(&["get", chat, "--namespace", namespace])
        .await?;
    ensure!(
        said.contains("modeldeployments.worker.gpustack.ai \"chat\" not found"),
        "{said}"
    );

    with_input(
        &scenario,
        &["create", "--namespace", namespace, "-f", "-"],
        &v1(&vllm("other", 0, "")),
    )
    .await?;
    let output = scenario
        .cluster
        .kubectl(&["delete", "--raw", &collection("v1", namespace)])
        .await?;
    ensure!(output.status.success(), "deletecollection: {}", output.stderr);
    let left = run(on(&["get", "md", "-o", "name"])).await?;
    ensure!(left.is_empty(), "left behind: {left}");
    Ok(())
}

/// The objects under v1 as Kubernetes' conformance test of aggregated servers uses them: with a client that knows no type.
fn api(scenario: &Scenario, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("worker.gpustack.ai", "v1", "ModelDeployment");
    Api::namespaced_with(scenario.cluster.client(), namespace, &ApiResource::from_gvk(&kind))
}

/// Reads `chat`, changes it and writes it back; again where somebody else was faster. Gives what was written and what came of it.
async fn replace(
    api: &Api<DynamicObject>,
    change: impl Fn(&mut DynamicObject),
) -> Result<(DynamicObject, DynamicObject), Failure> {
    let started = tokio::time::Instant::now();
    loop {
        let mut live = api.get("chat").await?;
        change(&mut live);
        let replaced = api.replace("chat", &PostParams::default(), &live).await;
        if !is_conflict(&replaced) || started.elapsed() > PATIENCE {
            return Ok((live, replaced?));
        }
    }
}

fn is_conflict<T>(answer: &kube::Result<T>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 409)
}

/// Reads `chat` with kubectl under v1, as whom `identity` says, and writes it back; again where somebody else was faster.
async fn write_back(scenario: &Scenario, namespace: &str, identity: &[&str], flags: &[&str]) -> Outcome {
    let read = ["get", V1, "chat", "-o", "json", "--namespace", namespace];
    let write = ["replace", "--namespace", namespace, "-f", "-"];
    let started = tokio::time::Instant::now();
    loop {
        let live = scenario.kubectl(&[&read[..], identity].concat()).await?;
        let arguments = [&write[..], flags, identity].concat();
        let output = scenario.cluster.kubectl_with_input(&arguments, &live).await?;
        if output.status.success() {
            return Ok(());
        }
        let is_late = output.stderr.contains("the object has been modified") && started.elapsed() < PATIENCE;
        ensure!(is_late, "kubectl {}: {}", arguments.join(" "), output.stderr);
    }
}

fn typed(manifest: &str) -> Result<DynamicObject, Failure> {
    Ok(serde_yaml::from_str(&v1(manifest))?)
}

async fn dynamic_clients_work_under_v1(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("dynamic").await?;
    let service = scenario.get("default", "apiservice/v1.worker.gpustack.ai").await?;
    ensure!(
        service["status"]["conditions"][0]["type"] == "Available",
        "{}",
        service["status"]
    );
    scenario
        .kubectl(&[
            "label",
            "apiservice/v1.worker.gpustack.ai",
            "checked=yes",
            "--overwrite",
        ])
        .await?;
    let listed = scenario
        .kubectl(&["get", "apiservices", "-l", "checked=yes", "-o", "name"])
        .await?;
    ensure!(
        listed.trim() == "apiservice.apiregistration.k8s.io/v1.worker.gpustack.ai",
        "{listed}"
    );
    let group: Value = serde_json::from_str(&scenario.kubectl(&["get", "--raw", "/apis/worker.gpustack.ai"]).await?)?;
    let versions: Vec<&Value> = group["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|version| &version["version"])
        .collect();
    ensure!(versions == ["v1alpha1", "v1"], "{group}");
    ensure!(group["preferredVersion"]["version"] == "v1alpha1", "{group}");

    let api = api(&scenario, namespace);
    let created = api
        .create(&PostParams::default(), &typed(&vllm("chat", 0, ""))?)
        .await?;
    ensure!(
        created
            .types
            .as_ref()
            .is_some_and(|types| types.api_version == "worker.gpustack.ai/v1"),
        "{:?}",
        created.types
    );
    let label = |object: &mut DynamicObject| {
        object
            .metadata
            .labels
            .get_or_insert_default()
            .insert("one".into(), "1".into());
    };
    let (live, mut updated) = replace(&api, label).await?;
    ensure!(live.metadata.uid == created.metadata.uid, "another object");
    // Of an older resourceVersion it is a conflict.
    updated.metadata.resource_version = created.metadata.resource_version.clone();
    let stale = api.replace("chat", &PostParams::default(), &updated).await;
    ensure!(is_conflict(&stale), "{stale:?}");
    let patch =
        json!({"apiVersion": "worker.gpustack.ai/v1", "kind": "ModelDeployment", "metadata": {"labels": {"two": "2"}}});
    let patched = api
        .patch("chat", &PatchParams::apply("checks"), &Patch::Apply(&patch))
        .await?;
    ensure!(
        patched.metadata.labels.as_ref().is_some_and(|labels| labels.len() == 2),
        "{:?}",
        patched.metadata.labels
    );
    let partial = api.list_metadata(&ListParams::default().labels("two=2")).await?;
    ensure!(partial.items.len() == 1, "{partial:?}");
    let fields = partial.items[0].metadata.managed_fields.iter().flatten();
    ensure!(
        fields.clone().count() > 0
            && fields
                .clone()
                .all(|entry| entry.api_version.as_deref() == Some("worker.gpustack.ai/v1")),
        "{fields:?}"
    );
    let by_name = api.list(&ListParams::default().fields("metadata.name=nobody")).await?;
    ensure!(by_name.items.is_empty(), "{by_name:?}");
    api.delete("chat", &DeleteParams::default()).await?;
    api.create(&PostParams::default(), &typed(&vllm("other", 0, ""))?)
        .await?;
    api.delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    let started = tokio::time::Instant::now();
    while !api.list(&ListParams::default()).await?.items.is_empty() {
        patient!(started, "the collection was not deleted");
    }
    ensure!(api.get_opt("chat").await?.is_none(), "chat is still there");
    Ok(())
}

async fn a_watch_under_v1_tells_every_change(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("watch").await?;
    let api = api(&scenario, namespace);
    let from = api
        .list(&ListParams::default())
        .await?
        .metadata
        .resource_version
        .unwrap_or_default();
    let events = api.watch(&WatchParams::default(), &from).await?;
    pin_mut!(events);
    scenario.apply(namespace, &vllm("chat", 0, "")).await?;
    scenario
        .kubectl(&["label", "md/chat", "one=1", "--namespace", namespace])
        .await?;
    scenario
        .kubectl(&["delete", "md/chat", "--namespace", namespace, "--wait=false"])
        .await?;
    let (mut added, mut labelled) = (false, false);
    loop {
        let event = tokio::time::timeout(PATIENCE, events.next())
            .await?
            .ok_or("the watch ended")??;
        let (WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object)) = &event else {
            continue;
        };
        ensure!(
            object
                .types
                .as_ref()
                .is_some_and(|types| types.api_version == "worker.gpustack.ai/v1"),
            "{event:?}"
        );
        added |= matches!(event, WatchEvent::Added(_));
        labelled |= object
            .metadata
            .labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key("one"));
        if matches!(event, WatchEvent::Deleted(_)) {
            break;
        }
    }
    ensure!(added && labelled, "added {added}, labelled {labelled}");
    // kubectl's own, of Tables, for as long as it is told.
    scenario.apply(namespace, &vllm("chat", 0, "")).await?;
    let arguments = [
        "get",
        V1,
        "--namespace",
        namespace,
        "--watch",
        "--output-watch-events",
        "--request-timeout=5s",
    ];
    let output = scenario.cluster.kubectl(&arguments).await?;
    ensure!(
        output.stdout.contains("EVENT") && output.stdout.contains("ADDED") && output.stdout.contains("chat"),
        "{}{}",
        output.stdout,
        output.stderr
    );
    Ok(())
}
