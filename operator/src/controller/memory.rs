//! What this process remembers of each ModelDeployment: what it applied last, what it deleted, which Pods keep failing.
//!
//! Nothing here is needed for correctness across restarts: a new leader finds all of it out again, at the price of an apply that
//! changes nothing. It is what makes an idle reconcile free, and keeps a cache that lags behind our own writes from misleading us.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use model_deployment_crds::ModelDeploymentStatus;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

/// How long an object that we created is taken to exist although no watch has shown it: far longer than a watch ever lags, short
/// enough that a creation which was undone unseen is soon repeated.
pub const UNSEEN: Duration = Duration::from_secs(30);
/// The longest pause before a Pod that keeps failing is created again: the kubelet's own for containers.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Kind and name of an object in the namespace of its ModelDeployment.
pub type Key = (String, String);

/// The memory of each ModelDeployment, by its UID, and which of them reached for a name a moment ago.
#[derive(Default)]
pub struct Memories {
    by_uid: Mutex<HashMap<String, Arc<Mutex<Memory>>>>,
    reached: Mutex<HashMap<(String, Key), (String, Instant)>>,
}

impl Memories {
    /// The memory of the ModelDeployment `uid`.
    pub fn of(&self, uid: &str) -> Arc<Mutex<Memory>> {
        self.by_uid.lock().entry(uid.to_owned()).or_default().clone()
    }

    /// Reaches for the name of an object that the ModelDeployment `uid` is about to create. False while another one's may be under
    /// way that no watch has shown yet: server-side apply by one field manager would make it ours.
    pub fn reach(&self, namespace: &str, key: &Key, uid: &str) -> bool {
        let mut reached = self.reached.lock();
        reached.retain(|_, (_, at)| at.elapsed() < UNSEEN);
        let name = (namespace.to_owned(), key.clone());
        let (holder, _) = reached.entry(name).or_insert_with(|| (uid.to_owned(), Instant::now()));
        holder == uid
    }

    /// Drops what is known of a ModelDeployment that is gone.
    pub fn forget(&self, uid: &str) {
        self.by_uid.lock().remove(uid);
        self.reached.lock().retain(|_, (holder, _)| holder != uid);
    }

    /// Drops all: another leader may have written since.
    pub fn clear(&self) {
        self.by_uid.lock().clear();
        self.reached.lock().clear();
    }

    /// Takes in that a watch saw an object go.
    pub fn observe<K: Resource>(&self, kind: &str, event: &Event<K>) {
        let Event::Delete(object) = event else { return };
        let Some(owner) = super::cache::controller(object.meta()) else {
            return;
        };
        let memory = self.by_uid.lock().get(&owner.uid).cloned();
        if let Some(memory) = memory {
            memory
                .lock()
                .gone(kind, &object.name_any(), object.uid().as_deref().unwrap_or_default());
        }
    }
}

/// What is remembered of one ModelDeployment.
#[derive(Default)]
pub struct Memory {
    applied: HashMap<Key, Applied>,
    deleted: HashSet<String>,
    valid: HashSet<String>,
    failures: HashMap<String, Failures>,
    retries: u32,
    next_retry: Option<Instant>,
    /// The status that was written last, and the resource version that came of it.
    pub status: Option<(ModelDeploymentStatus, u64)>,
}

struct Applied {
    uid: String,
    rendered: u64,
    claims: u64,
    at: Instant,
    gone: bool,
}

struct Failures {
    count: u32,
    not_before: Instant,
}

impl Memory {
    /// Remembers the outcome of an apply.
    pub fn applied(&mut self, key: Key, uid: String, rendered: &Value, claims: Option<&Value>) {
        let (rendered, claims, at) = (hash(rendered), hash(claims), Instant::now());
        let applied = Applied {
            uid,
            rendered,
            claims,
            at,
            gone: false,
        };
        self.applied.insert(key, applied);
    }

    /// Whether the object was applied by us as `rendered` and lives as `uid` with the claims that it then had.
    pub fn is_as_applied(&self, key: &Key, uid: &str, rendered: &Value, claims: Option<&Value>) -> bool {
        self.applied.get(key).is_some_and(|applied| {
            applied.uid == uid && applied.rendered == hash(rendered) && applied.claims == hash(claims)
        })
    }

