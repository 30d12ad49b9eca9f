//! The metrics subresource through the API aggregator: who may ask, what is answered, and what is said of Pods that cannot be read.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use test_cluster::engine::State;

use crate::scenario::{Failure, Outcome, Scenario, Test, ensure, gauge, metrics_path, missing, patient, test, vllm};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![
        test!(rights_come_before_existence),
        test!(no_pod_is_a_503_that_says_so),
        test!(gauges_are_sums_over_readable_pods_and_zero_is_zero),
        test!(one_hung_pod_of_three),
        test!(each_fault_of_a_pod_has_its_code),
        test!(an_address_that_moved_to_another_pod_is_not_read_for_the_first),
        test!(a_certificate_that_nobody_trusts),
        test!(all_unreadable_is_a_503_with_the_first_cause),
        test!(a_forged_identity_without_the_front_proxy_certificate_is_401),
        test!(only_take_over_roles_answer_with_their_names),
    ]
}

/// The entry of `missing[]` about one Pod as a whole.
fn scrape<'a>(answer: &'a Value, pod: &str) -> Option<&'a Value> {
    missing(answer, pod, "scrape")
}

async fn available(scenario: &Scenario, prefix: &str, replicas: u32, spec: &str) -> Result<String, Failure> {
    let namespace = scenario.cluster.namespace(prefix).await?;
    scenario.apply(&namespace, &vllm("chat", replicas, spec)).await?;
    scenario.wait(&namespace, "condition=Available", "md/chat").await?;
    Ok(namespace)
}

async fn rights_come_before_existence(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("rights").await?;
    let [existing, absent] = [metrics_path(namespace, "chat"), metrics_path(namespace, "nobody")];
    scenario.apply(namespace, &vllm("chat", 0, "")).await?;
    for path in [&existing, &absent] {
        let said = scenario.kubectl_refused(&["get", "--raw", path, "--as", "eve"]).await?;
        ensure!(
            said.contains("Forbidden") || said.contains("forbidden"),
            "{path}: {said}"
        );
    }
    let said = scenario.kubectl_refused(&["get", "--raw", &absent]).await?;
    ensure!(
        said.contains("modeldeployments.worker.gpustack.ai \"nobody\" not found"),
        "an absent name: {said}"
    );

    scenario
        .kubectl(&[
            "create",
            "rolebinding",
            "viewer",
            "--clusterrole=view",
            "--user=vera",
            "--namespace",
            namespace,
        ])
        .await?;
    let may = [
        "auth",
        "can-i",
        "get",
        "modeldeployments/metrics",
        "--namespace",
        namespace,
        "--as",
        "vera",
    ];
    let started = tokio::time::Instant::now();
    while !scenario.cluster.kubectl(&may).await?.stdout.starts_with("yes") {
        patient!(started, "a viewer may not read modeldeployments/metrics");
    }
    let said = scenario
        .kubectl_refused(&["get", "--raw", &absent, "--as", "vera"])
        .await?;
    ensure!(said.contains("not found"), "a viewer asks for an absent name: {said}");
    let may_not = [
        "auth",
        "can-i",
        "create",
        "modeldeployments",
        "--namespace",
        namespace,
        "--as",
        "vera",
    ];
    ensure!(
        scenario.cluster.kubectl(&may_not).await?.stdout.starts_with("no"),
        "a viewer may create"
    );
    Ok(())
}

async fn no_pod_is_a_503_that_says_so(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("nopods").await?;
    scenario.apply(namespace, &vllm("chat", 0, "")).await?;
    let started = tokio::time::Instant::now();
    loop {
        let said = scenario
            .kubectl_refused(&["get", "--raw", &metrics_path(namespace, "chat")])
            .await?;
        if said.contains("ServiceUnavailable") || said.contains("server is currently unable") || said.contains("no Pod")
        {
            break;
        }
        patient!(started, "no Pod exists, and the answer is {said}");
    }
    Ok(())
}

