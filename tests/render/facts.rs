//! Facts there and back: rendered, written as an annotation, read from the Pod, equal.

use k8s_openapi::api::core::v1::Pod;
use model_deployment::pod::annotations::{self, FACTS, FactsError};
use model_deployment::pod::labels::{self, Place, Position};
use model_deployment::pod::{Endpoint, Member};
use model_deployment::render::{Defaults, RouterPlan, render};
use proptest::prelude::*;

use super::manifest::{deployment, member, plan, pod};

/// A Pod as the Deployment of a router makes it.
fn pod_of(router: &RouterPlan) -> Pod {
    let template = router.deployment.spec.clone().unwrap().template;
    Pod {
        metadata: template.metadata.unwrap(),
        spec: template.spec,
        status: None,
    }
}

/// Everything that the grammar of a spec has to choose from, as YAML.
fn specs() -> impl Strategy<Value = (&'static str, String)> {
    let engine = prop_oneof![Just("vLLM"), Just("SGLang")];
    let cache = prop_oneof![
        Just(""),
        Just("kvCache: {pool: {masterAddress: 'm:1', protocol: RDMA}}\n"),
        Just("kvCache: {connector: Offloading, hostMemory: 64Gi}\n"),
    ];
    let transfer = prop_oneof![
        Just(""),
        Just("kvTransfer: {connector: Nixl}\n"),
        Just("kvTransfer: {protocol: RDMA}\n")
    ];
    let arguments = prop_oneof![
        Just(""),
        Just("extraArgs: [--port=9000]"),
        Just("extraArgs: [--ssl-certfile=c, --ssl-keyfile=k]"),
        Just("command: [x]"),
    ];
    (
        engine,
        cache,
        transfer,
        any::<bool>(),
        0..4_usize,
        arguments.clone(),
        arguments,
        0..3_u32,
        1..3_u32,
    )
        .prop_map(
            |(engine, cache, transfer, paired, router, first, second, replicas, size)| {
                let router = match (router, engine) {
                    (0, _) => "",
                    (1, "vLLM") => "router: {name: vllm-router, policy: random}\n",
                    (1, _) => "router: {name: sglang-gateway}\n",
                    (2, _) => "router: {name: llm-d-router}\n",
                    (_, "vLLM") => "router: {name: vllm-router, image: own}\n",
                    (_, _) => "router: {name: sglang-gateway, image: own}\n",
                };
                let (kinds, transfer) = if paired {
                    (["Prefill", "Decode"], transfer)
                } else {
                    (["Server"; 2], "")
                };
                let scale = format!("replicas: {replicas}, size: {size}");
                let roles = format!(
                    "roles: [{{name: a, kind: {}, {scale}, {first}}}, {{name: b, kind: {}, {scale}, {second}}}]",
                    kinds[0], kinds[1]
                );
                (engine, format!("{cache}{transfer}{router}{roles}"))
            },
        )
}

proptest! {
    #[test]
    fn facts_come_back_as_they_were_rendered((engine, spec) in specs()) {
        let deployment = deployment(engine, &spec);
        // Some of these are refused; then there is nothing to hold.
        let Ok(plan) = render(&deployment, &Defaults::default()) else { return Ok(()) };
        for role in &plan.roles {
            for position in role.positions() {
                let pod = role.pod(position);
                prop_assert_eq!(&annotations::read(&pod).unwrap(), role.facts(position.member));
                let place = Place { instance: "chat".into(), role: role.name.clone(), position: Some(position), revision: role.revision.clone() };
                prop_assert_eq!(labels::read(&pod), Some(place));
                prop_assert_eq!(pod.metadata.name, Some(role.pod_name(position)));
            }
        }
        for router in [&plan.router, &plan.coordinator].into_iter().flatten() {
            prop_assert_eq!(annotations::read(&pod_of(router)).unwrap(), router.facts.clone());
        }
    }
}

