//! Which Pods of one role are created and deleted next. Pure: what is wanted and what lives in, steps out.
//!
//! One replica at a time is given up for a new revision, and only while every other one is ready; a replica of several Pods is
//! replaced whole. A replica that is not ready anyway is replaced at once, so that a mended spec gets past a broken one. Scaling
//! touches no other replica (resource contract, "Rollout").

use std::collections::{BTreeMap, BTreeSet};

/// One role as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedRole {
    /// Replicas.
    pub replicas: u32,
    /// Pods a replica.
    pub size: u32,
    /// Revision of its Pods. None: not known, since the spec was refused; nothing is then created, replaced or deleted.
    pub revision: Option<String>,
}

/// One live Pod of the role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivePod {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The replica that it belongs to.
    pub ordinal: u32,
    /// Its index in the replica.
    pub member: u32,
    /// Whether its name has no member index, as in replicas of one Pod.
    pub alone: bool,
    /// Revision that it was rendered from.
    pub revision: Option<String>,
    /// What it is up to.
    pub state: PodState,
}

/// What a Pod is up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodState {
    /// On its way.
    Starting,
    /// Ready.
    Ready,
    /// Failed, evicted or succeeded: it will not run again.
    Finished,
    /// Being deleted.
    Terminating,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Create the Pod of that place.
    Create {
        /// The replica.
        ordinal: u32,
        /// Its member.
        member: u32,
    },
    /// Delete that Pod.
    Delete {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
        /// Why.
        why: Why,
    },
}

/// Why a Pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Its ordinal is beyond the replicas wanted.
    ScaledDown,
    /// It is of another revision.
    Outdated,
    /// It failed, was evicted or succeeded.
    Finished,
    /// Its name is none of the deployment's.
    Unknown,
}

/// The counts of one role, of replicas and not of Pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Replicas of which every Pod is ready.
    pub ready: u32,
    /// Replicas of which every Pod is of the wanted revision.
    pub updated: u32,
    /// Replicas with a Pod of another revision.
    pub outdated: u32,
    /// Pods that are to go and have not gone.
    pub surplus: u32,
}

/// One replica: its live Pods, in order of members.
struct Replica<'a> {
    pods: Vec<&'a LivePod>,
    wanted: &'a WantedRole,
}

impl Replica<'_> {
    fn is_outdated(&self, pod: &LivePod) -> bool {
        self.wanted.revision.is_some()
            && (pod.alone != (self.wanted.size == 1)
                || pod.member >= self.wanted.size
                || self.wanted.revision != pod.revision)
    }

    fn has_outdated(&self) -> bool {
        self.pods.iter().any(|pod| self.is_outdated(pod))
    }

    /// Every Pod of the replica is ready. A replica of another size is taken as complete: what it lacks is not known any more.
    fn is_ready(&self) -> bool {
        let resized = self.pods.iter().any(|pod| pod.alone != (self.wanted.size == 1));
        let complete = resized || self.pods.len() >= self.wanted.size as usize;
        complete && !self.pods.is_empty() && self.pods.iter().all(|pod| pod.state == PodState::Ready)
    }

    fn is_updated(&self) -> bool {
        self.wanted.revision.is_some()
            && self.pods.len() == self.wanted.size as usize
            && !self.has_outdated()
            && self.pods.iter().all(|pod| pod.state != PodState::Terminating)
    }

    fn missing(&self) -> impl Iterator<Item = u32> {
        let present: BTreeSet<u32> = self.pods.iter().map(|pod| pod.member).collect();
        (0..self.wanted.size).filter(move |member| !present.contains(member))
    }

    fn delete_all(&self, why: Why) -> impl Iterator<Item = Step> {
        self.pods
            .iter()
            .filter(|pod| pod.state != PodState::Terminating)
            .map(move |pod| delete(pod, why))
    }
}

fn delete(pod: &LivePod, why: Why) -> Step {
    Step::Delete {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        why,
    }
}

/// The next steps of one role, given its live Pods: deletions from the highest ordinal, then creations from the lowest.
pub fn steps(wanted: &WantedRole, live: &[LivePod], max_unavailable: u32) -> Vec<Step> {
    let (replicas, surplus) = split(wanted, live);
    if wanted.revision.is_none() {
        return Vec::new();
    }
    let mut steps: Vec<_> = surplus
        .iter()
        .rev()
        .filter(|pod| pod.state != PodState::Terminating)
        .map(|pod| delete(pod, Why::ScaledDown))
        .collect();
    let mut created = Vec::new();
    let mut candidates = Vec::new();
    let mut unavailable = 0;
    for (ordinal, replica) in replicas.iter().rev() {
        let ready = replica.is_ready();
        unavailable += u32::from(!ready);
        if replica.has_outdated() {
            if ready {
                candidates.push(replica);
            } else {
                steps.extend(replica.delete_all(Why::Outdated));
            }
            continue;
        }
        let finished = replica.pods.iter().filter(|pod| pod.state == PodState::Finished);
        steps.extend(finished.map(|pod| delete(pod, Why::Finished)));
        // A replica is created whole: not while a Pod of its former self lingers.
        if replica.pods.iter().all(|pod| pod.state != PodState::Terminating) {
            created.extend(replica.missing().map(|member| (*ordinal, member)));
        }
    }
    let budget = max_unavailable.saturating_sub(unavailable);
    for replica in candidates.into_iter().take(budget as usize) {
        steps.extend(replica.delete_all(Why::Outdated));
    }
    created.sort_unstable();
    steps.extend(
        created
            .into_iter()
            .map(|(ordinal, member)| Step::Create { ordinal, member }),
    );
    steps
}

/// Counts the replicas of one role.
pub fn count(wanted: &WantedRole, live: &[LivePod]) -> Counts {
    let (replicas, surplus) = split(wanted, live);
    let mut counts = Counts {
        surplus: surplus.len().try_into().unwrap_or(u32::MAX),
        ..Counts::default()
    };
    for replica in replicas.values() {
        counts.ready += u32::from(replica.is_ready());
        counts.updated += u32::from(replica.is_updated());
        counts.outdated += u32::from(replica.has_outdated());
    }
    counts
}

/// The wanted replicas with their live Pods, and the Pods beyond them, both by (ordinal, member).
fn split<'a>(wanted: &'a WantedRole, live: &'a [LivePod]) -> (BTreeMap<u32, Replica<'a>>, Vec<&'a LivePod>) {
    let mut pods: Vec<_> = live.iter().collect();
    pods.sort_by_key(|pod| (pod.ordinal, pod.member));
    let (kept, surplus): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| pod.ordinal < wanted.replicas);
    let mut replicas: BTreeMap<_, _> = (0..wanted.replicas)
        .map(|ordinal| {
            (
                ordinal,
                Replica {
                    pods: Vec::new(),
                    wanted,
                },
            )
        })
        .collect();
    for pod in kept {
        if let Some(replica) = replicas.get_mut(&pod.ordinal) {
            replica.pods.push(pod);
        }
    }
    (replicas, surplus)
}

#[cfg(test)]
mod tests;