    /// The UID of an object that we created a moment ago, which no watch may have shown yet.
    pub fn created(&self, key: &Key) -> Option<&str> {
        let fresh = |applied: &&Applied| !applied.gone && applied.at.elapsed() < UNSEEN;
        self.applied.get(key).filter(fresh).map(|applied| applied.uid.as_str())
    }

    /// Whether the object was applied by us before, though it may have left the watches' sight since.
    pub fn is_known(&self, key: &Key, uid: &str) -> bool {
        self.applied.get(key).is_some_and(|applied| applied.uid == uid)
    }

    /// Remembers that the API server takes Pods of a revision.
    pub fn valid(&mut self, revision: &str) {
        self.valid.insert(revision.to_owned());
    }

    /// Whether the API server takes Pods of a revision, as far as was asked.
    pub fn is_valid(&self, revision: &str) -> bool {
        self.valid.contains(revision)
    }

    /// Remembers that we deleted an object.
    pub fn deleted(&mut self, uid: &str) {
        self.deleted.insert(uid.to_owned());
    }

    /// Whether we deleted it.
    pub fn is_deleted(&self, uid: &str) -> bool {
        self.deleted.contains(uid)
    }

    /// Takes in that an object is gone, or out of the watches' sight: somebody may have taken our label off.
    fn gone(&mut self, kind: &str, name: &str, uid: &str) {
        self.deleted.remove(uid);
        let key = (kind.to_owned(), name.to_owned());
        if let Some(applied) = self.applied.get_mut(&key).filter(|applied| applied.uid == uid) {
            applied.gone = true;
        }
    }

    /// Takes in that a pass was carried out whole.
    pub fn succeeded(&mut self) {
        (self.retries, self.next_retry) = (0, None);
    }

    /// Takes in that a pass was not carried out whole, and says when to repeat it: after twice the pause each time. A pass that something
    /// else brought about while a pause lasts is no retry, and leaves the pause as it is.
    pub fn retry(&mut self, longest: Duration) -> Duration {
        let now = Instant::now();
        if let Some(next) = self.next_retry.filter(|next| *next > now) {
            return (next - now).min(longest);
        }
        let pause = Duration::from_secs(1 << self.retries.min(16)).min(longest);
        self.retries = self.retries.saturating_add(1);
        self.next_retry = Some(now + pause);
        pause
    }

    /// Takes in that a Pod of that name failed: the first successor follows at once, each further one after twice the pause.
    pub fn failed(&mut self, pod: &str) {
        let failures = self.failures.entry(pod.to_owned()).or_insert(Failures {
            count: 0,
            not_before: Instant::now(),
        });
        let pause = match failures.count {
            0 => Duration::ZERO,
            count => Duration::from_secs(1 << count.min(16)).min(LONGEST_PAUSE),
        };
        failures.not_before = Instant::now() + pause;
        failures.count += 1;
    }

    /// Takes in that a Pod of that name is ready: it starts afresh.
    pub fn ready(&mut self, pod: &str) {
        self.failures.remove(pod);
    }

    /// How long a Pod of that name is not to be created yet, and how many of them failed in a row.
    pub fn pause(&self, pod: &str) -> Option<(Duration, u32)> {
        let failures = self.failures.get(pod)?;
        let pause = failures
            .not_before
            .checked_duration_since(Instant::now())
            .filter(|pause| !pause.is_zero())?;
        Some((pause, failures.count))
    }
}

/// JSON objects keep their members sorted, so equal values have equal texts.
fn hash(value: impl serde::Serialize) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(&value).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pause_before_a_retry_doubles_and_what_happens_meanwhile_is_none() {
        let longest = Duration::from_secs(60);
        let mut memory = Memory::default();
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            let expected = Duration::from_secs(expected);
            assert_eq!(memory.retry(longest), expected);
            // Passes that watches bring about.
            tokio::time::advance(expected / 2).await;
            assert_eq!(memory.retry(longest), expected / 2);
            tokio::time::advance(expected / 2).await;
        }
        memory.succeeded();
        assert_eq!(memory.retry(longest), Duration::from_secs(1));
    }
}
