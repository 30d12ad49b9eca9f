//! `kubectl modeldeployment`, found by kubectl as its plug-in, against the real API server.

use std::sync::Arc;

use crate::scenario::{Outcome, Scenario, Test, ensure, test, vllm};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![test!(kubectl_shows_the_metrics_as_a_table)]
}

async fn kubectl_shows_the_metrics_as_a_table(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("plugin").await?;
    scenario.apply(namespace, &vllm("chat", 2, "")).await?;
    scenario.wait(namespace, "condition=Available", "md/chat").await?;
    let engine = scenario
        .cluster
        .kubelet()
        .engine(namespace, "chat-server-0")
        .ok_or("no engine")?;
    engine.set(r#"vllm:num_requests_running{engine="0",model_name="tiny"}"#, 5.0)?;
    let metrics = ["modeldeployment", "metrics", "-n", namespace, "--window", "1s"];
    let table = scenario.kubectl(&[&metrics[..], &["chat"]].concat()).await?;
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    ensure!(
        lines[0][..2] == ["chat", "in"]
            && lines.contains(&vec!["ROLE", "POD", "PODS", "RUNNING", "WAITING"])
            && lines.contains(&vec!["server", "2/2", "5", "0"])
            && lines
                .iter()
                .any(|line| line.starts_with(&["Idle", "no", "chat-server-1"])),
        "the table is\n{table}"
    );
    let said = scenario.kubectl_refused(&[&metrics[..], &["nobody"]].concat()).await?;
    ensure!(
        said.starts_with("error: modeldeployments.worker.gpustack.ai \"nobody\" not found\n"),
        "an absent name: {said}"
    );
    Ok(())
}
