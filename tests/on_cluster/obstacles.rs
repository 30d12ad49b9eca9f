//! What stands in the operator's way: names that are taken, objects that the API server refuses, values that are hard to read. Each is
//! told, and holds up nothing but itself.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::scenario::{Failure, Outcome, Scenario, Test, ensure, patient, test, vllm};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![
        test!(a_foreign_pod_is_left_alone_and_said_so),
        test!(of_two_deployments_that_want_one_name_the_first_has_it),
        test!(refused_services_hold_up_no_pod),
        test!(a_spec_that_makes_an_invalid_pod_costs_no_pod),
        test!(a_foreign_key_in_a_selector_is_taken_out),
        test!(a_number_without_a_fraction_is_a_whole_one),
    ]
}

/// Those that change what every test stands on.
pub fn alone() -> Vec<Test> {
    vec![test!(a_deployment_that_cannot_be_read_is_told_so_and_stops_no_other)]
}

fn condition<'a>(md: &'a Value, type_: &str) -> &'a Value {
    let mut conditions = md["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .find(|condition| condition["type"] == type_)
        .unwrap_or(&Value::Null)
}

/// Waits until a condition has a reason, and returns its message.
async fn reason(scenario: &Scenario, namespace: &str, md: &str, type_: &str, reason: &str) -> Result<String, Failure> {
    let path = format!(r#"jsonpath={{.status.conditions[?(@.type=="{type_}")].reason}}={reason}"#);
    scenario.wait(namespace, &path, &format!("md/{md}")).await?;
    let md = scenario.get(namespace, &format!("md/{md}")).await?;
    Ok(condition(&md, type_)["message"].as_str().unwrap_or_default().to_owned())
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

async fn a_foreign_pod_is_left_alone_and_said_so(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("foreign").await?;
    let foreign = "apiVersion: v1\nkind: Pod\nmetadata: {name: chat-server-1, labels: {own: 'yes'}}\nspec: {containers: [{name: c, image: example/other:v1}]}";
    scenario.apply(namespace, foreign).await?;
    let before = scenario.get(namespace, "pod/chat-server-1").await?;
    scenario.apply(namespace, &vllm("chat", 3, "")).await?;
    let message = reason(&scenario, namespace, "chat", "Progressing", "NameTaken").await?;
    ensure!(
        message.starts_with("Pod chat-server-1 exists and does not belong to this ModelDeployment"),
        "the sentence is {message:?}"
    );
    scenario
        .wait(namespace, "jsonpath={.status.roles[0].ready}=2", "md/chat")
        .await?;
    let after = scenario.get(namespace, "pod/chat-server-1").await?;
    for part in ["labels", "ownerReferences", "annotations", "uid"] {
        ensure!(
            before["metadata"][part] == after["metadata"][part],
            "{part} became {}",
            after["metadata"][part]
        );
    }
    scenario
        .kubectl(&["delete", "pod", "chat-server-1", "--namespace", namespace])
        .await?;
    scenario.wait(namespace, "condition=RolesReady", "md/chat").await?;
    Ok(())
}

async fn of_two_deployments_that_want_one_name_the_first_has_it(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("namesakes").await?;
    let named = |name: &str, role: &str| {
        let manifest = vllm(name, 1, "  terminationGracePeriodSeconds: 1");
        manifest.replace("name: server", &format!("name: {role}"))
    };
    let owner = async || -> Result<Value, Failure> {
        let pod = scenario.get(namespace, "pod/a-b-c-0").await?;
        Ok(pod["metadata"]["ownerReferences"][0]["name"].clone())
    };
    scenario.apply(namespace, &named("a-b", "c")).await?;
    scenario.wait(namespace, "condition=RolesReady", "md/a-b").await?;
    scenario.apply(namespace, &named("a", "b-c")).await?;
    let message = reason(&scenario, namespace, "a", "Progressing", "NameTaken").await?;
    ensure!(
        message.ends_with("1 more could not be kept up: Service a-b-c"),
        "the sentence is {message:?}"
    );
    ensure!(owner().await? == "a-b", "the Pod is {}'s", owner().await?);
    // The other one has it once it is free.
    scenario
        .kubectl(&["delete", "md", "a-b", "--namespace", namespace])
        .await?;
    scenario.wait(namespace, "condition=RolesReady", "md/a").await?;
    ensure!(owner().await? == "a", "the Pod is {}'s", owner().await?);
    Ok(())
}

async fn refused_services_hold_up_no_pod(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("quota").await?;
    let quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none}\nspec: {hard: {services: '0'}}";
    scenario.apply(namespace, quota).await?;
    scenario
        .wait(namespace, "jsonpath={.status.hard.services}=0", "quota/none")
        .await?;
    scenario.apply(namespace, &vllm("chat", 2, "")).await?;
    let message = reason(&scenario, namespace, "chat", "Progressing", "QuotaExceeded").await?;
    ensure!(
        message.starts_with("cannot apply Service chat: ")
            && message.ends_with("1 more could not be kept up: Service chat-server"),
        "the sentence is {message:?}"
    );
    scenario.wait(namespace, "condition=RolesReady", "md/chat").await?;
    // Healing and a rollout go on.
    scenario
        .kubectl(&["delete", "pod", "chat-server-0", "--namespace", namespace])
        .await?;
    scenario
        .apply(namespace, &vllm("chat", 2, "").replace("v0.32.0", "v0.33.0"))
        .await?;
    let image = "jsonpath={.spec.containers[0].image}=vllm/vllm-openai:v0.33.0";
    for ordinal in 0..2 {
        let pod = &format!("pod/chat-server-{ordinal}");
        let started = Instant::now();
        // It may be away for a moment.
        while scenario.wait(namespace, image, pod).await.is_err() {
            patient!(started, "{pod} was not replaced");
        }
    }
    scenario
        .kubectl(&["delete", "quota", "none", "--namespace", namespace])
        .await?;
    reason(&scenario, namespace, "chat", "Progressing", "UpToDate").await?;
    scenario.get(namespace, "service/chat").await?;
    Ok(())
}

async fn a_spec_that_makes_an_invalid_pod_costs_no_pod(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("invalid").await?;
    scenario.apply(namespace, &vllm("chat", 2, "")).await?;
    scenario.wait(namespace, "condition=RolesReady", "md/chat").await?;
    let pods = async || -> Result<Vec<String>, Failure> {
        let pods = scenario.get(namespace, "pods").await?;
        Ok(pods["items"].as_array().into_iter().flatten().map(uid).collect())
    };
    let before = pods().await?;
    // The definition does not know what a volume may be called.
    scenario
        .apply(
            namespace,
            &vllm("chat", 2, "  volumes: [{name: Not_One, emptyDir: {}}]"),
        )
        .await?;
    let message = reason(&scenario, namespace, "chat", "Progressing", "ObjectRefused").await?;
    ensure!(
        message.starts_with("cannot apply Pod chat-server-0: Pod \"chat-server-0\" is invalid: spec.volumes[1].name"),
        "the sentence is {message:?}"
    );
    ensure!(pods().await? == before, "a Pod was given up for one that cannot be");
    scenario.apply(namespace, &vllm("chat", 2, "")).await?;
    reason(&scenario, namespace, "chat", "Progressing", "UpToDate").await?;
    ensure!(
        pods().await? == before,
        "a Pod was replaced though the spec is as it was"
    );
    Ok(())
}

async fn a_foreign_key_in_a_selector_is_taken_out(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("selector").await?;
    scenario.apply(namespace, &vllm("chat", 1, "")).await?;
    scenario.wait(namespace, "condition=RolesReady", "md/chat").await?;
    let before = scenario.get(namespace, "service/chat").await?;
    let foreign = r#"{"spec":{"selector":{"foreign":"key"}}}"#;
    scenario
        .kubectl(&[
            "patch",
            "service",
            "chat",
            "--namespace",
            namespace,
            "--type=merge",
            "-p",
            foreign,
        ])
        .await?;
    let started = Instant::now();
    loop {
        let after = scenario.get(namespace, "service/chat").await?;
        if after["spec"]["selector"] == before["spec"]["selector"] {
            return Ok(());
        }
        patient!(started, "the selector stays {}", after["spec"]["selector"]);
    }
}

async fn a_number_without_a_fraction_is_a_whole_one(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("numbers").await?;
    let manifest = r#"{
        "apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "chat"},
        "spec": {
            "model": {"name": "tiny"}, "engine": {"name": "vLLM", "image": "vllm/vllm-openai:v0.32.0"},
            "roles": [{"name": "server", "replicas": 1.0, "port": 8e3}]
        }
    }"#;
    // As `render` reads it.
    scenario.apply(namespace, manifest).await?;
    scenario.wait(namespace, "condition=RolesReady", "md/chat").await?;
    let md = scenario.get(namespace, "md/chat").await?;
    ensure!(
        md["spec"]["roles"][0]["port"] == 8000,
        "the port is {}",
        md["spec"]["roles"][0]["port"]
    );
    Ok(())
}

