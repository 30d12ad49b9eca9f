//! Windows through the aggregator: one call with `window=`, and what a Pod that starts again does to them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use test_cluster::engine::{Exposition, State};

use crate::scenario::{
    Failure, Outcome, Scenario, Test, ensure, gauge, metrics_path, missing, patient, test, vllm, windowed,
};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![
        test!(one_call_answers_every_window),
        test!(a_window_out_of_range_is_a_400_that_names_the_range),
        test!(a_recreated_pod_is_a_first_sample),
        test!(a_restarted_container_is_a_reset),
        test!(counters_that_fall_are_a_reset),
        test!(eight_pods_of_which_five_are_in_trouble),
    ]
}

const TTFT: &str = "vllm:time_to_first_token_seconds";

/// The body after so many requests more: a quarter of a second to the first token, two gaps of a 32nd, and twenty prompt tokens each, of
/// which five were cached.
pub fn after(body: &str, requests: u32) -> Result<String, Failure> {
    let mut body = Exposition::new(body, body);
    let times = u64::from(requests);
    body.observe(TTFT, 0.25, times)?;
    body.observe("vllm:inter_token_latency_seconds", 0.031_25, 2 * times)?;
    body.observe("vllm:request_time_per_output_token_seconds", 0.0625, times)?;
    body.advance("vllm:prefix_cache_queries_total", 20.0 * f64::from(requests))?;
    body.advance("vllm:prefix_cache_hits_total", 5.0 * f64::from(requests))?;
    Ok(body.text())
}

async fn one_call_answers_every_window(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.available("onecall", &vllm("chat", 1, "")).await?;
    let engine = scenario.engine(namespace, "chat-server-0")?;
    let mut body = engine.body().ok_or("no body")?;
    for seconds in [1.0, 2.0, 3.0] {
        let next = after(&body, 4)?;
        let bodies = [(engine.clone(), [body, next.clone()])];
        let answer = scenario.between(namespace, &format!("{seconds}s"), &bodies).await?;
        for (name, value, samples) in [("ttft", 0.25, 4.0), ("itl", 0.031_25, 8.0), ("tpot", 0.0625, 4.0)] {
            let entry =
                windowed(&answer, "latency", "chat-server-0", name).ok_or_else(|| format!("no {name}: {answer}"))?;
            ensure!(
                entry["value"] == value && entry["samples"] == samples && entry["unit"] == "seconds",
                "{name} is {entry}"
            );
            ensure!(
                entry["windowSeconds"].as_f64() >= Some(seconds),
                "{seconds}s were asked for: {entry}"
            );
            ensure!(entry["quantiles"]["p99"].is_number(), "no quantiles: {entry}");
        }
        let hits = &answer["cacheHits"][0];
        ensure!(
            hits["scope"] == "local-prefix" && hits["hits"] == 20.0 && hits["queries"] == 80.0 && hits["rate"] == 0.25,
            "cache hits are {hits}"
        );
        ensure!(answer["partial"] == false, "something is missing: {answer}");
        body = next;
    }
    Ok(())
}

async fn a_window_out_of_range_is_a_400_that_names_the_range(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.available("range", &vllm("chat", 1, "")).await?;
    for window in ["", "0s", "999ms", "3001ms", "4s", "1m", "-1s", "2", "two"] {
        let path = format!("{}?window={window}", metrics_path(namespace, "chat"));
        let said = scenario.kubectl_refused(&["get", "--raw", &path]).await?;
        ensure!(
            said.contains("BadRequest") && said.contains("1s to 3s"),
            "window={window}: {said}"
        );
    }
    let path = format!("{}?view=everything", metrics_path(namespace, "chat"));
    let said = scenario.kubectl_refused(&["get", "--raw", &path]).await?;
    ensure!(said.contains("BadRequest") && said.contains("standard"), "{said}");
    Ok(())
}

/// Reads until there are windows. The engine stands still, so they are idle.
async fn read_twice(scenario: &Scenario, namespace: &str) -> Outcome {
    scenario
        .metrics_until(namespace, "chat", |answer| code(answer) == "Idle")
        .await?;
    Ok(())
}

fn code(answer: &Value) -> &str {
    let entry = missing(answer, "chat-server-0", TTFT);
    entry.and_then(|entry| entry["code"].as_str()).unwrap_or_default()
}

async fn a_recreated_pod_is_a_first_sample(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.available("lives", &vllm("chat", 1, "")).await?;
    let pod = "chat-server-0";
    read_twice(&scenario, namespace).await?;
    scenario
        .kubectl(&["delete", "pod", pod, "--namespace", namespace])
        .await?;
    let started = tokio::time::Instant::now();
    while scenario
        .wait(namespace, "condition=Ready", "pod/chat-server-0")
        .await
        .is_err()
    {
        patient!(started, "the Pod does not come back");
    }
    let answer = scenario
        .metrics_until(namespace, "chat", |answer| !code(answer).is_empty())
        .await?;
    ensure!(code(&answer) == "FirstSample", "the new Pod was never read: {answer}");
    ensure!(answer["partial"] == true, "a first sample is required: {answer}");
    Ok(())
}

