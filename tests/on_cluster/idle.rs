//! Deployments that serve nobody but their probes: idle is said, and no rate is made out of probe tokens.

use std::sync::Arc;

use serde_json::Value;
use test_cluster::engine::Exposition;

use crate::scenario::{Failure, Outcome, Scenario, Test, capture, ensure, missing, sglang, test, vllm};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![
        test!(an_idle_vllm_server_under_probes),
        test!(an_idle_sglang_server_under_probes),
        test!(an_idle_sglang_pair_under_probes),
    ]
}

/// The body with so much more of a series.
fn advanced(body: &str, series: &str, amount: f64) -> Result<String, Failure> {
    let mut body = Exposition::new(body, body);
    body.advance(series, amount)?;
    Ok(body.text())
}

/// Fails unless the answer is complete, holds neither rates nor latencies, and names these sources as idle.
fn ensure_idle(answer: &Value, sources: &[(&str, &str)]) -> Outcome {
    ensure!(answer["partial"] == false, "partial: {answer}");
    for list in ["cacheHits", "latency"] {
        ensure!(answer.get(list).is_none(), "{list} of an idle Pod: {answer}");
    }
    for (pod, source) in sources {
        let entry = missing(answer, pod, source).ok_or_else(|| format!("{source} of {pod} is not named: {answer}"))?;
        ensure!(entry["code"] == "Idle" && entry["required"] == false, "{entry}");
    }
    Ok(())
}

async fn an_idle_vllm_server_under_probes(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.available("idlevllm", &vllm("chat", 1, "")).await?;
    let engine = scenario.engine(namespace, "chat-server-0")?;
    let body = engine.body().ok_or("no body")?;
    let probed = advanced(&body, "vllm:prefix_cache_queries_total", 4.0)?;
    let answer = scenario.between(namespace, "1s", &[(engine, [body, probed])]).await?;
    let pod = "chat-server-0";
    ensure_idle(
        &answer,
        &[
            (pod, "local-prefix"),
            (pod, "vllm:time_to_first_token_seconds"),
            (pod, "vllm:inter_token_latency_seconds"),
            (pod, "vllm:request_time_per_output_token_seconds"),
        ],
    )
}

/// What a health check that generates costs: four tokens to compute.
const PROBED: &str = "sglang:prefill_effective_tokens_total{mode=\"input\"}";

async fn an_idle_sglang_server_under_probes(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario
        .available("idlesglang", &sglang("chat", "roles:\n- name: server\n"))
        .await?;
    let engine = scenario.engine(namespace, "chat-server-0")?;
    let body = engine.body().ok_or("no body")?;
    let probed = advanced(&body, PROBED, 4.0)?;
    let answer = scenario.between(namespace, "1s", &[(engine, [body, probed])]).await?;
    let pod = "chat-server-0";
    ensure_idle(
        &answer,
        &[(pod, "device-prefix"), (pod, "sglang:time_to_first_token_seconds")],
    )?;
    let itl = missing(&answer, pod, "sglang:inter_token_latency_seconds").ok_or("itl is not named")?;
    ensure!(itl["code"] == "NotExportedYet" && itl["required"] == false, "{itl}");
    Ok(())
}

async fn an_idle_sglang_pair_under_probes(scenario: Arc<Scenario>) -> Outcome {
    let roles = "roles:\n- name: prefill\n  kind: Prefill\n- name: decode\n  kind: Decode\n";
    let namespace = &scenario.available("idlepair", &sglang("chat", roles)).await?;
    let used = |half: &str| capture(&format!("sglang-0.5.23_pd_{half}_02_after_14_requests"));
    let (prefill, decode) = (used("prefill")?, used("decode")?);
    let bodies = [
        (
            scenario.engine(namespace, "chat-prefill-0")?,
            [prefill.clone(), advanced(&prefill, PROBED, 4.0)?],
        ),
        (scenario.engine(namespace, "chat-decode-0")?, [decode.clone(), decode]),
    ];
    let answer = scenario.between(namespace, "1s", &bodies).await?;
    let (prefill, decode) = ("chat-prefill-0", "chat-decode-0");
    ensure_idle(
        &answer,
        &[
            (prefill, "device-prefix"),
            (prefill, "sglang:kv_transfer_latency_ms"),
            (prefill, "sglang:kv_transfer_speed_gb_s"),
            (prefill, "sglang:kv_transfer_total_mb"),
            (decode, "sglang:time_to_first_token_seconds"),
            (decode, "sglang:inter_token_latency_seconds"),
        ],
    )?;
    // Silent by design.
    for source in [
        "sglang:time_to_first_token_seconds",
        "sglang:inter_token_latency_seconds",
    ] {
        ensure!(
            missing(&answer, prefill, source).is_none(),
            "{source} of the prefill half is named: {answer}"
        );
    }
    ensure!(
        missing(&answer, decode, "device-prefix").is_none(),
        "cache hits of the decode half are named"
    );
    Ok(())
}
