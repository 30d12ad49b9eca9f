use k8s_openapi::api::apps::v1::{Deployment as Workload, ReplicaSet};
use serde_json::{Value, json};

use super::*;
use crate::pod::{Life, labels};

const MD_UID: &str = "md-1";

fn model_deployment(uid: &str) -> ModelDeployment {
    serde_json::from_value(json!({
        "apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment",
        "metadata": {"namespace": "prod", "name": "chat", "uid": uid},
        "spec": {
            "model": {"name": "m"}, "engine": {"name": "vLLM", "image": "i"},
            "router": {"name": "vllm-router", "replicas": 2},
            "roles": [{"name": "server", "replicas": 3}, {"name": "own", "command": ["x"]}],
        },
    }))
    .unwrap()
}

fn owned_by(api_version: &str, kind: &str, uid: &str) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": "any", "uid": uid, "controller": true}])
}

fn facts(role: &str, producer: &str, member: Value, port: u16) -> Value {
    json!({
        "version": 1, "producer": producer, "role": role, "kind": if member.is_null() { Value::Null } else { "Server".into() },
        "paired": false, "member": member, "endpoint": {"scheme": "http", "port": port, "path": "/metrics"},
        "pool": false, "connector": null, "transferConnector": null, "hostTier": false, "storageTier": false,
        "nativeOffload": false, "tracksLoad": null, "ranks": 1, "statsEnabled": true, "takeOver": false, "revision": "r1",
    })
}

/// A running Pod of role `server` as the renderer makes it.
fn engine(name: &str, ordinal: u32) -> Value {
    json!({
        "metadata": {
            "namespace": "prod", "name": name, "uid": format!("uid-{name}"),
            "ownerReferences": owned_by("worker.gpustack.ai/v1alpha1", "ModelDeployment", MD_UID),
            "labels": {
                labels::NAME: labels::PRODUCT, labels::INSTANCE: "chat", labels::COMPONENT: "server",
                labels::ORDINAL: ordinal.to_string(), labels::MEMBER: "0", labels::REVISION: "r1",
            },
            "annotations": {"modeldeployment.gpustack.ai/facts": facts("server", "vLLM", json!("leader"), 8000).to_string()},
        },
        "spec": {"containers": [{"name": "main", "ports": [{"containerPort": 8000}]}]},
        "status": {
            "phase": "Running", "podIP": "10.244.0.7",
            "containerStatuses": [{
                "name": "main", "image": "i", "imageID": "", "ready": true, "restartCount": 2,
                "state": {"running": {"startedAt": "2026-11-30T12:00:00Z"}},
            }],
        },
    })
}

fn router(name: &str, replica_set: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "prod", "name": name, "uid": format!("uid-{name}"),
            "ownerReferences": owned_by("apps/v1", "ReplicaSet", replica_set),
            "labels": {
                labels::NAME: labels::PRODUCT, labels::INSTANCE: "chat", labels::ROUTER: "vllm-router", labels::REVISION: "r1",
            },
            "annotations": {"modeldeployment.gpustack.ai/facts": facts("router", "vllm-router", Value::Null, 9090).to_string()},
        },
        "spec": {"containers": [{"name": "router", "ports": [{"containerPort": 9090}]}]},
    })
}

fn pod(value: Value) -> Pod {
    serde_json::from_value(value).unwrap()
}

/// An index that has listed one ModelDeployment, its router's Deployment and ReplicaSet, and nothing else.
fn index() -> Index {
    let index = Index::default();
    for event in [Event::Init, Event::InitApply(model_deployment(MD_UID)), Event::InitDone] {
        index.observe_model_deployment(&event);
    }
    index.observe_deployment(&Event::Apply(workload("chat-router", "deploy-1", MD_UID)));
    index.observe_replica_set(&Event::Apply(replica_set("rs-1", "deploy-1")));
    index
}

fn workload(name: &str, uid: &str, owner: &str) -> Workload {
    let owners = owned_by("worker.gpustack.ai/v1alpha1", "ModelDeployment", owner);
    serde_json::from_value(
        json!({"metadata": {"namespace": "prod", "name": name, "uid": uid, "ownerReferences": owners}}),
    )
    .unwrap()
}

fn replica_set(uid: &str, owner: &str) -> ReplicaSet {
    let owners = owned_by("apps/v1", "Deployment", owner);
    serde_json::from_value(
        json!({"metadata": {"namespace": "prod", "name": uid, "uid": uid, "ownerReferences": owners}}),
    )
    .unwrap()
}

fn answer(index: &Index) -> Deployment {
    index.deployment("prod", "chat").expect("the ModelDeployment is known")
}

