//! The main job by kubectl: apply, get, describe, explain, wait, scale, heal, delete.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::scenario::{Outcome, Scenario, Test, ensure, patient, test, vllm};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![
        test!(apply_get_describe_explain_wait_delete),
        test!(scale_up_and_down_leaves_other_pods_alone),
        test!(a_deleted_and_a_failed_pod_come_back_under_their_ordinal),
        test!(a_refused_spec_is_said_once_and_touches_no_pod),
        test!(a_router_comes_and_goes_whole),
        test!(a_fixed_state_is_left_alone),
    ]
}

fn names(list: &Value) -> Vec<String> {
    let mut names: Vec<String> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned))
        .collect();
    names.sort();
    names
}

async fn apply_get_describe_explain_wait_delete(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("journey").await?;
    let said = scenario
        .apply(namespace, &vllm("chat", 2, "router:\n  name: vllm-router"))
        .await?;
    ensure!(
        said.contains("modeldeployment.worker.gpustack.ai/chat created"),
        "apply said {said}"
    );
    scenario.wait(namespace, "condition=Available", "md/chat").await?;

    let table = scenario.kubectl(&["get", "md", "--namespace", namespace]).await?;
    let columns: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    ensure!(
        columns == ["NAME", "ENGINE", "ROLES", "READY", "ENDPOINT", "AGE"],
        "the columns are {columns:?}"
    );
    let row: Vec<&str> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    let endpoint = format!("http://chat-router.{namespace}.svc:8081");
    ensure!(
        row[..5] == ["chat", "vLLM", "1R2S", "True", &endpoint],
        "the row is {row:?}"
    );
    let wide = scenario
        .kubectl(&["get", "md", "--namespace", namespace, "-o", "wide"])
        .await?;
    ensure!(
        wide.contains("MODEL") && wide.contains("ROUTER") && wide.contains("vllm-router"),
        "wide: {wide}"
    );

    let md = scenario.get(namespace, "md/chat").await?;
    ensure!(
        md["status"]["phase"] == "Ready",
        "the phase is {}",
        md["status"]["phase"]
    );
    ensure!(
        md["status"]["observedGeneration"] == md["metadata"]["generation"],
        "observed {} of {}",
        md["status"]["observedGeneration"],
        md["metadata"]["generation"]
    );
    for condition in ["Available", "RouterReady", "RolesReady", "SpecAccepted"] {
        scenario
            .wait(namespace, &format!("condition={condition}"), "md/chat")
            .await?;
    }
    scenario
        .wait(namespace, "condition=Progressing=False", "md/chat")
        .await?;

    let description = scenario
        .kubectl(&["describe", "md", "chat", "--namespace", namespace])
        .await?;
    ensure!(
        description.contains("Events:") && !description.contains("Events:  <none>"),
        "describe: {description}"
    );
    let explained = scenario.kubectl(&["explain", "md.spec.roles.directDecode"]).await?;
    ensure!(
        explained.contains("routing proxy on the serving port"),
        "explain: {explained}"
    );

    let pods = scenario.get(namespace, "pods").await?;
    ensure!(names(&pods).len() == 3, "the Pods are {:?}", names(&pods));
    for ordinal in 0..2 {
        let pod = scenario.get(namespace, &format!("pod/chat-server-{ordinal}")).await?;
        let annotations = &pod["metadata"]["annotations"];
        for (key, value) in [
            ("prometheus.io/scrape", "true"),
            ("prometheus.io/path", "/metrics"),
            ("prometheus.io/port", "8000"),
            ("prometheus.io/scheme", "http"),
        ] {
            ensure!(annotations[key] == value, "{key} is {}", annotations[key]);
        }
        ensure!(
            pod["metadata"]["ownerReferences"][0]["controller"] == true,
            "the Pod is not controlled: {pod}"
        );
        let declared = pod["spec"]["containers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|container| {
                container["ports"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .any(|port| port["containerPort"] == 8000)
            });
        ensure!(
            declared.count() == 1,
            "not exactly one container declares the metrics port"
        );
        let log = scenario
            .kubectl(&["logs", &format!("chat-server-{ordinal}"), "--namespace", namespace])
            .await?;
        ensure!(!log.is_empty(), "the log of chat-server-{ordinal} is empty");
    }

    scenario
        .kubectl(&["delete", "md", "chat", "--namespace", namespace, "--timeout=60s"])
        .await?;
    for kind in [
        "pods",
        "services",
        "deployments",
        "serviceaccounts",
        "roles",
        "rolebindings",
    ] {
        let selector = "app.kubernetes.io/instance=chat";
        scenario
            .kubectl(&[
                "wait",
                "--for=delete",
                kind,
                "-l",
                selector,
                "--namespace",
                namespace,
                "--timeout=90s",
            ])
            .await?;
    }
    Ok(())
}

