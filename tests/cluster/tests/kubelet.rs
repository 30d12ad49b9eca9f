//! The kubelet, the sandbox and the fake engine on a real control plane.
//!
//! One cluster serves the whole run; each case has a namespace of its own.

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, ResourceExt};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::{Value, json};
use test_cluster::engine::State;
use test_cluster::{Cluster, Setup};
use tokio::runtime::Handle;

/// Longest wait for one thing; a case that works takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(60);

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if arguments.list {
        return libtest_mimic::run(&arguments, trials(None)).exit_code();
    }
    test_cluster::run(Setup::default(), async |cluster| {
        let trials = trials(Some((cluster, Handle::current())));
        let run = tokio::task::spawn_blocking(move || libtest_mimic::run(&arguments, trials).exit_code());
        run.await.unwrap_or(ExitCode::FAILURE)
    })
}

fn trials(cluster: Option<(Cluster, Handle)>) -> Vec<Trial> {
    let trial = |name: &str, case: fn(Cluster) -> std::pin::Pin<Box<dyn Future<Output = Outcome> + Send>>| {
        let cluster = cluster.clone();
        Trial::test(name, move || {
            let Some((cluster, handle)) = cluster else {
                return Err("no cluster".into());
            };
            handle
                .block_on(case(cluster))
                .map_err(|error| Failed::from(error.to_string()))
        })
    };
    macro_rules! cases {
        ($($name:ident),* $(,)?) => { vec![$(trial(stringify!($name), |cluster| Box::pin($name(cluster)))),*] };
    }
    cases![
        an_engine_pod_becomes_ready_serves_and_logs,
        a_restart_counts_and_starts_the_counters_again,
        an_evicted_pod_fails_and_a_deleted_pod_goes,
        a_pod_uses_its_own_token_from_a_network_of_its_own,
        vllm_router_discovers_engines_and_routes_to_them,
        vllm_router_serves_a_pair,
        sglang_gateway_serves_engines,
        sglang_gateway_serves_a_pair,
        smg_serves_engines,
        sigterm_and_then_the_end,
        a_crash_loop_is_mended,
        a_hung_pod_stays_ready,
        readiness_is_held,
        an_address_is_lost_and_moved,
        a_failing_liveness_probe_restarts,
        init_containers_and_sidecars,
        a_secret_that_comes_late,
        tls_from_a_mounted_secret,
        sixty_four_pods_come_up,
    ]
}

async fn create(cluster: &Cluster, namespace: &str, pod: Value) -> Result<Api<Pod>, kube::Error> {
    let pods = Api::<Pod>::namespaced(cluster.client(), namespace);
    let pod: Pod = serde_json::from_value(pod).map_err(kube::Error::SerdeError)?;
    pods.create(&PostParams::default(), &pod).await?;
    Ok(pods)
}

async fn until(
    pods: &Api<Pod>,
    name: &str,
    condition: impl Fn(&Pod) -> bool,
) -> Result<Pod, Box<dyn std::error::Error + Send + Sync>> {
    let seen = await_condition(pods.clone(), name, |pod: Option<&Pod>| pod.is_some_and(&condition));
    match tokio::time::timeout(PATIENCE, seen).await {
        Ok(pod) => pod?.ok_or_else(|| format!("{name} is gone").into()),
        Err(_) => {
            let pod = pods.get(name).await?;
            Err(format!(
                "{name} did not come that far: {}",
                serde_json::to_string_pretty(&pod.status)?
            )
            .into())
        }
    }
}

fn ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

fn address(pod: &Pod) -> String {
    pod.status
        .as_ref()
        .and_then(|status| status.pod_ip.clone())
        .unwrap_or_default()
}

fn engine(name: &str, labels: &Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"automountServiceAccountToken": false, "containers": [{
            "name": "main", "image": "vllm/vllm-openai:v0.32.0",
            "command": ["vllm", "serve", "org/model", "--port", "8000"],
            "ports": [{"name": "http", "containerPort": 8000}],
            "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10},
        }]},
    })
}

