//! The main job, end to end, on a control plane of its own: etcd, kube-apiserver and kube-controller-manager come up, helm installs
//! the chart, kubectl applies a ModelDeployment, its Pods and a real vllm-router run, requests flow, and the metrics subresource
//! answers through the API aggregator. Scheduler, kubelet and the engines (no GPU here) are played; everything else is real.
//!
//! Stays until Ctrl-C, so that you can try it with your own kubectl; `-- --once` ends by itself.

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use test_cluster::{Cluster, Setup};

const RELEASE: &str = "model-deployment-operator";
const SYSTEM: &str = "model-deployment-operator-system";
const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/quickstart.yaml");
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/model-deployment-operator");
/// For how long traffic flows before windows are shown.
const TRAFFIC: Duration = Duration::from_secs(5);
const METRICS: &str = "/apis/worker.gpustack.ai/v1/namespaces/default/modeldeployments/chat/metrics?pretty=true";
/// Ports of the router's Pod.
const ROUTER: u16 = 8081;
const ROUTER_METRICS: u16 = 9090;
const ENGINE: u16 = 8000;
/// Long answers, so that some are in flight while the metrics are read.
const LONG: u32 = 2000;
const IN_FLIGHT: usize = 6;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let once = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [only] if only == "--once" => true,
        _ => {
            eprintln!("usage: cargo run --example quickstart [-- --once]");
            return ExitCode::from(2);
        }
    };
    test_cluster::run(Setup::default(), async move |cluster| {
        match show(&cluster, once).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        }
    })
}

