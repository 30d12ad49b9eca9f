//! The Pod-role index: the Pods of each ModelDeployment with their facts, and what is expected of it.
//!
//! Watches keep it current, in every replica of the operator, and the metrics service asks one question: the [`Deployment`] of a
//! name. The reconciler's part is the annotation that it writes beside each Pod; nothing reaches the index past the API server, so
//! that a replica which does not lead, or has just started, answers the same.
//!
//! # What is believed
//!
//! ```text
//! engine Pod ------------------------------controller UID--> ModelDeployment
//! router Pod --UID--> ReplicaSet --UID--> Deployment <md>-router --UID--> ModelDeployment
//! ```
//!
//! Labels are not: a Pod belongs to a deployment by the chain of controller references, each link by UID and in one namespace, and to
//! a role by its name, which is `<md>-<role>-<ordinal>[-<member>]` for an engine and comes from the owning Deployment for a router.
//!
//! Somebody who may create Pods in a namespace may write an owner reference and our annotation too. What that gains is bounded: the
//! Pod must bear a name of the deployment's own roles, so it stands where a Pod of ours would (and the reconciler replaces or
//! removes it); the port must be one that one container of that very Pod declares, the path is always `/metrics`; the address is the
//! one that the kubelet reports, not one that anybody writes; and whoever fetches refuses host-network Pods and loopback, link-local,
//! multicast and metadata addresses. Such a Pod thus reports figures about itself, which its creator could do with a Pod of a
//! ModelDeployment just as well, and steers no request elsewhere. Annotations of Prometheus (`prometheus.io/*`) are never read.

pub mod deployment;
mod expected;
mod named;
mod observed;
mod owner;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::runtime::watcher::Event;
use model_deployment_crds::ModelDeployment;
use parking_lot::RwLock;

pub use deployment::{Deployment, ExpectedRole, IndexedPod, Phase};
pub use expected::expected;
pub use named::{Named, named};
pub use owner::OwnerKind;
pub use table::{Row, Table};

use self::observed::Observed;
use crate::pod::Member;
use crate::pod::labels::{COORDINATOR, ROUTER_ROLE};

/// The index. One task writes, from watch events; any number read.
#[derive(Debug, Default)]
pub struct Index {
    tables: RwLock<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    pods: Table<Observed>,
    replica_sets: Table<()>,
    deployments: Table<()>,
    model_deployments: Table<Vec<ExpectedRole>>,
}

impl Index {
    /// Takes in what happened to a Pod.
    pub fn observe_pod(&self, event: &Event<Pod>) {
        self.tables.write().pods.apply(event, Observed::of);
    }

    /// Takes in what happened to a ReplicaSet: a link between a router's Pod and its Deployment.
    pub fn observe_replica_set(&self, event: &Event<impl Resource>) {
        self.tables.write().replica_sets.apply(event, |_| ());
    }

    /// Takes in what happened to a Deployment: a link between a router's ReplicaSet and its ModelDeployment.
    pub fn observe_deployment(&self, event: &Event<impl Resource>) {
        self.tables.write().deployments.apply(event, |_| ());
    }

    /// Takes in what happened to a ModelDeployment.
    pub fn observe_model_deployment(&self, event: &Event<ModelDeployment>) {
        self.tables
            .write()
            .model_deployments
            .apply(event, |object| expected(&object.spec));
    }

    /// Whether every kind was listed once: before that, an absent Pod may only not have been seen yet.
    pub fn is_listed(&self) -> bool {
        let tables = self.tables.read();
        tables.pods.is_listed()
            && tables.replica_sets.is_listed()
            && tables.deployments.is_listed()
            && tables.model_deployments.is_listed()
    }

    /// The ModelDeployment of that name with its Pods; none where there is no such object.
    pub fn deployment(&self, namespace: &str, name: &str) -> Option<Deployment> {
        let tables = self.tables.read();
        let Row {
            uid, value: expected, ..
        } = tables.model_deployments.get(namespace, name)?;
        let mut engines: Vec<_> = tables
            .pods
            .owned_by(namespace, OwnerKind::ModelDeployment, uid)
            .filter_map(|(pod, row)| {
                let roles = expected
                    .iter()
                    .filter(|role| role.kind.is_some())
                    .map(|role| role.role.as_str());
                let named = named(name, roles, pod, row.value.named_role())?;
                let member = if named.member == 0 {
                    Member::Leader
                } else {
                    Member::Follower
                };
                Some((named.member, indexed(pod, row, named.role, named.ordinal, Some(member))))
            })
            .collect();
        engines.sort_by_cached_key(|(member, pod)| (pod.role.clone(), pod.ordinal, *member, pod.name.clone()));
        let mut pods: Vec<_> = engines.into_iter().map(|(_, pod)| pod).collect();
        for role in [ROUTER_ROLE, COORDINATOR] {
            pods.extend(tables.routers(namespace, uid, &format!("{name}-{role}"), role));
        }
        pods.sort_by(|left, right| left.role.cmp(&right.role));
        let own: HashSet<_> = pods.iter().filter_map(|pod| pod.address).collect();
        let mut holders: HashMap<_, Vec<_>> = HashMap::new();
        for row in tables.pods.rows() {
            if let Some(address) = row.value.held_address().filter(|address| own.contains(address)) {
                holders.entry(address).or_default().push(row.uid.as_str());
            }
        }
        for pod in pods.iter_mut().filter(|pod| !pod.host_network) {
            let holders = pod.address.and_then(|address| holders.get(&address));
            pod.contested = holders.is_some_and(|holders| holders.iter().any(|uid| *uid != pod.uid));
        }
        Some(Deployment {
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.clone(),
            expected: expected.clone(),
            pods,
        })
    }
}

impl Tables {
    /// Pods of the Deployment `name` of the ModelDeployment `uid`, in order of names.
    fn routers(&self, namespace: &str, uid: &str, name: &str, role: &str) -> Vec<IndexedPod> {
        let deployment = self
            .deployments
            .owned_by(namespace, OwnerKind::ModelDeployment, uid)
            .find_map(|(found, row)| (found == name).then_some(row));
        let mut pods: Vec<_> = deployment
            .into_iter()
            .flat_map(|row| self.replica_sets.owned_by(namespace, OwnerKind::Deployment, &row.uid))
            .flat_map(|(_, row)| self.pods.owned_by(namespace, OwnerKind::ReplicaSet, &row.uid))
            .collect();
        pods.sort_by_key(|(name, _)| *name);
        pods.into_iter()
            .zip(0..)
            .map(|((name, row), ordinal)| indexed(name, row, role, ordinal, None))
            .collect()
    }
}

fn indexed(name: &str, row: &Row<Observed>, role: &str, ordinal: u32, member: Option<Member>) -> IndexedPod {
    let Row {
        uid, value: observed, ..
    } = row;
    let facts = observed.facts(role, member);
    IndexedPod {
        name: name.into(),
        uid: uid.clone(),
        role: role.into(),
        ordinal,
        phase: observed.phase,
        terminating: observed.terminating,
        address: observed.address,
        contested: false,
        host_network: observed.host_network,
        life: facts.and(observed.life),
        facts: facts.cloned(),
    }
}