/// GET or POST over a connection of its own: status and body.
async fn http(
    target: &str,
    path: &str,
    body: Option<Value>,
) -> Result<(u16, String), Box<dyn std::error::Error + Send + Sync>> {
    use http_body_util::{BodyExt, Full};
    let stream = tokio::net::TcpStream::connect(target).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let method = if body.is_some() { "POST" } else { "GET" };
    let request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header("host", target)
        .header("content-type", "application/json")
        .body(Full::new(bytes::Bytes::from(
            body.map(|b| b.to_string()).unwrap_or_default(),
        )))?;
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

fn sample(body: &str, series: &str) -> Option<f64> {
    let line = body.lines().find(|line| line.starts_with(series))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

async fn an_engine_pod_becomes_ready_serves_and_logs(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("engine").await?;
    let pods = create(&cluster, &namespace, engine("e", &json!({}))).await?;
    let pod = until(&pods, "e", ready).await?;
    let status = pod.status.clone().unwrap_or_default();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.host_ip.as_deref(), Some("10.244.0.2"));
    let target = format!("{}:8000", address(&pod));
    let ask = json!({"model": "org/model", "prompt": "one two three", "max_tokens": 4});
    let (code, answer) = http(&target, "/v1/completions", Some(ask)).await?;
    assert_eq!(code, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer)?;
    assert_eq!(answer["usage"]["completion_tokens"], 4);
    let (_, metrics) = http(&target, "/metrics", None).await?;
    assert_eq!(sample(&metrics, "vllm:generation_tokens_total{"), Some(4.0));
    assert_eq!(sample(&metrics, "vllm:e2e_request_latency_seconds_count{"), Some(1.0));
    assert!(metrics.contains("model_name=\"org/model\""));
    let handle = cluster.kubelet().engine(&namespace, "e").ok_or("no engine")?;
    assert_eq!(handle.scrapes().len(), 1);
    handle.enter(State::Status(503));
    assert_eq!(http(&target, "/metrics", None).await?.0, 503);
    assert_eq!(http(&target, "/health", None).await?.0, 200);
    let logs = cluster.kubectl(&["logs", "-n", &namespace, "e", "--tail=2"]).await?;
    assert!(logs.status.success(), "{logs:?}");
    assert!(logs.stdout.contains("GET /metrics HTTP/1.1\" 503"), "{logs:?}");
    let none = cluster.kubectl(&["logs", "-n", &namespace, "e", "--previous"]).await?;
    assert!(
        none.stderr
            .contains("previous terminated container \"main\" in pod \"e\" not found"),
        "{none:?}"
    );
    Ok(())
}

async fn a_restart_counts_and_starts_the_counters_again(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("restart").await?;
    let pods = create(&cluster, &namespace, engine("r", &json!({}))).await?;
    let pod = until(&pods, "r", ready).await?;
    let handle = cluster.kubelet().engine(&namespace, "r").ok_or("no engine")?;
    handle.advance("vllm:generation_tokens_total", 7.0)?;
    cluster.kubelet().restart_container(&namespace, "r", "main")?;
    let restarted = |pod: &Pod| {
        let containers = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
        containers.into_iter().any(|c| c.restart_count == 1 && c.ready)
    };
    let again = until(&pods, "r", restarted).await?;
    assert_eq!(address(&again), address(&pod));
    let last = again.status.unwrap_or_default().container_statuses.unwrap_or_default()[0]
        .last_state
        .clone();
    assert_eq!(last.and_then(|s| s.terminated).map(|t| t.exit_code), Some(0));
    let (_, metrics) = http(&format!("{}:8000", address(&pod)), "/metrics", None).await?;
    assert_eq!(sample(&metrics, "vllm:generation_tokens_total{"), Some(0.0));
    let previous = cluster.kubectl(&["logs", "-n", &namespace, "r", "--previous"]).await?;
    assert!(previous.stdout.contains("serving org/model"), "{previous:?}");
    Ok(())
}

async fn an_evicted_pod_fails_and_a_deleted_pod_goes(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("evict").await?;
    let pods = create(&cluster, &namespace, engine("v", &json!({}))).await?;
    let pod = until(&pods, "v", ready).await?;
    cluster.kubelet().evict(&namespace, "v")?;
    let failed = until(&pods, "v", |pod| {
        pod.status
            .as_ref()
            .is_some_and(|s| s.phase.as_deref() == Some("Failed") && s.reason.as_deref() == Some("Evicted"))
    });
    assert!(!ready(&failed.await?));
    assert!(
        tokio::net::TcpStream::connect(format!("{}:8000", address(&pod)))
            .await
            .is_err()
    );
    pods.delete("v", &DeleteParams::default()).await?;
    let uid = pod.uid().unwrap_or_default();
    let gone = await_condition(pods.clone(), "v", conditions::is_deleted(&uid));
    tokio::time::timeout(PATIENCE, gone).await??;
    Ok(())
}

/// Asks the API server who it is, with nothing but what a Pod has.
const WHOAMI: &str = r#"
import http.client, json, os, ssl, socket
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
context = ssl.create_default_context(cafile=folder + "ca.crt")
server = http.client.HTTPSConnection(os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"]), context=context)
review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
server.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", json.dumps(review),
               {"Authorization": "Bearer " + open(folder + "token").read(), "Content-Type": "application/json"})
print(json.loads(server.getresponse().read())["status"]["userInfo"]["username"])
print(socket.gethostname(), os.environ["NAMED"], open("/etc/extra/deep/key").read(), open("/etc/passwd").readline().split(":")[0])
print(open(folder + "namespace").read(), len(os.listdir("/sys/class/net")))
"#;

async fn a_pod_uses_its_own_token_from_a_network_of_its_own(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("token").await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": namespace}, "stringData": {"key": "value"}});
    let applied = cluster
        .kubectl_with_input(&["apply", "-f", "-"], &secret.to_string())
        .await?;
    assert!(applied.status.success(), "{applied:?}");
    let pod = json!({
        "metadata": {"name": "t", "labels": {"a": "b"}},
        "spec": {
            "restartPolicy": "Never",
            "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
            "containers": [{
                "name": "main", "image": "vllm/vllm-router:v0.1.17", "command": ["python3", "-c", WHOAMI],
                "env": [
                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    {"name": "NAMED", "value": "$(IP)"},
                ],
                "volumeMounts": [{"name": "v", "mountPath": "/etc/extra/deep", "readOnly": true}],
            }],
        },
    });
    let pods = create(&cluster, &namespace, pod).await?;
    let over = |pod: &Pod| {
        pod.status
            .as_ref()
            .is_some_and(|s| matches!(s.phase.as_deref(), Some("Succeeded" | "Failed")))
    };
    let pod = until(&pods, "t", over).await?;
    let logs = cluster.kubectl(&["logs", "-n", &namespace, "t"]).await?;
    let expected = format!(
        "system:serviceaccount:{namespace}:default\nt {} value root\n{namespace} ",
        address(&pod)
    );
    assert!(logs.stdout.starts_with(&expected), "{logs:?}");
    assert_eq!(pod.status.and_then(|s| s.phase).as_deref(), Some("Succeeded"));
    Ok(())
}

/// A router's Deployment with the rights that its own ServiceAccount needs; waits until a completion through it succeeds, and
/// returns its address.
async fn route(
    cluster: &Cluster,
    namespace: &str,
    image: &str,
    command: &[&str],
) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let meta = |name: &str| json!({"name": name, "namespace": namespace});
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta("r"),
         "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta("r"),
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
         "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}]},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("router"), "spec": {
            "selector": {"matchLabels": {"app": "router"}},
            "template": {"metadata": {"labels": {"app": "router"}}, "spec": {"containers": [{
                "name": "router", "image": image, "command": command,
                "args": ["--host=0.0.0.0", "--port=8081", "--prometheus-host=0.0.0.0", "--prometheus-port=9090",
                         "--service-discovery-port=8000", format!("--service-discovery-namespace={namespace}")],
                "ports": [{"containerPort": 8081}, {"containerPort": 9090}],
                "readinessProbe": {"tcpSocket": {"port": 8081}},
            }]}},
        }},
    ]});
    let applied = cluster
        .kubectl_with_input(&["apply", "-f", "-"], &objects.to_string())
        .await?;
    assert!(applied.status.success(), "{applied:?}");
    let wait = [
        "wait",
        "-n",
        namespace,
        "--for=condition=Available",
        "deployment/router",
        "--timeout=60s",
    ];
    let waited = cluster.kubectl(&wait).await?;
    let logs = async || cluster.kubectl(&["logs", "-n", namespace, "deployment/router"]).await;
    assert!(waited.status.success(), "{waited:?} {:?}", logs().await);
    let pods = Api::<Pod>::namespaced(cluster.client(), namespace);
    let list = pods
        .list(&kube::api::ListParams::default().labels("app=router"))
        .await?;
    let router = address(&list.items[0]);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = complete(&router).await;
        if matches!(&answer, Ok((200, _))) {
            return Ok(router);
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "{answer:?} {}",
            logs().await?.stdout
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn complete(router: &str) -> Result<(u16, String), Box<dyn std::error::Error + Send + Sync>> {
    let ask = json!({"model": "org/model", "prompt": "hello there", "max_tokens": 2});
    http(&format!("{router}:8081"), "/v1/completions", Some(ask)).await
}

/// Sends `count` completions more through a router; all must succeed.
async fn complete_all(router: &str, count: usize) -> Outcome {
    for _ in 0..count {
        let (code, answer) = complete(router).await?;
        assert_eq!(code, 200, "{answer}");
    }
    Ok(())
}

fn value(cluster: &Cluster, namespace: &str, pod: &str, series: &str) -> f64 {
    let engine = cluster.kubelet().engine(namespace, pod);
    let body = engine.and_then(|engine| engine.body()).unwrap_or_default();
    sample(&body, series).unwrap_or(f64::NAN)
}

async fn vllm_router_discovers_engines_and_routes_to_them(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("router").await?;
    for (name, labels) in [
        ("e-0", json!({"app": "chat"})),
        ("e-1", json!({"app": "chat"})),
        ("stranger", json!({})),
    ] {
        let pods = create(&cluster, &namespace, engine(name, &labels)).await?;
        until(&pods, name, ready).await?;
    }
    let command = ["vllm-router", "--service-discovery", "--selector", "app=chat"];
    let router = route(&cluster, &namespace, "vllm/vllm-router:v0.1.17", &command).await?;
    complete_all(&router, 9).await?;
    let served = |pod: &str| value(&cluster, &namespace, pod, "vllm:e2e_request_latency_seconds_count{");
    assert_eq!(served("e-0") + served("e-1"), 10.0);
    assert_eq!(served("stranger"), 0.0);
    let (_, metrics) = http(&format!("{router}:9090"), "/metrics", None).await?;
    assert_eq!(sample(&metrics, "vllm_router_active_workers"), Some(2.0), "{metrics}");
    Ok(())
}

async fn vllm_router_serves_a_pair(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("pair").await?;
    for (name, role) in [("prefill", "kv_producer"), ("decode", "kv_consumer")] {
        let mut pod = engine(name, &json!({"half": name}));
        let config = json!({"kv_connector": "NixlConnector", "kv_role": role}).to_string();
        pod["spec"]["containers"][0]["args"] = json!(["--kv-transfer-config", config]);
        let pods = create(&cluster, &namespace, pod).await?;
        until(&pods, name, ready).await?;
    }
    let command = [
        "vllm-router",
        "--kv-connector=nixl",
        "--service-discovery",
        "--vllm-pd-disaggregation",
        "--prefill-selector",
        "half=prefill",
        "--decode-selector",
        "half=decode",
    ];
    let router = route(&cluster, &namespace, "vllm/vllm-router:v0.1.17", &command).await?;
    complete_all(&router, 4).await?;
    for half in ["prefill", "decode"] {
        assert_eq!(
            value(&cluster, &namespace, half, "vllm:e2e_request_latency_seconds_count{"),
            5.0,
            "{half}"
        );
    }
    assert_eq!(
        value(&cluster, &namespace, "decode", "vllm:nixl_xfer_time_seconds_count{"),
        5.0
    );
    Ok(())
}

fn sglang(name: &str, labels: &Value, mode: Option<&str>) -> Value {
    let mut command = vec![
        "python3",
        "-m",
        "sglang.launch_server",
        "--model-path",
        "org/model",
        "--enable-metrics",
        "--host",
        "0.0.0.0",
        "--port",
        "8000",
    ];
    command.extend(mode.iter().flat_map(|mode| ["--disaggregation-mode", mode]));
    let mut pod = engine(name, labels);
    pod["spec"]["containers"][0]["command"] = json!(command);
    if mode == Some("prefill") {
        pod["metadata"]["annotations"] = json!({"sglang.ai/bootstrap-port": "8998"});
    }
    pod
}

async fn sglang_gateway_serves_engines(cluster: Cluster) -> Outcome {
    let command = ["sgl-model-gateway", "--service-discovery", "--selector", "app=chat"];
    gateway(cluster, "lmsysorg/sgl-model-gateway:v0.3.2", &command).await
}

async fn smg_serves_engines(cluster: Cluster) -> Outcome {
    gateway(
        cluster,
        "example/smg:1.13.0",
        &["smg", "launch", "--service-discovery", "--selector", "app=chat"],
    )
    .await
}

async fn gateway(cluster: Cluster, image: &str, command: &[&str]) -> Outcome {
    let namespace = cluster.namespace("gateway").await?;
    for name in ["e-0", "e-1"] {
        let pods = create(&cluster, &namespace, sglang(name, &json!({"app": "chat"}), None)).await?;
        until(&pods, name, ready).await?;
    }
    let router = route(&cluster, &namespace, image, command).await?;
    complete_all(&router, 7).await?;
    // Beside the warm-up request of the captured start.
    let served = |pod: &str| {
        value(
            &cluster,
            &namespace,
            pod,
            "sglang:num_requests_total{engine_type=\"unified\",is_streaming=\"false\"",
        )
    };
    assert_eq!(served("e-0") + served("e-1"), 8.0 + 2.0);
    let (_, metrics) = http(&format!("{router}:9090"), "/metrics", None).await?;
    let pool: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("smg_worker_pool_size"))
        .collect();
    assert!(pool.iter().any(|line| line.ends_with(" 2")), "{pool:?}");
    Ok(())
}

