//! Rollouts: never more than one replica given up, under load; facts of old and new Pods side by side; one that cannot go on says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use model_deployment::pod::labels::{MEMBER, ORDINAL, REVISION, ROLE_KIND};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::request;
use crate::routers::{PORT, router};
use crate::scenario::{Failure, Outcome, PATIENCE, Scenario, Test, ensure, test, vllm};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![
        test!(one_replica_of_four_at_a_time_under_load),
        test!(old_and_new_pods_are_read_by_their_own_facts),
        test!(a_rollout_that_cannot_go_on_stops_and_says_so),
        test!(a_replica_of_several_pods_is_replaced_whole),
    ]
}

/// Follows the engine Pods of a namespace and remembers the worst that it saw.
struct Witness {
    seen: watch::Receiver<Seen>,
    task: JoinHandle<()>,
}

/// The Pods as they are, and the most that was amiss at once.
#[derive(Clone, Default)]
struct Seen {
    pods: BTreeMap<String, Pod>,
    /// Replicas without all of their Pods ready.
    unready: usize,
    /// Replicas of Pods of several revisions, not counting those on their way out.
    mixed: usize,
}

impl Witness {
    /// Begins with the Pods that are there.
    async fn begin(scenario: &Scenario, namespace: &str, replicas: usize, size: usize) -> Result<Self, Failure> {
        let pods = Api::<Pod>::namespaced(scenario.cluster.client(), namespace);
        let engines = watcher::Config::default().labels(ROLE_KIND);
        let (sender, mut seen) = watch::channel(Seen::default());
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(pods, engines).default_backoff());
            let mut complete = false;
            while let Some(event) = events.next().await {
                sender.send_modify(|seen| {
                    match event {
                        Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                            seen.pods.insert(pod.name_any(), pod);
                        }
                        Ok(watcher::Event::Delete(pod)) => {
                            seen.pods.remove(&pod.name_any());
                        }
                        Ok(watcher::Event::InitDone) => complete = true,
                        Ok(watcher::Event::Init) | Err(_) => {}
                    }
                    if complete {
                        seen.judge(replicas, size);
                    }
                });
            }
        });
        timeout(PATIENCE, seen.wait_for(|seen| seen.pods.len() == replicas * size)).await??;
        Ok(Self { seen, task })
    }

    /// Waits until the Pods are as `wanted`.
    async fn until(&mut self, what: &str, wanted: impl FnMut(&Seen) -> bool) -> Result<Seen, Failure> {
        if let Ok(seen) = timeout(PATIENCE, self.seen.wait_for(wanted)).await {
            return Ok(seen?.clone());
        }
        let last = self.seen.borrow().summary();
        Err(format!("{what} never came; the Pods are {last:?}").into())
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Seen {
    fn judge(&mut self, replicas: usize, size: usize) {
        let (mut ready, mut revisions) = (BTreeMap::<&str, usize>::new(), BTreeMap::<&str, BTreeSet<&str>>::new());
        for pod in self
            .pods
            .values()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        {
            let ordinal = label(pod, ORDINAL);
            *ready.entry(ordinal).or_default() += usize::from(is_ready(pod));
            revisions.entry(ordinal).or_default().insert(label(pod, REVISION));
        }
        let whole = ready.values().filter(|ready| **ready == size).count();
        self.unready = self.unready.max(replicas.saturating_sub(whole));
        self.mixed = self
            .mixed
            .max(revisions.values().filter(|revisions| revisions.len() > 1).count());
    }

    /// Every replica is whole, ready, and of this image.
    fn is_all(&self, image: &str, pods: usize) -> bool {
        self.pods.len() == pods
            && self
                .pods
                .values()
                .all(|pod| image_of(pod) == image && is_ready(pod) && pod.metadata.deletion_timestamp.is_none())
    }

    /// This Pod is of this image, and stays.
    fn is_of(&self, pod: &str, image: &str) -> bool {
        let found = self.pods.get(pod);
        found.is_some_and(|pod| image_of(pod) == image && pod.metadata.deletion_timestamp.is_none())
    }

    fn summary(&self) -> Vec<String> {
        let line = |pod: &Pod| format!("{} {} ready: {}", pod.name_any(), image_of(pod), is_ready(pod));
        self.pods.values().map(line).collect()
    }
}

fn label<'a>(pod: &'a Pod, name: &str) -> &'a str {
    pod.labels().get(name).map(String::as_str).unwrap_or_default()
}

