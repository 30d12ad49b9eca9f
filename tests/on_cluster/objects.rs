//! ModelDeployments under `worker.gpustack.ai/v1`, with kubectl and Kubernetes' own clients: the objects that are stored as `v1alpha1`.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use futures::{StreamExt, pin_mut};

use crate::scenario::{
    Failure, NAMESPACE, Outcome, PATIENCE, RELEASE, Scenario, Test, ensure, metrics_path, test, vllm,
};

/// kubectl's name of the objects under v1.
const V1: &str = "modeldeployments.v1.worker.gpustack.ai";

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![
        test!(both_versions_are_applied_in_turn),
        test!(kubectl_works_under_v1),
        test!(kubectl_explains_and_checks_under_v1),
        test!(dynamic_clients_work_under_v1),
        test!(a_watch_under_v1_tells_every_change),
        test!(rights_hold_under_v1),
        test!(writes_under_v1_are_the_callers),
        test!(an_admission_policy_on_v1alpha1_meets_a_write_under_v1),
        test!(the_openapi_of_v1_is_that_of_v1alpha1),
    ]
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
    let live = api.get("chat").await?;
    let replaced = api.replace("chat", &PostParams::default(), &live).await?;
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
    let status = run(on(&["get", V1, "chat", "--subresource=status", "-o", "json"])).await?;
    with_input(&scenario, &["replace", "--subresource=status", "-f", "-"], &status).await?;

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