async fn sglang_gateway_serves_a_pair(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("gateway-pair").await?;
    for half in ["prefill", "decode"] {
        let pods = create(&cluster, &namespace, sglang(half, &json!({"half": half}), Some(half))).await?;
        until(&pods, half, ready).await?;
    }
    let command = [
        "sgl-model-gateway",
        "--service-discovery",
        "--pd-disaggregation",
        "--prefill-selector",
        "half=prefill",
        "--decode-selector",
        "half=decode",
    ];
    let router = route(&cluster, &namespace, "lmsysorg/sgl-model-gateway:v0.3.2", &command).await?;
    complete_all(&router, 4).await?;
    assert_eq!(
        value(&cluster, &namespace, "prefill", "sglang:kv_transfer_latency_ms_count{"),
        5.0
    );
    assert!(
        value(
            &cluster,
            &namespace,
            "decode",
            "sglang:time_to_first_token_seconds_count{"
        ) >= 5.0
    );
    Ok(())
}

/// Says when it is told to end, and takes a moment for it.
const LAST_WORDS: &str = r#"
import signal, sys, time
def end(*_):
    print("last words", flush=True)
    time.sleep(0.3)
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
print("first words", flush=True)
while True:
    time.sleep(1)
"#;

fn python(name: &str, script: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "vllm/vllm-router:v0.1.17", "command": ["python3", "-c", script]}]},
    })
}

