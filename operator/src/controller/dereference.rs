//! First step: everything that lives for one ModelDeployment, from the cache. No client required.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DynamicObject;
use model_deployment::index;
use model_deployment::pod::labels;
use model_deployment_crds::ModelDeployment;

use super::cache::Cache;
use super::memory::{Key, Memory};
use super::rollout::{LivePod, PodState};

/// What lives for one ModelDeployment.
#[derive(Default)]
pub struct Live {
    /// Its Pods, by name.
    pub pods: BTreeMap<String, Arc<Pod>>,
    /// Everything else that it controls, by kind and name.
    pub objects: BTreeMap<Key, Arc<DynamicObject>>,
}

/// Looks up what `object` controls.
pub fn dereference(cache: &Cache, object: &ModelDeployment) -> Live {
    let (namespace, uid) = (object.namespace().unwrap_or_default(), object.uid().unwrap_or_default());
    Live {
        pods: cache.pods_of(&namespace, &uid),
        objects: cache.objects_of(&namespace, &uid),
    }
}

/// The live Pods of each role of `object`, and the names and UIDs of those whose name is none of its own.
pub struct Sorted {
    /// By role, in order of the roles' names.
    pub roles: BTreeMap<String, Vec<LivePod>>,
    /// Controlled by it, and nothing that it could have created.
    pub unknown: Vec<(String, String)>,
}

/// Sorts live Pods by role.
pub fn sort(object: &ModelDeployment, live: &Live, memory: &Memory) -> Sorted {
    let mut sorted = Sorted {
        roles: BTreeMap::new(),
        unknown: Vec::new(),
    };
    let name = object.name_any();
    for pod in live.pods.values() {
        let labelled = pod.labels().get(labels::COMPONENT).map(String::as_str);
        let roles = object.spec.roles.iter().map(|role| role.name.as_str());
        let uid = pod.uid().unwrap_or_default();
        let state = state(pod, &uid, memory);
        match index::named(&name, roles, &pod.name_any(), labelled) {
            Some(named) => sorted.roles.entry(named.role.to_owned()).or_default().push(LivePod {
                name: pod.name_any(),
                uid,
                ordinal: named.ordinal,
                member: named.member,
                alone: pod.name_any() == format!("{name}-{}-{}", named.role, named.ordinal),
                revision: pod.labels().get(labels::REVISION).cloned(),
                state,
            }),
            None if state == PodState::Terminating => {}
            None => sorted.unknown.push((pod.name_any(), uid)),
        }
    }
    sorted
}

fn state(pod: &Pod, uid: &str, memory: &Memory) -> PodState {
    let status = pod.status.as_ref();
    if pod.metadata.deletion_timestamp.is_some() || memory.is_deleted(uid) {
        return PodState::Terminating;
    }
    match status.and_then(|status| status.phase.as_deref()) {
        Some("Failed" | "Succeeded") => PodState::Finished,
        _ if is_ready(pod) => PodState::Ready,
        _ => PodState::Starting,
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