async fn gauges_are_sums_over_readable_pods_and_zero_is_zero(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &available(&scenario, "gauges", 2, "router:\n  name: vllm-router").await?;
    let kubelet = scenario.cluster.kubelet();
    for (pod, running, waiting) in [("chat-server-0", 3.0, 0.0), ("chat-server-1", 4.0, 0.0)] {
        let engine = kubelet.engine(namespace, pod).ok_or("no engine")?;
        let labels = r#"{engine="0",model_name="tiny"}"#;
        engine.set(&format!("vllm:num_requests_running{labels}"), running)?;
        engine.set(&format!("vllm:num_requests_waiting{labels}"), waiting)?;
    }
    let answer = scenario
        .metrics_until(namespace, "chat", |answer| {
            gauge(answer, "processing", "running").is_some_and(|gauge| gauge["value"] == 7)
                && gauge(answer, "processing", "router-reported-workers").is_some_and(|gauge| gauge["value"] == 2)
        })
        .await?;
    ensure!(
        answer["kind"] == "ModelDeploymentMetrics" && answer["apiVersion"] == "worker.gpustack.ai/v1",
        "{answer}"
    );
    ensure!(
        answer["metadata"] == json!({"name": "chat", "namespace": namespace}),
        "{}",
        answer["metadata"]
    );
    let running = gauge(&answer, "processing", "running").ok_or("no running")?;
    let mut expected = json!({
        "name": "running", "source": "vllm:num_requests_running", "scope": "engine", "role": "server",
        "roleKind": "Server", "unit": "requests", "value": 7, "podCount": 2, "expectedPods": 2,
    });
    expected["observedAt"] = running["observedAt"].clone();
    ensure!(*running == expected, "running is {running}");
    let waiting = gauge(&answer, "queueing", "waiting").ok_or("a measured zero is not written")?;
    ensure!(
        waiting["value"] == 0 && waiting["podCount"] == 2,
        "waiting is {waiting}"
    );
    let workers = gauge(&answer, "processing", "router-reported-workers").ok_or("no workers")?;
    ensure!(
        workers["source"] == "vllm_router_active_workers"
            && workers["scope"] == "router"
            && workers["unit"] == "workers"
            && workers.get("role").is_none(),
        "workers are {workers}"
    );
    let names: Vec<&str> = answer["processing"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|gauge| gauge["name"].as_str())
        .collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    ensure!(names == sorted, "the order is {names:?}");
    Ok(())
}

async fn one_hung_pod_of_three(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &available(&scenario, "hung", 3, "").await?;
    scenario.cluster.kubelet().hang(namespace, "chat-server-1")?;
    let started = tokio::time::Instant::now();
    let answer = scenario.metrics(namespace, "chat").await?;
    ensure!(
        started.elapsed() < Duration::from_secs(8),
        "the answer took {:?}",
        started.elapsed()
    );
    ensure!(answer["partial"] == true, "partial is {}", answer["partial"]);
    let hung = scrape(&answer, "chat-server-1").ok_or("the hung Pod is not named")?;
    ensure!(
        hung["code"] == "Timeout" && hung["required"] == true && hung["role"] == "server",
        "the hung Pod: {hung}"
    );
    let running = gauge(&answer, "processing", "running").ok_or("no running")?;
    ensure!(
        running["podCount"] == 2 && running["expectedPods"] == 3,
        "running is {running}"
    );
    Ok(())
}

async fn each_fault_of_a_pod_has_its_code(scenario: Arc<Scenario>) -> Outcome {
    /// One byte more than a body may have.
    const OVER: usize = 1024 * 1024 + 1;
    let namespace = &available(&scenario, "faults", 2, "").await?;
    let engine = scenario
        .cluster
        .kubelet()
        .engine(namespace, "chat-server-1")
        .ok_or("no engine")?;
    let elsewhere = "http://chat-server-0/metrics".to_owned();
    let faults = [
        (State::Redirect(elsewhere), "HttpStatus"),
        (State::Status(500), "HttpStatus"),
        (
            State::Oversize {
                bytes: OVER,
                chunked: false,
            },
            "TooLarge",
        ),
        (
            State::Oversize {
                bytes: OVER,
                chunked: true,
            },
            "TooLarge",
        ),
        (State::Html, "NotExposition"),
        (State::Gzip, "Unreadable"),
        (State::Stall, "Timeout"),
        (
            State::Drip {
                bytes: 16,
                pause: Duration::from_millis(200),
            },
            "Timeout",
        ),
        (State::Refuse, "Refused"),
    ];
    for (state, code) in faults {
        let fault = format!("{state:?}");
        engine.enter(state);
        // Each replica may show its last reading again while it is younger than a second.
        let named = |answer: &Value| scrape(answer, "chat-server-1").is_some_and(|entry| entry["code"] == code);
        let answer = scenario
            .metrics_until(namespace, "chat", named)
            .await
            .map_err(|failure| format!("{fault} is not {code}: {failure}"))?;
        ensure!(answer["partial"] == true, "{fault}: not partial");
        engine.enter(State::Normal);
        scenario
            .metrics_until(namespace, "chat", |answer| scrape(answer, "chat-server-1").is_none())
            .await?;
    }
    engine.enter(State::Oversize {
        bytes: OVER - 1,
        chunked: false,
    });
    let earlier = engine.scrapes().len();
    let whole = |answer: &Value| engine.scrapes().len() > earlier && scrape(answer, "chat-server-1").is_none();
    scenario.metrics_until(namespace, "chat", whole).await?;
    Ok(())
}

async fn an_address_that_moved_to_another_pod_is_not_read_for_the_first(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &available(&scenario, "moved", 3, "").await?;
    let kubelet = scenario.cluster.kubelet();
    let labels = r#"{engine="0",model_name="tiny"}"#;
    for (pod, running) in [
        ("chat-server-0", 1.0),
        ("chat-server-1", 10.0),
        ("chat-server-2", 100.0),
    ] {
        let engine = kubelet.engine(namespace, pod).ok_or("no engine")?;
        engine.set(&format!("vllm:num_requests_running{labels}"), running)?;
    }
    kubelet.move_address(namespace, "chat-server-0", "chat-server-1")?;
    // Two Pods claim one address: whose listener it is cannot be known, so it counts for neither, and both are named.
    let both = |answer: &Value| {
        ["chat-server-0", "chat-server-1"].iter().all(|pod| {
            scrape(answer, pod).is_some_and(|entry| entry["code"] == "Unreadable" && entry["required"] == true)
        })
    };
    let answer = scenario.metrics_until(namespace, "chat", both).await?;
    let running = gauge(&answer, "processing", "running").ok_or("no running")?;
    ensure!(
        running["value"] == 100 && running["podCount"] == 1,
        "running is {running}"
    );
    Ok(())
}