async fn sigterm_and_then_the_end(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("grace").await?;
    let pods = create(&cluster, &namespace, python("g", LAST_WORDS)).await?;
    let pod = until(&pods, "g", ready).await?;
    let follow = ["logs", "-n", &namespace, "g", "--follow"];
    let delete = async {
        // Not before the program listens for the signal.
        loop {
            let logs = cluster.kubectl(&["logs", "-n", &namespace, "g"]).await?;
            if logs.stdout.contains("first words") {
                break;
            }
        }
        pods.delete("g", &DeleteParams::default()).await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    let (logs, deleted) = tokio::join!(cluster.kubectl(&follow), delete);
    deleted?;
    assert_eq!(logs?.stdout, "first words\nlast words\n");
    let uid = pod.uid().unwrap_or_default();
    let gone = await_condition(pods.clone(), "g", conditions::is_deleted(&uid));
    tokio::time::timeout(PATIENCE, gone).await??;
    let links = std::fs::read_to_string("/proc/net/dev")?;
    assert!(
        tokio::net::TcpStream::connect(format!("{}:1", address(&pod)))
            .await
            .is_err(),
        "{links}"
    );
    Ok(())
}

fn waiting(pod: &Pod) -> Option<String> {
    let containers = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
    containers
        .into_iter()
        .find_map(|c| c.state.as_ref()?.waiting.as_ref()?.reason.clone())
}

fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
    containers.into_iter().map(|c| c.restart_count).sum()
}

