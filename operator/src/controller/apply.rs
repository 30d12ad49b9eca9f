//! Fourth step: makes the cluster as the plan says. Client required, but for nothing where nothing differs.
//!
//! Every write is a server-side apply of the whole rendered object, forced: what we render is ours, whatever else is in the object is
//! not looked at. Deletions name the UID that was seen, so that a successor of the same name is never hit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::core::ApiResource;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource, ResourceExt};
use model_deployment_crds::ModelDeployment;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::cache::{Cache, controller};
use super::dereference::{Live, Sorted};
use super::memory::{Key, Memory, UNSEEN};
use super::refused::Blocked;
use super::rollout::{LivePod, PodState, Step, Why, steps};
use super::validate::Wanted;
use super::{FIELD_MANAGER, drift};

/// Calls at once: as many as an API server takes from one client without pushing others aside, and enough to create the 64 Pods of a
/// role in a few round trips.
const AT_ONCE: usize = 16;

/// What one pass did.
#[derive(Default)]
pub struct Outcome {
    /// Pods created, by role.
    pub created: BTreeMap<String, Vec<String>>,
    /// Pods deleted, by role and cause.
    pub deleted: BTreeMap<(String, Why), Vec<String>>,
    /// Other objects that did not exist before.
    pub added: Vec<Key>,
    /// Other objects that are not wanted any more.
    pub pruned: Vec<Key>,
    /// Roles of which a Pod is not created again yet, with the reason.
    pub paused: BTreeMap<String, String>,
    /// What stopped it first.
    pub blocked: Option<Blocked>,
    /// When to look again though nothing will have been seen to happen.
    pub again: Option<Duration>,
}

/// Carries out one plan.
pub struct Applier<'a> {
    client: &'a Client,
    cache: &'a Cache,
    object: &'a ModelDeployment,
    namespace: String,
    memory: &'a Mutex<Memory>,
    stopped: AtomicBool,
    outcome: Mutex<Outcome>,
}

/// Something to apply.
struct Order<'a> {
    key: Key,
    resource: ApiResource,
    rendered: Value,
    /// The role of a Pod that does not exist yet; none for anything else.
    created_for: Option<&'a str>,
    /// Whether any other object does not exist yet.
    added: bool,
}

impl<'a> Applier<'a> {
    /// Works for `object`, with what is remembered of it.
    pub fn new(client: &'a Client, cache: &'a Cache, object: &'a ModelDeployment, memory: &'a Mutex<Memory>) -> Self {
        let namespace = object.namespace().unwrap_or_default();
        Self {
            client,
            cache,
            object,
            namespace,
            memory,
            stopped: AtomicBool::new(false),
            outcome: Mutex::default(),
        }
    }

    /// Makes the cluster as `wanted` says: objects first, then Pods. Stops handing out calls at the first that is refused.
    pub async fn apply(self, wanted: &Wanted, live: &Live, sorted: &Sorted, max_unavailable: u32) -> Outcome {
        // What a Deployment's Pods refer to comes before the Deployment.
        let (deployments, others): (Vec<_>, Vec<_>) =
            wanted.objects.iter().partition(|object| kind(object) == "Deployment");
        for objects in [others, deployments] {
            stream::iter(objects)
                .for_each_concurrent(AT_ONCE, |object| self.keep(object))
                .await;
        }
        let pruned: Vec<_> = live
            .objects
            .iter()
            .filter(|(key, _)| {
                !wanted
                    .objects
                    .iter()
                    .any(|object| kind(object) == key.0 && name(object) == key.1)
            })
            .filter(|(_, object)| object.metadata.deletion_timestamp.is_none())
            .filter(|(_, object)| !self.memory.lock().is_deleted(&object.uid().unwrap_or_default()))
            .collect();
        stream::iter(pruned)
            .for_each_concurrent(AT_ONCE, |(key, object)| self.prune(key, object))
            .await;
        self.pods(wanted, live, sorted, max_unavailable).await;
        self.outcome.into_inner()
    }

