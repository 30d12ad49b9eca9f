//! Last step: what was seen becomes a status and Events. Client required only where the status differs.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Client, Resource, ResourceExt};
use model_deployment::pod::labels::{COORDINATOR, ROUTER_ROLE};
use model_deployment::render::{ROUTER_METRICS_PORT, ROUTER_PORT};
use model_deployment_crds::{ModelDeployment, ModelDeploymentStatus};
use parking_lot::Mutex;
use serde_json::json;

use super::FIELD_MANAGER;
use super::apply::Outcome;
use super::dereference::{Live, Sorted};
use super::events::{Happening, of_pods};
use super::memory::Memory;
use super::refused::told;
use super::rollout::{LivePod, PodState, WantedRole, count};
use super::status::{Seen, SeenRole, SeenRouter, reason, was_rolling};
use super::trouble::trouble;
use super::validate::Wanted;

/// What was seen of `object`. `wanted` is the sentence of a refusal where its spec is not rendered.
pub fn seen(
    object: &ModelDeployment,
    wanted: &Result<Wanted, String>,
    live: &Live,
    sorted: &Sorted,
    outcome: &Outcome,
    now: Timestamp,
) -> Seen {
    let name = object.name_any();
    let roles = object.spec.roles.iter().map(|role| {
        let wanted = match wanted {
            Ok(wanted) => wanted
                .roles
                .iter()
                .find(|wanted| wanted.name == role.name)
                .map(|role| role.wanted.clone()),
            Err(_) => None,
        }
        .unwrap_or_else(|| WantedRole {
            replicas: unsigned(role.replicas),
            size: unsigned(role.size),
            revision: None,
        });
        let pods = sorted.roles.get(&role.name).map_or(&[][..], Vec::as_slice);
        SeenRole {
            name: role.name.clone(),
            kind: role.kind,
            desired: wanted.replicas,
            counts: count(&wanted, pods),
            take_over: !role.command.is_empty(),
            trouble: pods
                .iter()
                .filter(|pod| is_awaited(pod, &wanted))
                .find_map(|pod| trouble(live.pods.get(&pod.name)?, now))
                .or_else(|| outcome.paused.get(&role.name).cloned()),
        }
    });
    let ready = |role: &str| {
        let deployment = live.objects.get(&("Deployment".to_owned(), format!("{name}-{role}")));
        let ready = deployment.and_then(|deployment| deployment.data.pointer("/status/readyReplicas")?.as_i64());
        ready.and_then(|ready| i32::try_from(ready).ok()).unwrap_or(0)
    };
    Seen {
        generation: object.meta().generation,
        deleting: object.meta().deletion_timestamp.is_some(),
        refused: wanted.as_ref().err().cloned(),
        roles: roles.collect(),
        router: object.spec.router.as_ref().map(|router| SeenRouter {
            name: router.name,
            desired: router.replicas,
            ready: ready(ROUTER_ROLE),
            coordinator: router
                .coordinator
                .as_ref()
                .map(|coordinator| (coordinator.replicas, ready(COORDINATOR))),
            endpoint: format!(
                "http://{name}-router.{}.svc:{ROUTER_PORT}",
                object.namespace().unwrap_or_default()
            ),
            metrics_port: i32::from(ROUTER_METRICS_PORT),
        }),
        endpoint: wanted.as_ref().ok().map(|wanted| wanted.endpoint.clone()),
        blocked: told(&outcome.blocked),
    }
}

/// Whether the role waits for this Pod to become ready.
fn is_awaited(pod: &LivePod, wanted: &WantedRole) -> bool {
    let current = wanted.revision.is_none() || pod.revision == wanted.revision;
    current && pod.ordinal < wanted.replicas && pod.state == PodState::Starting
}

