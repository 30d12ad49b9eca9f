//! Real Prometheus with the configuration of `examples/prometheus/`: what it finds by annotations, and that its sums are the
//! subresource's.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::request;
use crate::scenario::{Failure, Outcome, Scenario, Test, ensure, patient, test};

/// Port of Prometheus in the example.
const PORT: u16 = 9090;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![test!(prometheus_finds_exactly_the_annotated_pods_and_sums_alike)]
}

/// Every kind of Pod: behind a router, behind a routing proxy, of several, taken over, with TLS, and on a port of the user's.
const DEPLOYMENTS: &str = "
apiVersion: worker.gpustack.ai/v1alpha1
kind: ModelDeployment
metadata: {name: plain}
spec:
  model: {name: tiny}
  engine: {name: vLLM, image: 'vllm/vllm-openai:v0.32.0'}
  router: {name: vllm-router}
  roles: [{name: server, replicas: 2}]
---
apiVersion: worker.gpustack.ai/v1alpha1
kind: ModelDeployment
metadata: {name: pair}
spec:
  model: {name: tiny}
  engine: {name: vLLM, image: 'vllm/vllm-openai:v0.32.0'}
  router: {name: llm-d-router, coordinator: {}}
  roles: [{name: prefill, kind: Prefill}, {name: decode, kind: Decode}]
---
apiVersion: worker.gpustack.ai/v1alpha1
kind: ModelDeployment
metadata: {name: big}
spec:
  model: {name: tiny}
  engine: {name: vLLM, image: 'vllm/vllm-openai:v0.32.0'}
  roles: [{name: server, size: 2}, {name: mine, command: [vllm, serve, tiny]}]
---
apiVersion: worker.gpustack.ai/v1alpha1
kind: ModelDeployment
metadata: {name: safe}
spec:
  model: {name: tiny}
  engine: {name: vLLM, image: 'vllm/vllm-openai:v0.32.0'}
  roles:
  - name: server
    port: 8443
    extraArgs: [--ssl-certfile=/tls/tls.crt, --ssl-keyfile=/tls/tls.key]
    volumes: [{name: tls, secret: {secretName: safe}}]
    volumeMounts: [{name: tls, mountPath: /tls}]
---
apiVersion: worker.gpustack.ai/v1alpha1
kind: ModelDeployment
metadata: {name: lang}
spec:
  model: {name: tiny}
  engine: {name: SGLang, image: 'lmsysorg/sglang:v0.5.23'}
  roles: [{name: server, extraArgs: [--port=9001]}]
";

/// Where each Pod's metrics are, by the resource contract; what is not here is not scraped.
const LISTENERS: [(&str, &str, u16); 10] = [
    ("plain-server-0", "http", 8000),
    ("plain-server-1", "http", 8000),
    ("plain-router", "http", 9090),
    ("pair-prefill-0", "http", 8000),
    ("pair-decode-0", "http", 8200),
    ("pair-router", "http", 9090),
    ("pair-coordinator", "http", 9090),
    ("big-server-0-0", "http", 8000),
    ("safe-server-0", "https", 8443),
    ("lang-server-0", "http", 9001),
];

async fn prometheus_finds_exactly_the_annotated_pods_and_sums_alike(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("watched").await?;
    let own = rcgen::generate_simple_self_signed(vec!["safe".to_owned()])?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "safe"},
        "stringData": {"tls.crt": own.cert.pem(), "tls.key": own.signing_key.serialize_pem()},
    });
    scenario.apply(namespace, &secret.to_string()).await?;
    scenario.apply(namespace, DEPLOYMENTS).await?;
    let prometheus = start(&scenario).await?;
    for name in ["plain", "pair", "big", "safe", "lang"] {
        let object = format!("md/{name}");
        scenario.wait(namespace, "condition=Available", &object).await?;
        scenario.wait(namespace, "condition=RolesReady", &object).await?;
    }
    let mut listeners: BTreeMap<&str, (&str, u16)> = LISTENERS.map(|(pod, scheme, port)| (pod, (scheme, port))).into();
    targets_become(&scenario, &prometheus, namespace, &listeners).await?;

    let kubelet = scenario.cluster.kubelet();
    for (pod, running) in [
        ("plain-server-0", 3.0),
        ("plain-server-1", 4.0),
        ("pair-prefill-0", 20.0),
        ("pair-decode-0", 50.0),
    ] {
        let engine = kubelet.engine(namespace, pod).ok_or("no engine")?;
        engine.set(r#"vllm:num_requests_running{engine="0",model_name="tiny"}"#, running)?;
    }
    for (name, role, expected) in [
        ("plain", "server", 7.0),
        ("pair", "prefill", 20.0),
        ("pair", "decode", 50.0),
    ] {
        let running = |answer: &Value| {
            let gauges = answer["processing"].as_array().into_iter().flatten();
            let mut found = gauges.filter(|gauge| gauge["name"] == "running" && gauge["role"] == role);
            found.any(|gauge| gauge["value"] == expected)
        };
        scenario.metrics_until(namespace, name, running).await?;
        let sum = format!(
            r#"sum(vllm:num_requests_running{{namespace="{namespace}",modeldeployment="{name}",role="{role}"}})"#
        );
        sum_becomes(&prometheus, &sum, expected).await?;
    }

    let fewer = DEPLOYMENTS.replace("replicas: 2", "replicas: 1");
    scenario.apply(namespace, &fewer).await?;
    listeners.remove("plain-server-1");
    targets_become(&scenario, &prometheus, namespace, &listeners).await?;
    // It would go on scraping every Pod each second.
    let delete = ["delete", "namespace", "monitoring", "--wait=false"];
    scenario.kubectl(&delete).await?;
    Ok(())
}

