//! What a spec expects to exist: each role, the router and the coordinator.

use model_deployment_crds::ModelDeploymentSpec;
use model_deployment_crds::model_deployment::EngineName;
use model_deployment_crds::router::RouterName;

use super::ExpectedRole;
use crate::pod::Producer;

/// The role of router Pods.
pub const ROUTER: &str = "router";
/// The role of coordinator Pods.
pub const COORDINATOR: &str = "coordinator";

/// Every role of `spec` in its order, then the router, then the coordinator.
pub fn expected(spec: &ModelDeploymentSpec) -> Vec<ExpectedRole> {
    let engine = match spec.engine.name {
        EngineName::Vllm => Producer::Vllm,
        EngineName::Sglang => Producer::Sglang,
    };
    let mut expected: Vec<_> = spec
        .roles
        .iter()
        .map(|role| ExpectedRole {
            role: role.name.clone(),
            producer: engine,
            kind: Some(role.kind),
            replicas: count(role.replicas),
            take_over: !role.command.is_empty(),
        })
        .collect();
    if let Some(router) = &spec.router {
        let producer = match router.name {
            RouterName::LlmD => Producer::LlmDRouter,
            RouterName::Vllm => Producer::VllmRouter,
            RouterName::SglangGateway => Producer::SglangGateway,
        };
        expected.push(unkinded(ROUTER, producer, router.replicas));
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