async fn show(cluster: &Cluster, once: bool) -> Outcome<()> {
    step("helm installs the chart");
    helm(
        cluster,
        &["install", RELEASE, CHART, "--namespace", SYSTEM, "--create-namespace"],
    )
    .await?;
    kubectl(
        cluster,
        &[
            "wait",
            "--for=condition=Available",
            "--timeout=120s",
            "apiservice/v1.worker.gpustack.ai",
        ],
    )
    .await?;

    step("kubectl applies examples/quickstart.yaml: two vLLM replicas behind a vllm-router");
    kubectl(cluster, &["apply", "-f", MANIFEST]).await?;
    kubectl(
        cluster,
        &["wait", "--for=condition=Available", "--timeout=120s", "md/chat"],
    )
    .await?;

    let pods = Pods::find(cluster).await?;
    step("completions go through the real vllm-router");
    for number in 1..=4 {
        let answer = complete(pods.router, &format!("Tell the truth, part {number}."), 16).await?;
        println!("  {}", answer["usage"]);
    }

    step("traffic flows; an answer that takes two reads of its own, two seconds apart, for people");
    let traffic = tokio::time::timeout(TRAFFIC, flow(pods.router));
    let table = async {
        // Traffic that begins with the first read would be half a window.
        tokio::time::sleep(TRAFFIC / 5).await;
        kubectl(cluster, &["modeldeployment", "metrics", "chat", "--window", "2s"]).await
    };
    let (stopped, table) = tokio::join!(traffic, table);
    if let Ok(Err(error)) = stopped {
        return Err(error);
    }
    print!("{}", table?);

    let mut requests = tokio::task::JoinSet::new();
    for number in 0..IN_FLIGHT {
        let (router, prompt) = (pods.router, format!("A long answer, number {number}."));
        requests.spawn(async move { complete(router, &prompt, LONG).await });
    }
    let answer = pods.read_in_flight(cluster).await?;
    while let Some(answer) = requests.join_next().await {
        answer??;
    }
    for arguments in [
        vec!["get", "md"],
        vec!["describe", "md", "chat"],
        vec![
            "get",
            "pods",
            "-o",
            r"custom-columns=POD:.metadata.name,SCRAPE:.metadata.annotations.prometheus\.io/scrape,SCHEME:.metadata.annotations.prometheus\.io/scheme,PORT:.metadata.annotations.prometheus\.io/port,PATH:.metadata.annotations.prometheus\.io/path",
        ],
    ] {
        step(&format!("kubectl {}", arguments.join(" ")));
        print!("{}", kubectl(cluster, &arguments).await?);
    }
    step("the metrics of the deployment, read while the long completions were in flight");
    println!("{answer}");
    if !once {
        let router = cluster.expose(pods.router).await?;
        let kubeconfig = cluster.host_kubeconfig();
        step("try it from another shell");
        println!("  export KUBECONFIG={}", kubeconfig.display());
        println!("  kubectl get modeldeployments,pods");
        println!("  kubectl get --raw '{METRICS}'");
        println!(
            "  curl -s http://{router}/v1/completions -H 'Content-Type: application/json' -d '{{\"model\":\"Qwen/Qwen3-0.6B\",\"prompt\":\"Hello\",\"max_tokens\":16}}'"
        );
        println!(
            "  kubectl patch md chat --type=json -p '[{{\"op\":\"replace\",\"path\":\"/spec/roles/0/replicas\",\"value\":3}}]'"
        );
        println!("  kubectl logs chat-server-0");
        println!("  the router takes completions at http://{router}; Ctrl-C ends everything");
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// Addresses of the deployment's Pods.
struct Pods {
    router: SocketAddr,
    router_metrics: SocketAddr,
    engines: Vec<SocketAddr>,
}

impl Pods {
    async fn find(cluster: &Cluster) -> Outcome<Self> {
        let list = kubectl(
            cluster,
            &["get", "pods", "-l", "app.kubernetes.io/instance=chat", "-o", "json"],
        )
        .await?;
        let list: Value = serde_json::from_str(&list)?;
        let (mut routers, mut engines) = (Vec::new(), Vec::new());
        for pod in list["items"].as_array().into_iter().flatten() {
            let address = pod["status"]["podIP"].as_str().ok_or("a Pod has no address")?.parse()?;
            let labels = &pod["metadata"]["labels"];
            match labels.get("modeldeployment.gpustack.ai/router") {
                Some(_) => routers.push(address),
                None => engines.push(SocketAddr::new(address, ENGINE)),
            }
        }
        let router = *routers.first().ok_or("there is no router Pod")?;
        Ok(Self {
            router: SocketAddr::new(router, ROUTER),
            router_metrics: SocketAddr::new(router, ROUTER_METRICS),
            engines,
        })
    }

    /// What the Pods' own metrics pages say: running, waiting, the router's workers, and its running requests.
    async fn say(&self) -> Outcome<[f64; 4]> {
        let mut said = [0.0; 4];
        for engine in &self.engines {
            let page = page(*engine).await?;
            said[0] += sum(&page, "vllm:num_requests_running")?;
            said[1] += sum(&page, "vllm:num_requests_waiting")?;
        }
        let page = page(self.router_metrics).await?;
        said[2] = sum(&page, "vllm_router_active_workers")?;
        said[3] = sum(&page, "vllm_router_running_requests")?;
        Ok(said)
    }

    /// Reads the subresource while requests are in flight, and checks it against what the Pods say just before and just after.
    async fn read_in_flight(&self, cluster: &Cluster) -> Outcome<String> {
        let asked = ["running", "waiting", "router-reported-workers", "router-running"];
        let mut last = String::new();
        for _ in 0..50 {
            let before = self.say().await?;
            let text = kubectl(cluster, &["get", "--raw", METRICS]).await?;
            let after = self.say().await?;
            if before[0] < IN_FLIGHT as f64 || before != after {
                last = format!("the Pods said {before:?}, then {after:?}");
                continue;
            }
            let answer: Value = serde_json::from_str(&text)?;
            let gauges = ["processing", "queueing"]
                .iter()
                .flat_map(|list| answer[list].as_array().into_iter().flatten());
            let gauges: Vec<&Value> = gauges.collect();
            for (name, said) in asked.iter().zip(before) {
                let answered = gauges
                    .iter()
                    .find(|gauge| gauge["name"] == *name)
                    .and_then(|gauge| gauge["value"].as_f64());
                if answered != Some(said) {
                    return Err(
                        format!("{name}: the Pods say {said}, the subresource says {answered:?}: {answer}").into(),
                    );
                }
            }
            step(&format!(
                "the Pods' own pages say the same: {}",
                asked
                    .iter()
                    .zip(before)
                    .map(|(name, said)| format!("{name} {said}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            ));
            return Ok(text);
        }
        Err(format!("the Pods never stood still long enough to compare; {last}").into())
    }
}

/// The sum of a family in a page of metrics text, told apart from longer names.
fn sum(page: &str, family: &str) -> Outcome<f64> {
    let mut samples = page
        .lines()
        .filter(|line| {
            line.strip_prefix(family)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        })
        .map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<f64>())
        .peekable();
    samples.peek().ok_or(format!("{family} is not on the page"))?;
    Ok(samples.sum::<Result<f64, _>>()?)
}

async fn page(address: SocketAddr) -> Outcome<String> {
    let (_, body) = send(Request::get(format!("http://{address}/metrics")).body(Full::default())?).await?;
    Ok(String::from_utf8(body.to_vec())?)
}

/// Completions without end, four at a time.
async fn flow(router: SocketAddr) -> Outcome<()> {
    loop {
        let prompts = ["What is true?", "What is known?", "What is missing?", "Who asks?"];
        futures::future::try_join_all(prompts.map(|prompt| complete(router, prompt, 64))).await?;
    }
}

async fn complete(router: SocketAddr, prompt: &str, tokens: u32) -> Outcome<Value> {
    let body = serde_json::json!({"model": "Qwen/Qwen3-0.6B", "prompt": prompt, "max_tokens": tokens}).to_string();
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://{router}/v1/completions"))
        .header("Content-Type", "application/json")
        .body(Full::from(body))?;
    let (status, body) = send(request).await?;
    if status != 200 {
        return Err(format!("the router answered {status}: {}", String::from_utf8_lossy(&body)).into());
    }
    Ok(serde_json::from_slice(&body)?)
}

async fn send(request: Request<Full<Bytes>>) -> Outcome<(u16, Bytes)> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = tokio::time::timeout(Duration::from_secs(60), client.request(request)).await??;
    let status = response.status().as_u16();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

fn step(what: &str) {
    println!("\n==> {what}");
}

async fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Outcome<String> {
    succeed("kubectl", arguments, cluster.kubectl(arguments).await?)
}

async fn helm(cluster: &Cluster, arguments: &[&str]) -> Outcome<String> {
    succeed("helm", arguments, cluster.helm(arguments).await?)
}

fn succeed(program: &str, arguments: &[&str], output: test_cluster::Output) -> Outcome<String> {
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!(
        "{program} {} failed: {}{}",
        arguments.join(" "),
        output.stdout,
        output.stderr
    )
    .into())
}
