//! Which Pods of a deployment are to be read, which cannot be, and what the roles lack. Knows no body.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model_deployment_crds::metrics::Missing;

use super::fault::Fault;
use crate::fields::{self, Code, FIELDS};
use crate::index::{Deployment, ExpectedRole, IndexedPod, Phase};
use crate::pod::{Endpoint, Facts, Listener, Member, NoEndpoint, Producer};

/// Pods read for one request (metrics contract, section 8).
pub const PODS: usize = 64;

/// What one request does about each Pod.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    /// To be read, with their facts.
    pub(super) reads: Vec<(&'a IndexedPod, &'a Facts)>,
    /// Named without a read.
    pub(super) faults: Vec<(&'a IndexedPod, Fault)>,
    /// Entries that are about a role.
    pub(super) roles: Vec<Missing>,
    /// Pods that are to be read by design, readable or not, left out or not.
    pub(super) pods: usize,
}

impl<'a> Plan<'a> {
    pub(super) fn new(deployment: &'a Deployment) -> Self {
        let pods: Vec<_> = deployment
            .pods
            .iter()
            .filter(|pod| is_readable_by_design(deployment, pod))
            .collect();
        let total = pods.len();
        let mut roles: Vec<_> = deployment
            .expected
            .iter()
            .filter(|role| has_fields(role.producer))
            .filter_map(|role| judge_role(role, &pods))
            .collect();
        let mut reads = Vec::new();
        let mut faults = Vec::new();
        for pod in pods {
            match judge_pod(pod) {
                Ok(facts) => reads.push((pod, facts)),
                Err(fault) => faults.push((pod, fault)),
            }
        }
        for (role, (lost, of)) in cut(&mut reads) {
            let expected = deployment.expected.iter().find(|expected| expected.role == role);
            roles.push(Missing {
                pod: String::new(),
                source: "pod-discovery".to_owned(),
                scope: None,
                role_kind: expected.and_then(|expected| expected.kind),
                code: Code::LimitReached.to_string(),
                reason: format!(
                    "A request reads at most {PODS} Pods; {lost} of the {of} Pods of {role} were left out."
                ),
                required: Code::LimitReached.required(),
                role: Some(role),
            });
        }
        Self {
            reads,
            faults,
            roles,
            pods: total,
        }
    }
}

/// A coordinator gives no figure of the standard view: it is not asked, and not missed.
fn has_fields(producer: Producer) -> bool {
    FIELDS.iter().any(|field| field.producer == producer)
}

/// Followers serve no HTTP, and a role with a command of its own owns its endpoint.
fn is_readable_by_design(deployment: &Deployment, pod: &IndexedPod) -> bool {
    match &pod.facts {
        Some(facts) => {
            facts.member != Some(Member::Follower) && listener(facts).is_some() && has_fields(facts.producer)
        }
        None => !deployment
            .expected
            .iter()
            .any(|role| role.role == pod.role && (role.take_over || !has_fields(role.producer))),
    }
}

fn listener(facts: &Facts) -> Option<&Listener> {
    match &facts.endpoint {
        Endpoint::Listener(listener) => Some(listener),
        Endpoint::None {
            none: NoEndpoint::TakeOver | NoEndpoint::Follower,
        } => None,
    }
}

/// Whether a Pod can be read now.
fn judge_pod(pod: &IndexedPod) -> Result<&Facts, Fault> {
    if pod.terminating {
        return Err(Fault::new(Code::Terminating, "The Pod is being deleted."));
    }
    match pod.phase {
        Phase::Succeeded | Phase::Failed => return Err(Fault::new(Code::NotRunning, "The Pod has ended.")),
        _ if pod.address.is_none() => return Err(Fault::new(Code::NoAddress, "The Pod has no IP address yet.")),
        Phase::Pending => return Err(Fault::new(Code::NotRunning, "The Pod has not started yet.")),
        Phase::Unknown => return Err(Fault::new(Code::NotRunning, "The state of the Pod is not known.")),
        Phase::Running if pod.contested => {
            return Err(Fault::new(
                Code::Unreadable,
                "Another Pod reports the same IP address, so whose metrics are served there is not known.",
            ));
        }
        Phase::Running => {}
    }
    pod.facts.as_ref().ok_or_else(|| {
        Fault::new(
            Code::Unreadable,
            "What was rendered into the Pod is not known: its facts annotation is absent or does not hold.",
        )
    })
}

/// Where to read a Pod now.
pub(super) fn target(pod: &IndexedPod) -> Result<(IpAddr, &Listener), Fault> {
    let facts = judge_pod(pod)?;
    pod.address
        .zip(listener(facts))
        .ok_or_else(|| Fault::new(Code::NoAddress, "The Pod has no IP address yet."))
}

/// What a role lacks.
fn judge_role(role: &ExpectedRole, pods: &[&IndexedPod]) -> Option<Missing> {
    let scope = fields::scope(role.producer);
    let (source, subject) = match role.kind {
        Some(_) => (format!("engine/{}", role.role), format!("Role {}", role.role)),
        None => (role.role.clone(), format!("The {}", role.role)),
    };
    let (code, reason) = if role.take_over {
        let reason = format!("{subject} runs a command of its own, which owns the metrics endpoint.");
        (Code::TakeOver, reason)
    } else {
        let present: BTreeSet<_> = pods
            .iter()
            .filter(|pod| pod.role == role.role && pod.ordinal < role.replicas)
            .map(|pod| pod.ordinal)
            .collect();
        match (present.len(), role.replicas) {
            (present, expected) if present == expected as usize => return None,
            (0, expected) => (
                Code::NoPods,
                format!("{subject} has none of its {expected} expected Pods."),
            ),
            (present, expected) => {
                let reason = format!("{subject} has {present} of its {expected} expected Pods.");
                (Code::PodsMissing, reason)
            }
        }
    };
    Some(Missing {
        pod: String::new(),
        source,
        scope: Some(scope.to_owned()),
        role: role.kind.map(|_| role.role.clone()),
        role_kind: role.kind,
        code: code.to_string(),
        reason,
        required: code.required(),
    })
}

/// Cuts to the limit and says for each role how many of how many were lost.
///
/// Fair over roles: each gets a place in turn, the router and the coordinator first, until all places are taken. Within a role the lowest
/// ordinals stay.
fn cut(reads: &mut Vec<(&IndexedPod, &Facts)>) -> BTreeMap<String, (usize, usize)> {
    let mut lost = BTreeMap::new();
    if reads.len() <= PODS {
        return lost;
    }
    let mut roles: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (pod, facts) in reads.iter() {
        let turn = (facts.kind.is_some(), pod.role.as_str());
        roles.entry(turn).or_default().push((pod.ordinal, pod.name.as_str()));
    }
    let mut kept = BTreeSet::new();
    let mut turns: Vec<_> = roles
        .values_mut()
        .flat_map(|pods| {
            pods.sort_unstable();
            pods.iter().enumerate().map(|(turn, (_, name))| (turn, *name))
        })
        .collect();
    // Stable: within a turn the roles stay in their order.
    turns.sort_by_key(|(turn, _)| *turn);
    kept.extend(turns.into_iter().take(PODS).map(|(_, name)| name.to_owned()));
    for ((_, role), pods) in &roles {
        let left_out = pods.iter().filter(|(_, name)| !kept.contains(*name)).count();
        if left_out > 0 {
            lost.insert((*role).to_owned(), (left_out, pods.len()));
        }
    }
    reads.retain(|(pod, _)| kept.contains(&pod.name));
    lost
}
