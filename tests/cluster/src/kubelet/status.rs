//! A Pod's status: built from what its containers report, written only when it says something new.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Node;
use super::container::{Ended, Report, State};
use super::node::MANAGER;
use super::resident::{Inside, Resident};

/// Changes within this time become one write: a Pod of played containers is running and ready at once.
const GATHER: Duration = Duration::from_millis(30);

/// Pause after a write that failed.
const RETRY: Duration = Duration::from_millis(500);

/// Writes the status on every change until the Pod is gone.
pub(super) async fn keep(node: Arc<Node>, resident: Arc<Resident>) {
    let mut written = Value::Null;
    loop {
        tokio::select! {
            () = resident.gone.cancelled() => return,
            () = resident.dirty.notified() => {}
        }
        sleep(GATHER).await;
        if let Err(error) = write(&node, &resident, &mut written).await {
            match error {
                // Gone, or another Pod of that name.
                kube::Error::Api(status) if matches!(status.code, 404 | 409 | 422) => {}
                error => {
                    tracing::warn!(%error, pod = resident.name, "status not written");
                    sleep(RETRY).await;
                    resident.dirty.notify_one();
                }
            }
        }
    }
}

/// Writes the status if it differs from `written`.
pub(super) async fn write(node: &Node, resident: &Resident, written: &mut Value) -> kube::Result<()> {
    let status = {
        let mut inside = resident.inside.lock();
        if inside.silent {
            return Ok(());
        }
        build(node, resident, &mut inside)
    };
    if status == *written {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": resident.uid}, "status": status});
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    node.pods(&resident.namespace)
        .patch_status(&resident.name, &params, &Patch::Merge(patch))
        .await?;
    *written = status;
    Ok(())
}

fn build(node: &Node, resident: &Resident, inside: &mut Inside) -> Value {
    let pod = resident.pod();
    let spec = pod.spec.clone().unwrap_or_default();
    let held = node.is_held(&resident.namespace, &resident.name);
    let report = |container: &Container| inside.containers.get(&container.name).cloned().unwrap_or_default();
    let phase = phase(&pod, inside);
    let over = matches!(phase, "Failed" | "Succeeded");
    let ready_now = |report: &Report| report.ready && !held && !over;
    let mains: Vec<Report> = spec.containers.iter().map(report).collect();
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let all_ready = mains
        .iter()
        .chain(&sidecars.map(report).collect::<Vec<_>>())
        .all(ready_now);
    let address = inside.reported.unwrap_or(Some(resident.address));
    let statuses = |containers: &[Container]| -> Vec<Value> {
        let status =
            |container: &Container| container_status(container, &report(container), ready_now(&report(container)));
        containers.iter().map(status).collect()
    };
    let main_statuses = statuses(&spec.containers);
    let init_statuses = statuses(spec.init_containers.as_deref().unwrap_or_default());
    let not_ready = if over { "PodFailed" } else { "ContainersNotReady" };
    let conditions = [
        ("PodReadyToStartContainers", !over, None),
        (
            "Initialized",
            inside.initialized || over,
            Some("ContainersNotInitialized"),
        ),
        ("Ready", all_ready && gates(&pod), Some(not_ready)),
        ("ContainersReady", all_ready, Some(not_ready)),
        ("PodScheduled", true, None),
    ];
    let conditions = transition(&pod, inside, &conditions);
    json!({
        "phase": phase,
        "reason": inside.failure.as_ref().and_then(|failure| failure.reason),
        "message": inside.failure.as_ref().map(|failure| &failure.message),
        "hostIP": node.config.node_address, "hostIPs": [{"ip": node.config.node_address}],
        "podIP": address, "podIPs": address.map(|ip| json!([{"ip": ip}])),
        "startTime": Time(resident.started),
        "qosClass": pod.status.as_ref().and_then(|status| status.qos_class.clone()),
        "conditions": conditions,
        "containerStatuses": main_statuses,
        "initContainerStatuses": if init_statuses.is_empty() { Value::Null } else { init_statuses.into() },
    })
}

/// Phase out of the containers, or the verdict of a test.
fn phase(pod: &Pod, inside: &Inside) -> &'static str {
    if inside.failure.is_some() {
        return "Failed";
    }
    let Some(spec) = &pod.spec else {
        return "Pending";
    };
    let policy = spec.restart_policy.as_deref().unwrap_or("Always");
    let code = |container: &Container| match inside.containers.get(&container.name).map(|report| &report.state) {
        Some(State::Terminated(ended)) => Some(ended.code),
        _ => None,
    };
    let ordinary = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|c| c.restart_policy.as_deref() != Some("Always"));
    if policy == "Never" && ordinary.filter_map(code).any(|code| code != 0) {
        return "Failed";
    }
    if !inside.initialized {
        return "Pending";
    }
    let codes: Option<Vec<i32>> = spec.containers.iter().map(code).collect();
    if let Some(codes) = codes {
        let failed = codes.iter().any(|code| *code != 0);
        match (policy, failed) {
            ("Never", true) => return "Failed",
            ("Never" | "OnFailure", false) => return "Succeeded",
            _ => {}
        }
    }
    let begun = |container: &Container| {
        let report = inside.containers.get(&container.name);
        report.is_some_and(|r| r.last.is_some() || !matches!(r.state, State::Waiting { .. }))
    };
    if spec.containers.iter().all(begun) {
        "Running"
    } else {
        "Pending"
    }
}

