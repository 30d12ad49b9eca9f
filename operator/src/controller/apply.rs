//! Fourth step: makes the cluster as the plan says. Client required, but for nothing where nothing differs.
//!
//! Every write is a server-side apply of the whole rendered object, forced where the object is known to be ours: what we render is ours,
//! whatever else is in the object is not looked at. Deletions name the UID that was seen, so that a successor of the same name is never
//! hit. What is refused is told and holds up what hangs on it, and nothing else.

mod call;
mod pods;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource, ResourceExt};
use model_deployment_crds::ModelDeployment;
use parking_lot::Mutex;
use serde_json::Value;

use super::cache::{Cache, controller};
use super::dereference::{Live, Sorted};
use super::memory::{Key, Memories, Memory, UNSEEN};
use super::refused::Blocked;
use super::rollout::Why;
use super::validate::Wanted;
use super::{FIELD_MANAGER, drift};

/// Calls at once: as many as an API server takes from one client without pushing others aside, and enough to create the 64 Pods of a
/// role in a few round trips.
const AT_ONCE: usize = 16;
/// When a name that another ModelDeployment reached for a moment ago is looked at again.
const REACHED: Duration = Duration::from_secs(1);

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
    /// What could not be done, in order of kinds and names.
    pub blocked: Vec<Blocked>,
    /// When to look again though nothing will have been seen to happen.
    pub again: Option<Duration>,
}

/// Carries out one plan.
pub struct Applier<'a> {
    client: &'a Client,
    cache: &'a Cache,
    object: &'a ModelDeployment,
    namespace: String,
    memories: &'a Memories,
    memory: &'a Mutex<Memory>,
    /// Every further call would be refused as well.
    stopped: AtomicBool,
    /// Roles of which a Pod was refused: their further Pods would be, too.
    held: Mutex<BTreeSet<String>>,
    outcome: Mutex<Outcome>,
}

/// Whose an object is that has a name of ours.
enum Holder {
    /// This ModelDeployment's.
    Own,
    /// Left behind by a deleted ModelDeployment of the same name: the garbage collector is on its way.
    Predecessor,
    /// Somebody else's.
    Foreign,
}

impl<'a> Applier<'a> {
    /// Works for `object`, with what is remembered of it.
    pub fn new(
        client: &'a Client,
        cache: &'a Cache,
        object: &'a ModelDeployment,
        memories: &'a Memories,
        memory: &'a Mutex<Memory>,
    ) -> Self {
        let namespace = object.namespace().unwrap_or_default();
        Self {
            client,
            cache,
            object,
            namespace,
            memories,
            memory,
            stopped: AtomicBool::new(false),
            held: Mutex::default(),
            outcome: Mutex::default(),
        }
    }

    /// Makes the cluster as `wanted` says: objects first, then Pods.
    pub async fn apply(self, wanted: &Wanted, live: &Live, sorted: &Sorted, max_unavailable: u32) -> Outcome {
        // What a Deployment's Pods refer to comes before the Deployment.
        let (deployments, others): (Vec<_>, Vec<_>) =
            wanted.objects.iter().partition(|object| kind(object) == "Deployment");
        self.keep_all(others).await;
        let lacking: BTreeSet<String> = self.outcome.lock().blocked.iter().filter_map(referred_to).collect();
        let (_, whole): (Vec<_>, Vec<_>) = deployments
            .into_iter()
            .partition(|deployment| lacking.contains(name(deployment)));
        self.keep_all(whole).await;
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
        let mut outcome = self.outcome.into_inner();
        outcome.blocked.sort_by_key(Blocked::order);
        outcome
    }

    async fn keep_all(&self, objects: Vec<&Value>) {
        stream::iter(objects)
            .for_each_concurrent(AT_ONCE, |object| self.keep(object))
            .await;
    }

