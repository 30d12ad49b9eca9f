//! Real routers, started with the arguments that we render: which Pods they find, that they serve through them, and that they follow
//! every change of them; and that they take every argument list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use crate::request;
use crate::scenario::{Failure, Outcome, Scenario, Test, ensure, patient, test};

/// Port at which every router takes requests (resource contract, section 2).
pub const PORT: u16 = 8081;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![
        test!(vllm_router_follows_an_ordinary_deployment),
        test!(vllm_router_follows_a_pair),
        test!(the_gateway_follows_a_pair),
        test!(vllm_router_takes_every_argument_list),
        test!(the_gateway_takes_every_argument_list),
        test!(the_next_gateway_takes_every_argument_list),
    ]
}

async fn vllm_router_follows_an_ordinary_deployment(scenario: Arc<Scenario>) -> Outcome {
    let routed = Routed {
        engine: "vLLM",
        image: "vllm/vllm-openai",
        router: "name: vllm-router, policy: round_robin",
        more: "",
        roles: &[("server", "Server", "regular")],
    };
    routed.follows(&scenario).await
}

async fn vllm_router_follows_a_pair(scenario: Arc<Scenario>) -> Outcome {
    let routed = Routed {
        engine: "vLLM",
        image: "vllm/vllm-openai",
        router: "name: vllm-router, policy: round_robin",
        more: "kvTransfer: {connector: Nixl}",
        roles: &[("prefill", "Prefill", "prefill"), ("decode", "Decode", "decode")],
    };
    routed.follows(&scenario).await
}

async fn the_gateway_follows_a_pair(scenario: Arc<Scenario>) -> Outcome {
    let routed = Routed {
        engine: "SGLang",
        image: "lmsysorg/sglang",
        router: "name: sglang-gateway, policy: round_robin",
        more: "",
        roles: &[("prefill", "Prefill", "prefill"), ("decode", "Decode", "decode")],
    };
    routed.follows(&scenario).await
}

/// A deployment behind a router.
struct Routed {
    engine: &'static str,
    image: &'static str,
    router: &'static str,
    more: &'static str,
    /// Name and kind of each role, and what the router calls its workers.
    roles: &'static [(&'static str, &'static str, &'static str)],
}

/// A router's workers: their addresses, and what it takes them for.
type Workers = BTreeMap<String, String>;

impl Routed {
    fn manifest(&self, name: &str, replicas: u32, tag: &str) -> String {
        let roles: String = self
            .roles
            .iter()
            .map(|(role, kind, _)| format!("  - {{name: {role}, kind: {kind}, replicas: {replicas}}}\n"))
            .collect();
        format!(
            "apiVersion: worker.gpustack.ai/v1alpha1
kind: ModelDeployment
metadata: {{name: {name}}}
spec:
  model: {{name: tiny}}
  engine: {{name: {}, image: '{}:{tag}'}}
  router: {{{}}}
  {}
  roles:
{roles}",
            self.engine, self.image, self.router, self.more
        )
    }

    /// Two replicas a role, then three, then one, then another image; beside it lives a deployment that differs in nothing but its name.
    async fn follows(&self, scenario: &Scenario) -> Outcome {
        let namespace = &scenario.cluster.namespace("routed").await?;
        let other = self
            .manifest("other", 1, "v0")
            .replace(&format!("  router: {{{}}}\n", self.router), "");
        scenario.apply(namespace, &other).await?;
        scenario.apply(namespace, &self.manifest("chat", 2, "v0")).await?;
        scenario.wait(namespace, "condition=Available", "md/other").await?;
        let router = router(scenario, namespace, "chat").await?;
        for (replicas, tag) in [(2, "v0"), (3, "v0"), (1, "v0"), (2, "v0"), (2, "v1")] {
            scenario.apply(namespace, &self.manifest("chat", replicas, tag)).await?;
            self.settles(scenario, namespace, replicas, tag).await?;
            let workers = self.seen(scenario, namespace, &router).await?;
            ensure!(
                workers.len() == self.roles.len() * replicas as usize,
                "{replicas} replicas of {tag}: the router's workers are {workers:?}"
            );
            self.serves(&router, &workers)
                .await
                .map_err(|failure| format!("{replicas} replicas of {tag}: {failure}"))?;
        }
        Ok(())
    }