/// What happened in one pass: what it did, and what changed since the last status.
pub fn happenings(
    object: &ModelDeployment,
    outcome: &Outcome,
    previous: Option<&ModelDeploymentStatus>,
    status: &ModelDeploymentStatus,
) -> Vec<Happening> {
    let mut happenings = of_pods(&outcome.created, &outcome.deleted);
    let router = ("Deployment".to_owned(), format!("{}-{ROUTER_ROLE}", object.name_any()));
    if outcome.added.contains(&router) {
        happenings.push(Happening::normal(
            "RouterCreated",
            "Create",
            format!("created router {}", router.1),
        ));
    }
    if outcome.pruned.contains(&router) {
        let note = format!("removed router {} and everything that was made for it", router.1);
        happenings.push(Happening::normal("RouterPruned", "Prune", note));
    }
    let message = |type_: &str, status: Option<&ModelDeploymentStatus>| {
        let condition = status?.conditions.iter().find(|condition| condition.type_ == type_)?;
        Some((
            condition.reason.clone(),
            condition.message.clone(),
            condition.observed_generation,
        ))
    };
    let accepted = message("SpecAccepted", Some(status));
    if accepted != message("SpecAccepted", previous)
        && let Some(("Refused", sentence)) = accepted.as_ref().map(|(reason, message, _)| (reason.as_str(), message))
    {
        happenings.push(Happening::warning("SpecRefused", "Render", sentence.clone()));
    }
    let progress = message("Progressing", Some(status));
    let rolling = was_rolling(Some(status));
    match (was_rolling(previous), rolling) {
        (false, true) => {
            happenings.insert(
                0,
                Happening::normal("RolloutStarted", "Rollout", "replacing Pods of another revision"),
            );
        }
        (true, false) if reason(Some(status), "RolesReady") == Some("AllReplicasReady") => {
            happenings.push(Happening::normal(
                "RolloutFinished",
                "Rollout",
                "every replica is of the new revision and ready",
            ));
        }
        _ => {}
    }
    if let Some((reason, sentence, _)) = progress {
        let before = message("Progressing", previous);
        let known = before
            .as_ref()
            .is_some_and(|(before, message, _)| *before == reason && *message == sentence);
        let again = before.is_some_and(|(before, ..)| before == reason);
        match reason.as_str() {
            // Their sentences change with every restart of a container.
            "RolloutStalled" if !again => happenings.push(Happening::warning("RolloutStalled", "Rollout", sentence)),
            "ReplicasFailing" if !again => happenings.push(Happening::warning("ReplicasFailing", "Create", sentence)),
            "QuotaExceeded" | "Forbidden" | "ObjectRefused" | "NameTaken" if !known => {
                happenings.push(Happening::warning("ApplyFailed", "Apply", sentence));
            }
            _ => {}
        }
    }
    happenings
}

/// The status that was written last: what this process wrote, unless the cache shows something newer.
pub fn last_written(object: &ModelDeployment, memory: &Memory) -> Option<ModelDeploymentStatus> {
    let seen = version(object.meta());
    match &memory.status {
        Some((status, written)) if seen.is_some_and(|seen| seen < *written) => Some(status.clone()),
        _ => object.status.clone(),
    }
}

/// Writes `status` by server-side apply on the subresource.
///
/// # Errors
/// The API server said no, or could not be reached. That the object is gone, or is another one of the same name, is no error.
pub async fn write(
    client: &Client,
    object: &ModelDeployment,
    status: &ModelDeploymentStatus,
    memory: &Mutex<Memory>,
) -> Result<(), kube::Error> {
    let written = patch(client, object.meta(), status).await?;
    if let Some(version) = written.as_ref().and_then(version) {
        memory.lock().status = Some((status.clone(), version));
    }
    Ok(())
}

/// Server-side apply of `status` to the ModelDeployment of this name and UID. None where it is gone, or is another one.
///
/// # Errors
/// The API server said no, or could not be reached.
pub async fn patch(
    client: &Client,
    metadata: &ObjectMeta,
    status: &ModelDeploymentStatus,
) -> Result<Option<ObjectMeta>, kube::Error> {
    let resource = ApiResource::erase::<ModelDeployment>(&());
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let name = metadata.name.as_deref().unwrap_or_default();
    let applied = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": { "name": name, "uid": metadata.uid },
        "status": status,
    });
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    match api.patch_status(name, &parameters, &Patch::Apply(&applied)).await {
        Ok(written) => Ok(Some(written.metadata)),
        Err(kube::Error::Api(refused)) if matches!(refused.code, 404 | 409) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Resource versions of one kind are ordered, and numbers.
fn version(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_ref()?.parse().ok()
}

/// Now, as a condition writes it: whole seconds.
pub fn whole_seconds(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// The schema keeps counts at 0 or more.
fn unsigned(count: i32) -> u32 {
    count.try_into().unwrap_or(0)
}

/// When a Pod that is awaited will have been awaited for too long, in seconds from `now`; the earliest of all.
pub fn next_deadline<'a>(pods: impl IntoIterator<Item = &'a Pod>, now: Timestamp) -> Option<std::time::Duration> {
    let deadlines = pods.into_iter().filter_map(super::trouble::deadline);
    let left = deadlines
        .filter(|deadline| *deadline > now)
        .map(|deadline| deadline.duration_since(now));
    left.min().and_then(|left| left.try_into().ok())
}