fn gates(pod: &Pod) -> bool {
    let met = |kind: &str| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|c| c.type_ == kind && c.status == "True")
    };
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    gates.into_iter().all(|gate| met(&gate.condition_type))
}

/// The Pod's conditions: ours as they are now, with the time of their last change, and everybody else's untouched.
fn transition(pod: &Pod, inside: &mut Inside, now: &[(&str, bool, Option<&str>)]) -> Vec<PodCondition> {
    let seen: Vec<PodCondition> = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .cloned()
        .collect();
    let ours = |kind: &str| now.iter().any(|(name, ..)| *name == kind);
    let before = std::mem::take(&mut inside.conditions);
    let known = |kind: &str| before.iter().chain(&seen).find(|c| c.type_ == kind);
    let conditions = now.iter().map(|(kind, holds, reason)| {
        let status = if *holds { "True" } else { "False" };
        let unchanged = known(kind)
            .filter(|c| c.status == status)
            .and_then(|c| c.last_transition_time.clone());
        PodCondition {
            type_: (*kind).to_owned(),
            status: status.to_owned(),
            reason: reason.filter(|_| !holds).map(str::to_owned),
            last_transition_time: unchanged.or_else(|| Some(Time(Timestamp::now()))),
            ..PodCondition::default()
        }
    });
    inside.conditions = conditions.collect();
    let others = seen.iter().filter(|c| !ours(&c.type_)).cloned();
    inside.conditions.iter().cloned().chain(others).collect()
}

fn container_status(container: &Container, report: &Report, ready: bool) -> Value {
    let image = container.image.clone().unwrap_or_default();
    let state = match &report.state {
        State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
        State::Running { since } => json!({"running": {"startedAt": Time(*since)}}),
        State::Terminated(ended) => json!({"terminated": terminated(ended)}),
    };
    json!({
        "name": container.name, "image": image, "imageID": format!("test-cluster://{image}"), "containerID": report.id,
        "restartCount": report.restarts, "ready": ready, "started": report.started, "state": state,
        "lastState": report.last.as_ref().map_or(json!({}), |ended| json!({"terminated": terminated(ended)})),
    })
}

fn terminated(ended: &Ended) -> Value {
    json!({
        "exitCode": ended.code, "reason": ended.reason, "message": ended.message, "containerID": ended.id,
        "startedAt": Time(ended.since), "finishedAt": Time(ended.at),
    })
}
