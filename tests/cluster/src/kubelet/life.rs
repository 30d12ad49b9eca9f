//! The life of a Pod on this Node: volumes, init containers, containers, end, deletion.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use kube::api::{DeleteParams, Preconditions};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Node;
use super::container::{self, Part, State};
use super::resident::Resident;
use super::status;
use super::volume::Volumes;
use crate::error::chain;

/// Pause before volumes are tried again (a Secret that comes a moment after its Pod).
const RETRY: Duration = Duration::from_millis(200);

/// Lives until the Pod is gone.
pub(super) async fn live(node: Arc<Node>, resident: Arc<Resident>) {
    let keeper = tokio::spawn(status::keep(node.clone(), resident.clone()));
    let run = run(&node, &resident);
    let ending = async {
        let mut object = resident.object.subscribe();
        tokio::select! {
            () = async { drop(object.wait_for(|pod| pod.metadata.deletion_timestamp.is_some()).await) } => resident.end(None),
            () = resident.gone.cancelled() => resident.end(Some(Duration::ZERO)),
        }
    };
    tokio::join!(run, ending);
    keeper.abort();
    if !resident.gone.is_cancelled() {
        delete(&node, &resident).await;
    }
    let _ = tokio::fs::remove_dir_all(&resident.folder).await;
    node.addresses.lock().release(resident.address);
}

async fn run(node: &Arc<Node>, resident: &Arc<Resident>) {
    let spec = resident.pod().spec.clone().unwrap_or_default();
    let Some(volumes) = volumes(node, resident).await else {
        return;
    };
    let mut sidecars = JoinSet::new();
    let spawn = |set: &mut JoinSet<()>, container: &Container, part| {
        set.spawn(container::live(
            node.clone(),
            resident.clone(),
            container.clone(),
            part,
            volumes.clone(),
        ));
    };
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            spawn(&mut sidecars, container, Part::Sidecar);
            tokio::select! {
                () = resident.until(|inside| inside.containers.get(&container.name).is_some_and(|r| r.started)) => {}
                () = resident.stop.cancelled() => break,
            }
        } else {
            container::live(
                node.clone(),
                resident.clone(),
                container.clone(),
                Part::Init,
                volumes.clone(),
            )
            .await;
            let report = resident.container(&container.name);
            match report.state {
                State::Terminated(ended) if ended.code == 0 => {
                    resident.report(&container.name, |report| report.ready = true);
                }
                _ => break,
            }
        }
    }
    let initialized = spec.init_containers.iter().flatten().all(|container| {
        let report = resident.container(&container.name);
        report.ready || report.started
    });
    if initialized && !resident.stop.is_cancelled() {
        resident.inside.lock().initialized = true;
        resident.touch();
        let mut mains = JoinSet::new();
        for container in &spec.containers {
            spawn(&mut mains, container, Part::Main);
        }
        while mains.join_next().await.is_some() {}
    }
    // Native sidecars end after the containers that they serve.
    if !sidecars.is_empty() {
        resident.stop.cancel();
        while sidecars.join_next().await.is_some() {}
    }
    resident.touch();
}

async fn volumes(node: &Node, resident: &Resident) -> Option<Arc<Volumes>> {
    loop {
        let objects = node.objects(&resident.namespace);
        let folder = resident.folder.join("volumes");
        let made = Volumes::make(folder, &resident.pod(), resident.addresses(node), &objects).await;
        let error = match made {
            Ok(volumes) => return Some(Arc::new(volumes)),
            Err(error) => chain(&error),
        };
        for container in resident.pod().spec.iter().flat_map(|spec| &spec.containers) {
            let message = error.clone();
            resident.report(&container.name, |report| {
                report.state = State::Waiting {
                    reason: "ContainerCreating",
                    message,
                };
            });
        }
        tokio::select! {
            () = sleep(RETRY) => {}
            () = resident.stop.cancelled() => return None,
        }
    }
}

/// Takes the object away, now that nothing of it runs.
async fn delete(node: &Node, resident: &Resident) {
    // Whoever watches sees the end before the object goes, as with a real kubelet.
    let _ = status::write(node, resident, &mut Value::Null).await;
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: Some(resident.uid.clone()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match node.pods(&resident.namespace).delete(&resident.name, &params).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        Err(error) => tracing::warn!(%error, pod = resident.name, "Pod not deleted"),
    }
}
