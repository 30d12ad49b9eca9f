//! Two clients that poll one deployment side by side, through the aggregator.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::scenario::{Failure, Outcome, PATIENCE, Scenario, Test, ensure, test, vllm, windowed};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![test!(
        two_clients_side_by_side_get_whole_windows_and_load_a_pod_once_a_second
    )]
}

const POD: &str = "chat-server-0";

/// Polls until so many answers had a window; all answers.
async fn poll(scenario: &Scenario, namespace: &str, every: Duration, windows: usize) -> Result<Vec<Value>, Failure> {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let started = Instant::now();
    let mut answers = vec![];
    while answers
        .iter()
        .filter(|answer| windowed(answer, "latency", POD, "ttft").is_some())
        .count()
        < windows
    {
        ensure!(
            started.elapsed() < PATIENCE,
            "no {windows} windows every {every:?}: {answers:?}"
        );
        ticks.tick().await;
        answers.push(scenario.metrics(namespace, "chat").await?);
    }
    Ok(answers)
}

async fn two_clients_side_by_side_get_whole_windows_and_load_a_pod_once_a_second(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.available("poll", &vllm("chat", 1, "")).await?;
    let engine = scenario.engine(namespace, POD)?;
    // Ten first tokens a second, each after half a second: whatever the window, the mean is a half.
    let traffic = async {
        let mut ticks = interval(Duration::from_millis(100));
        loop {
            ticks.tick().await;
            if let Err(error) = engine.observe("vllm:time_to_first_token_seconds", 0.5, 1) {
                return Failure::from(error);
            }
        }
    };
    let clients = async {
        tokio::try_join!(
            poll(&scenario, namespace, Duration::from_secs(1), 15),
            poll(&scenario, namespace, Duration::from_secs(5), 3),
        )
    };
    let (eager, slow) = tokio::select! {
        failure = traffic => return Err(failure),
        answers = clients => answers?,
    };
    for answer in eager.iter().chain(&slow) {
        // That every window is a second at least is asserted of every answer.
        match windowed(answer, "latency", POD, "ttft") {
            Some(ttft) => ensure!(ttft["value"] == 0.5 && ttft["samples"].as_f64() >= Some(1.0), "{ttft}"),
            None => {
                let entry = crate::scenario::missing(answer, POD, "vllm:time_to_first_token_seconds");
                ensure!(entry.is_some_and(|entry| entry["code"] == "FirstSample"), "{answer}");
            }
        }
    }
    // Whichever of the operator's replicas was asked, one of them read.
    let times: Vec<Instant> = engine.scrapes().iter().map(|scrape| scrape.at).collect();
    let span = times[times.len() - 1].duration_since(times[0]);
    ensure!(
        times.len() as f64 <= span.as_secs_f64() + 2.0,
        "read {} times in {span:?}",
        times.len()
    );
    Ok(())
}