async fn a_certificate_that_nobody_trusts(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("tls").await?;
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["engine".to_owned()])?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "engine"}, "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": cert.pem(), "tls.key": signing_key.serialize_pem()},
    });
    scenario.apply(namespace, &secret.to_string()).await?;
    let manifest = json!({
        "apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "chat"},
        "spec": {
            "model": {"name": "tiny"},
            "engine": {"name": "vLLM", "image": "vllm/vllm-openai:v0.32.0"},
            "roles": [
                {"name": "plain"},
                {
                    "name": "secret",
                    "extraArgs": ["--ssl-certfile=/tls/tls.crt", "--ssl-keyfile", "/tls/tls.key"],
                    "volumes": [{"name": "tls", "secret": {"secretName": "engine"}}],
                    "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
                },
            ],
        },
    });
    scenario.apply(namespace, &manifest.to_string()).await?;
    scenario.wait(namespace, "condition=Available", "md/chat").await?;
    let pod = scenario.get(namespace, "pod/chat-secret-0").await?;
    let scheme = &pod["metadata"]["annotations"]["prometheus.io/scheme"];
    ensure!(scheme == "https", "the scheme is {scheme}");
    let answer = scenario
        .metrics_until(namespace, "chat", |answer| scrape(answer, "chat-secret-0").is_some())
        .await?;
    let entry = scrape(&answer, "chat-secret-0").ok_or("the Pod is not named")?;
    ensure!(entry["code"] == "TlsUntrusted" && entry["required"] == true, "{entry}");
    ensure!(answer["partial"] == true, "not partial: {answer}");
    let plain = answer["processing"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|gauge| gauge["role"] == "plain");
    ensure!(plain, "the plain role was not read: {answer}");
    Ok(())
}

async fn all_unreadable_is_a_503_with_the_first_cause(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &available(&scenario, "unreadable", 2, "").await?;
    for pod in ["chat-server-0", "chat-server-1"] {
        scenario
            .cluster
            .kubelet()
            .engine(namespace, pod)
            .ok_or("no engine")?
            .enter(State::Status(500));
    }
    let started = tokio::time::Instant::now();
    loop {
        let output = scenario
            .run_kubectl(&["get", "--raw", &metrics_path(namespace, "chat")])
            .await?;
        if !output.status.success() {
            ensure!(
                output.stderr.contains("HttpStatus") && output.stderr.contains('2'),
                "the 503 says {}",
                output.stderr
            );
            return Ok(());
        }
        patient!(started, "all Pods answer 500, and the answer is {}", output.stdout);
    }
}

async fn a_forged_identity_without_the_front_proxy_certificate_is_401(scenario: Arc<Scenario>) -> Outcome {
    let pods = scenario.get(crate::scenario::NAMESPACE, "pods").await?;
    let address = pods["items"][0]["status"]["podIP"]
        .as_str()
        .ok_or("the operator has no address")?
        .to_owned();
    let path = metrics_path("default", "chat");
    let status = crate::straight::get(
        &scenario,
        &address,
        &path,
        &[("X-Remote-User", "system:admin"), ("X-Remote-Group", "system:masters")],
    )
    .await?;
    ensure!(status == 401, "a forged identity got {status}");
    let discovery = crate::straight::get(&scenario, &address, "/apis/worker.gpustack.ai/v1", &[]).await?;
    ensure!(discovery == 200, "discovery without a certificate got {discovery}");
    Ok(())
}

async fn only_take_over_roles_answer_with_their_names(scenario: Arc<Scenario>) -> Outcome {
    let namespace = &scenario.cluster.namespace("takeover").await?;
    let manifest = vllm("chat", 1, "").replace(
        "    replicas: 1\n",
        "    replicas: 1\n    command: [vllm, serve, tiny]\n",
    );
    scenario.apply(namespace, &manifest).await?;
    let answer = scenario.metrics_until(namespace, "chat", |_| true).await?;
    let expected = json!([{"pod": "", "source": "engine/server", "scope": "engine", "role": "server", "roleKind": "Server", "code": "TakeOver", "required": false}]);
    let mut entries = answer["missing"].clone();
    if let Some(entry) = entries[0].as_object_mut() {
        entry.remove("reason");
    }
    ensure!(entries == expected && answer["partial"] == false, "{answer}");
    let pod = scenario.get(namespace, "pod/chat-server-0").await?;
    ensure!(
        pod["metadata"]["annotations"].get("prometheus.io/scrape").is_none(),
        "a take-over Pod is annotated: {pod}"
    );
    Ok(())
}