async fn a_crash_loop_is_mended(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("crash").await?;
    let pods = create(&cluster, &namespace, engine("c", &json!({}))).await?;
    until(&pods, "c", ready).await?;
    cluster.kubelet().crash_container(&namespace, "c", "main")?;
    let looping = until(&pods, "c", |pod| waiting(pod).as_deref() == Some("CrashLoopBackOff")).await?;
    assert!(!ready(&looping));
    cluster.kubelet().mend_container(&namespace, "c", "main")?;
    let again = until(&pods, "c", |pod| ready(pod) && restarts(pod) == 1).await?;
    let last = again.status.unwrap_or_default().container_statuses.unwrap_or_default()[0]
        .last_state
        .clone();
    assert_eq!(last.and_then(|s| s.terminated).map(|t| t.exit_code), Some(137));
    Ok(())
}

async fn a_hung_pod_stays_ready(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("hang").await?;
    let mut pod = engine("h", &json!({}));
    pod["spec"]["containers"][0]["readinessProbe"]["periodSeconds"] = json!(1);
    pod["spec"]["containers"][0]["readinessProbe"]["failureThreshold"] = json!(1);
    let pods = create(&cluster, &namespace, pod).await?;
    let target = format!("{}:8000", address(&until(&pods, "h", ready).await?));
    cluster.kubelet().hang(&namespace, "h")?;
    let asked = tokio::time::timeout(Duration::from_millis(2500), http(&target, "/metrics", None)).await;
    assert!(asked.is_err());
    assert!(ready(&pods.get("h").await?));
    // Its probes are called again: now it shows.
    cluster.kubelet().freeze_probes(&namespace, "h", false)?;
    until(&pods, "h", |pod| !ready(pod)).await?;
    cluster.kubelet().wake(&namespace, "h")?;
    until(&pods, "h", ready).await?;
    Ok(())
}

