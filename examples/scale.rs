//! How long it takes until all 64 Pods of a role exist, against a ReplicaSet of 64 on the same control plane: the ReplicaSet is what
//! Kubernetes' own controllers need for as many Pods. Printed, not judged: `cargo run --release --example scale`.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;
use test_cluster::{Cluster, Setup};

const RELEASE: &str = "model-deployment-operator";
const SYSTEM: &str = "model-deployment-operator-system";
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/model-deployment-operator");
const PODS: usize = 64;
/// Each is measured so often, in turn.
const ROUNDS: usize = 3;
const IMAGE: &str = "vllm/vllm-openai:v0.32.0";

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    test_cluster::run(Setup::default(), async move |cluster| match compare(&cluster).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    })
}

async fn compare(cluster: &Cluster) -> Outcome<()> {
    let install = ["install", RELEASE, CHART, "--namespace", SYSTEM, "--create-namespace"];
    let installed = cluster.helm(&install).await?;
    if !installed.status.success() {
        return Err(installed.stderr.into());
    }
    let available = [
        "wait",
        "--for=condition=Available",
        "--timeout=120s",
        "apiservice/v1.worker.gpustack.ai",
    ];
    kubectl(cluster, &available, "").await?;
    let deployment = json!({
        "apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "many"},
        "spec": {
            "model": {"name": "tiny"}, "engine": {"name": "vLLM", "image": IMAGE},
            "roles": [{"name": "server", "replicas": PODS}],
        },
    });
    let labels = json!({"app": "many"});
    let replica_set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "many"},
        "spec": {
            "replicas": PODS, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": IMAGE, "command": ["vllm", "serve", "tiny"]}]},
            },
        },
    });
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let (of_deployment, of_replica_set) = (
            measure(cluster, &deployment.to_string()).await?,
            measure(cluster, &replica_set.to_string()).await?,
        );
        println!("round {round}: ModelDeployment {of_deployment:.2?}, ReplicaSet {of_replica_set:.2?}");
        ours.push(of_deployment);
        theirs.push(of_replica_set);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!(
        "apply until {PODS} Pods exist, medians of {ROUNDS}: {ours:.2?} against {theirs:.2?}, ratio {:.2}",
        ours.as_secs_f64() / theirs.as_secs_f64()
    );
    Ok(())
}

/// From before `kubectl apply` until the watch has shown all Pods, in a namespace of their own that is emptied afterwards.
async fn measure(cluster: &Cluster, manifest: &str) -> Outcome<Duration> {
    let namespace = cluster.namespace("scale").await?;
    let pods = Api::<Pod>::namespaced(cluster.client(), &namespace);
    let mut events = std::pin::pin!(watcher(pods, watcher::Config::default()).default_backoff());
    // The watch stands before anything is applied.
    while !matches!(events.next().await, Some(Ok(watcher::Event::InitDone)) | None) {}
    let started = Instant::now();
    kubectl(cluster, &["apply", "--namespace", &namespace, "-f", "-"], manifest).await?;
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < PODS {
        if let Some(Ok(watcher::Event::Apply(pod))) = events.next().await {
            seen.insert(pod.name_any());
        }
    }
    let taken = started.elapsed();
    kubectl(cluster, &["delete", "namespace", &namespace, "--timeout=300s"], "").await?;
    Ok(taken)
}

async fn kubectl(cluster: &Cluster, arguments: &[&str], input: &str) -> Outcome<()> {
    let output = cluster.kubectl_with_input(arguments, input).await?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("kubectl {}: {}", arguments.join(" "), output.stderr).into())
    }
}

fn median(mut taken: Vec<Duration>) -> Duration {
    taken.sort();
    taken[taken.len() / 2]
}
