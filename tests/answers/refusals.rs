//! When there is no answer, and the order of an answer that there is (metrics contract, sections 1 and 2).

use model_deployment::pod::Producer;
use model_deployment_crds::role::RoleKind;

use crate::scene::{Scene, capture};

#[test]
fn no_pod_yet() {
    let refusal = Scene::server(Producer::Vllm).try_answer().unwrap_err();
    assert_eq!(refusal.to_string(), "ModelDeployment chat has no Pods with metrics yet");
}

/// Pending, terminating and unreadable ones count alike; the first in order of names gives the cause.
#[test]
fn no_readable_pod() {
    let refusal = Scene::new()
        .role("server", RoleKind::Server, Producer::Vllm, 3, |_| {})
        .fail("server/0", 0.0, "HttpStatus=500")
        .fail("server/1", 0.0, "NoAddress")
        .fail("server/2", 0.0, "Terminating")
        .try_answer()
        .unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "none of the 3 Pods of ModelDeployment chat could be read, first cause HttpStatus"
    );
}

#[test]
fn only_codes_of_a_pod_are_failures_of_one() {
    use model_deployment::snapshot::Failure;
    for word in [
        "Timeout",
        "HttpStatus=201",
        "HttpStatus=599",
        "HttpStatus",
        "NoAddress",
        "NotExposition",
    ] {
        assert!(word.parse::<Failure>().is_ok(), "{word}");
    }
    for word in [
        "",
        "timeout",
        "Absent",
        "NoPods",
        "Timeout=5",
        "HttpStatus=",
        "HttpStatus=abc",
        "HttpStatus=100",
        "HttpStatus=200",
        "HttpStatus=600",
        "TakeOver",
    ] {
        assert!(word.parse::<Failure>().is_err(), "{word}");
    }
}

#[test]
fn the_order_is_total_and_two_reads_of_one_state_give_equal_lists() {
    let scene = || {
        let body = "vllm:num_requests_running 1\n";
        let mut scene = Scene::new()
            .role("b", RoleKind::Server, Producer::Vllm, 11, |_| {})
            .role("B", RoleKind::Server, Producer::Vllm, 2, |_| {})
            .router(Producer::SglangGateway, 1, |_| {});
        for ordinal in 0..11 {
            scene = scene.read(&format!("b/{ordinal}"), 0.0, body);
        }
        scene
            .read("B/0", 0.0, body)
            .fail("B/1", 0.0, "Timeout")
            .read("router/0", 0.0, capture("smg-1.13.0_ordinary_04_drained"))
            .read("router/0", 10.0, capture("smg-1.13.0_ordinary_05_one_worker_500"))
    };
    let answer = scene().answer();
    let missing: Vec<_> = answer.missing.iter().map(|m| (&m.pod, &m.source, &m.code)).collect();
    assert!(missing.is_sorted(), "{missing:?}");
    let windows: Vec<_> = answer.traffic.iter().map(|w| (&w.pod, &w.name, &w.source)).collect();
    assert!(windows.is_sorted(), "{windows:?}");
    let gauges: Vec<_> = answer
        .processing
        .iter()
        .map(|g| (&*g.name, &*g.scope, g.role.as_deref()))
        .collect();
    assert_eq!(
        gauges,
        [
            ("router-backends", "router", None),
            ("router-running", "router", None),
            ("running", "engine", Some("B")),
            ("running", "engine", Some("b")),
        ]
    );
    let json = |answer| serde_json::to_string(&answer).unwrap();
    let mut reversed = scene();
    reversed.deployment.pods.reverse();
    reversed.deployment.expected.reverse();
    assert_eq!(json(answer), json(reversed.answer()));
}

#[test]
fn empty_lists_are_left_out_and_members_are_spelled_as_the_contract_does() {
    let answer = Scene::server(Producer::Vllm)
        .read("server/0", 0.0, capture("vllm-0.32.0_single_01_idle_after_start"))
        .read("server/0", 2.5, capture("vllm-0.32.0_single_02_after_20_requests"))
        .answer();
    let json = serde_json::to_value(answer).unwrap();
    let members: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        members,
        [
            "apiVersion",
            "cacheHits",
            "kind",
            "latency",
            "metadata",
            "missing",
            "partial",
            "processing",
            "queueing",
            "timestamp"
        ]
    );
    assert_eq!(json["metadata"], serde_json::json!({"name": "chat", "namespace": "ns"}));
    assert_eq!(json["cacheHits"][0]["observedAt"], "1970-01-01T00:00:02.500000Z");
    assert_eq!(json["cacheHits"][0]["windowSeconds"], 2.5);
    assert_eq!(json["missing"][0]["scope"], "external-store");
    assert_eq!(json["missing"][0]["roleKind"], "Server");
}