    /// Waits until the cluster is as the spec asks for.
    async fn settles(&self, scenario: &Scenario, namespace: &str, replicas: u32, tag: &str) -> Outcome {
        let image = format!("{}:{tag}", self.image);
        let started = Instant::now();
        loop {
            let pods = pods(scenario, namespace, "chat").await?;
            let settled = pods.len() == self.roles.len() * replicas as usize
                && pods
                    .iter()
                    .all(|pod| is_ready(pod) && pod["spec"]["containers"][0]["image"] == image.as_str());
            if settled {
                return Ok(());
            }
            patient!(started, "{replicas} replicas of {tag} never settled");
        }
    }

    /// The router's workers, once they are exactly the Pods that live.
    async fn seen(&self, scenario: &Scenario, namespace: &str, router: &str) -> Result<Workers, Failure> {
        let mut expected = Workers::new();
        for pod in pods(scenario, namespace, "chat").await? {
            let kind = pod["metadata"]["labels"]["modeldeployment.gpustack.ai/role-kind"].as_str();
            let worker = self
                .roles
                .iter()
                .find(|(_, role_kind, _)| kind.is_some_and(|kind| kind.eq_ignore_ascii_case(role_kind)))
                .ok_or_else(|| format!("a Pod of no role: {pod}"))?
                .2;
            let address = pod["status"]["podIP"].as_str().unwrap_or_default();
            expected.insert(format!("http://{address}:8000"), worker.to_owned());
        }
        let started = Instant::now();
        loop {
            let listed = request::get(router, PORT, "/workers").await?;
            let entries = listed["workers"].as_array().cloned().unwrap_or_default();
            let text = |entry: &Value, member: &str| entry[member].as_str().unwrap_or_default().to_owned();
            let workers: Workers = entries
                .iter()
                .map(|entry| (text(entry, "url"), text(entry, "worker_type")))
                .collect();
            let healthy = entries.iter().all(|entry| entry["is_healthy"] == true);
            if workers == expected && healthy && entries.len() == workers.len() {
                return Ok(workers);
            }
            patient!(
                started,
                "the router never had exactly the workers {expected:?}: {listed}"
            );
            tokio::task::yield_now().await;
        }
    }

    /// No request fails, and each worker that answers has its turn.
    async fn serves(&self, router: &str, workers: &Workers) -> Outcome {
        /// Requests a worker: with each in turn, far more than it takes to meet all.
        const REQUESTS: usize = 8;
        let answering: BTreeSet<&str> = workers
            .iter()
            .filter(|(_, kind)| *kind != "prefill")
            .filter_map(|(url, _)| url.strip_prefix("http://")?.strip_suffix(":8000"))
            .collect();
        let mut answered = BTreeSet::new();
        for number in 0..REQUESTS * answering.len() {
            let answer = request::complete(router, PORT, "tiny", &format!("Question {number}, if you please.")).await?;
            ensure!(
                answer["usage"]["completion_tokens"] == 4,
                "request {number} was answered with {answer}"
            );
            // A fake engine's answers are named after its address.
            let id = answer["id"].as_str().unwrap_or_default();
            answered.extend(answering.iter().filter(|address| id.contains(&format!("-{address}-"))));
        }
        ensure!(
            answered == answering,
            "{answering:?} are the router's workers, and {answered:?} answered"
        );
        Ok(())
    }
}

/// The engine Pods of a deployment that are not on their way out.
async fn pods(scenario: &Scenario, namespace: &str, name: &str) -> Result<Vec<Value>, Failure> {
    let selector = format!("app.kubernetes.io/instance={name},modeldeployment.gpustack.ai/role-kind");
    let list = scenario
        .kubectl(&["get", "pods", "--namespace", namespace, "-l", &selector, "-o", "json"])
        .await?;
    let mut list: Value = serde_json::from_str(&list)?;
    let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    Ok(items
        .into_iter()
        .filter(|pod| pod["metadata"].get("deletionTimestamp").is_none())
        .collect())
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Waits for a deployment's router and returns its Pod's address.
pub async fn router(scenario: &Scenario, namespace: &str, name: &str) -> Result<String, Failure> {
    scenario
        .wait(namespace, "jsonpath={.status.router.ready}=1", &format!("md/{name}"))
        .await?;
    let selector = format!("app.kubernetes.io/instance={name},modeldeployment.gpustack.ai/router");
    let address = "jsonpath={.items[0].status.podIP}";
    scenario
        .kubectl(&["get", "pods", "--namespace", namespace, "-l", &selector, "-o", address])
        .await
}

/// A router, and every policy that may be asked of it.
struct Offered {
    engine: &'static str,
    router: &'static str,
    ordinary: &'static [&'static str],
    halves: &'static [&'static str],
}