async fn scale_up_and_down_leaves_other_pods_alone(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("scale").await?;
    scenario.apply(namespace, &vllm("chat", 2, "")).await?;
    scenario.wait(namespace, "condition=Available", "md/chat").await?;
    let before = scenario.get(namespace, "pod/chat-server-0").await?;

    scenario.apply(namespace, &vllm("chat", 5, "")).await?;
    scenario
        .wait(namespace, "jsonpath={.status.roles[0].ready}=5", "md/chat")
        .await?;
    let pods = names(&scenario.get(namespace, "pods").await?);
    let expected: Vec<String> = (0..5).map(|ordinal| format!("chat-server-{ordinal}")).collect();
    ensure!(pods == expected, "after scaling up: {pods:?}");

    scenario.apply(namespace, &vllm("chat", 1, "")).await?;
    for ordinal in 1..5 {
        scenario
            .wait(namespace, "delete", &format!("pod/chat-server-{ordinal}"))
            .await?;
    }
    let after = scenario.get(namespace, "pod/chat-server-0").await?;
    ensure!(
        before["metadata"]["uid"] == after["metadata"]["uid"],
        "the Pod that stays was replaced"
    );

    scenario.apply(namespace, &vllm("chat", 0, "")).await?;
    scenario.wait(namespace, "delete", "pod/chat-server-0").await?;
    // As a Deployment of no replicas is.
    scenario
        .wait(namespace, "jsonpath={.status.roleSummary}=0S", "md/chat")
        .await?;
    let md = scenario.get(namespace, "md/chat").await?;
    let available = md["status"]["conditions"].as_array().into_iter().flatten();
    let available = available.clone().find(|condition| condition["type"] == "Available");
    ensure!(
        md["status"]["phase"] == "Ready" && available.is_some_and(|condition| condition["status"] == "True"),
        "scaled to zero it is {}",
        md["status"]
    );
    Ok(())
}

async fn a_deleted_and_a_failed_pod_come_back_under_their_ordinal(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("heal").await?;
    scenario.apply(namespace, &vllm("chat", 2, "")).await?;
    scenario.wait(namespace, "condition=Available", "md/chat").await?;
    let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();

    let first = uid(&scenario.get(namespace, "pod/chat-server-0").await?);
    scenario
        .kubectl(&[
            "delete",
            "pod",
            "chat-server-0",
            "--namespace",
            namespace,
            "--wait=false",
        ])
        .await?;
    let mut failed = first.clone();
    for fault in ["delete", "fail", "evict"] {
        match fault {
            "fail" => scenario.cluster.kubelet().fail(namespace, "chat-server-0")?,
            "evict" => scenario.cluster.kubelet().evict(namespace, "chat-server-0")?,
            _ => {}
        }
        let started = tokio::time::Instant::now();
        let replacement = loop {
            if let Ok(pod) = scenario.get(namespace, "pod/chat-server-0").await
                && uid(&pod) != failed
            {
                break uid(&pod);
            }
            patient!(started, "no replacement after {fault}");
        };
        scenario.wait(namespace, "condition=Ready", "pod/chat-server-0").await?;
        failed = replacement;
    }
    scenario.wait(namespace, "condition=Available", "md/chat").await?;
    Ok(())
}

