//! The Pods of every role: what the rollout says next, carried out.

use std::collections::HashSet;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::core::ApiResource;
use serde_json::Value;

use super::{AT_ONCE, Applier};
use crate::controller::dereference::{Live, Sorted};
use crate::controller::memory::{Key, UNSEEN};
use crate::controller::refused::Blocked;
use crate::controller::rollout::{LivePod, PodState, Step, Why, steps};
use crate::controller::validate::{Role, Wanted};

/// One Pod to apply.
struct Order<'a> {
    role: &'a str,
    name: String,
    rendered: Value,
    /// Whether it does not exist yet.
    new: bool,
}

/// One Pod to delete.
struct Deletion {
    role: String,
    name: String,
    uid: String,
    why: Why,
}

impl Applier<'_> {
    /// Deletes, then creates and mends.
    pub(super) async fn pods(&self, wanted: &Wanted, live: &Live, sorted: &Sorted, max_unavailable: u32) {
        let unknown = sorted.unknown.iter().map(|(name, uid)| Deletion {
            role: String::new(),
            name: name.clone(),
            uid: uid.clone(),
            why: Why::Unknown,
        });
        let mut deletions: Vec<_> = unknown.collect();
        let mut orders = Vec::new();
        for role in &wanted.roles {
            let pods = self.with_unseen(role, sorted.roles.get(&role.name).cloned().unwrap_or_default());
            orders.extend(self.drifted(role, &pods, live));
            let mut steps = steps(&role.wanted, &pods, max_unavailable);
            let is_replacement = |step: &Step| matches!(step, Step::Delete { why: Why::Outdated, .. });
            if steps.iter().any(is_replacement) && !self.would_be_taken(role).await {
                steps.retain(|step| !is_replacement(step));
            }
            for step in steps {
                match step {
                    Step::Delete { name, uid, why } => deletions.push(Deletion {
                        role: role.name.clone(),
                        name,
                        uid,
                        why,
                    }),
                    Step::Create { ordinal, member } => orders.extend(self.creation(role, ordinal, member)),
                }
            }
        }
        stream::iter(deletions)
            .for_each_concurrent(AT_ONCE, |deletion| self.delete_pod(deletion))
            .await;
        stream::iter(orders)
            .for_each_concurrent(AT_ONCE, |order| self.carry_out(order))
            .await;
        for pods in self.outcome.lock().created.values_mut() {
            pods.sort_by_key(|name| (name.len(), name.clone()));
        }
    }

    /// The live Pods of a role, and those that we created and that no watch has shown yet.
    fn with_unseen(&self, role: &Role, mut pods: Vec<LivePod>) -> Vec<LivePod> {
        let seen: HashSet<_> = pods.iter().map(|pod| (pod.ordinal, pod.member)).collect();
        for ordinal in 0..role.wanted.replicas {
            for member in 0..role.wanted.size {
                if seen.contains(&(ordinal, member)) {
                    continue;
                }
                let name = role.pod_name(ordinal, member);
                if let Some(uid) = self.memory.lock().created(&key_of(&name)) {
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
        for pod in pods.iter().filter(|pod| pod.state == PodState::Ready) {
            self.memory.lock().ready(&pod.name);
        }
        pods
    }

    /// Whether the API server would take a Pod of the wanted revision, asked once before the first of another revision is given up for it:
    /// what it takes for invalid costs no running Pod. What else may be said of a Pod (a quota in which the old one still counts, an
    /// admission plug-in that knows no trial) is seen when it is created.
    async fn would_be_taken(&self, role: &Role) -> bool {
        let revision = role.wanted.revision.as_deref().unwrap_or_default();
        if self.memory.lock().is_valid(revision) {
            return true;
        }
        let mut rendered = role.pod(0, 0);
        let name = role.pod_name(0, 0);
        // A Pod of its own, since the present one cannot be changed into it.
        let trial = format!("{name}-{revision}");
        rendered["metadata"]["name"] = trial.as_str().into();
        match self.attempt(&self.api(&resource()), &trial, &rendered).await {
            Err(kube::Error::Api(mut refusal)) if refusal.code == 422 => {
                refusal.message = refusal.message.replace(&trial, &name);
                self.block(Blocked::call("apply", &key_of(&name), kube::Error::Api(refusal)));
                false
            }
            Err(_) => true,
            Ok(_) => {
                self.memory.lock().valid(revision);
                true
            }
        }
    }

    /// Pods of the wanted revision in which somebody changed what is ours.
    fn drifted<'a>(&self, role: &'a Role, pods: &[LivePod], live: &Live) -> Vec<Order<'a>> {
        let current = pods.iter().filter(|pod| {
            pod.ordinal < role.wanted.replicas
                && pod.revision == role.wanted.revision
                && pod.state != PodState::Terminating
        });
        current
            .filter_map(|pod| {
                let found = live.pods.get(&pod.name)?;
                let rendered = role.pod(pod.ordinal, pod.member);
                let kept = self.is_kept(&key_of(&pod.name), found.as_ref(), &rendered);
                (!kept).then(|| Order {
                    role: &role.name,
                    name: pod.name.clone(),
                    rendered,
                    new: false,
                })
            })
            .collect()
    }

    /// The Pod of a position, unless its predecessors failed in a row and its pause is not over.
    fn creation<'a>(&self, role: &'a Role, ordinal: u32, member: u32) -> Option<Order<'a>> {
        let name = role.pod_name(ordinal, member);
        if let Some((pause, failures)) = self.memory.lock().pause(&name) {
            self.look_again(pause);
            let sentence = format!("Pod {name} failed {failures} times in a row and is created again after a pause");
            self.outcome.lock().paused.entry(role.name.clone()).or_insert(sentence);
            return None;
        }
        Some(Order {
            role: &role.name,
            name,
            rendered: role.pod(ordinal, member),
            new: true,
        })
    }

    async fn delete_pod(&self, deletion: Deletion) {
        let Deletion { role, name, uid, why } = deletion;
        if self.delete(&self.api(&resource()), &key_of(&name), &uid).await {
            if why == Why::Finished {
                self.memory.lock().failed(&name);
            }
            self.outcome.lock().deleted.entry((role, why)).or_default().push(name);
        }
    }

    async fn carry_out(&self, order: Order<'_>) {
        let Order {
            role,
            name,
            rendered,
            new,
        } = order;
        if self.is_stopped() || self.held.lock().contains(role) {
            return;
        }
        let (api, key) = (self.api(&resource()), key_of(&name));
        let applied = if new {
            let namesake = self.cache.pod(&self.namespace, &name);
            if namesake.is_some_and(|namesake| !self.may_write(&key, &namesake.metadata)) || !self.reaches(&key) {
                return;
            }
            self.create(&api, &key, &rendered).await
        } else {
            let written = self.write(&api, &name, &rendered).await;
            written.map(Some).map_err(|source| Blocked::call("apply", &key, source))
        };
        match applied {
            Ok(Some(applied)) => {
                if !self.remember(&key, &rendered, &applied) && new {
                    self.outcome
                        .lock()
                        .created
                        .entry(role.to_owned())
                        .or_default()
                        .push(name);
                }
            }
            Ok(None) => {}
            Err(blocked) => {
                // A taken name says nothing of the role's other Pods.
                if new && !blocked.is_taken() {
                    self.held.lock().insert(role.to_owned());
                }
                self.block(blocked);
            }
        }
    }
}

fn resource() -> ApiResource {
    ApiResource::erase::<Pod>(&())
}

fn key_of(pod: &str) -> Key {
    ("Pod".into(), pod.into())
}
