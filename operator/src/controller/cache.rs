//! What the watches saw: one table a kind, the Pod-role index, and a signal for each ModelDeployment that something happened to.
//!
//! Every replica of the operator watches, leader or not, for the index answers the metrics API. Only objects with our
//! `managed-by` label are watched, so that memory and traffic do not grow with what else the cluster runs. An object that cannot be
//! read is none of the others' business: it is kept aside, and its watch goes on.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::DynamicObject;
use kube::core::{ApiResource, DeserializeGuard, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use model_deployment::index::{Index, OwnerKind, Table};
use model_deployment::pod::labels;
use model_deployment_crds::{GROUP, ModelDeployment};
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use tokio::sync::{broadcast, watch};

use super::memory::{Key, Memories};
use super::unreadable::Unreadable;
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

/// What the watches saw, and who is told of it.
pub struct Cache {
    pub(super) model_deployments: Store<ModelDeployment>,
    unreadable: Mutex<HashMap<Signal, Arc<Unreadable>>>,
    pods: RwLock<Table<Arc<Pod>>>,
    objects: Vec<(ApiResource, RwLock<Table<Arc<DynamicObject>>>)>,
    index: Arc<Index>,
    memories: Arc<Memories>,
    signals: broadcast::Sender<Signal>,
    relists: watch::Sender<()>,
}

impl Cache {
    /// A cache of nothing yet, and the writer of its ModelDeployments.
    pub(super) fn new(index: Arc<Index>, memories: Arc<Memories>) -> (Self, Writer<ModelDeployment>) {
        let writer = Writer::new(());
        let cache = Self {
            model_deployments: writer.as_reader(),
            unreadable: Mutex::default(),
            pods: RwLock::default(),
            objects: resources().map(|resource| (resource, RwLock::default())).collect(),
            index,
            memories,
            signals: broadcast::channel(SIGNALS).0,
            relists: watch::channel(()).0,
        };
        (cache, writer)
    }

    /// A subscription to all further signals.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Signal> {
        self.signals.subscribe()
    }

    /// Resolves once every kind was listed.
    pub(super) async fn listed(&self) {
        // A dropped writer means that the process is ending; nobody waits then.
        let _ = self.model_deployments.wait_until_ready().await;
        let mut relists = self.relists.subscribe();
        while !(self.pods.read().is_listed() && self.objects.iter().all(|(_, table)| table.read().is_listed())) {
            if relists.changed().await.is_err() {
                return;
            }
        }
    }

    /// ModelDeployments that cannot be read.
    pub(super) fn unreadable(&self) -> Vec<Signal> {
        self.unreadable.lock().keys().cloned().collect()
    }

    /// The ModelDeployment of that name, if it cannot be read.
    pub(super) fn unreadable_of(&self, signal: &Signal) -> Option<Arc<Unreadable>> {
        self.unreadable.lock().get(signal).cloned()
    }

    /// The Pod of that name, whoever controls it.
    pub(super) fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        Some(self.pods.read().get(namespace, name)?.value.clone())
    }

    /// Pods that the ModelDeployment `uid` controls, by name.
    pub(super) fn pods_of(&self, namespace: &str, uid: &str) -> BTreeMap<String, Arc<Pod>> {
        let pods = self.pods.read();
        let owned = pods.owned_by(namespace, OwnerKind::ModelDeployment, uid);
        owned.map(|(name, row)| (name.to_owned(), row.value.clone())).collect()
    }

    /// How a kind that is applied beside Pods is called.
    pub(super) fn resource(&self, kind: &str) -> Option<&ApiResource> {
        let mut resources = self.objects.iter().map(|(resource, _)| resource);
        resources.find(|resource| resource.kind == kind)
    }

    /// The object of that kind and name, whoever controls it.
    pub(super) fn object(&self, resource: &ApiResource, namespace: &str, name: &str) -> Option<Arc<DynamicObject>> {
        let (_, table) = self.objects.iter().find(|(found, _)| found == resource)?;
        Some(table.read().get(namespace, name)?.value.clone())
    }

    /// Everything but Pods that the ModelDeployment `uid` controls, by kind and name.
    pub(super) fn objects_of(&self, namespace: &str, uid: &str) -> BTreeMap<Key, Arc<DynamicObject>> {
        let mut objects = BTreeMap::new();
        for (resource, table) in &self.objects {
            let table = table.read();
            let owned = table.owned_by(namespace, OwnerKind::ModelDeployment, uid);
            objects.extend(owned.map(|(name, row)| ((resource.kind.clone(), name.to_owned()), row.value.clone())));
        }
        objects
    }

    /// Takes in what happened to a ModelDeployment. One that cannot be read any more is dropped, so that nothing is done by what it said
    /// before; the index keeps that, since the Pods are still those of it.
    pub(super) fn observe_model_deployment(&self, writer: &mut Writer<ModelDeployment>, event: Event<DynamicObject>) {
        let read = |raw: DynamicObject, of: fn(ModelDeployment) -> Event<ModelDeployment>| {
            let signal = ObjectRef::new(&raw.name_any()).within(&raw.namespace().unwrap_or_default());
            match Unreadable::unless_read(raw) {
                Ok(object) => {
                    self.unreadable.lock().remove(&signal);
                    (signal, Some(of(object)))
                }
                Err(unreadable) => {
                    tracing::warn!(
                        namespace = signal.namespace,
                        name = signal.name,
                        why = unreadable.why,
                        "a ModelDeployment cannot be read"
                    );
                    self.unreadable.lock().insert(signal.clone(), unreadable);
                    (signal, None)
                }
            }
        };
        let event = match event {
            Event::Apply(raw) => match read(raw, Event::Apply) {
                (_, Some(event)) => event,
                (signal, None) => {
                    if let Some(before) = self.model_deployments.get(&signal) {
                        writer.apply_watcher_event(&Event::Delete(before.as_ref().clone()));
                    }
                    return self.signal(signal);
                }
            },
            Event::InitApply(raw) => match read(raw, Event::InitApply) {
                (_, Some(event)) => event,
                (_, None) => return,
            },
            Event::Delete(raw) => {
                let uid = raw.uid().unwrap_or_default();
                self.memories.forget(&uid);
                match read(raw, Event::Delete) {
                    (_, Some(event)) => event,
                    (signal, None) => {
                        self.unreadable.lock().remove(&signal);
                        return;
                    }
                }
            }
            Event::Init => {
                self.unreadable.lock().clear();
                Event::Init
            }
            Event::InitDone => Event::InitDone,
        };
        self.index.observe_model_deployment(&event);
        writer.apply_watcher_event(&event);
        match &event {
            Event::Apply(object) => self.signal(ObjectRef::from_obj(object)),
            Event::InitDone => self.signal_all(),
            Event::Delete(_) | Event::Init | Event::InitApply(_) => {}
        }
    }

    /// Takes in what happened to a Pod.
    pub(super) fn observe_pod(&self, event: &Event<Pod>) {
        self.index.observe_pod(event);
        self.pods.write().apply(event, |pod| Arc::new(pod.clone()));
        self.child("Pod", event);
    }

    /// Takes in what happened to an object that is applied beside Pods.
    pub(super) fn observe_object(&self, resource: &ApiResource, event: &Event<DynamicObject>) {
        let Some((_, table)) = self.objects.iter().find(|(found, _)| found == resource) else {
            return;
        };
        if resource.kind == "Deployment" {
            self.index.observe_deployment(event);
        }
        table.write().apply(event, |object| Arc::new(object.clone()));
        self.child(&resource.kind, event);
    }

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
            Event::InitDone => {
                self.relists.send_replace(());
                self.signal_all();
            }
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
        for signal in self.unreadable() {
            self.signal(signal);
        }
    }
}

