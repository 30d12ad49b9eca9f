//! The installation: the chart with real helm, the operator's replicas, its rights, and its end. These tests change what every other
//! test stands on, so they run after them, one by one, in this order.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::scenario::{API_SERVICE, NAMESPACE, Outcome, RELEASE, Scenario, Test, chart, ensure, patient, test, vllm};
use crate::second;

/// The tests of this module, in order.
pub fn tests() -> Vec<Test> {
    vec![
        test!(helm_lint_and_a_second_release_refused),
        test!(the_leader_killed_leaves_the_api_available_and_the_next_one_reconciles),
        test!(helm_upgrade_updates_the_definition_and_keeps_the_api_available),
        test!(a_damaged_certificate_is_issued_again_and_the_api_stays_available),
        test!(without_an_operator_v1alpha1_and_the_garbage_collector_go_on),
        test!(helm_uninstall_leaves_nothing_that_breaks_the_cluster),
    ]
}

/// What is said of everything that went before, on both clusters.
pub fn last() -> Vec<Test> {
    vec![test!(every_right_of_the_operator_is_used)]
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
    let service = scenario.get("default", API_SERVICE).await?;
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
        patient!(started, "nobody leads after the Lease was deleted");
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
        patient!(started, "the damaged certificate was not issued again");
    }
    let answer = scenario.metrics(namespace, "chat").await?;
    ensure!(answer["kind"] == "ModelDeploymentMetrics", "{answer}");
    Ok(())
}

/// (verb, API group, resource) of a rule or of a request.
type Right = (String, String, String);

async fn every_right_of_the_operator_is_used(scenario: Arc<Scenario>) -> Outcome {
    let own = [
        scenario.get("default", &format!("clusterrole/{RELEASE}")).await?,
        scenario.get(NAMESPACE, &format!("role/{RELEASE}")).await?,
    ];
    let second = [scenario
        .get("default", &format!("clusterrole/{RELEASE}-impersonator"))
        .await?];
    let user = format!("system:serviceaccount:{NAMESPACE}:{RELEASE}");
    let impersonator = format!("{user}-impersonator");
    let (mut used, mut used_for_others) = (BTreeSet::new(), BTreeSet::new());
    let log = std::fs::read_to_string(scenario.cluster.audit_log())?
        + &std::fs::read_to_string(second::audit_log(&scenario.cluster)).unwrap_or_default();
    for event in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if event["responseStatus"]["code"] == 403 {
            continue;
        }
        if event["user"]["username"] == user.as_str() {
            used.extend(rights_used(&event));
        }
        if event["user"]["username"] == impersonator.as_str() {
            used_for_others.extend(rights_of_others(&event));
        }
    }
    for (roles, used) in [(&own[..], used), (&second, used_for_others)] {
        ensure!(!used.is_empty(), "the audit log knows nothing of {user}");
        let granted = granted(roles);
        let idle: Vec<&Right> = granted
            .difference(&used)
            // What a router's Role grants, the operator must hold, or the API server refuses the Role.
            .filter(|(verb, group, resource)| !(verb == "get" && group.is_empty() && resource == "pods"))
            .collect();
        ensure!(idle.is_empty(), "granted and never used: {idle:?}");
    }
    Ok(())
}

/// What roles grant.
fn granted(roles: &[Value]) -> BTreeSet<Right> {
    let mut granted = BTreeSet::new();
    for rule in roles
        .iter()
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
    granted
}

/// The right that a request needed.
fn right(event: &Value, verb: &str) -> Right {
    let object = &event["objectRef"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let resource = match object["subresource"].as_str() {
        Some(subresource) => format!("{}/{subresource}", text(&object["resource"])),
        None => text(&object["resource"]),
    };
    (verb.to_owned(), text(&object["apiGroup"]), resource)
}

/// What a request of the operator's own needed.
fn rights_used(event: &Value) -> Vec<Right> {
    let mut used = vec![right(event, event["verb"].as_str().unwrap_or_default())];
    // Server-side apply that creates needs `create` beside `patch`.
    if event["verb"] == "patch" && event["responseStatus"]["code"] == 201 {
        used.push(right(event, "create"));
    }
    used
}

/// What a request in somebody else's name needed of who sent it.
fn rights_of_others(event: &Value) -> Vec<Right> {
    let constraint = event["authenticationMetadata"]["impersonationConstraint"].as_str();
    let Some(mode) = constraint.and_then(|constraint| constraint.strip_prefix("impersonate:")) else {
        return Vec::new();
    };
    let identity = |resource: &str| {
        (
            format!("impersonate:{mode}"),
            "authentication.k8s.io".to_owned(),
            resource.to_owned(),
        )
    };
    let verb = event["verb"].as_str().unwrap_or_default();
    let mut used = vec![right(event, &format!("impersonate-on:{mode}:{verb}"))];
    match mode {
        "user-info" => {
            used.extend([identity("users"), identity("groups")]);
            used.extend(event["impersonatedUser"]["uid"].is_string().then(|| identity("uids")));
        }
        _ => used.push(identity("serviceaccounts")),
    }
    used
}

/// Nobody but callers of v1 depends on the operator: its version is not the preferred one.
async fn without_an_operator_v1alpha1_and_the_garbage_collector_go_on(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("collected").await?;
    scenario.apply(namespace, &vllm("chat", 1, "")).await?;
    scenario.wait(namespace, "condition=Available", "md/chat").await?;
    let scale = async |replicas: &str| {
        let arguments = ["scale", "deployment", RELEASE, replicas, "--namespace", NAMESPACE];
        scenario.kubectl(&arguments).await
    };
    scale("--replicas=0").await?;
    scenario
        .wait(NAMESPACE, "condition=Available=false", API_SERVICE)
        .await?;
    let said = scenario
        .kubectl_refused(&[
            "get",
            "modeldeployments.v1.worker.gpustack.ai",
            "--namespace",
            namespace,
        ])
        .await?;
    ensure!(!said.is_empty(), "v1 answers without an operator");
    scenario
        .kubectl(&["label", "md/chat", "still=here", "--namespace", namespace])
        .await?;
    let delete = [
        "delete",
        "md/chat",
        "--cascade=foreground",
        "--timeout=120s",
        "--namespace",
        namespace,
    ];
    scenario.kubectl(&delete).await?;
    let left = scenario
        .kubectl(&["get", "pods,services", "--namespace", namespace, "-o", "name"])
        .await?;
    ensure!(left.is_empty(), "not collected: {left}");
    scale("--replicas=2").await?;
    scenario.wait(NAMESPACE, "condition=Available", API_SERVICE).await?;
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
    scenario.lists_without_a_warning(namespace, "chat").await?;
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
        patient!(started, "left behind in {NAMESPACE}: {left}");
    }
    scenario
        .kubectl(&["delete", "namespace", namespace, "--timeout=90s"])
        .await?;
    Ok(())
}
