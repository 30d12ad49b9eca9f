//! `snapshot` against the subresource: the same bodies and times give the same lists, to the byte.

use std::fs;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use model_deployment_crds::metrics::ModelDeploymentMetrics;
use test_cluster::engine::State;
use tokio::process::Command;

use crate::scenario::{Failure, Outcome, Scenario, Test, ensure, metrics_path, test, vllm};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![test!(
        a_snapshot_is_the_subresources_answer_to_the_same_bodies_and_times
    )]
}

fn capture(name: &str) -> String {
    format!("{}/tests/fixtures/exposition/{name}.prom", env!("CARGO_MANIFEST_DIR"))
}

/// Both answers as text, but for the time at which they were assembled.
fn lists(answer: &str) -> String {
    let lines = answer
        .lines()
        .filter(|line| !line.trim_start().starts_with("\"timestamp\":"));
    lines.map(|line| format!("{line}\n")).collect()
}

async fn a_snapshot_is_the_subresources_answer_to_the_same_bodies_and_times(scenario: Arc<Scenario>) -> Outcome {
    let bodies = ["vllm-0.32.0_single_03_busy_t0", "vllm-0.32.0_single_04_busy_t20s"].map(capture);
    let namespace = &scenario.cluster.namespace("offline").await?;
    let manifest = vllm("chat", 2, "").replace("  name: chat\n", &format!("  name: chat\n  namespace: {namespace}\n"));
    scenario.apply(namespace, &manifest).await?;
    scenario.wait(namespace, "condition=Available", "md/chat").await?;
    let kubelet = scenario.cluster.kubelet();
    let engine = kubelet.engine(namespace, "chat-server-0").ok_or("no engine")?;
    let failing = kubelet.engine(namespace, "chat-server-1").ok_or("no engine")?;
    failing.enter(State::Status(500));
    engine.enter(State::Body(fs::read_to_string(&bodies[0])?));

    // The second of the request's two reads finds the second body.
    let scrapes = engine.scrapes().len();
    let path = format!("{}?window=3s&pretty=true", metrics_path(namespace, "chat"));
    let arguments = ["get", "--raw", &path];
    let change = async {
        engine.scraped(scrapes + 1).await;
        engine.enter(State::Body(fs::read_to_string(&bodies[1])?));
        Ok::<_, Failure>(())
    };
    let (live, changed) = tokio::join!(scenario.kubectl(&arguments), change);
    changed?;
    let live = live?;
    let answer: ModelDeploymentMetrics = serde_json::from_str(&live)?;
    let ttft = answer
        .latency
        .iter()
        .find(|entry| entry.name == "ttft")
        .ok_or("no ttft")?;
    ensure!(
        ttft.samples == 84.0,
        "between the captures are 84 first tokens: {ttft:?}"
    );

    let window = Duration::from_secs_f64(ttft.window_seconds);
    let start: Timestamp = ttft.observed_at.0 - Duration::from_micros(window.as_micros() as u64);
    let file = scenario.cluster.state_dir().join(format!("{namespace}.yaml"));
    fs::write(&file, manifest)?;
    let mut command = Command::new(scenario.cluster.operator());
    command
        .args(["snapshot", "--start", &start.to_string(), "-f"])
        .arg(&file)
        .arg(format!("--reading=server/0={}", bodies[0]))
        .arg(format!("--reading=server/0@{}={}", ttft.window_seconds, bodies[1]))
        .arg("--reading=server/1=error:HttpStatus=500")
        .stdin(Stdio::null());
    let output = command.output().await?;
    let offline = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success(),
        "snapshot failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(
        lists(&offline) == lists(&live),
        "the subresource answered\n{live}\nand snapshot\n{offline}"
    );
    Ok(())
}