    async fn pods(&self, wanted: &Wanted, live: &Live, sorted: &Sorted, max_unavailable: u32) {
        let mut deletions: Vec<(String, String, String, Why)> = sorted
            .unknown
            .iter()
            .map(|(name, uid)| (String::new(), name.clone(), uid.clone(), Why::Unknown))
            .collect();
        let mut orders = Vec::new();
        let api = pod_resource();
        for role in &wanted.roles {
            let mut pods = sorted.roles.get(&role.name).cloned().unwrap_or_default();
            for ordinal in 0..role.wanted.replicas {
                for member in 0..role.wanted.size {
                    if pods.iter().any(|pod| (pod.ordinal, pod.member) == (ordinal, member)) {
                        continue;
                    }
                    let name = role.pod_name(ordinal, member);
                    if let Some(uid) = self.memory.lock().created(&pod_key(&name)) {
                        self.look_again(UNSEEN);
                        pods.push(LivePod {
                            name,
                            uid: uid.to_owned(),
                            ordinal,
                            member,
                            alone: role.wanted.size == 1,
                            revision: role.wanted.revision.clone(),
                            state: PodState::Starting,
                        });
                    }
                }
            }
            for pod in &pods {
                if pod.state == PodState::Ready {
                    self.memory.lock().ready(&pod.name);
                }
                let current = pod.ordinal < role.wanted.replicas && pod.revision == role.wanted.revision;
                let (true, Some(found)) = (current && pod.state != PodState::Terminating, live.pods.get(&pod.name))
                else {
                    continue;
                };
                let rendered = role.pod(pod.ordinal, pod.member);
                let key = pod_key(&pod.name);
                if !self.is_kept(&key, found.as_ref(), &rendered) {
                    let resource = api.clone();
                    orders.push(Order {
                        key,
                        resource,
                        rendered,
                        created_for: None,
                        added: false,
                    });
                }
            }
            for step in steps(&role.wanted, &pods, max_unavailable) {
                match step {
                    Step::Delete { name, uid, why } => deletions.push((role.name.clone(), name, uid, why)),
                    Step::Create { ordinal, member } => {
                        let key = pod_key(&role.pod_name(ordinal, member));
                        if let Some((pause, failures)) = self.memory.lock().pause(&key.1) {
                            self.look_again(pause);
                            let sentence = format!(
                                "Pod {} failed {failures} times in a row and is created again after a pause",
                                key.1
                            );
                            self.outcome.lock().paused.entry(role.name.clone()).or_insert(sentence);
                            continue;
                        }
                        let (resource, rendered) = (api.clone(), role.pod(ordinal, member));
                        orders.push(Order {
                            key,
                            resource,
                            rendered,
                            created_for: Some(&role.name),
                            added: false,
                        });
                    }
                }
            }
        }
        stream::iter(deletions)
            .for_each_concurrent(AT_ONCE, |(role, name, uid, why)| async move {
                if self.delete(&api_of(self, &pod_resource()), "Pod", &name, &uid).await {
                    if why == Why::Finished {
                        self.memory.lock().failed(&name);
                    }
                    self.outcome.lock().deleted.entry((role, why)).or_default().push(name);
                }
            })
            .await;
        stream::iter(orders)
            .for_each_concurrent(AT_ONCE, |order| self.carry_out(order))
            .await;
        for pods in self.outcome.lock().created.values_mut() {
            pods.sort_by_key(|name| (name.len(), name.clone()));
        }
    }

    /// Applies one object other than a Pod, unless it is as rendered.
    async fn keep(&self, rendered: &Value) {
        let key = (kind(rendered).to_owned(), name(rendered).to_owned());
        let Some((resource, store)) = self.cache.objects.iter().find(|(resource, _)| resource.kind == key.0) else {
            return;
        };
        let reference = ObjectRef::new_with(&key.1, resource.clone()).within(&self.namespace);
        let found = store.get(&reference);
        if let Some(found) = &found
            && self.is_ours(found.meta())
            && self.is_kept(&key, found.as_ref(), rendered)
        {
            return;
        }
        if found.is_none() && self.memory.lock().created(&key).is_some() {
            self.look_again(UNSEEN);
            return;
        }
        let found = match found {
            Some(found) => Some(found.metadata.clone()),
            // Without our label, or made a moment ago: the cache does not show it, and it may be somebody's own.
            None => match api_of(self, resource).get_metadata_opt(&key.1).await {
                Ok(found) => found.map(|found| found.metadata),
                Err(source) => return self.stop(call("read", &key, source)),
            },
        };
        if found.as_ref().is_some_and(|found| !self.is_ours(found)) {
            return self.stop(Blocked::Taken {
                kind: key.0,
                name: key.1,
            });
        }
        let (resource, rendered, added) = (resource.clone(), rendered.clone(), found.is_none());
        self.carry_out(Order {
            key,
            resource,
            rendered,
            created_for: None,
            added,
        })
        .await;
    }

    /// Whether an object is controlled by this ModelDeployment, or was before somebody took its owner away.
    fn is_ours(&self, metadata: &ObjectMeta) -> bool {
        let controlled = metadata
            .owner_references
            .iter()
            .flatten()
            .any(|reference| reference.controller == Some(true));
        match controller(metadata) {
            Some(reference) => Some(&reference.uid) == self.object.meta().uid.as_ref(),
            None => !controlled && drift::claims(metadata, FIELD_MANAGER).is_some(),
        }
    }