async fn a_refused_spec_is_said_once_and_touches_no_pod(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("refused").await?;
    scenario.apply(namespace, &vllm("chat", 1, "")).await?;
    scenario.wait(namespace, "condition=Available", "md/chat").await?;
    let before = scenario.get(namespace, "pod/chat-server-0").await?;

    let owned =
        json!({"spec": {"roles": [{"name": "server", "replicas": 3, "extraArgs": ["--kv-transfer-config={}"]}]}});
    scenario
        .kubectl(&[
            "patch",
            "md",
            "chat",
            "--namespace",
            namespace,
            "--type=merge",
            "-p",
            &owned.to_string(),
        ])
        .await?;
    scenario
        .wait(namespace, "condition=SpecAccepted=False", "md/chat")
        .await?;
    let md = scenario.get(namespace, "md/chat").await?;
    let condition = md["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "SpecAccepted")
        .cloned()
        .unwrap_or_default();
    let message = condition["message"].as_str().unwrap_or_default();
    ensure!(
        message.contains("--kv-transfer-config") && message.contains("command"),
        "the sentence names neither the flag nor the way out: {message}"
    );
    let after = scenario.get(namespace, "pod/chat-server-0").await?;
    ensure!(
        before["metadata"]["uid"] == after["metadata"]["uid"],
        "a running Pod was touched"
    );
    let pods = names(&scenario.get(namespace, "pods").await?);
    ensure!(pods == ["chat-server-0"], "a refused spec was carried out: {pods:?}");

    let mended = r#"[{"op":"remove","path":"/spec/roles/0/extraArgs"},{"op":"replace","path":"/spec/roles/0/replicas","value":1}]"#;
    scenario
        .kubectl(&[
            "patch",
            "md",
            "chat",
            "--namespace",
            namespace,
            "--type=json",
            "-p",
            mended,
        ])
        .await?;
    scenario
        .wait(namespace, "condition=SpecAccepted=True", "md/chat")
        .await?;
    Ok(())
}

async fn a_router_comes_and_goes_whole(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("router").await?;
    scenario.apply(namespace, &vllm("chat", 1, "")).await?;
    scenario.wait(namespace, "condition=Available", "md/chat").await?;
    let engine = scenario.get(namespace, "pod/chat-server-0").await?;

    let objects = [
        "deployment",
        "service",
        "serviceaccount",
        "role",
        "rolebinding",
        "configmap",
    ];
    for (router, objects) in [("vllm-router", &objects[..5]), ("llm-d-router", &objects[..])] {
        let routed = vllm("chat", 1, &format!("router:\n  name: {router}"));
        scenario.apply(namespace, &routed).await?;
        scenario
            .wait(namespace, "jsonpath={.status.router.ready}=1", "md/chat")
            .await?;
        for kind in objects {
            scenario.get(namespace, &format!("{kind}/chat-router")).await?;
        }
        scenario.apply(namespace, &vllm("chat", 1, "")).await?;
        for kind in objects {
            scenario
                .wait(namespace, "delete", &format!("{kind}/chat-router"))
                .await?;
        }
        // llm-d-router has the engines publish KV events, which replaces them; vllm-router asks nothing of them.
        let after = scenario.get(namespace, "pod/chat-server-0").await?;
        ensure!(
            router != "vllm-router" || engine["metadata"]["uid"] == after["metadata"]["uid"],
            "the engine was replaced for the router's sake"
        );
    }
    let md = scenario.get(namespace, "md/chat").await?;
    ensure!(
        md["spec"].get("router").is_none(),
        "the router is still in the spec: {}",
        md["spec"]
    );
    Ok(())
}

async fn a_fixed_state_is_left_alone(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("fixed").await?;
    scenario.apply(namespace, &vllm("chat", 2, "")).await?;
    scenario.wait(namespace, "condition=Available", "md/chat").await?;
    let versions = async || -> Result<Vec<String>, crate::scenario::Failure> {
        let mut versions = vec![];
        for object in ["md/chat", "pod/chat-server-0", "pod/chat-server-1", "service/chat"] {
            let object = scenario.get(namespace, object).await?;
            versions.push(
                object["metadata"]["resourceVersion"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
            );
        }
        Ok(versions)
    };
    let before = versions().await?;
    // An annotation of the user's triggers a reconcile; it is not ours and is left alone.
    scenario
        .kubectl(&[
            "annotate",
            "pod",
            "chat-server-0",
            "--namespace",
            namespace,
            "example.org/note=kept",
        ])
        .await?;
    let annotated = versions().await?;
    ensure!(
        before[2..] == annotated[2..] && before[0] == annotated[0],
        "a reconcile with nothing to do wrote"
    );
    // What the operator owns is put back.
    scenario
        .kubectl(&[
            "annotate",
            "pod",
            "chat-server-0",
            "--namespace",
            namespace,
            "--overwrite",
            "prometheus.io/port=1",
        ])
        .await?;
    scenario
        .wait(
            namespace,
            r"jsonpath={.metadata.annotations.prometheus\.io/port}=8000",
            "pod/chat-server-0",
        )
        .await?;
    // So is a Service's port, though server-side apply alone would only add ours beside the other of the same name.
    let port = r#"{"spec":{"ports":[{"name":"http","port":1234}]}}"#;
    scenario
        .kubectl(&[
            "patch",
            "service",
            "chat",
            "--namespace",
            namespace,
            "--type=merge",
            "-p",
            port,
        ])
        .await?;
    scenario
        .wait(namespace, "jsonpath={.spec.ports[*].port}=8000", "service/chat")
        .await?;
    let pod = scenario.get(namespace, "pod/chat-server-0").await?;
    ensure!(
        pod["metadata"]["annotations"]["example.org/note"] == "kept",
        "the user's annotation was lost"
    );
    Ok(())
}