#[test]
fn facts_that_do_not_hold_against_the_pod_are_not_believed() {
    let plan = plan("vLLM", "roles: [{name: a, size: 2}]");
    let leader = pod(&plan, "a");
    let annotated = |text: &str| {
        let mut pod = leader.clone();
        pod.metadata
            .annotations
            .as_mut()
            .unwrap()
            .insert(FACTS.into(), text.into());
        annotations::read(&pod)
    };
    let written = leader.metadata.annotations.as_ref().unwrap()[FACTS].clone();
    assert!(annotated(&written).is_ok());
    assert!(matches!(annotated("{"), Err(FactsError::Malformed(_))));
    assert!(matches!(annotated("{}"), Err(FactsError::Malformed(_))));
    assert!(matches!(
        annotated(&written.replace("\"version\":1", "\"version\":2")),
        Err(FactsError::Version(2))
    ));
    assert!(matches!(
        annotated(&written.replace("\"pool\":false,", "")),
        Err(FactsError::Malformed(_))
    ));
    assert!(matches!(
        annotated(&written.replace("\"role\":\"a\"", "\"role\":\"b\"")),
        Err(FactsError::Labels("role"))
    ));
    assert!(matches!(
        annotated(&written.replace("leader", "follower")),
        Err(FactsError::Labels("member"))
    ));
    let revision = format!("\"revision\":\"{}\"", plan.roles[0].revision);
    assert!(matches!(
        annotated(&written.replace(&revision, "\"revision\":\"0\"")),
        Err(FactsError::Labels("revision"))
    ));
    assert!(matches!(
        annotated(&written.replace("8000", "8001")),
        Err(FactsError::Port(8001))
    ));

    let mut bare = leader.clone();
    bare.metadata.annotations.as_mut().unwrap().remove(FACTS);
    assert!(matches!(annotations::read(&bare), Err(FactsError::Absent)));

    // A second container with the port: which of the two serves it?
    let mut shared = leader.clone();
    let spec = shared.spec.as_mut().unwrap();
    let twin = spec.containers[0].clone();
    spec.containers.push(twin);
    assert!(matches!(annotations::read(&shared), Err(FactsError::Port(8000))));
}

#[test]
fn facts_are_json_with_exactly_the_members_of_the_contract() {
    let plan = plan(
        "SGLang",
        "kvCache: {pool: {masterAddress: 'm:1'}}\nroles: [{name: p, kind: Prefill, extraArgs: [--tp, '2']}, {name: d, kind: Decode, size: 2}]",
    );
    let facts =
        |pod: Pod| serde_json::from_str::<serde_json::Value>(&pod.metadata.annotations.unwrap()[FACTS]).unwrap();
    assert_eq!(
        facts(pod(&plan, "p")),
        serde_json::json!({
            "version": 1, "producer": "SGLang", "role": "p", "kind": "Prefill", "paired": true, "member": "leader",
            "endpoint": {"scheme": "http", "port": 8000, "path": "/metrics"},
            "pool": true, "connector": "Mooncake", "transferConnector": "Mooncake",
            "hostTier": true, "storageTier": true, "nativeOffload": false, "tracksLoad": null, "ranks": 2,
            "statsEnabled": true, "takeOver": false, "revision": plan.roles[0].revision,
        })
    );
    assert_eq!(
        facts(member(&plan, "d", 1))["endpoint"],
        serde_json::json!({"none": "Follower"})
    );
}

#[test]
fn a_revision_is_that_of_what_runs() {
    let revision = |spec: &str| plan("vLLM", spec).roles[0].revision.clone();
    let one = revision("roles: [{name: a}]");
    assert_eq!(
        one,
        revision("roles: [{name: a, replicas: 7}]"),
        "replicas touch no other Pod"
    );
    assert_eq!(
        one,
        revision("router: {name: vllm-router}\nroles: [{name: a}]"),
        "a router beside changes no engine"
    );
    let others = [
        "image: other",
        "size: 2",
        "port: 9000",
        "extraArgs: [--seed=1]",
        "shmSize: 1Gi",
        "env: [{name: A, value: b}]",
        "command: [x]",
    ];
    let mut seen = vec![one];
    for other in others {
        let revision = revision(&format!("roles: [{{name: a, {other}}}]"));
        assert!(!seen.contains(&revision), "{other}");
        seen.push(revision);
    }
}

#[test]
fn the_revision_of_an_unchanged_pod_is_pinned() {
    // A version of the operator that renders the same Pod must not replace it. If this fails, either what is rendered has changed,
    // which every running Pod will be replaced for, or the hash has, which must not happen.
    let pinned = plan("vLLM", "roles: [{name: a}]").roles[0].revision.clone();
    assert_eq!(pinned, "fae246b7f3507f98");
}

#[test]
fn a_replica_has_a_leader_and_followers() {
    let plan = plan(
        "vLLM",
        "router: {name: llm-d-router, replicas: 2, coordinator: {}}\nroles: [{name: p, kind: Prefill, replicas: 3, size: 4}, {name: d, kind: Decode, replicas: 0, command: [x]}]",
    );
    assert_eq!(plan.roles[0].facts(3).member, Some(Member::Follower));
    assert!(matches!(plan.roles[0].facts(0).endpoint, Endpoint::Listener(_)));
    assert_eq!(
        plan.roles[0].positions().last(),
        Some(Position { ordinal: 2, member: 3 })
    );
}