    /// Applies one object other than a Pod, unless it is as rendered.
    async fn keep(&self, rendered: &Value) {
        let key = (kind(rendered).to_owned(), name(rendered).to_owned());
        let Some(resource) = self.cache.resource(&key.0) else {
            return;
        };
        let found = self.cache.object(resource, &self.namespace, &key.1);
        if let Some(found) = &found
            && matches!(self.holder(found.meta()), Holder::Own)
            && self.is_kept(&key, found.as_ref(), rendered)
        {
            return;
        }
        if found.is_none() && self.memory.lock().created(&key).is_some() {
            self.look_again(UNSEEN);
            return;
        }
        if self.is_stopped() {
            return;
        }
        let found = match found {
            Some(found) => Some(found.metadata.clone()),
            // Without our label, or made a moment ago: the cache does not show it, and it may be somebody's own.
            None => match self.api(resource).get_metadata_opt(&key.1).await {
                Ok(found) => found.map(|found| found.metadata),
                Err(source) => return self.block(Blocked::call("read", &key, source)),
            },
        };
        if let Some(found) = &found {
            if !self.may_write(&key, found) {
                return;
            }
        } else if !self.reaches(&key) {
            return;
        }
        match self.write(&self.api(resource), &key.1, rendered).await {
            Ok(applied) if !self.remember(&key, rendered, &applied) && found.is_none() => {
                self.outcome.lock().added.push(key);
            }
            Ok(_) => {}
            Err(source) => self.block(Blocked::call("apply", &key, source)),
        }
    }

    async fn prune(&self, key: &Key, object: &DynamicObject) {
        let Some(resource) = self.cache.resource(&key.0) else {
            return;
        };
        let uid = object.uid().unwrap_or_default();
        if self.delete(&self.api(resource), key, &uid).await {
            self.outcome.lock().pruned.push(key.clone());
        }
    }

    /// Whose an object is. One that lost its owner and that we applied is still ours.
    fn holder(&self, metadata: &ObjectMeta) -> Holder {
        let controlled = metadata
            .owner_references
            .iter()
            .flatten()
            .any(|reference| reference.controller == Some(true));
        match controller(metadata) {
            Some(reference) if Some(&reference.uid) == self.object.meta().uid.as_ref() => Holder::Own,
            Some(reference) if Some(&reference.name) == self.object.meta().name.as_ref() => Holder::Predecessor,
            None if !controlled && drift::claims(metadata, FIELD_MANAGER).is_some() => Holder::Own,
            _ => Holder::Foreign,
        }
    }

    /// Whether a write may hit what was found under a name of ours. If not, says so or looks again.
    fn may_write(&self, key: &Key, found: &ObjectMeta) -> bool {
        match self.holder(found) {
            Holder::Own => return true,
            Holder::Predecessor => self.look_again(UNSEEN),
            Holder::Foreign => self.block(Blocked::taken(key)),
        }
        false
    }

    /// Whether no other ModelDeployment reached for the same name a moment ago: its object would not be told from ours, for both have
    /// one field manager.
    fn reaches(&self, key: &Key) -> bool {
        let uid = self.object.uid().unwrap_or_default();
        let reached = self.memories.reach(&self.namespace, key, &uid);
        if !reached {
            self.look_again(REACHED);
        }
        reached
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

    /// Remembers what was applied. Whether it was known before.
    fn remember(&self, key: &Key, rendered: &Value, applied: &DynamicObject) -> bool {
        let claims = drift::claims(&applied.metadata, FIELD_MANAGER);
        let uid = applied.uid().unwrap_or_default();
        let mut memory = self.memory.lock();
        let known = memory.is_known(key, &uid);
        memory.applied(key.clone(), uid, rendered, claims);
        known
    }

    /// No further call is made where each would end as the last one did, or once the ModelDeployment is not what it was.
    fn is_stopped(&self) -> bool {
        let reference = ObjectRef::from_obj(self.object);
        let current = self.cache.model_deployments.get(&reference);
        let alive = current.is_some_and(|current| {
            current.meta().uid == self.object.meta().uid && current.meta().deletion_timestamp.is_none()
        });
        !alive || self.stopped.load(Ordering::Relaxed)
    }

    fn block(&self, blocked: Blocked) {
        if blocked.concerns_every_call() {
            self.stopped.store(true, Ordering::Relaxed);
        }
        self.outcome.lock().blocked.push(blocked);
    }

    fn look_again(&self, after: Duration) {
        let again = &mut self.outcome.lock().again;
        *again = Some(again.map_or(after, |before| before.min(after)));
    }
}

/// The Deployment that refers to an object by its name: it is held back while its Pods would lack that.
fn referred_to(blocked: &Blocked) -> Option<String> {
    let (kind, name) = blocked.object();
    (kind != "Service").then(|| name.to_owned())
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
