//! The installation: the chart with real helm, the operator's replicas, its rights, and its end. These tests change what every other
//! test stands on, so they run after them, one by one, in this order, the last of all.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::scenario::{NAMESPACE, Outcome, PATIENCE, RELEASE, Scenario, Test, chart, ensure, test, vllm};

/// The tests of this module, in order.
pub fn tests() -> Vec<Test> {
    vec![
        test!(helm_lint_and_a_second_release_refused),
        test!(the_leader_killed_leaves_the_api_available_and_the_next_one_reconciles),
        test!(helm_upgrade_updates_the_definition_and_keeps_the_api_available),
        test!(a_damaged_certificate_is_issued_again_and_the_api_stays_available),
        test!(every_right_of_the_operator_is_used),
        test!(helm_uninstall_leaves_nothing_that_breaks_the_cluster),
    ]
}

async fn helm_lint_and_a_second_release_refused(scenario: Arc<Scenario>) -> Outcome {
    scenario.helm(&["lint", "--strict", &chart()]).await?;
    let arguments = [
        "install",
        "second",
        &chart(),
        "--namespace",
        "second",
        "--create-namespace",
    ];
    let output = scenario.cluster.helm(&arguments).await?;
    ensure!(!output.status.success(), "a second release was installed");
    ensure!(
        output.stderr.contains(RELEASE),
        "the refusal does not name the first release: {}",
        output.stderr
    );
    Ok(())
}

