//! What the watches saw: one store a kind, the Pod-role index, and a signal for each ModelDeployment that something happened to.
//!
//! Every replica of the operator watches, leader or not, for the index answers the metrics API. Only objects with our
//! `managed-by` label are watched, so that memory and traffic do not grow with what else the cluster runs.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::DynamicObject;
use kube::core::{ApiResource, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use model_deployment::index::Index;
use model_deployment::pod::labels;
use model_deployment_crds::{GROUP, KIND, ModelDeployment};
use serde::de::DeserializeOwned;
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

    /// A cache that a test fills.
    #[cfg(test)]
    pub(super) fn new(
        model_deployments: Store<ModelDeployment>,
        pods: Store<Pod>,
        objects: Vec<(ApiResource, Store<DynamicObject>)>,
    ) -> Self {
        Self {
            model_deployments,
            pods,
            objects,
            signals: broadcast::channel(1).0,
        }
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
pub fn watch(
    client: Client,
    index: Arc<Index>,
    memories: Arc<Memories>,
) -> (Arc<Cache>, impl Future<Output = ()> + Send) {
    let (signals, _) = broadcast::channel(SIGNALS);
    let ours = Config::default().labels(&format!("{}={}", labels::MANAGED_BY, labels::OPERATOR));
    let mut watches: Vec<BoxFuture<'static, ()>> = Vec::new();

    let mut writer = Writer::<ModelDeployment>::new(());
    let model_deployments = writer.as_reader();
    let listeners = Listeners {
        index,
        memories,
        signals: signals.clone(),
        model_deployments: model_deployments.clone(),
    };
    let told = listeners.clone();
    watches.push(Box::pin(follow(
        Api::<ModelDeployment>::all(client.clone()),
        Config::default(),
        move |event| {
            told.index.observe_model_deployment(&event);
            writer.apply_watcher_event(&event);
            match &event {
                Event::Apply(object) => told.signal(ObjectRef::from_obj(object)),
                Event::Delete(object) => told.memories.forget(&object.uid().unwrap_or_default()),
                Event::InitDone => told.signal_all(),
                Event::Init | Event::InitApply(_) => {}
            }
        },
    )));

    let mut writer = Writer::<Pod>::new(());
    let pods = writer.as_reader();
    let told = listeners.clone();
    watches.push(Box::pin(follow(
        Api::<Pod>::all(client.clone()),
        ours.clone(),
        move |event| {
            told.index.observe_pod(&event);
            writer.apply_watcher_event(&event);
            told.child("Pod", &event);
        },
    )));

    let told = listeners.clone();
    let replica_sets = Api::<PartialObjectMeta<ReplicaSet>>::all(client.clone());
    watches.push(Box::pin(follow(replica_sets, ours.clone(), move |event| {
        told.index.observe_replica_set(&event)
    })));

    let mut objects = Vec::new();
    for (group, version, kind, plural) in KINDS {
        let resource = resource(group, version, kind, plural);
        let mut writer = Writer::<DynamicObject>::new(resource.clone());
        objects.push((resource.clone(), writer.as_reader()));
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let told = listeners.clone();
        watches.push(Box::pin(follow(api, ours.clone(), move |event| {
            if kind == "Deployment" {
                told.index.observe_deployment(&event);
            }
            writer.apply_watcher_event(&event);
            told.child(kind, &event);
        })));
    }
    let cache = Arc::new(Cache {
        model_deployments,
        pods,
        objects,
        signals,
    });
    (cache, async move { drop(join_all(watches).await) })
}

/// Who is told of what the watches saw.
#[derive(Clone)]
struct Listeners {
    index: Arc<Index>,
    memories: Arc<Memories>,
    signals: broadcast::Sender<Signal>,
    model_deployments: Store<ModelDeployment>,
}

impl Listeners {
    /// Something happened to an object that a ModelDeployment controls. What a relist no longer shows may have been anybody's.
    fn child<K: Resource>(&self, kind: &str, event: &Event<K>) {
        self.memories.observe(kind, event);
        match event {
            Event::Apply(object) | Event::Delete(object) => {
                let namespace = object.meta().namespace.as_deref();
                if let (Some(owner), Some(namespace)) = (controller(object.meta()), namespace) {
                    self.signal(ObjectRef::new(&owner.name).within(namespace));
                }
            }
            Event::InitDone => self.signal_all(),
            Event::Init | Event::InitApply(_) => {}
        }
    }

    /// Nobody listens where this replica does not lead.
    fn signal(&self, signal: Signal) {
        let _ = self.signals.send(signal);
    }

    fn signal_all(&self) {
        for object in self.model_deployments.state() {
            self.signal(ObjectRef::from_obj(object.as_ref()));
        }
    }
}

/// Watches one kind and hands every event on; a broken watch is taken up again with growing pauses, for ever.
async fn follow<K>(api: Api<K>, config: Config, mut observe: impl FnMut(Event<K>) + Send)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watcher(api, config)
        .modify(|object| drift::keep_claims(object.meta_mut(), FIELD_MANAGER))
        .default_backoff();
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => observe(event),
            Err(error) => tracing::warn!(%error, "a watch was interrupted and is taken up again"),
        }
    }
}

/// The reference to the ModelDeployment that controls an object.
pub(super) fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|reference| {
        reference.controller == Some(true)
            && reference.kind == KIND
            && reference
                .api_version
                .split_once('/')
                .is_some_and(|(group, _)| group == GROUP)
    })
}

/// The kinds that are applied beside Pods.
#[cfg(test)]
pub(super) fn resources() -> Vec<ApiResource> {
    KINDS
        .iter()
        .map(|(group, version, kind, plural)| resource(group, version, kind, plural))
        .collect()
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() {
        version.into()
    } else {
        format!("{group}/{version}")
    };
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version,
        kind: kind.into(),
        plural: plural.into(),
    }
}