/// Applies the example, only that it scrapes more often, and returns the address of its Pod.
async fn start(scenario: &Scenario) -> Result<String, Failure> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/prometheus/prometheus.yaml");
    let example = std::fs::read_to_string(path)?;
    let often = example.replace("scrape_interval: 15s", "scrape_interval: 1s");
    ensure!(often != example, "the example's scrape interval is spelled otherwise");
    scenario.apply("monitoring", &often).await?;
    let deployment = "deployment/prometheus";
    if let Err(failure) = scenario.wait("monitoring", "condition=Available", deployment).await {
        let log = scenario
            .kubectl(&["logs", "--namespace", "monitoring", deployment])
            .await;
        return Err(format!("{failure}\n{}", log.unwrap_or_else(|failure| failure.to_string())).into());
    }
    let address = "jsonpath={.items[0].status.podIP}";
    scenario
        .kubectl(&["get", "pods", "--namespace", "monitoring", "-o", address])
        .await
}

/// Waits until the targets of a namespace are one for each listener, and all up.
async fn targets_become(
    scenario: &Scenario,
    prometheus: &str,
    namespace: &str,
    listeners: &BTreeMap<&str, (&str, u16)>,
) -> Outcome {
    let pods = scenario.get(namespace, "pods").await?;
    let mut expected: Vec<String> = Vec::new();
    for (name, (scheme, port)) in listeners {
        let mut addresses = pods["items"].as_array().into_iter().flatten().filter_map(|pod| {
            let found = pod["metadata"]["name"].as_str()?;
            // A Deployment's Pods have names of their own.
            let same = found == *name
                || (name.ends_with("or") || name.ends_with("er")) && found.starts_with(&format!("{name}-"));
            same.then(|| pod["status"]["podIP"].as_str()).flatten()
        });
        let address = addresses.next().ok_or_else(|| format!("no Pod {name}"))?;
        expected.push(format!("{scheme}://{address}:{port}/metrics up"));
    }
    expected.sort();
    let started = Instant::now();
    loop {
        let answer = request::get(prometheus, PORT, "/api/v1/targets?state=active").await?;
        let targets = answer["data"]["activeTargets"].as_array().into_iter().flatten();
        let mut found: Vec<String> = targets
            .filter(|target| target["labels"]["namespace"] == namespace)
            .map(|target| {
                let text = |member: &str| target[member].as_str().unwrap_or_default();
                format!("{} {}", text("scrapeUrl"), text("health"))
            })
            .collect();
        found.sort();
        if found == expected {
            return Ok(());
        }
        patient!(
            started,
            "the targets never became\n{expected:#?}; the last are\n{found:#?}"
        );
    }
}

/// Waits until an expression has this one value.
async fn sum_becomes(prometheus: &str, expression: &str, expected: f64) -> Outcome {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let started = Instant::now();
    loop {
        let answer = request::get(prometheus, PORT, &format!("/api/v1/query?query={encoded}")).await?;
        let value = answer["data"]["result"][0]["value"][1].as_str().unwrap_or_default();
        if value.parse() == Ok(expected) {
            return Ok(());
        }
        patient!(started, "{expression} never became {expected}: {answer}");
    }
}