fn image_of(pod: &Pod) -> &str {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    container
        .and_then(|container| container.image.as_deref())
        .unwrap_or_default()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The manifest with another image.
fn with_image(manifest: &str, image: &str) -> String {
    manifest.replace(OLD, image)
}

/// Images of [`vllm`], and the ones after it.
const OLD: &str = "vllm/vllm-openai:v0.32.0";
const NEW: &str = "vllm/vllm-openai:v0.32.1";
const MENDED: &str = "vllm/vllm-openai:v0.32.2";

async fn one_replica_of_four_at_a_time_under_load(scenario: Arc<Scenario>) -> Outcome {
    /// Requests that are under way at any time.
    const CLIENTS: usize = 4;
    let namespace = &scenario.cluster.namespace("rollout").await?;
    let manifest = vllm("chat", 4, "router:\n  name: vllm-router");
    scenario.apply(namespace, &manifest).await?;
    scenario
        .wait(namespace, "jsonpath={.status.roles[0].ready}=4", "md/chat")
        .await?;
    let router = router(&scenario, namespace, "chat").await?;
    let mut witness = Witness::begin(&scenario, namespace, 4, 1).await?;
    let mut clients = tokio::task::JoinSet::new();
    let (stop, stopped) = watch::channel(false);
    for client in 0..CLIENTS {
        let (router, stopped) = (router.clone(), stopped.clone());
        clients.spawn(async move {
            let mut answered = 0;
            while !*stopped.borrow() {
                request::complete(&router, PORT, "tiny", &format!("Client {client} asks {answered}."))
                    .await
                    .map_err(|failure| format!("request {answered} of client {client}: {failure}"))?;
                answered += 1;
            }
            Ok::<usize, String>(answered)
        });
    }
    scenario.apply(namespace, &with_image(&manifest, NEW)).await?;
    let end = witness.until("the rollout's end", |seen| seen.is_all(NEW, 4)).await?;
    stop.send_replace(true);
    ensure!(end.unready == 1, "{} replicas were unready at once", end.unready);
    while let Some(answered) = clients.join_next().await {
        let answered = answered??;
        ensure!(answered > 0, "a client had no answer during the rollout");
    }
    scenario
        .wait(namespace, "condition=Progressing=False", "md/chat")
        .await?;
    let events = events(&scenario, namespace).await?;
    for reason in ["RolloutStarted", "RolloutFinished"] {
        ensure!(
            events.iter().any(|(event, _)| event == reason),
            "no Event {reason}: {events:?}"
        );
    }
    Ok(())
}

async fn old_and_new_pods_are_read_by_their_own_facts(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("facts").await?;
    let kubelet = scenario.cluster.kubelet();
    let manifest = vllm("chat", 4, "");
    scenario.apply(namespace, &manifest).await?;
    scenario
        .wait(namespace, "jsonpath={.status.roles[0].ready}=4", "md/chat")
        .await?;
    let mut witness = Witness::begin(&scenario, namespace, 4, 1).await?;
    // New Pods serve metrics elsewhere. Two are replaced, as they are unready, and one of them becomes ready: the rollout rests here.
    let moved = with_image(&manifest, NEW) + "    extraArgs: [--port, \"9000\"]\n";
    kubelet.hold_readiness(namespace, "chat-server-2");
    scenario.apply(namespace, &moved).await?;
    witness
        .until("the first new Pod", |seen| seen.is_of("chat-server-2", NEW))
        .await?;
    kubelet.hold_readiness(namespace, "chat-server-3");
    witness
        .until("the second new Pod", |seen| seen.is_of("chat-server-3", NEW))
        .await?;
    kubelet.release_readiness(namespace, "chat-server-2");
    let ready = |seen: &Seen| seen.pods.get("chat-server-2").is_some_and(is_ready);
    let halfway = witness.until("a ready new Pod", ready).await?;
    ensure!(
        halfway.is_of("chat-server-0", OLD) && halfway.is_of("chat-server-1", OLD),
        "the rollout did not rest: {:?}",
        halfway.summary()
    );
    for (pod, port, running) in [
        ("chat-server-0", 8000, 1.0),
        ("chat-server-1", 8000, 10.0),
        ("chat-server-2", 9000, 100.0),
    ] {
        let engine = kubelet.engine(namespace, pod).ok_or("no engine")?;
        ensure!(
            engine.arguments().ports == [port],
            "{pod} listens on {:?}",
            engine.arguments().ports
        );
        engine.set(r#"vllm:num_requests_running{engine="0",model_name="tiny"}"#, running)?;
    }
    // The fourth runs and answers, though it is not ready: it counts with the nothing that it does.
    let whole = |answer: &Value| {
        let gauges = answer["processing"].as_array().into_iter().flatten();
        let mut running = gauges.filter(|gauge| gauge["name"] == "running");
        running.any(|gauge| gauge["value"] == 111 && gauge["podCount"] == 4 && gauge["expectedPods"] == 4)
    };
    scenario.metrics_until(namespace, "chat", whole).await?;
    kubelet.release_readiness(namespace, "chat-server-3");
    witness.until("the rollout's end", |seen| seen.is_all(NEW, 4)).await?;
    Ok(())
}

async fn a_rollout_that_cannot_go_on_stops_and_says_so(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("stalled").await?;
    let kubelet = scenario.cluster.kubelet();
    let manifest = vllm("chat", 2, "");
    scenario.apply(namespace, &manifest).await?;
    scenario
        .wait(namespace, "jsonpath={.status.roles[0].ready}=2", "md/chat")
        .await?;
    let mut witness = Witness::begin(&scenario, namespace, 2, 1).await?;
    kubelet.hold_readiness(namespace, "chat-server-1");
    scenario.apply(namespace, &with_image(&manifest, NEW)).await?;
    let runs = |seen: &Seen| {
        let status = seen.pods.get("chat-server-1").and_then(|pod| pod.status.as_ref());
        seen.is_of("chat-server-1", NEW) && status.is_some_and(|status| status.phase.as_deref() == Some("Running"))
    };
    witness.until("the new Pod", runs).await?;
    kubelet.crash_container(namespace, "chat-server-1", "main")?;
    let stalled = r#"jsonpath={.status.conditions[?(@.type=="Progressing")].reason}=RolloutStalled"#;
    scenario.wait(namespace, stalled, "md/chat").await?;
    let events = events(&scenario, namespace).await?;
    ensure!(
        events
            .iter()
            .any(|(event, sentence)| event == "RolloutStalled" && sentence.contains("chat-server-1")),
        "no Event names the Pod that stopped the rollout: {events:?}"
    );
    let here = witness.seen.borrow().clone();
    ensure!(
        here.is_of("chat-server-0", OLD),
        "another replica was given up: {:?}",
        here.summary()
    );

    kubelet.release_readiness(namespace, "chat-server-1");
    scenario.apply(namespace, &with_image(&manifest, MENDED)).await?;
    witness
        .until("the mended rollout's end", |seen| seen.is_all(MENDED, 2))
        .await?;
    let done = r#"jsonpath={.status.conditions[?(@.type=="Progressing")].reason}=UpToDate"#;
    scenario.wait(namespace, done, "md/chat").await?;
    Ok(())
}

async fn a_replica_of_several_pods_is_replaced_whole(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("whole").await?;
    let manifest = vllm("chat", 2, "") + "    size: 2\n";
    scenario.apply(namespace, &manifest).await?;
    scenario
        .wait(namespace, "jsonpath={.status.roles[0].ready}=2", "md/chat")
        .await?;
    let mut witness = Witness::begin(&scenario, namespace, 2, 2).await?;
    let before = witness.seen.borrow().pods.clone();
    scenario.apply(namespace, &with_image(&manifest, NEW)).await?;
    let end = witness.until("the rollout's end", |seen| seen.is_all(NEW, 4)).await?;
    ensure!(end.unready == 1, "{} replicas were unready at once", end.unready);
    ensure!(end.mixed == 0, "a replica had Pods of two revisions");
    for (name, pod) in &end.pods {
        ensure!(before.contains_key(name), "{name} is none of the places of before");
        ensure!(before[name].uid() != pod.uid(), "{name} was kept");
        ensure!(
            ["0", "1"].contains(&label(pod, MEMBER)),
            "{name} is member {}",
            label(pod, MEMBER)
        );
    }
    Ok(())
}

/// Reason and sentence of each Event of a namespace.
async fn events(scenario: &Scenario, namespace: &str) -> Result<Vec<(String, String)>, Failure> {
    let list = scenario.get(namespace, "events.events.k8s.io").await?;
    let text = |event: &Value, member: &str| event[member].as_str().unwrap_or_default().to_owned();
    let events = list["items"].as_array().into_iter().flatten();
    Ok(events
        .map(|event| (text(event, "reason"), text(event, "note")))
        .collect())
}