const VLLM_ROUTER: Offered = Offered {
    engine: "vLLM",
    router: "name: vllm-router",
    ordinary: &[
        "random",
        "round_robin",
        "cache_aware",
        "power_of_two",
        "consistent_hash",
        "kv_aware",
        "sticky_least_loaded",
    ],
    halves: &[
        "random",
        "round_robin",
        "cache_aware",
        "power_of_two",
        "consistent_hash",
        "kv_aware",
        "sticky_least_loaded",
    ],
};

const GATEWAY: Offered = Offered {
    engine: "SGLang",
    router: "name: sglang-gateway",
    ordinary: &["random", "round_robin", "cache_aware", "power_of_two", "manual"],
    halves: &[
        "random",
        "round_robin",
        "cache_aware",
        "power_of_two",
        "manual",
        "bucket",
    ],
};

async fn vllm_router_takes_every_argument_list(scenario: Arc<Scenario>) -> Outcome {
    VLLM_ROUTER.starts(&scenario).await
}

async fn the_gateway_takes_every_argument_list(scenario: Arc<Scenario>) -> Outcome {
    GATEWAY.starts(&scenario).await
}

async fn the_next_gateway_takes_every_argument_list(scenario: Arc<Scenario>) -> Outcome {
    let next = Offered {
        router: "name: sglang-gateway, image: 'example/smg:1.13.0'",
        ..GATEWAY
    };
    next.starts(&scenario).await
}

impl Offered {
    /// Every policy, of an ordinary deployment and of both halves of a pair; none at all; and every other field that becomes an
    /// argument. The real program starts with each and takes connections; the engines are scaled to zero.
    async fn starts(&self, scenario: &Scenario) -> Outcome {
        /// Programs at a time: they are Python's, and a machine may have two cores.
        const AT_ONCE: usize = 4;
        let namespace = &scenario.cluster.namespace("arguments").await?;
        let manifests = self.manifests();
        for batch in manifests.chunks(AT_ONCE) {
            let together: Vec<&str> = batch.iter().map(|(_, manifest)| manifest.as_str()).collect();
            scenario.apply(namespace, &together.join("---\n")).await?;
            for (name, manifest) in batch {
                let ready = scenario
                    .wait(namespace, "jsonpath={.status.router.ready}=1", &format!("md/{name}"))
                    .await;
                if let Err(failure) = ready {
                    let log = scenario
                        .kubectl(&[
                            "logs",
                            "--namespace",
                            namespace,
                            &format!("deployment/{name}-router"),
                            "--tail=20",
                        ])
                        .await;
                    return Err(format!(
                        "{failure}\n{manifest}\n{}",
                        log.unwrap_or_else(|failure| failure.to_string())
                    )
                    .into());
                }
            }
            let names: Vec<&str> = batch.iter().map(|(name, _)| name.as_str()).collect();
            let delete = [&["delete", "md", "--wait=false", "--namespace", namespace], &names[..]].concat();
            scenario.kubectl(&delete).await?;
        }
        Ok(())
    }

    fn manifests(&self) -> Vec<(String, String)> {
        let server = "[{name: server, replicas: 0}]";
        let pair = "[{name: prefill, kind: Prefill, replicas: 0}, {name: decode, kind: Decode, replicas: 0}]";
        let ordinary = self.ordinary.iter().map(|policy| (format!("policy: {policy}"), server));
        let halves = self.halves.iter().map(|half| {
            // `bucket` is of the prefill half alone.
            let whole = if self.ordinary.contains(half) { half } else { "random" };
            (
                format!("policy: {whole}, prefillPolicy: {half}, decodePolicy: {whole}"),
                pair,
            )
        });
        let bare = [
            ("requestTimeoutSeconds: 60".to_owned(), server),
            ("replicas: 1".to_owned(), pair),
        ];
        let all = bare.into_iter().chain(ordinary).chain(halves).enumerate();
        all.map(|(number, (fields, roles))| {
            let name = format!("asked-{number}");
            let manifest = format!(
                "apiVersion: worker.gpustack.ai/v1alpha1
kind: ModelDeployment
metadata: {{name: {name}}}
spec:
  model: {{name: tiny}}
  engine: {{name: {}, image: 'example/engine:v0'}}
  router: {{{}, {fields}}}
  roles: {roles}
",
                self.engine, self.router
            );
            (name, manifest)
        })
        .collect()
    }
}
