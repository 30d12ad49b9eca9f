//! The index's answer about one ModelDeployment: plain data.

use std::net::IpAddr;

use model_deployment_crds::role::RoleKind;

use crate::pod::{Facts, Life, Producer};

/// One ModelDeployment as the metrics side sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: state kept for a namesake is not its own.
    pub uid: String,
    /// What the spec asks for: every role, the router and the coordinator.
    pub expected: Vec<ExpectedRole>,
    /// The Pods that it owns, by a chain of controller references verified by UID. In order of (role, ordinal, member, name).
    pub pods: Vec<IndexedPod>,
}

/// One role of the spec, the router, or the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedRole {
    /// The role's name, `router` or `coordinator`.
    pub role: String,
    /// The program whose metrics its Pods serve.
    pub producer: Producer,
    /// The role's kind; none for router and coordinator.
    pub kind: Option<RoleKind>,
    /// Pods that are to be read: replicas, leaders only. Zero replicas expect none.
    pub replicas: u32,
    /// Whether a user's `command` took the role over.
    pub take_over: bool,
}

/// One owned Pod.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexedPod {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The role's name, `router` or `coordinator`.
    pub role: String,
    /// Its replica's ordinal; router Pods have none and count from 0 in order of names.
    pub ordinal: u32,
    /// Its own phase.
    pub phase: Phase,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Its address, once it has one.
    pub address: Option<IpAddr>,
    /// Whether another live Pod reports the same address: whose listener answers there cannot be known.
    pub contested: bool,
    /// Whether it shares its node's network.
    pub host_network: bool,
    /// The life of the container that serves metrics, once that was seen running.
    pub life: Option<Life>,
    /// What was rendered into it; none where the annotation is absent or does not hold against the Pod.
    pub facts: Option<Facts>,
}

/// A Pod's phase, as Kubernetes has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not started.
    Pending,
    /// Running.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// Not known.
    Unknown,
}