async fn readiness_is_held(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("held").await?;
    cluster.kubelet().hold_readiness(&namespace, "d");
    let pods = create(&cluster, &namespace, engine("d", &json!({}))).await?;
    let running = until(&pods, "d", |pod| {
        pod.status
            .as_ref()
            .is_some_and(|s| s.phase.as_deref() == Some("Running"))
    })
    .await?;
    assert!(!ready(&running));
    assert_eq!(
        http(&format!("{}:8000", address(&running)), "/health", None).await?.0,
        200
    );
    cluster.kubelet().release_readiness(&namespace, "d");
    until(&pods, "d", ready).await?;
    Ok(())
}

async fn an_address_is_lost_and_moved(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("move").await?;
    let pods = create(&cluster, &namespace, engine("a", &json!({}))).await?;
    create(&cluster, &namespace, engine("b", &json!({}))).await?;
    let a = address(&until(&pods, "a", ready).await?);
    let b = address(&until(&pods, "b", ready).await?);
    cluster.kubelet().report_address(&namespace, "a", None)?;
    until(&pods, "a", |pod| address(pod).is_empty()).await?;
    cluster.kubelet().restore_address(&namespace, "a")?;
    until(&pods, "a", |pod| address(pod) == a).await?;
    cluster
        .kubelet()
        .engine(&namespace, "b")
        .ok_or("no engine")?
        .enter(State::Body("from_b 1\n".into()));
    cluster.kubelet().move_address(&namespace, "a", "b")?;
    until(&pods, "b", |pod| address(pod) == a).await?;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !matches!(http(&format!("{a}:8000"), "/metrics", None).await, Ok((200, body)) if body == "from_b 1\n") {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(address(&pods.get("a").await?), a);
    assert!(tokio::net::TcpStream::connect(format!("{b}:8000")).await.is_err());
    Ok(())
}

async fn a_failing_liveness_probe_restarts(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("alive").await?;
    let mut pod = engine("l", &json!({}));
    pod["spec"]["containers"][0]["livenessProbe"] =
        json!({"httpGet": {"path": "/nothing", "port": 8000}, "periodSeconds": 1, "failureThreshold": 2});
    let pods = create(&cluster, &namespace, pod).await?;
    let again = until(&pods, "l", |pod| restarts(pod) >= 1).await?;
    let containers = again.status.unwrap_or_default().container_statuses.unwrap_or_default();
    let ended = containers[0]
        .last_state
        .as_ref()
        .and_then(|s| s.terminated.clone())
        .ok_or("not ended")?;
    assert!(
        ended
            .message
            .unwrap_or_default()
            .contains("Liveness probe failed: HTTP probe failed with statuscode: 404")
    );
    let mut refused = engine("x", &json!({}));
    refused["spec"]["containers"][0]["livenessProbe"] = json!({"exec": {"command": ["true"]}});
    create(&cluster, &namespace, refused).await?;
    until(&pods, "x", |pod| {
        waiting(pod).as_deref() == Some("CreateContainerConfigError")
    })
    .await?;
    Ok(())
}

async fn init_containers_and_sidecars(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("init").await?;
    let mut pod = python(
        "i",
        "print(open('/data/from-init').read(), flush=True); import time; time.sleep(3600)",
    );
    let script = "open('/data/from-init', 'w').write('made before')";
    let mount = json!([{"name": "data", "mountPath": "/data"}]);
    pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = mount.clone();
    pod["spec"]["terminationGracePeriodSeconds"] = json!(1);
    pod["spec"]["initContainers"] = json!([
        {"name": "proxy", "image": "example/llm-d-routing-sidecar:v1", "restartPolicy": "Always", "ports": [{"containerPort": 8200}],
         "startupProbe": {"tcpSocket": {"port": 8200}}},
        {"name": "make", "image": "vllm/vllm-router:v0.1.17", "command": ["python3", "-c", script], "volumeMounts": mount},
    ]);
    let pods = create(&cluster, &namespace, pod).await?;
    let pod = until(&pods, "i", ready).await?;
    let statuses = pod
        .status
        .clone()
        .unwrap_or_default()
        .init_container_statuses
        .unwrap_or_default();
    assert!(statuses.iter().all(|status| status.ready), "{statuses:?}");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let logs = cluster.kubectl(&["logs", "-n", &namespace, "i", "-c", "main"]).await?;
        if logs.stdout == "made before\n" {
            return Ok(());
        }
        assert!(tokio::time::Instant::now() < deadline, "{logs:?}");
    }
}

