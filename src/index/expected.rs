//! What a spec expects to exist: each role, the router and the coordinator.

use model_deployment_crds::ModelDeploymentSpec;

use super::ExpectedRole;
use crate::pod::Producer;
use crate::pod::labels::{COORDINATOR, ROUTER_ROLE};

/// Every role of `spec` in its order, then the router, then the coordinator.
pub fn expected(spec: &ModelDeploymentSpec) -> Vec<ExpectedRole> {
    let mut expected: Vec<_> = spec
        .roles
        .iter()
        .map(|role| ExpectedRole {
            role: role.name.clone(),
            producer: spec.engine.name.into(),
            kind: Some(role.kind),
            replicas: count(role.replicas),
            take_over: !role.command.is_empty(),
        })
        .collect();
    if let Some(router) = &spec.router {
        expected.push(unkinded(ROUTER_ROLE, router.name.into(), router.replicas));
        if let Some(coordinator) = &router.coordinator {
            expected.push(unkinded(COORDINATOR, Producer::Coordinator, coordinator.replicas));
        }
    }
    expected
}

fn unkinded(role: &str, producer: Producer, replicas: i32) -> ExpectedRole {
    ExpectedRole {
        role: role.into(),
        producer,
        kind: None,
        replicas: count(replicas),
        take_over: false,
    }
}

/// The schema keeps replicas at 0 or more.
fn count(replicas: i32) -> u32 {
    replicas.try_into().unwrap_or(0)
}
