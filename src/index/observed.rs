//! What is kept of a live Pod, and whether its facts hold.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::deployment::Phase;
use crate::pod::facts::METRICS_PATH;
use crate::pod::{Endpoint, Facts, Life, Listener, Member, NoEndpoint, annotations};

/// What is kept of a live Pod.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub(super) phase: Phase,
    pub(super) terminating: bool,
    pub(super) address: Option<IpAddr>,
    pub(super) host_network: bool,
    /// Of the container that serves the metrics of `facts`.
    pub(super) life: Option<Life>,
    /// As annotated and held against labels and ports; not yet against the Pod's name.
    facts: Option<Facts>,
}

impl Observed {
    /// Reduces a live Pod.
    pub(super) fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let facts = annotations::read(pod).ok();
        Self {
            phase: match status.and_then(|status| status.phase.as_deref()) {
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                Some("Unknown") => Phase::Unknown,
                _ => Phase::Pending,
            },
            terminating: pod.metadata.deletion_timestamp.is_some(),
            address: status.and_then(|status| status.pod_ip.as_ref()?.parse().ok()),
            host_network: pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true)),
            life: match facts.as_ref().map(|facts| &facts.endpoint) {
                Some(Endpoint::Listener(listener)) => serving(pod, listener).and_then(life),
                _ => None,
            },
            facts,
        }
    }

    /// The address that the Pod lives at alone, as far as its status says. Pods on their node's network share theirs by design.
    pub(super) fn held_address(&self) -> Option<IpAddr> {
        let ended = matches!(self.phase, Phase::Succeeded | Phase::Failed);
        self.address.filter(|_| !self.host_network && !ended)
    }

    /// The role that the Pod names itself: a hint.
    pub(super) fn named_role(&self) -> Option<&str> {
        self.facts.as_ref().map(|facts| facts.role.as_str())
    }

    /// The facts, if they are those of the place that the Pod's name or owner stands for. `member` is none for router and coordinator.
    pub(super) fn facts(&self, role: &str, member: Option<Member>) -> Option<&Facts> {
        let facts = self.facts.as_ref()?;
        let endpoint = match &facts.endpoint {
            Endpoint::Listener(listener) => {
                listener.path == METRICS_PATH && !facts.take_over && member != Some(Member::Follower)
            }
            Endpoint::None {
                none: NoEndpoint::TakeOver,
            } => facts.take_over,
            Endpoint::None {
                none: NoEndpoint::Follower,
            } => member == Some(Member::Follower),
        };
        (facts.role == role && facts.member == member && endpoint).then_some(facts)
    }
}

/// The status of the container that declares the listener's port; [`annotations::read`] has seen that there is exactly one.
fn serving<'a>(pod: &'a Pod, listener: &Listener) -> Option<&'a ContainerStatus> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
    let declares = |port: &k8s_openapi::api::core::v1::ContainerPort| port.container_port == i32::from(listener.port);
    let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let container = containers.find(|container| container.ports.iter().flatten().any(declares))?;
    let statuses = [&status.container_statuses, &status.init_container_statuses];
    statuses
        .into_iter()
        .flatten()
        .flatten()
        .find(|status| status.name == container.name)
}

/// This life of a container, once it was seen running.
fn life(status: &ContainerStatus) -> Option<Life> {
    let states = [&status.state, &status.last_state].map(Option::as_ref);
    let running = states[0].and_then(|state| state.running.as_ref());
    let ended = states.into_iter().flatten().any(|state| state.terminated.is_some());
    (running.is_some() || ended).then(|| Life {
        restart_count: status.restart_count,
        started_at: running
            .and_then(|running| running.started_at.as_ref())
            .map(|time| time.0),
    })
}
