//! What is kept of a live Pod, and whether its facts hold.

use std::collections::HashMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ContainerState, Pod};

use super::deployment::{Container, Phase};
use crate::pod::{Endpoint, Facts, Member, NoEndpoint, facts::VERSION};

/// TODO-merge
const FACTS_ANNOTATION: &str = "modeldeployment.gpustack.ai/facts";

/// The path at which every producer that we render serves its metrics; facts that name another are not ours.
const METRICS_PATH: &str = "/metrics";

/// What is kept of a live Pod.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub(super) phase: Phase,
    pub(super) terminating: bool,
    pub(super) address: Option<IpAddr>,
    pub(super) host_network: bool,
    /// The annotation, if it can be read. Not yet held against name and ports.
    facts: Option<Facts>,
    /// Container names by declared port: part of the Pod's spec, which nobody can change after its creation.
    ports: HashMap<i32, Vec<String>>,
    lives: HashMap<String, Container>,
}

impl Observed {
    /// Reduces a live Pod.
    pub(super) fn of(pod: &Pod) -> Self {
        let annotations = pod.metadata.annotations.as_ref();
        let status = pod.status.as_ref();
        let spec = pod.spec.as_ref();
        let mut ports = HashMap::<i32, Vec<String>>::new();
        let containers = spec.map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
        for container in containers.into_iter().flatten() {
            for port in container.ports.iter().flatten() {
                ports
                    .entry(port.container_port)
                    .or_default()
                    .push(container.name.clone());
            }
        }
        let statuses = status.map(|status| {
            let init = status.init_container_statuses.iter().flatten();
            init.chain(status.container_statuses.iter().flatten())
        });
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
            host_network: spec.is_some_and(|spec| spec.host_network == Some(true)),
            facts: annotations
                .and_then(|annotations| serde_json::from_str::<Facts>(annotations.get(FACTS_ANNOTATION)?).ok())
                .filter(|facts| facts.version == VERSION),
            ports,
            lives: statuses
                .into_iter()
                .flatten()
                .filter_map(|status| {
                    let life = life(status.state.as_ref(), status.last_state.as_ref(), status.restart_count)?;
                    Some((status.name.clone(), life))
                })
                .collect(),
        }
    }

    /// Whether the Pod lives at `address`, as far as its status says. Pods on their node's network share theirs by design.
    pub(super) fn claims(&self, address: Option<IpAddr>) -> bool {
        let ended = matches!(self.phase, Phase::Succeeded | Phase::Failed);
        address.is_some() && self.address == address && !self.host_network && !ended
    }

    /// The role that the annotation names: a hint, not yet believed.
    pub(super) fn named_role(&self) -> Option<&str> {
        self.facts.as_ref().map(|facts| facts.role.as_str())
    }

    /// The facts, if they hold against what the Pod's creator could not change afterwards: the role and the member in its name, and
    /// the ports that its containers declare. `member` is none for router and coordinator.
    pub(super) fn facts(&self, role: &str, member: Option<Member>) -> Option<&Facts> {
        let facts = self.facts.as_ref()?;
        let endpoint = match &facts.endpoint {
            Endpoint::Listener(listener) => {
                listener.path == METRICS_PATH
                    && !facts.take_over
                    && member != Some(Member::Follower)
                    && self.serving(listener.port).is_some()
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

    /// This life of the container that serves the metrics of `facts`.
    pub(super) fn container(&self, facts: &Facts) -> Option<&Container> {
        match &facts.endpoint {
            Endpoint::Listener(listener) => self.lives.get(self.serving(listener.port)?),
            Endpoint::None { .. } => None,
        }
    }

    /// The one container that declares `port`.
    fn serving(&self, port: u16) -> Option<&str> {
        match self.ports.get(&i32::from(port))?.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }
}

/// One life of a container, once it was seen running.
fn life(state: Option<&ContainerState>, last: Option<&ContainerState>, restart_count: i32) -> Option<Container> {
    let running = state.and_then(|state| state.running.as_ref());
    let ended = [state, last]
        .into_iter()
        .flatten()
        .any(|state| state.terminated.is_some());
    (running.is_some() || ended).then(|| Container {
        restart_count,
        started_at: running
            .and_then(|running| running.started_at.as_ref())
            .map(|time| time.0),
    })
}