async fn a_restarted_container_is_a_reset(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.available("restart", &vllm("chat", 1, "")).await?;
    let pod = "chat-server-0";
    read_twice(&scenario, namespace).await?;
    scenario.cluster.kubelet().restart_container(namespace, pod, "main")?;
    let restarted = "jsonpath={.status.containerStatuses[0].restartCount}=1";
    scenario.wait(namespace, restarted, "pod/chat-server-0").await?;
    scenario.wait(namespace, "condition=Ready", "pod/chat-server-0").await?;
    let answer = scenario.metrics(namespace, "chat").await?;
    ensure!(code(&answer) == "Reset", "the read after the restart: {answer}");
    ensure!(answer["partial"] == true, "a reset is required: {answer}");
    ensure!(
        windowed(&answer, "latency", pod, "ttft").is_none() && answer.get("cacheHits").is_none(),
        "figures over a restart: {answer}"
    );
    ensure!(
        gauge(&answer, "processing", "running").is_some(),
        "a gauge needs no window: {answer}"
    );
    // The restarted container's own samples make the next window.
    read_twice(&scenario, namespace).await
}

async fn counters_that_fall_are_a_reset(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.available("fallen", &vllm("chat", 1, "")).await?;
    let engine = scenario.engine(namespace, "chat-server-0")?;
    let fresh = engine.body().ok_or("no body")?;
    let used = after(&fresh, 100)?;
    let answer = scenario
        .between(namespace, "1s", &[(engine.clone(), [used.clone(), fresh.clone()])])
        .await?;
    for source in [
        TTFT,
        "vllm:inter_token_latency_seconds",
        "vllm:request_time_per_output_token_seconds",
        "local-prefix",
    ] {
        let entry =
            missing(&answer, "chat-server-0", source).ok_or_else(|| format!("{source} is not named: {answer}"))?;
        ensure!(entry["code"] == "Reset" && entry["required"] == true, "{entry}");
    }
    ensure!(
        answer.get("latency").is_none() && answer.get("cacheHits").is_none(),
        "{answer}"
    );

    // What one series lost, another one's gain does not hide; other families are not touched by it.
    let two = format!("{fresh}vllm:prefix_cache_hits_total{{engine=\"1\",model_name=\"tiny\"}} 500.0\n");
    let answer = scenario.between(namespace, "1s", &[(engine, [two, used])]).await?;
    let entry = missing(&answer, "chat-server-0", "local-prefix").ok_or("a vanished series is not named")?;
    ensure!(entry["code"] == "Reset" && entry["required"] == true, "{entry}");
    let ttft = windowed(&answer, "latency", "chat-server-0", "ttft").ok_or("no ttft")?;
    ensure!(ttft["value"] == 0.25 && ttft["samples"] == 100.0, "{ttft}");
    Ok(())
}

async fn eight_pods_of_which_five_are_in_trouble(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.available("eight", &vllm("chat", 8, "")).await?;
    let name = |ordinal: u32| format!("chat-server-{ordinal}");
    let troubles = [
        State::Drip {
            bytes: 16,
            pause: Duration::from_millis(200),
        },
        State::Drip {
            bytes: 1,
            pause: Duration::from_millis(50),
        },
        State::Stall,
        State::Oversize {
            bytes: 1024 * 1024 + 1,
            chunked: true,
        },
    ];
    for (ordinal, trouble) in (0..).zip(troubles) {
        scenario.engine(namespace, &name(ordinal))?.enter(trouble);
    }
    let restarts = scenario.engine(namespace, &name(4))?;
    let used = after(&restarts.body().ok_or("no body")?, 10)?;
    restarts.enter(State::Body(used));
    let read = restarts.scrapes().len();
    let started = tokio::time::Instant::now();
    let restart = async {
        restarts.scraped(read + 1).await;
        restarts.enter(State::Normal);
        scenario
            .cluster
            .kubelet()
            .restart_container(namespace, &name(4), "main")
    };
    let (answer, restarted) = tokio::join!(scenario.window(namespace, "chat", "3s"), restart);
    let took = started.elapsed();
    restarted?;
    let answer = answer?;
    ensure!(took < Duration::from_secs(8), "the answer took {took:?}");
    for (ordinal, source, code) in [
        (0, "scrape", "Timeout"),
        (1, "scrape", "Timeout"),
        (2, "scrape", "Timeout"),
        (3, "scrape", "TooLarge"),
        (4, TTFT, "Reset"),
        (5, TTFT, "Idle"),
        (6, TTFT, "Idle"),
        (7, TTFT, "Idle"),
    ] {
        let entry = missing(&answer, &name(ordinal), source);
        let entry = entry.ok_or_else(|| format!("{} is not named for {source}: {answer}", name(ordinal)))?;
        ensure!(entry["code"] == code, "{entry}");
    }
    let running = gauge(&answer, "processing", "running").ok_or("no running")?;
    ensure!(running["podCount"] == 4 && running["expectedPods"] == 8, "{running}");
    Ok(())
}
