//! Every engine × mode × router: how each program is started. Whole objects are in the golden files of the examples.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use model_deployment::pod::annotations::FACTS;
use model_deployment::pod::labels::Map;
use serde_json::{Value, json};

use super::manifest::{plan, pod, ports, variable};

const SERVER: &str = "roles: [{name: server}]";
const PAIR: &str = "roles: [{name: prefill, kind: Prefill}, {name: decode, kind: Decode}]";
const POOL: &str = "kvCache: {pool: {masterAddress: 'mooncake-master.kv:50051'}}\n";
const OFFLOADING: &str = "kvCache: {connector: Offloading, hostMemory: 64G}\n";
const NIXL: &str = "kvTransfer: {connector: Nixl}\n";

#[test]
fn each_engine_mode_and_router_is_started_as_its_golden_file_says() {
    let modes = [
        ("server", "", SERVER),
        ("server-pool", POOL, SERVER),
        ("server-offloading", OFFLOADING, SERVER),
        ("pair", "", PAIR),
        ("pair-nixl", NIXL, PAIR),
        ("pair-pool", POOL, PAIR),
        ("pair-offloading", OFFLOADING, PAIR),
    ];
    for (engine, own_router) in [("vLLM", "vllm-router"), ("SGLang", "sglang-gateway")] {
        for router in ["none", own_router, "llm-d-router"] {
            for (mode, more, roles) in modes {
                let router_field = if router == "none" {
                    String::new()
                } else {
                    format!("router: {{name: {router}}}\n")
                };
                let started = started(engine, &format!("{more}{router_field}{roles}"));
                let name = format!("{}_{mode}_{router}", engine.to_lowercase());
                insta::assert_snapshot!(name, serde_yaml::to_string(&started).unwrap());
            }
        }
    }
}

/// How each program of the deployment is started, by role and container.
fn started(engine: &str, spec: &str) -> BTreeMap<String, Value> {
    let plan = plan(engine, spec);
    let mut started = BTreeMap::new();
    if let Some(router) = &plan.router {
        let template = router.deployment.spec.clone().unwrap().template;
        started.insert(
            "router".into(),
            describe(template.metadata.unwrap().annotations, &template.spec.unwrap()),
        );
    }
    for role in &plan.roles {
        let pod = pod(&plan, &role.name);
        started.insert(
            role.name.clone(),
            describe(pod.metadata.annotations, &pod.spec.unwrap()),
        );
    }
    started
}

fn describe(annotations: Option<Map>, spec: &PodSpec) -> Value {
    let mut annotations = annotations.unwrap_or_default();
    let facts: Value = serde_json::from_str(&annotations.remove(FACTS).expect("every Pod has facts")).unwrap();
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let containers: BTreeMap<_, _> = containers
        .map(|container| (container.name.clone(), start(container)))
        .collect();
    let mut facts = facts;
    facts.as_object_mut().unwrap().remove("revision");
    json!({ "annotations": annotations, "containers": containers, "facts": facts })
}

fn start(container: &Container) -> Value {
    let words: Vec<_> = container
        .command
        .iter()
        .chain(&container.args)
        .flatten()
        .cloned()
        .collect();
    let env: BTreeMap<_, _> = container
        .env
        .iter()
        .flatten()
        .map(|given| (given.name.clone(), variable(container, &given.name)))
        .collect();
    json!({ "words": words, "env": env, "ports": ports(container) })
}
