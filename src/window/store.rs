//! The state kept between requests, by Pod UID, and who may read a Pod now.
//!
//! A Pod is never read twice at once and at most once a second: who comes meanwhile shares what the read brings, success or failure.
//! What is kept of a Pod is bounded by the ring, the caps on one body, and the series remembered. It is dropped ten minutes after the
//! last request for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::history::History;
use super::sample::Sample;
use super::trail::Trail;
use crate::pod::Life;

/// A sample younger than this is reused, and a Pod is not asked again: reading is load on the serving loop.
const FRESH: Duration = Duration::from_secs(1);

/// State is kept for this long after the last read: twice what a window can reach back, so that a slow poller keeps its baselines.
pub const KEPT: Duration = Duration::from_secs(600);

/// The state of all Pods. `F` says why a read failed.
#[derive(Debug)]
pub struct Store<F> {
    pods: Mutex<HashMap<String, Entry<F>>>,
}

#[derive(Debug)]
struct Entry<F> {
    pod: Arc<Pod<F>>,
    asked: Instant,
}

/// The lock is held for as long as the Pod is being read.
type Pod<F> = tokio::sync::Mutex<Kept<F>>;

#[derive(Debug)]
struct Kept<F> {
    history: History,
    last: Option<Read<F>>,
}

/// The last read, and what came of it.
#[derive(Debug)]
struct Read<F> {
    began: Instant,
    ended: Instant,
    result: Result<Trail, F>,
}

impl<F> Default for Store<F> {
    fn default() -> Self {
        Self { pods: Mutex::default() }
    }
}

impl<F: Clone> Store<F> {
    /// What the Pod says now: from a fresh read, one that is under way, or one that `fetch` makes. With `not_before`, only a read that
    /// began then or later will do.
    ///
    /// Dropping the future gives the read up; who waits for it then makes its own.
    ///
    /// # Errors
    ///
    /// What `fetch` failed with.
    pub async fn read<R>(
        &self,
        uid: &str,
        life: Life,
        not_before: Option<Instant>,
        fetch: impl Fn() -> R,
    ) -> Result<Trail, F>
    where
        R: Future<Output = Result<Sample, F>>,
    {
        let arrived = Instant::now();
        let pod = self.pod(uid);
        loop {
            let mut kept = pod.lock().await;
            if let Some(last) = &kept.last {
                let fresh_until = last.began + FRESH;
                let is_late_enough = not_before.is_none_or(|moment| last.began >= moment);
                let is_fresh = last.ended >= arrived || Instant::now() < fresh_until;
                if is_late_enough && is_fresh && last.is_of(life) {
                    return last.result.clone();
                }
                if Instant::now() < fresh_until && last.is_of(life) {
                    // Another request has just read it, too early for this one.
                    drop(kept);
                    sleep_until(fresh_until).await;
                    continue;
                }
            }
            let began = Instant::now();
            let fetched = fetch().await;
            let began = fetched.as_ref().map_or(began, |sample| sample.instant);
            let result = fetched.map(|sample| kept.history.add(sample));
            kept.last = Some(Read {
                began,
                ended: Instant::now(),
                result: result.clone(),
            });
            return result;
        }
    }

    /// Drops what was not asked for within ten minutes.
    pub fn forget(&self) {
        let now = Instant::now();
        self.pods
            .lock()
            .retain(|_, entry| now.duration_since(entry.asked) <= KEPT);
    }

    fn pod(&self, uid: &str) -> Arc<Pod<F>> {
        let now = Instant::now();
        let mut pods = self.pods.lock();
        match pods.get_mut(uid) {
            Some(entry) if now.duration_since(entry.asked) <= KEPT => {
                entry.asked = now;
                entry.pod.clone()
            }
            _ => {
                let pod = Arc::new(Pod::new(Kept {
                    history: History::default(),
                    last: None,
                }));
                let entry = Entry {
                    pod: pod.clone(),
                    asked: now,
                };
                pods.insert(uid.to_owned(), entry);
                pod
            }
        }
    }
}

impl<F> Read<F> {
    /// Whether it was of this life of the container. A failed read is of any.
    fn is_of(&self, life: Life) -> bool {
        self.result
            .as_ref()
            .map_or(true, |trail| trail.last().life.is_same(life))
    }
}