fn names(index: &Index) -> Vec<String> {
    answer(index).pods.into_iter().map(|pod| pod.name).collect()
}

#[test]
fn what_is_expected_comes_from_the_spec() {
    let answer = answer(&index());
    let expected: Vec<_> = answer
        .expected
        .iter()
        .map(|role| (role.role.as_str(), role.replicas, role.take_over))
        .collect();
    assert_eq!(expected, [("server", 3, false), ("own", 1, true), ("router", 2, false)]);
    assert_eq!(answer.uid, MD_UID);
    assert_eq!(index().deployment("prod", "other"), None);
    assert_eq!(index().deployment("test", "chat"), None);
}

#[test]
fn an_engine_pod_is_found_by_its_controller_with_the_life_of_its_serving_container() {
    let index = index();
    index.observe_pod(&Event::Apply(pod(engine("chat-server-1", 1))));
    let [found] = <[_; 1]>::try_from(answer(&index).pods).unwrap();
    assert_eq!(
        (found.role.as_str(), found.ordinal, found.phase),
        ("server", 1, Phase::Running)
    );
    assert_eq!(found.address, Some("10.244.0.7".parse().unwrap()));
    let started_at = Some("2026-11-30T12:00:00Z".parse().unwrap());
    assert_eq!(
        found.life,
        Some(Life {
            restart_count: 2,
            started_at
        })
    );
    assert_eq!(found.facts.map(|facts| facts.role), Some("server".into()));
}

#[test]
fn a_router_pod_is_found_through_its_replica_set_and_deployment() {
    let index = index();
    index.observe_pod(&Event::Apply(pod(router("chat-router-b", "rs-1"))));
    index.observe_pod(&Event::Apply(pod(router("chat-router-a", "rs-1"))));
    let found: Vec<_> = answer(&index)
        .pods
        .into_iter()
        .map(|pod| (pod.name, pod.role, pod.ordinal, pod.facts.is_some()))
        .collect();
    assert_eq!(
        found,
        [
            ("chat-router-a".into(), "router".into(), 0, true),
            ("chat-router-b".into(), "router".into(), 1, true)
        ]
    );
}

#[test]
fn a_link_that_is_not_there_by_uid_leads_nowhere() {
    let index = index();
    // Labels alone, a namesake's UID, another namespace, a kind of another group, an owner that does not control.
    let mut bare = engine("chat-server-0", 0);
    bare["metadata"]["ownerReferences"] = json!([]);
    let mut namesake = engine("chat-server-1", 1);
    namesake["metadata"]["ownerReferences"][0]["uid"] = "md-0".into();
    let mut elsewhere = engine("chat-server-2", 2);
    elsewhere["metadata"]["namespace"] = "test".into();
    let mut foreign = engine("chat-server-3", 3);
    foreign["metadata"]["ownerReferences"][0]["apiVersion"] = "example.com/v1".into();
    let mut uncontrolled = engine("chat-server-4", 4);
    uncontrolled["metadata"]["ownerReferences"][0]["controller"] = false.into();
    // A ReplicaSet of nobody's, and one of a Deployment that the ModelDeployment owns under another name.
    let orphan = router("chat-router-a", "rs-0");
    index.observe_deployment(&Event::Apply(workload("chat-other", "deploy-2", MD_UID)));
    index.observe_replica_set(&Event::Apply(replica_set("rs-2", "deploy-2")));
    let other = router("chat-router-b", "rs-2");
    for value in [bare, namesake, elsewhere, foreign, uncontrolled, orphan, other] {
        index.observe_pod(&Event::Apply(pod(value)));
    }
    assert_eq!(names(&index), Vec::<String>::new());
}

#[test]
fn a_pod_with_no_name_of_ours_is_not_of_the_deployment() {
    let index = index();
    for name in [
        "chat-server-01",
        "chat-server",
        "chat-server-x",
        "chat-extra-0",
        "server-0",
        "chat-router-0",
    ] {
        index.observe_pod(&Event::Apply(pod(engine(name, 0))));
    }
    assert_eq!(names(&index), Vec::<String>::new());
}

