//! As many Pods as one request reads, and one more.

use std::sync::Arc;

use test_cluster::engine::Exposition;

use crate::scenario::{Outcome, Scenario, Test, capture, deployment, ensure, gauge, missing, test, windowed};
use crate::windows::after;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![test!(sixty_four_pods_are_read_and_of_sixty_five_one_is_left_out)]
}

/// Pods of the decode role that make 64, beside two that prefill and a router.
const DECODES: u32 = 61;

fn pair(decodes: u32) -> String {
    let spec = format!(
        "router:\n  name: vllm-router\nroles:\n- name: prefill\n  kind: Prefill\n  replicas: 2\n- name: decode\n  kind: Decode\n  replicas: {decodes}\n"
    );
    deployment("chat", "vLLM", "vllm/vllm-openai:v0.32.0", &spec)
}

async fn sixty_four_pods_are_read_and_of_sixty_five_one_is_left_out(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("crowd").await?;
    scenario.apply(namespace, &pair(DECODES)).await?;
    for (path, ready) in [("router", 1), ("roles[0]", 2), ("roles[1]", DECODES)] {
        let condition = format!("jsonpath={{.status.{path}.ready}}={ready}");
        scenario.wait(namespace, &condition, "md/chat").await?;
    }
    let captured = capture("vllm-0.32.0_nixl_decode_02_after_15_requests")?;
    let decode = |ordinal: u32| format!("chat-decode-{ordinal}");
    let mut bodies = vec![];
    for ordinal in 0..DECODES {
        let mut body = Exposition::new(&captured, &captured);
        body.set("vllm:num_requests_running", f64::from(ordinal))?;
        let body = body.text();
        ensure!(body.len() > 52_000, "a body of {} bytes", body.len());
        let second = after(&body, ordinal + 1)?;
        bodies.push((scenario.engine(namespace, &decode(ordinal))?, [body, second]));
    }
    let answer = scenario.between(namespace, "1s", &bodies).await?;
    let mut entries = answer["missing"].as_array().into_iter().flatten();
    let unread = entries.find(|entry| entry["source"] == "scrape");
    ensure!(unread.is_none(), "not read: {unread:?}");
    ensure!(
        missing(&answer, "", "pod-discovery").is_none(),
        "64 Pods are too many: {answer}"
    );
    let running = answer["processing"].as_array().into_iter().flatten();
    let running = running
        .clone()
        .find(|gauge| gauge["name"] == "running" && gauge["role"] == "decode");
    let running = running.ok_or("no running")?;
    // 0 + 1 + … + 60.
    ensure!(
        running["value"] == 1830.0 && running["podCount"] == DECODES && running["expectedPods"] == DECODES,
        "{running}"
    );
    for ordinal in 0..DECODES {
        let ttft = windowed(&answer, "latency", &decode(ordinal), "ttft");
        let ttft = ttft.ok_or_else(|| format!("no ttft of {}: {answer}", decode(ordinal)))?;
        ensure!(
            ttft["value"] == 0.25 && ttft["samples"] == f64::from(ordinal + 1),
            "{ttft}"
        );
    }

    scenario.apply(namespace, &pair(DECODES + 1)).await?;
    let condition = format!("jsonpath={{.status.roles[1].ready}}={}", DECODES + 1);
    scenario.wait(namespace, &condition, "md/chat").await?;
    let answer = scenario
        .metrics_until(namespace, "chat", |answer| {
            missing(answer, "", "pod-discovery").is_some()
        })
        .await?;
    let entry = missing(&answer, "", "pod-discovery").ok_or("no entry")?;
    ensure!(
        entry["code"] == "LimitReached"
            && entry["required"] == true
            && entry["role"] == "decode"
            && entry["roleKind"] == "Decode"
            && entry.get("scope").is_none()
            && entry["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("1 of the 62")),
        "{entry}"
    );
    let scopes = answer["missing"]
        .as_array()
        .into_iter()
        .flatten()
        .chain(answer["traffic"].as_array().into_iter().flatten());
    let router = scopes
        .clone()
        .any(|entry| entry["scope"] == "router" && entry["source"] != "scrape");
    ensure!(router, "the router was left out: {answer}");
    let prefill = gauge(&answer, "processing", "running");
    ensure!(prefill.is_some(), "no role was read: {answer}");
    for (role, pods) in [("prefill", 2), ("decode", DECODES)] {
        let mut gauges = answer["processing"].as_array().into_iter().flatten();
        let read = gauges.any(|gauge| gauge["name"] == "running" && gauge["role"] == role && gauge["podCount"] == pods);
        ensure!(read, "not {pods} Pods of {role} were read: {answer}");
    }
    Ok(())
}
