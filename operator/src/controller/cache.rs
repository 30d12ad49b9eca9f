//! What the watches saw: one store a kind, the Pod-role index, and a signal for each ModelDeployment that something happened to.
//!
//! Every replica of the operator watches, leader or not, for the index answers the metrics API. Only objects with our
//! `managed-by` label are watched, so that memory and traffic do not grow with what else the cluster runs.

use std::sync::Arc;

use futures::{StreamExt, future};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use kube::core::{ApiResource, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, metadata_watcher, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use model_deployment::index::Index;
use model_deployment::pod::labels;
use model_deployment_crds::{GROUP, ModelDeployment};
use tokio::sync::broadcast;

use super::memory::Memories;
use super::{FIELD_MANAGER, drift};

/// Signals that a slow listener may fall behind by; one that falls further behind looks at everything.
const SIGNALS: usize = 4096;

/// A reference to the ModelDeployment that something happened to.
pub type Signal = ObjectRef<ModelDeployment>;

/// The kinds that are applied beside Pods: (group, version, kind, plural).
const KINDS: [(&str, &str, &str, &str); 6] = [
    ("", "v1", "Service", "services"),
    ("", "v1", "ConfigMap", "configmaps"),
    ("", "v1", "ServiceAccount", "serviceaccounts"),
    ("apps", "v1", "Deployment", "deployments"),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
];

/// What the watches saw.
pub struct Cache {
    pub(super) model_deployments: Store<ModelDeployment>,
    pub(super) pods: Store<Pod>,
    pub(super) objects: Vec<(ApiResource, Store<DynamicObject>)>,
    signals: broadcast::Sender<Signal>,
}

impl Cache {
    /// A subscription to all further signals.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Signal> {
        self.signals.subscribe()
    }

    /// Resolves once every kind was listed.
    pub(super) async fn listed(&self) {
        // A dropped writer means that the process is ending; nobody waits then.
        let _ = self.model_deployments.wait_until_ready().await;
        let _ = self.pods.wait_until_ready().await;
        for (_, store) in &self.objects {
            let _ = store.wait_until_ready().await;
        }
    }
}

/// The cache, and the future that keeps it and `index` current for as long as it is polled.
pub fn watch(client: Client, index: Arc<Index>, memories: Arc<Memories>) -> (Arc<Cache>, impl Future<Output = ()> + Send) {
    let (signals, _) = broadcast::channel(SIGNALS);
    let ours = Config::default().labels(&format!("{}={}", labels::MANAGED_BY, labels::OPERATOR));
    let mut tasks: Vec<future::BoxFuture<'static, ()>> = Vec::new();

    let mut writer = Writer::<ModelDeployment>::new(());
    let model_deployments = writer.as_reader();
    let (known, told, forgotten, signal) = (index.clone(), model_deployments.clone(), memories.clone(), signals.clone());
    tasks.push(Box::pin(follow(
        watcher(Api::<ModelDeployment>::all(client.clone()), Config::default()),
        move |event| {
            let signalled = event_object(&event).map(ObjectRef::from_obj);
            known.observe_model_deployment(&event);
            writer.apply_watcher_event(&event);
            match event {
                Event::Delete(object) => forgotten.forget(&object.uid().unwrap_or_default()),
                Event::InitDone => told.state().iter().for_each(|object| drop(signal.send(ObjectRef::from_obj(object)))),
                _ => drop(signalled.map(|object| signal.send(object))),
            }
        },
    )));

    let mut writer = Writer::<Pod>::new(());
    let pods = writer.as_reader();
    let (known, seen, signal) = (index.clone(), memories.clone(), signals.clone());
    tasks.push(Box::pin(follow(watcher(Api::<Pod>::all(client.clone()), ours.clone()), move |mut event| {
        if let Event::Apply(pod) | Event::InitApply(pod) = &mut event {
            drift::keep_claims(pod.meta_mut(), FIELD_MANAGER);
        }
        known.observe_pod(&event);
        writer.apply_watcher_event(&event);
        seen.observe("Pod", &event);
        drop(event_object(&event).and_then(owner).map(|owner| signal.send(owner)));
    })));

    let known = index.clone();
    tasks.push(Box::pin(follow(
        metadata_watcher(Api::<ReplicaSet>::all(client.clone()), ours.clone()),
        move |event: Event<PartialObjectMeta<ReplicaSet>>| known.observe_replica_set(&event),
    )));

    let mut objects = Vec::new();
    for (group, version, kind, plural) in KINDS {
        let resource = resource(group, version, kind, plural);
        let mut writer = Writer::<DynamicObject>::new(resource.clone());
        objects.push((resource.clone(), writer.as_reader()));
        let (known, seen, signal) = (index.clone(), memories.clone(), signals.clone());
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
        tasks.push(Box::pin(follow(watcher(api, ours.clone()), move |mut event| {
            if let Event::Apply(object) | Event::InitApply(object) = &mut event {
                drift::keep_claims(&mut object.metadata, FIELD_MANAGER);
            }
            if kind == "Deployment" {
                known.observe_deployment(&event);
            }
            writer.apply_watcher_event(&event);
            seen.observe(kind, &event);
            drop(event_object(&event).and_then(owner).map(|owner| signal.send(owner)));
        })));
    }
    let cache = Arc::new(Cache { model_deployments, pods, objects, signals });
    (cache, async move { drop(future::join_all(tasks).await) })
}

/// Hands every event of a watch on; a broken watch is taken up again with growing pauses, for ever.
async fn follow<K: Clone>(
    stream: impl futures::Stream<Item = watcher::Result<Event<K>>> + Send,
    mut observe: impl FnMut(Event<K>) + Send,
) {
    let mut stream = std::pin::pin!(stream.default_backoff());
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => observe(event),
            Err(error) => tracing::warn!(%error, "a watch was interrupted and is taken up again"),
        }
    }
}

fn event_object<K>(event: &Event<K>) -> Option<&K> {
    match event {
        Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) => Some(object),
        Event::Init | Event::InitDone => None,
    }
}

/// The ModelDeployment that controls an object.
fn owner(object: &impl Resource) -> Option<Signal> {
    let metadata = object.meta();
    let reference = controller(metadata)?;
    Some(ObjectRef::new(&reference.name).within(metadata.namespace.as_deref()?))
}

/// The reference to the ModelDeployment that controls an object.
pub(super) fn controller(
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference> {
    metadata.owner_references.iter().flatten().find(|reference| {
        reference.controller == Some(true)
            && reference.kind == "ModelDeployment"
            && reference.api_version.split_once('/').is_some_and(|(group, _)| group == GROUP)
    })
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.into() } else { format!("{group}/{version}") };
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version,
        kind: kind.into(),
        plural: plural.into(),
    }
}
