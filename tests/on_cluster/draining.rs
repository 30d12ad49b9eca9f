//! A replica that leaves, and an environment that would lead astray: reads go on.
//!
//! Replaces the operator's replicas, which every other test stands on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::sync::Barrier;

use crate::scenario::{Failure, NAMESPACE, Outcome, RELEASE, Scenario, Test, ensure, gauge, metrics_path, test, vllm};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![
        test!(a_replica_that_leaves_costs_no_read_of_two_hundred_readers),
        test!(proxies_of_the_environment_are_not_asked),
    ]
}

const READERS: usize = 200;
/// Between two reads of one reader: two busy cores are to be loaded and not drowned.
const PAUSE: Duration = Duration::from_millis(500);

/// A client that tells every failure: kube's own tries some again.
pub async fn client(scenario: &Scenario) -> Result<Client, Failure> {
    let file = Kubeconfig::read_from(scenario.cluster.kubeconfig())?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// kubernetes/kubernetes#135285, vmware/pinniped#1813: connections that are told to go away under parallel requests.
async fn a_replica_that_leaves_costs_no_read_of_two_hundred_readers(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.available("drain", &vllm("chat", 1, "")).await?;
    let (path, client) = (metrics_path(namespace, "chat"), client(&scenario).await?);
    let (leaving, left) = (Barrier::new(READERS + 1), AtomicBool::new(false));
    let reader = async || {
        let mut reads = 0;
        loop {
            let request = http::Request::get(&path).body(Vec::new())?;
            client.request_text(request).await?;
            reads += 1;
            if reads == 1 {
                leaving.wait().await;
            } else if left.load(Ordering::Relaxed) {
                return Ok::<_, Failure>(reads);
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let leave = async {
        leaving.wait().await;
        for (name, _) in scenario.replicas().await? {
            // Returns when the Pod is gone.
            scenario
                .kubectl(&["delete", "pod", &name, "--namespace", NAMESPACE])
                .await?;
            scenario.rolled_out().await?;
        }
        left.store(true, Ordering::Relaxed);
        Ok::<_, Failure>(())
    };
    let read = async { join_all((0..READERS).map(|_| reader())).await };
    let (read, left) = tokio::join!(read, leave);
    left?;
    let mut reads = 0;
    for outcome in read {
        reads += outcome?;
    }
    ensure!(reads >= 2 * READERS, "{reads} reads");
    Ok(())
}

/// kubernetes-sigs/kubespray#6872, kubernetes-sigs/metrics-server#543: a proxy for the internet was asked for Pods.
async fn proxies_of_the_environment_are_not_asked(scenario: Arc<Scenario>) -> Outcome {
    const NAMES: [&str; 6] = [
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
    ];
    let deployment = format!("deployment/{RELEASE}");
    let set = async |settings: Vec<String>| {
        let mut arguments = vec!["set", "env", &deployment, "--namespace", NAMESPACE];
        arguments.extend(settings.iter().map(String::as_str));
        scenario.kubectl(&arguments).await?;
        scenario.rolled_out().await
    };
    // Nobody listens there.
    set(NAMES.map(|name| format!("{name}=http://10.244.255.254:3128")).to_vec()).await?;
    let namespace = &scenario.available("proxy", &vllm("chat", 1, "")).await?;
    let read = |answer: &serde_json::Value| gauge(answer, "processing", "running").is_some();
    scenario.metrics_until(namespace, "chat", read).await?;
    set(NAMES.map(|name| format!("{name}-")).to_vec()).await
}