    /// Whether `live` is as `rendered` says.
    fn is_kept<K: Resource + serde::Serialize>(&self, key: &Key, live: &K, rendered: &Value) -> bool {
        let uid = live.meta().uid.clone().unwrap_or_default();
        let Some(claims) = drift::claims(live.meta(), FIELD_MANAGER) else {
            return false;
        };
        if self.memory.lock().is_as_applied(key, &uid, rendered, Some(claims)) {
            return true;
        }
        let Ok(live) = serde_json::to_value(live) else {
            return false;
        };
        let holds = drift::holds(rendered, &live, claims);
        if holds {
            self.memory.lock().applied(key.clone(), uid, rendered, Some(claims));
        }
        holds
    }

    async fn carry_out(&self, order: Order<'_>) {
        if self.is_stopped() {
            return;
        }
        let Order {
            key,
            resource,
            rendered,
            created_for,
            added,
        } = order;
        match self.write(&api_of(self, &resource), &key.1, &rendered).await {
            Ok(applied) => {
                let claims = drift::claims(&applied.metadata, FIELD_MANAGER);
                let uid = applied.uid().unwrap_or_default();
                let known = self.memory.lock().is_known(&key, &uid);
                self.memory.lock().applied(key.clone(), uid, &rendered, claims);
                let mut outcome = self.outcome.lock();
                if known {
                    return;
                }
                if let Some(role) = created_for {
                    outcome.created.entry(role.to_owned()).or_default().push(key.1);
                } else if added {
                    outcome.added.push(key);
                }
            }
            Err(source) => self.stop(call("apply", &key, source)),
        }
    }

    /// Server-side apply. It adds a Service's ports to what others made of them, and is refused where theirs have the names of ours:
    /// our list then takes the place of the whole.
    async fn write(&self, api: &Api<DynamicObject>, name: &str, rendered: &Value) -> kube::Result<DynamicObject> {
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let applied = api.patch(name, &parameters, &Patch::Apply(rendered)).await;
        match (&applied, rendered.pointer("/spec/ports")) {
            (Err(kube::Error::Api(status)), Some(ports)) if status.code == 422 => {
                let whole = json!({"spec": {"ports": ports}});
                api.patch(name, &PatchParams::default(), &Patch::Merge(&whole)).await?;
                api.patch(name, &parameters, &Patch::Apply(rendered)).await
            }
            _ => applied,
        }
    }

    async fn prune(&self, key: &Key, object: &DynamicObject) {
        let Some((resource, _)) = self.cache.objects.iter().find(|(resource, _)| resource.kind == key.0) else {
            return;
        };
        let uid = object.uid().unwrap_or_default();
        if self.delete(&api_of(self, resource), &key.0, &key.1, &uid).await {
            self.outcome.lock().pruned.push(key.clone());
        }
    }

    /// Deletes one object if it still is the one that was seen. False where it was not deleted by us.
    async fn delete(&self, api: &Api<DynamicObject>, kind: &str, name: &str, uid: &str) -> bool {
        let seen = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        };
        let parameters = DeleteParams::background().preconditions(seen);
        match api.delete(name, &parameters).await {
            Ok(_) => {
                self.memory.lock().deleted(uid);
                true
            }
            // Gone, or replaced by a namesake: the watch will show which.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => false,
            Err(source) => {
                self.stop(call("delete", &(kind.to_owned(), name.to_owned()), source));
                false
            }
        }
    }

    /// No further call is made once one was refused, or once the ModelDeployment is not what it was.
    fn is_stopped(&self) -> bool {
        let reference = ObjectRef::from_obj(self.object);
        let current = self.cache.model_deployments.get(&reference);
        let alive = current.is_some_and(|current| {
            current.meta().uid == self.object.meta().uid && current.meta().deletion_timestamp.is_none()
        });
        !alive || self.stopped.load(Ordering::Relaxed)
    }

    fn stop(&self, blocked: Blocked) {
        self.stopped.store(true, Ordering::Relaxed);
        self.outcome.lock().blocked.get_or_insert(blocked);
    }

    fn look_again(&self, after: Duration) {
        let again = &mut self.outcome.lock().again;
        *again = Some(again.map_or(after, |before| before.min(after)));
    }
}

fn api_of(applier: &Applier<'_>, resource: &ApiResource) -> Api<DynamicObject> {
    Api::namespaced_with(applier.client.clone(), &applier.namespace, resource)
}

fn pod_resource() -> ApiResource {
    ApiResource::erase::<Pod>(&())
}

fn pod_key(name: &str) -> Key {
    ("Pod".into(), name.into())
}

fn call(doing: &'static str, (kind, name): &Key, call: kube::Error) -> Blocked {
    Blocked::Call {
        doing,
        kind: kind.clone(),
        name: name.clone(),
        call: Box::new(call),
    }
}

fn kind(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

fn name(object: &Value) -> &str {
    object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}