/// The cache, and the future that keeps it and `index` current for as long as it is polled.
pub fn watch(
    client: Client,
    index: Arc<Index>,
    memories: Arc<Memories>,
) -> (Arc<Cache>, impl Future<Output = ()> + Send) {
    let ours = Config::default().labels(&format!("{}={}", labels::MANAGED_BY, labels::OPERATOR));
    let (cache, mut writer) = Cache::new(index.clone(), memories);
    let cache = Arc::new(cache);
    let mut watches: Vec<BoxFuture<'static, ()>> = Vec::new();

    let told = cache.clone();
    let model_deployments = Api::all_with(client.clone(), &ApiResource::erase::<ModelDeployment>(&()));
    watches.push(Box::pin(follow(model_deployments, Config::default(), move |event| {
        told.observe_model_deployment(&mut writer, event)
    })));

    let told = cache.clone();
    let pods = Api::<DeserializeGuard<Pod>>::all(client.clone());
    watches.push(Box::pin(follow(pods, ours.clone(), move |event| {
        if let Some(event) = readable(event) {
            told.observe_pod(&event);
        }
    })));

    let replica_sets = Api::<PartialObjectMeta<ReplicaSet>>::all(client.clone());
    watches.push(Box::pin(follow(replica_sets, ours.clone(), move |event| {
        index.observe_replica_set(&event)
    })));

    for resource in resources() {
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let told = cache.clone();
        watches.push(Box::pin(follow(api, ours.clone(), move |event| {
            told.observe_object(&resource, &event)
        })));
    }
    (cache, async move { drop(join_all(watches).await) })
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

/// The event without the guard. None where its object cannot be read; what was known of that one stays.
fn readable<K: Resource>(event: Event<DeserializeGuard<K>>) -> Option<Event<K>> {
    let read = |DeserializeGuard(read)| match read {
        Ok(object) => Some(object),
        Err(invalid) => {
            let (namespace, name) = (&invalid.metadata.namespace, &invalid.metadata.name);
            tracing::warn!(namespace, name, error = invalid.error, "an object cannot be read");
            None
        }
    };
    Some(match event {
        Event::Apply(object) => Event::Apply(read(object)?),
        Event::Delete(object) => Event::Delete(read(object)?),
        Event::InitApply(object) => Event::InitApply(read(object)?),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    })
}

/// The reference to the ModelDeployment that controls an object.
pub(super) fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|reference| {
        reference.controller == Some(true)
            && reference.kind == "ModelDeployment"
            && reference
                .api_version
                .split_once('/')
                .is_some_and(|(group, _)| group == GROUP)
    })
}

/// The kinds that are applied beside Pods.
pub(super) fn resources() -> impl Iterator<Item = ApiResource> {
    KINDS.into_iter().map(|(group, version, kind, plural)| ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: if group.is_empty() {
            version.into()
        } else {
            format!("{group}/{version}")
        },
        kind: kind.into(),
        plural: plural.into(),
    })
}
