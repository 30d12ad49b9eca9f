//! The deployment as the index would have it, were the rendered Pods that have a reading there and running. Knows no reading.

use std::net::{IpAddr, Ipv4Addr};

use model_deployment::index::{Deployment, IndexedPod, Phase, expected};
use model_deployment::pod::Facts;
use model_deployment::pod::labels::{self, Position};
use model_deployment::render::Plan;
use model_deployment_crds::ModelDeployment;
use thiserror::Error;

use super::reading::Place;

/// Stands where a Pod's address would: nothing is fetched from it.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// A Pod that is not rendered, or not to be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotRendered {
    /// No such role.
    #[error("the manifest has no role {0}")]
    Role(String),
    /// No router or coordinator.
    #[error("the manifest has no {0}")]
    Router(String),
    /// Not so many replicas.
    #[error("{place} is not rendered: {role} has {replicas} replicas, counted from 0", role = place.role)]
    Ordinal {
        /// Which.
        place: Place,
        /// How many there are.
        replicas: u32,
    },
    /// A role with a command of its own.
    #[error("role {0} runs a command of its own, so its Pods are not read")]
    TakeOver(String),
}

/// The deployment with these Pods. Of each replica it is the leader.
///
/// # Errors
/// The first of them that is not rendered to be read.
pub(super) fn deployment<'a>(
    manifest: &ModelDeployment,
    plan: &Plan,
    places: impl Iterator<Item = &'a Place>,
) -> Result<Deployment, NotRendered> {
    let name = manifest.metadata.name.clone().unwrap_or_default();
    let mut pods = places
        .map(|place| {
            let (pod, facts) = find(&name, plan, place)?;
            Ok(running(pod, facts, place))
        })
        .collect::<Result<Vec<_>, _>>()?;
    pods.dedup_by(|one, two| one.name == two.name);
    Ok(Deployment {
        namespace: manifest
            .metadata
            .namespace
            .clone()
            .unwrap_or_else(|| "default".to_owned()),
        name,
        uid: manifest.metadata.uid.clone().unwrap_or_default(),
        expected: expected(&manifest.spec),
        pods,
    })
}

/// Name and facts of the Pod at a place.
fn find<'a>(name: &str, plan: &'a Plan, place: &Place) -> Result<(String, &'a Facts), NotRendered> {
    let Place { role, ordinal } = place;
    let check = |replicas| match *ordinal < replicas {
        true => Ok(()),
        false => Err(NotRendered::Ordinal {
            place: place.clone(),
            replicas,
        }),
    };
    let router = match role.as_str() {
        labels::ROUTER_ROLE => &plan.router,
        labels::COORDINATOR => &plan.coordinator,
        _ => {
            let rendered = plan.roles.iter().find(|rendered| rendered.name == *role);
            let rendered = rendered.ok_or_else(|| NotRendered::Role(role.clone()))?;
            if rendered.take_over {
                return Err(NotRendered::TakeOver(role.clone()));
            }
            check(rendered.replicas)?;
            let leader = Position {
                ordinal: *ordinal,
                member: 0,
            };
            return Ok((rendered.pod_name(leader), rendered.facts(leader.member)));
        }
    };
    let router = router.as_ref().ok_or_else(|| NotRendered::Router(role.clone()))?;
    check(router.replicas)?;
    Ok((format!("{name}-{place}").replace('/', "-"), &router.facts))
}

fn running(name: String, facts: &Facts, place: &Place) -> IndexedPod {
    IndexedPod {
        uid: name.clone(),
        name,
        role: place.role.clone(),
        ordinal: place.ordinal,
        phase: Phase::Running,
        terminating: false,
        address: Some(NOWHERE),
        contested: false,
        host_network: false,
        life: None,
        facts: Some(facts.clone()),
    }
}