/// Name of the replica that leads.
async fn leader(scenario: &Scenario) -> Result<String, crate::scenario::Failure> {
    let lease = scenario.get(NAMESPACE, &format!("lease/{RELEASE}")).await?;
    Ok(lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
}

async fn the_leader_killed_leaves_the_api_available_and_the_next_one_reconciles(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("leader").await?;
    scenario.apply(namespace, &vllm("chat", 1, "")).await?;
    scenario.wait(namespace, "condition=Available", "md/chat").await?;
    let first = leader(&scenario).await?;
    let pods = scenario.get(NAMESPACE, "pods").await?;
    let pod = pods["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|pod| pod["metadata"]["name"].as_str())
        .find(|name| first.starts_with(name))
        .ok_or_else(|| format!("no operator Pod is the leader {first:?}"))?
        .to_owned();
    // Killed with SIGKILL and kept down: it releases nothing.
    scenario
        .cluster
        .kubelet()
        .crash_container(NAMESPACE, &pod, "operator")?;
    scenario.apply(namespace, &vllm("chat", 2, "")).await?;
    for _ in 0..5 {
        let answer = scenario.metrics(namespace, "chat").await?;
        ensure!(answer["kind"] == "ModelDeploymentMetrics", "{answer}");
    }
    let service = scenario.get("default", "apiservice/v1.worker.gpustack.ai").await?;
    ensure!(
        service["status"]["conditions"][0]["status"] == "True",
        "the APIService: {}",
        service["status"]
    );
    scenario
        .wait(namespace, "jsonpath={.status.roles[0].ready}=2", "md/chat")
        .await?;
    let second = leader(&scenario).await?;
    ensure!(second != first, "{first} still leads");
    scenario.cluster.kubelet().mend_container(NAMESPACE, &pod, "operator")?;
    scenario
        .wait(NAMESPACE, "condition=Ready", &format!("pod/{pod}"))
        .await?;
    // A Lease that somebody deletes is made again, and somebody leads.
    let lease = format!("lease/{RELEASE}");
    scenario.kubectl(&["delete", &lease, "--namespace", NAMESPACE]).await?;
    let started = tokio::time::Instant::now();
    while leader(&scenario).await.unwrap_or_default().is_empty() {
        ensure!(started.elapsed() < PATIENCE, "nobody leads after the Lease was deleted");
    }
    Ok(())
}

async fn helm_upgrade_updates_the_definition_and_keeps_the_api_available(scenario: Arc<Scenario>) -> Outcome {
    let definition = "crd/modeldeployments.worker.gpustack.ai";
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/model/description";
    // As an older release of the chart would have left it: one description differs.
    let older = format!(r#"[{{"op":"replace","path":"{path}","value":"older"}}]"#);
    scenario
        .kubectl(&["patch", definition, "--type=json", "-p", &older])
        .await?;
    scenario.upgrade_chart(&["podAnnotations.upgraded=yes"]).await?;
    let live = scenario.get("default", definition).await?;
    ensure!(
        live.pointer(path).and_then(Value::as_str) != Some("older"),
        "the definition was not updated"
    );
    Ok(())
}

async fn a_damaged_certificate_is_issued_again_and_the_api_stays_available(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("certificate").await?;
    scenario.apply(namespace, &vllm("chat", 1, "")).await?;
    scenario.wait(namespace, "condition=Available", "md/chat").await?;
    let secret = format!("secret/{RELEASE}-certificate");
    let before = scenario.get(NAMESPACE, &secret).await?;
    let damage = r#"{"data":{"tls.crt":"bm8gY2VydGlmaWNhdGU="}}"#;
    scenario
        .kubectl(&["patch", &secret, "--namespace", NAMESPACE, "--type=merge", "-p", damage])
        .await?;
    let started = tokio::time::Instant::now();
    loop {
        let answer = scenario.metrics(namespace, "chat").await?;
        ensure!(answer["kind"] == "ModelDeploymentMetrics", "{answer}");
        let after = scenario.get(NAMESPACE, &secret).await?;
        if after["data"]["tls.crt"] != "bm8gY2VydGlmaWNhdGU=" {
            ensure!(
                after["data"]["tls.crt"] != before["data"]["tls.crt"],
                "the lost certificate came back"
            );
            break;
        }
        ensure!(
            started.elapsed() < PATIENCE,
            "the damaged certificate was not issued again"
        );
    }
    let answer = scenario.metrics(namespace, "chat").await?;
    ensure!(answer["kind"] == "ModelDeploymentMetrics", "{answer}");
    Ok(())
}

/// (verb, API group, resource) of a rule or of a request.
type Right = (String, String, String);

async fn every_right_of_the_operator_is_used(scenario: Arc<Scenario>) -> Outcome {
    let mut granted = BTreeSet::new();
    let role = scenario.get("default", &format!("clusterrole/{RELEASE}")).await?;
    let own = scenario.get(NAMESPACE, &format!("role/{RELEASE}")).await?;
    for rule in [&role, &own]
        .into_iter()
        .flat_map(|role| role["rules"].as_array().into_iter().flatten())
    {
        for verb in strings(&rule["verbs"]) {
            for group in strings(&rule["apiGroups"]) {
                for resource in strings(&rule["resources"]) {
                    granted.insert((verb.clone(), group.clone(), resource));
                }
            }
        }
    }
    let user = format!("system:serviceaccount:{NAMESPACE}:{RELEASE}");
    let mut used: BTreeSet<Right> = BTreeSet::new();
    let log = std::fs::read_to_string(scenario.cluster.audit_log())?;
    for event in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if event["user"]["username"] != user.as_str() || event["responseStatus"]["code"] == 403 {
            continue;
        }
        let object = &event["objectRef"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let resource = match object["subresource"].as_str() {
            Some(subresource) => format!("{}/{subresource}", text(&object["resource"])),
            None => text(&object["resource"]),
        };
        let right = |verb: &str| (verb.to_owned(), text(&object["apiGroup"]), resource.clone());
        used.insert(right(&text(&event["verb"])));
        // Server-side apply that creates needs `create` beside `patch`.
        if event["verb"] == "patch" && event["responseStatus"]["code"] == 201 {
            used.insert(right("create"));
        }
    }
    ensure!(!used.is_empty(), "the audit log knows nothing of {user}");
    let idle: Vec<&Right> = granted.difference(&used).collect();
    // What a router's Role grants, the operator must hold, or the API server refuses the Role.
    let idle: Vec<&Right> = idle
        .into_iter()
        .filter(|(verb, group, resource)| !(verb == "get" && group.is_empty() && resource == "pods"))
        .collect();
    ensure!(idle.is_empty(), "granted and never used: {idle:?}");
    Ok(())
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

async fn helm_uninstall_leaves_nothing_that_breaks_the_cluster(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("uninstall").await?;
    scenario.apply(namespace, &vllm("chat", 1, "")).await?;
    scenario.wait(namespace, "condition=Available", "md/chat").await?;
    scenario
        .helm(&["uninstall", RELEASE, "--namespace", NAMESPACE, "--wait"])
        .await?;

    let services = scenario.get("default", "apiservices").await?;
    let broken: Vec<&Value> = services["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|service| service["metadata"]["name"] == "v1.worker.gpustack.ai")
        .collect();
    ensure!(broken.is_empty(), "the APIService is still there: {broken:?}");
    // The definition and its objects stay, and kubectl works without a warning.
    let output = scenario
        .cluster
        .kubectl(&["get", "md", "--namespace", namespace])
        .await?;
    ensure!(
        output.stdout.contains("chat") && output.stderr.is_empty(),
        "get md: {}{}",
        output.stdout,
        output.stderr
    );
    for kind in ["clusterroles", "clusterrolebindings"] {
        let left = scenario
            .kubectl(&[
                "get",
                kind,
                "-l",
                &format!("app.kubernetes.io/instance={RELEASE}"),
                "-o",
                "name",
            ])
            .await?;
        ensure!(left.is_empty(), "left behind: {left}");
    }
    let started = tokio::time::Instant::now();
    loop {
        let left = scenario
            .kubectl(&[
                "get",
                "secrets,leases,services,deployments",
                "-o",
                "name",
                "--namespace",
                NAMESPACE,
            ])
            .await?;
        if left.is_empty() {
            break;
        }
        ensure!(started.elapsed() < PATIENCE, "left behind in {NAMESPACE}: {left}");
    }
    scenario
        .kubectl(&["delete", "namespace", namespace, "--timeout=90s"])
        .await?;
    Ok(())
}