/// What kubectl says once the API server has fetched the document of v1, which it does within a minute.
async fn published(scenario: &Scenario, arguments: &[&str]) -> Result<String, Failure> {
    let started = tokio::time::Instant::now();
    loop {
        match scenario.kubectl(arguments).await {
            Ok(said) => return Ok(said),
            Err(failure) => ensure!(started.elapsed() < PATIENCE, "{failure}"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
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

/// The objects under v1 as Kubernetes' conformance test of aggregated servers uses them: with a client that knows no type.
fn api(scenario: &Scenario, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("worker.gpustack.ai", "v1", "ModelDeployment");
    Api::namespaced_with(scenario.cluster.client(), namespace, &ApiResource::from_gvk(&kind))
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
    let mut live = api.get("chat").await?;
    ensure!(live.metadata.uid == created.metadata.uid, "another object");
    live.metadata
        .labels
        .get_or_insert_default()
        .insert("one".into(), "1".into());
    let updated = api.replace("chat", &PostParams::default(), &live).await?;
    // Of an older resourceVersion it is a conflict.
    live.metadata.resource_version = created.metadata.resource_version.clone();
    live.metadata
        .labels
        .get_or_insert_default()
        .insert("one".into(), "2".into());
    let stale = api.replace("chat", &PostParams::default(), &live).await;
    ensure!(
        matches!(&stale, Err(kube::Error::Api(status)) if status.code == 409)
            || updated.metadata.resource_version == created.metadata.resource_version,
        "{stale:?}"
    );
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
        ensure!(started.elapsed() < PATIENCE, "the collection was not deleted");
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

/// Gives a user a role of these verbs on these resources of the group, in one namespace.
async fn grant(
    scenario: &Scenario,
    namespace: &str,
    subject: &str,
    verbs: &str,
    resources: &[&str],
) -> Result<(), Failure> {
    let name = format!("may-{}", verbs.replace(',', "-"));
    let mut role = vec!["create", "role", &name, "--namespace", namespace];
    let verbs = format!("--verb={verbs}");
    let resources: Vec<String> = resources
        .iter()
        .map(|resource| format!("--resource={resource}"))
        .collect();
    role.push(&verbs);
    role.extend(resources.iter().map(String::as_str));
    scenario.kubectl(&role).await?;
    let of = format!("--role={name}");
    scenario
        .kubectl(&["create", "rolebinding", &name, &of, subject, "--namespace", namespace])
        .await?;
    Ok(())
}

async fn rights_hold_under_v1(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("righta").await?;
    let other = &scenario.cluster.namespace("rightb").await?;
    scenario.apply(namespace, &vllm("chat", 0, "")).await?;
    grant(
        &scenario,
        namespace,
        "--user=meter",
        "get",
        &["modeldeployments.worker.gpustack.ai/metrics"],
    )
    .await?;
    grant(
        &scenario,
        namespace,
        "--user=maker",
        "create,get",
        &["modeldeployments.worker.gpustack.ai"],
    )
    .await?;
    let chat = &format!("{V1}/chat");
    let started = tokio::time::Instant::now();
    // There are no Pods, so the metrics are a 503; who may not ask gets 403.
    loop {
        let said = scenario
            .kubectl_refused(&["get", "--raw", &metrics_path(namespace, "chat"), "--as", "meter"])
            .await?;
        if !said.contains("orbidden") {
            break;
        }
        ensure!(started.elapsed() < PATIENCE, "the metrics are refused: {said}");
    }
    for arguments in [
        &["get", chat][..],
        &["get", V1],
        &["get", chat, "--subresource=status"],
        &["delete", chat],
    ] {
        let said = scenario
            .kubectl_refused(&[arguments, &["--namespace", namespace, "--as", "meter"]].concat())
            .await?;
        ensure!(said.contains("User \"meter\" cannot"), "{arguments:?}: {said}");
    }
    let manifest = v1(&vllm("made", 0, ""));
    with_input(
        &scenario,
        &["create", "--namespace", namespace, "--as", "maker", "-f", "-"],
        &manifest,
    )
    .await?;
    let said = refused(
        &scenario,
        &["create", "--namespace", other, "--as", "maker", "-f", "-"],
        &manifest,
    )
    .await?;
    ensure!(said.contains("User \"maker\" cannot create resource"), "{said}");
    // Nor by a body that says otherwise than the path.
    let body = serde_json::to_string(&typed(
        &manifest.replace("  name: made", &format!("  name: smuggled\n  namespace: {other}")),
    )?)?;
    let path = collection("v1", namespace);
    let said = refused(
        &scenario,
        &["create", "--raw", &path, "--as", "maker", "-f", "-"],
        &body,
    )
    .await?;
    ensure!(said.contains("does not match the namespace"), "{said}");
    let left = scenario
        .kubectl(&["get", "md", "--namespace", other, "-o", "name"])
        .await?;
    ensure!(left.is_empty(), "{left}");
    Ok(())
}

/// Every event of the audit log about ModelDeployments of a namespace in the stored version, as soon as one of `verb` by the
/// impersonator for `user` is among them.
async fn audited(
    scenario: &Scenario,
    namespace: &str,
    user: &str,
    verb: &str,
    subresource: Option<&str>,
) -> Result<Value, Failure> {
    let started = tokio::time::Instant::now();
    loop {
        let log = std::fs::read_to_string(scenario.cluster.audit_log())?;
        let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found = events
            .filter(|event| {
                let object = &event["objectRef"];
                object["namespace"] == namespace
                    && object["resource"] == "modeldeployments"
                    && object["apiVersion"] == "v1alpha1"
                    && object["subresource"].as_str() == subresource
                    && event["verb"] == verb
                    && event["impersonatedUser"]["username"] == user
            })
            .last();
        if let Some(event) = found {
            return Ok(event);
        }
        ensure!(started.elapsed() < PATIENCE, "the audit log has no {verb} by {user}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn writes_under_v1_are_the_callers(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("callers").await?;
    scenario
        .kubectl(&["create", "serviceaccount", "robot", "--namespace", namespace])
        .await?;
    let all = "create,get,list,update,patch,delete,deletecollection";
    let resources = [
        "modeldeployments.worker.gpustack.ai",
        "modeldeployments.worker.gpustack.ai/status",
    ];
    let robot = &format!("system:serviceaccount:{namespace}:robot");
    grant(&scenario, namespace, "--group=writers", all, &resources).await?;
    let binding = format!("--serviceaccount={namespace}:robot");
    let role = format!("--role=may-{}", all.replace(',', "-"));
    scenario
        .kubectl(&[
            "create",
            "rolebinding",
            "robot",
            &role,
            &binding,
            "--namespace",
            namespace,
        ])
        .await?;
    let alice = [
        "--as",
        "alice",
        "--as-group",
        "writers",
        "--as-group",
        "more",
        "--as-uid",
        "42",
    ];
    for (user, identity, mode) in [
        ("alice", &alice[..], "user-info"),
        (robot, &["--as", robot], "serviceaccount"),
    ] {
        let on = |arguments: &[&'static str]| -> Vec<String> {
            let all = arguments.iter().chain(identity).map(|argument| (*argument).to_owned());
            all.chain(["--namespace".to_owned(), namespace.clone()]).collect()
        };
        let run = async |arguments: Vec<String>, input: &str| {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            with_input(&scenario, &arguments, input).await
        };
        let manifest = v1(&vllm("chat", 0, ""));
        let started = tokio::time::Instant::now();
        while let Err(failure) = run(on(&["create", "-f", "-"]), &manifest).await {
            ensure!(started.elapsed() < PATIENCE, "{failure}");
        }
        let live = run(on(&["get", V1, "chat", "-o", "json"]), "").await?;
        run(on(&["replace", "-f", "-"]), &live).await?;
        run(
            on(&[
                "patch",
                V1,
                "chat",
                "--type=merge",
                "-p",
                r#"{"metadata":{"labels":{"a":"b"}}}"#,
            ]),
            "",
        )
        .await?;
        let live = run(on(&["get", V1, "chat", "-o", "json"]), "").await?;
        run(on(&["replace", "--subresource=status", "-f", "-"]), &live).await?;
        run(
            on(&[
                "patch",
                V1,
                "chat",
                "--subresource=status",
                "--type=merge",
                "-p",
                r#"{"status":{"endpoint":"http://x"}}"#,
            ]),
            "",
        )
        .await?;
        run(on(&["delete", V1, "chat"]), "").await?;
        run(on(&["create", "-f", "-"]), &manifest).await?;
        let path = collection("v1", namespace);
        let arguments = [&["delete", "--raw", &path][..], identity].concat();
        with_input(&scenario, &arguments, "").await?;
        for (verb, subresource) in [
            ("create", None),
            ("update", None),
            ("patch", None),
            ("update", Some("status")),
            ("patch", Some("status")),
            ("delete", None),
            ("deletecollection", None),
        ] {
            let event = audited(&scenario, namespace, user, verb, subresource).await?;
            ensure!(
                event["user"]["username"]
                    == format!("system:serviceaccount:{NAMESPACE}:{RELEASE}-impersonator").as_str()
                    && event["authenticationMetadata"]["impersonationConstraint"]
                        == format!("impersonate:{mode}").as_str(),
                "{event}"
            );
            let groups = &event["impersonatedUser"]["groups"];
            if user == "alice" {
                ensure!(
                    event["impersonatedUser"]["uid"] == "42"
                        && *groups == json!(["writers", "more", "system:authenticated"]),
                    "{event}"
                );
            } else {
                ensure!(
                    groups
                        .to_string()
                        .contains(&format!("system:serviceaccounts:{namespace}")),
                    "{event}"
                );
            }
        }
    }
    // And not one of them by the operator: it writes status here, and nothing else.
    let log = std::fs::read_to_string(scenario.cluster.audit_log())?;
    let operator = format!("system:serviceaccount:{NAMESPACE}:{RELEASE}");
    for event in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let object = &event["objectRef"];
        let writes = !["get", "list", "watch"].iter().any(|verb| event["verb"] == *verb);
        let own_status = event["verb"] == "patch" && object["subresource"] == "status";
        ensure!(
            !(event["user"]["username"] == operator.as_str()
                && object["namespace"] == namespace.as_str()
                && object["resource"] == "modeldeployments"
                && writes
                && !own_status),
            "the operator wrote: {event}"
        );
    }
    Ok(())
}

/// mckinsey/agents-at-scale-ark#2684, kubernetes/website#49369: no policy is asked about a request that is handed to an aggregated
/// server, so it has to be asked behind it.
async fn an_admission_policy_on_v1alpha1_meets_a_write_under_v1(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("policy").await?;
    grant(
        &scenario,
        namespace,
        "--user=carol",
        "create,get",
        &["modeldeployments.worker.gpustack.ai"],
    )
    .await?;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": namespace},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["worker.gpustack.ai"], "apiVersions": ["v1alpha1"], "operations": ["CREATE"], "resources": ["modeldeployments"],
            }]},
            "validations": [{"expression": "request.userInfo.username != 'carol'", "message": "carol makes nothing today"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": namespace},
        "spec": {
            "policyName": namespace, "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
        },
    });
    for object in [policy, binding] {
        scenario.apply("default", &object.to_string()).await?;
    }
    let manifest = v1(&vllm("chat", 0, ""));
    let arguments = [
        "create",
        "--dry-run=server",
        "--namespace",
        namespace,
        "-f",
        "-",
        "--as",
    ];
    let started = tokio::time::Instant::now();
    loop {
        let output = scenario
            .cluster
            .kubectl_with_input(&[&arguments[..], &["carol"]].concat(), &manifest)
            .await?;
        if output.stderr.contains("carol makes nothing today") {
            break;
        }
        ensure!(
            started.elapsed() < PATIENCE,
            "the policy was not met: {}{}",
            output.stdout,
            output.stderr
        );
    }
    with_input(&scenario, &["create", "--namespace", namespace, "-f", "-"], &manifest).await?;
    Ok(())
}

/// The first place where two values differ, and how.
fn difference(own: &Value, other: &Value) -> Option<String> {
    match (own, other) {
        (Value::Object(own), Value::Object(other)) => {
            let names: std::collections::BTreeSet<_> = own.keys().chain(other.keys()).collect();
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
        for (method, operation) in item
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(method, _)| *method != "parameters")
        {
            let names = |operation: &Value| -> Vec<String> {
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let mut names: Vec<String> = parameters.map(|parameter| parameter["name"].to_string()).collect();
                names.sort();
                names
            };
            let gvk = "x-kubernetes-group-version-kind";
            ensure!(
                mine[method][gvk] == operation[gvk]
                    && mine[method]["x-kubernetes-action"] == operation["x-kubernetes-action"]
                    && names(&mine[method]) == names(operation),
                "{method} {path}: {}\n{operation}",
                mine[method]
            );
        }
    }
    Ok(())
}