async fn a_deployment_that_cannot_be_read_is_told_so_and_stops_no_other(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("unreadable").await?;
    scenario.apply(namespace, &vllm("chat", 1, "")).await?;
    scenario.wait(namespace, "condition=RolesReady", "md/chat").await?;
    // A later version of the definition knows one engine more.
    let engines = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/engine/properties/name/enum";
    let definition = "crd/modeldeployments.worker.gpustack.ai";
    let patch = |operations: Value| {
        let scenario = scenario.clone();
        async move {
            let arguments = ["patch", definition, "--type=json", "-p", &operations.to_string()];
            scenario.kubectl(&arguments).await.map(|_| ())
        }
    };
    let before = scenario.get("default", definition).await?;
    patch(json!([{"op": "add", "path": format!("{engines}/-"), "value": "Later"}])).await?;
    let later = vllm("later", 1, "").replace("name: vLLM", "name: Later");
    let started = Instant::now();
    while let Err(failure) = scenario.apply(namespace, &later).await {
        patient!(started, "the wider definition is not in force: {failure}");
    }
    let message = reason(&scenario, namespace, "later", "SpecAccepted", "Refused").await?;
    ensure!(
        message.contains("cannot read the object") && message.contains("Later"),
        "the sentence is {message:?}"
    );
    // Others are kept up, also by a replica that begins anew with the object in its list.
    scenario.apply(namespace, &vllm("chat", 2, "")).await?;
    scenario
        .wait(namespace, "jsonpath={.status.roles[0].ready}=2", "md/chat")
        .await?;
    let deployment = format!("deployment/{}", crate::scenario::RELEASE);
    let system = crate::scenario::NAMESPACE;
    scenario
        .kubectl(&["rollout", "restart", &deployment, "--namespace", system])
        .await?;
    scenario
        .kubectl(&[
            "rollout",
            "status",
            &deployment,
            "--namespace",
            system,
            "--timeout=120s",
        ])
        .await?;
    scenario.apply(namespace, &vllm("chat", 3, "")).await?;
    scenario
        .wait(namespace, "jsonpath={.status.roles[0].ready}=3", "md/chat")
        .await?;
    scenario
        .kubectl(&["delete", "md", "later", "--namespace", namespace])
        .await?;
    let enumeration = before.pointer(engines).cloned().unwrap_or_default();
    patch(json!([{"op": "replace", "path": engines, "value": enumeration}])).await
}