async fn a_secret_that_comes_late(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("late").await?;
    let mut pod = engine("s", &json!({}));
    pod["spec"]["containers"][0]["env"] =
        json!([{"name": "K", "valueFrom": {"secretKeyRef": {"name": "late", "key": "k"}}}]);
    let pods = create(&cluster, &namespace, pod).await?;
    until(&pods, "s", |pod| {
        waiting(pod).as_deref() == Some("CreateContainerConfigError")
    })
    .await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late", "namespace": namespace}, "stringData": {"k": "v"}});
    let applied = cluster
        .kubectl_with_input(&["apply", "-f", "-"], &secret.to_string())
        .await?;
    assert!(applied.status.success(), "{applied:?}");
    until(&pods, "s", ready).await?;
    Ok(())
}

async fn tls_from_a_mounted_secret(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("tls").await?;
    let made = rcgen::generate_simple_self_signed(["engine".to_owned()])?;
    let data = json!({"tls.crt": made.cert.pem(), "tls.key": made.signing_key.serialize_pem()});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c", "namespace": namespace}, "stringData": data});
    let applied = cluster
        .kubectl_with_input(&["apply", "-f", "-"], &secret.to_string())
        .await?;
    assert!(applied.status.success(), "{applied:?}");
    let mut pod = engine("t", &json!({}));
    pod["spec"]["volumes"] = json!([{"name": "c", "secret": {"secretName": "c"}}]);
    let container = &mut pod["spec"]["containers"][0];
    container["args"] = json!(["--ssl-certfile=/etc/tls/tls.crt", "--ssl-keyfile", "/etc/tls/tls.key"]);
    container["volumeMounts"] = json!([{"name": "c", "mountPath": "/etc/tls"}]);
    container["readinessProbe"]["httpGet"]["scheme"] = json!("HTTPS");
    let pods = create(&cluster, &namespace, pod).await?;
    let pod = until(&pods, "t", ready).await?;
    assert!(http(&format!("{}:8000", address(&pod)), "/health", None).await.is_err());
    Ok(())
}

async fn sixty_four_pods_come_up(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("many").await?;
    let begun = std::time::Instant::now();
    let pods = Api::<Pod>::namespaced(cluster.client(), &namespace);
    let names: Vec<String> = (0..64).map(|n| format!("p-{n}")).collect();
    let created = names
        .iter()
        .map(|name| create(&cluster, &namespace, engine(name, &json!({}))));
    futures::future::try_join_all(created).await?;
    let all = names.iter().map(|name| until(&pods, name, ready));
    futures::future::try_join_all(all).await?;
    eprintln!("64 Pods ready after {:?}", begun.elapsed());
    Ok(())
}
