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
            handle.block_on(case(cluster)).map_err(|error| Failed::from(error.to_string()))
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
            Err(format!("{name} did not come that far: {}", serde_json::to_string_pretty(&pod.status)?).into())
        }
    }
}

fn ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

fn address(pod: &Pod) -> String {
    pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_default()
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
async fn http(target: &str, path: &str, body: Option<Value>) -> Result<(u16, String), Box<dyn std::error::Error + Send + Sync>> {
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
        .body(Full::new(bytes::Bytes::from(body.map(|b| b.to_string()).unwrap_or_default())))?;
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
    assert!(none.stderr.contains("previous terminated container \"main\" in pod \"e\" not found"), "{none:?}");
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
    let last = again.status.unwrap_or_default().container_statuses.unwrap_or_default()[0].last_state.clone();
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
        pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Failed") && s.reason.as_deref() == Some("Evicted"))
    });
    assert!(!ready(&failed.await?));
    assert!(tokio::net::TcpStream::connect(format!("{}:8000", address(&pod))).await.is_err());
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
    let applied = cluster.kubectl_with_input(&["apply", "-f", "-"], &secret.to_string()).await?;
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
    let over = |pod: &Pod| pod.status.as_ref().is_some_and(|s| matches!(s.phase.as_deref(), Some("Succeeded" | "Failed")));
    let pod = until(&pods, "t", over).await?;
    let logs = cluster.kubectl(&["logs", "-n", &namespace, "t"]).await?;
    let expected = format!("system:serviceaccount:{namespace}:default\nt {} value root\n{namespace} ", address(&pod));
    assert!(logs.stdout.starts_with(&expected), "{logs:?}");
    assert_eq!(pod.status.and_then(|s| s.phase).as_deref(), Some("Succeeded"));
    Ok(())
}

async fn vllm_router_discovers_engines_and_routes_to_them(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("router").await?;
    let labels = json!({"app": "chat"});
    let pods = create(&cluster, &namespace, engine("e-0", &labels)).await?;
    create(&cluster, &namespace, engine("e-1", &labels)).await?;
    create(&cluster, &namespace, engine("stranger", &json!({"app": "other"}))).await?;
    let rights = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r", "namespace": namespace},
         "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "r", "namespace": namespace},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
         "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}]},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "router", "namespace": namespace}, "spec": {
            "selector": {"matchLabels": {"app": "router"}},
            "template": {"metadata": {"labels": {"app": "router"}}, "spec": {"containers": [{
                "name": "router", "image": "vllm/vllm-router:v0.1.17",
                "command": ["vllm-router", "--host=0.0.0.0", "--port=8081", "--prometheus-host=0.0.0.0", "--prometheus-port=9090",
                            "--service-discovery", format!("--service-discovery-namespace={namespace}"),
                            "--selector", "app=chat", "--service-discovery-port=8000"],
                "ports": [{"containerPort": 8081}, {"containerPort": 9090}],
                "readinessProbe": {"tcpSocket": {"port": 8081}},
            }]}},
        }},
    ]});
    let applied = cluster.kubectl_with_input(&["apply", "-f", "-"], &rights.to_string()).await?;
    assert!(applied.status.success(), "{applied:?}");
    for name in ["e-0", "e-1", "stranger"] {
        until(&pods, name, ready).await?;
    }
    let waited = cluster
        .kubectl(&["wait", "-n", &namespace, "--for=condition=Available", "deployment/router", "--timeout=60s"])
        .await?;
    let logs = cluster.kubectl(&["logs", "-n", &namespace, "deployment/router"]).await?;
    assert!(waited.status.success(), "{waited:?} {logs:?}");
    let list = pods.list(&kube::api::ListParams::default().labels("app=router")).await?;
    let router = address(&list.items[0]);
    let ask = json!({"model": "org/model", "prompt": "hello there", "max_tokens": 2});
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = http(&format!("{router}:8081"), "/v1/completions", Some(ask.clone())).await;
        if matches!(&answer, Ok((200, _))) {
            break;
        }
        let logs = cluster.kubectl(&["logs", "-n", &namespace, "deployment/router"]).await?;
        assert!(tokio::time::Instant::now() < deadline, "{answer:?} {}", logs.stdout);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for _ in 0..9 {
        let (code, answer) = http(&format!("{router}:8081"), "/v1/completions", Some(ask.clone())).await?;
        assert_eq!(code, 200, "{answer}");
    }
    let served = |name: &str| {
        let engine = cluster.kubelet().engine(&namespace, name);
        let body = engine.and_then(|engine| engine.body()).unwrap_or_default();
        sample(&body, "vllm:e2e_request_latency_seconds_count{").unwrap_or(f64::NAN)
    };
    assert_eq!(served("e-0") + served("e-1"), 10.0);
    assert_eq!(served("stranger"), 0.0);
    let (_, metrics) = http(&format!("{router}:9090"), "/metrics", None).await?;
    assert_eq!(sample(&metrics, "vllm_router_active_workers"), Some(2.0), "{metrics}");
    Ok(())
}

async fn sixty_four_pods_come_up(cluster: Cluster) -> Outcome {
    let namespace = cluster.namespace("many").await?;
    let begun = std::time::Instant::now();
    let pods = Api::<Pod>::namespaced(cluster.client(), &namespace);
    let names: Vec<String> = (0..64).map(|n| format!("p-{n}")).collect();
    let created = names.iter().map(|name| create(&cluster, &namespace, engine(name, &json!({}))));
    futures::future::try_join_all(created).await?;
    let all = names.iter().map(|name| until(&pods, name, ready));
    futures::future::try_join_all(all).await?;
    eprintln!("64 Pods ready after {:?}", begun.elapsed());
    Ok(())
}