#[test]
fn facts_that_do_not_hold_are_not_told() {
    let index = index();
    let mut cases = Vec::new();
    let mut absent = engine("chat-server-0", 0);
    absent["metadata"]["annotations"] = json!({});
    cases.push(absent);
    let with = |ordinal: u32, facts: Value| {
        let mut pod = engine(&format!("chat-server-{ordinal}"), ordinal);
        pod["metadata"]["annotations"]["modeldeployment.gpustack.ai/facts"] = facts.to_string().into();
        pod
    };
    // A port that the Pod does not declare, another path, another role, and a version of the future.
    cases.push(with(1, facts("server", "vLLM", json!("leader"), 22)));
    let mut path = facts("server", "vLLM", json!("leader"), 8000);
    path["endpoint"]["path"] = "/admin".into();
    cases.push(with(2, path));
    cases.push(with(3, facts("own", "vLLM", json!("leader"), 8000)));
    let mut version = facts("server", "vLLM", json!("leader"), 8000);
    version["version"] = 2.into();
    cases.push(with(4, version));
    for case in cases {
        index.observe_pod(&Event::Apply(pod(case)));
    }
    let told: Vec<_> = answer(&index)
        .pods
        .into_iter()
        .map(|pod| (pod.name, pod.facts, pod.life))
        .collect();
    let untold: Vec<_> = (0..5)
        .map(|ordinal| (format!("chat-server-{ordinal}"), None, None))
        .collect();
    assert_eq!(told, untold);
}

#[test]
fn pods_are_in_order_of_role_ordinal_and_member() {
    let index = index();
    for name in ["chat-server-10", "chat-server-2-1", "chat-server-2-0", "chat-own-0"] {
        index.observe_pod(&Event::Apply(pod(engine(name, 0))));
    }
    index.observe_pod(&Event::Apply(pod(router("chat-router-a", "rs-1"))));
    assert_eq!(
        names(&index),
        [
            "chat-own-0",
            "chat-router-a",
            "chat-server-2-0",
            "chat-server-2-1",
            "chat-server-10"
        ]
    );
}

#[test]
fn where_two_roles_read_one_name_the_pod_says_which() {
    let roles = ["a", "a-0"];
    let of = |hint| named("md", roles, "md-a-0-1", hint);
    assert_eq!(
        of(Some("a")),
        Some(Named {
            role: "a",
            ordinal: 0,
            member: 1
        })
    );
    assert_eq!(
        of(Some("a-0")),
        Some(Named {
            role: "a-0",
            ordinal: 1,
            member: 0
        })
    );
    assert_eq!(
        of(None),
        Some(Named {
            role: "a",
            ordinal: 0,
            member: 1
        })
    );
}

#[test]
fn a_deleted_pod_and_a_deleted_owner_are_forgotten() {
    let index = index();
    index.observe_pod(&Event::Apply(pod(engine("chat-server-0", 0))));
    index.observe_pod(&Event::Delete(pod(engine("chat-server-0", 0))));
    assert_eq!(names(&index), Vec::<String>::new());
    index.observe_pod(&Event::Apply(pod(engine("chat-server-0", 0))));
    index.observe_model_deployment(&Event::Delete(model_deployment(MD_UID)));
    assert_eq!(index.deployment("prod", "chat"), None);
    // A new ModelDeployment of the same name owns nothing of the old one's.
    index.observe_model_deployment(&Event::Apply(model_deployment("md-2")));
    assert_eq!(names(&index), Vec::<String>::new());
}

#[test]
fn a_relist_replaces_all_at_once_when_it_is_whole() {
    let index = index();
    index.observe_pod(&Event::Apply(pod(engine("chat-server-0", 0))));
    index.observe_pod(&Event::Init);
    index.observe_pod(&Event::InitApply(pod(engine("chat-server-1", 1))));
    assert_eq!(names(&index), ["chat-server-0"]);
    index.observe_pod(&Event::InitDone);
    assert_eq!(names(&index), ["chat-server-1"]);
}

#[test]
fn it_is_listed_once_every_kind_was() {
    let index = Index::default();
    index.observe_model_deployment(&Event::InitDone);
    index.observe_pod(&Event::InitDone);
    index.observe_replica_set(&Event::<ReplicaSet>::InitDone);
    assert!(!index.is_listed());
    index.observe_deployment(&Event::<Workload>::InitDone);
    assert!(index.is_listed());
}

#[test]
fn an_address_that_two_live_pods_report_is_contested() {
    let index = index();
    index.observe_pod(&Event::Apply(pod(engine("chat-server-0", 0))));
    assert!(!answer(&index).pods[0].contested);
    // Somebody else's Pod, which the ModelDeployment does not own.
    let mut other = engine("stranger", 0);
    other["metadata"]["ownerReferences"] = json!([]);
    index.observe_pod(&Event::Apply(pod(other.clone())));
    assert!(answer(&index).pods[0].contested);
    other["status"]["phase"] = "Succeeded".into();
    index.observe_pod(&Event::Apply(pod(other)));
    assert!(!answer(&index).pods[0].contested);
}
