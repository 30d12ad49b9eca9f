//! The subresource: its query, its refusals, its headers.

use std::time::Duration;

use futures::FutureExt;
use http::Method;
use model_deployment_operator::server::metrics::{MetricsQuery, Refusal};
use model_deployment_operator::server::objects::Mode;
use serde_json::json;

use crate::stage::{ALICE, METRICS, Stage};

#[tokio::test]
async fn an_answer_is_passed_on_with_the_headers_of_kubernetes() {
    let stage = Stage::new().await;
    let headers = [
        ("x-remote-user", "alice"),
        ("audit-id", "1f0a"),
        ("user-agent", "kubectl/v1.37.0"),
    ];
    let answer = stage.front().get(METRICS, &headers).await;
    assert_eq!(answer.code, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-cache, private"));
    assert_eq!(answer.header("audit-id"), Some("1f0a"));
    assert_eq!(&answer.body[..], br#"{"apiVersion":"worker.gpustack.ai/v1","kind":"ModelDeploymentMetrics","metadata":{"name":"chat","namespace":"ns"},"timestamp":"2026-01-02T03:04:05.000006Z","partial":false}
"#);

    let head = stage.front().send(Method::HEAD, METRICS, ALICE).await;
    assert_eq!(head.code, 200);
    assert!(head.body.is_empty());
    assert_eq!(
        head.header("content-length"),
        Some(answer.body.len().to_string().as_str())
    );
    let head = stage.front().send_http1(Method::HEAD, METRICS, ALICE).await;
    assert_eq!((head.code.as_u16(), head.body.len()), (200, 0));

    let pretty = stage.front().get(&format!("{METRICS}?pretty=true"), ALICE).await;
    assert!(
        pretty
            .body
            .starts_with(b"{\n  \"apiVersion\": \"worker.gpustack.ai/v1\",\n  \"kind\""),
        "{pretty:?}"
    );
    assert!(pretty.body.ends_with(b"\n}\n"), "{pretty:?}");
}

#[tokio::test]
async fn the_query_reaches_whoever_answers() {
    let stage = Stage::new().await;
    for (query, window) in [
        ("", None),
        (
            "?window=1.5s&view=standard&unknown=1",
            Some(Duration::from_millis(1500)),
        ),
    ] {
        assert_eq!(stage.front().get(&format!("{METRICS}{query}"), ALICE).await.code, 200);
        let expected = ("ns".to_owned(), "chat".to_owned(), MetricsQuery { window });
        assert_eq!(stage.metrics.asked.lock().last(), Some(&expected));
    }
}

#[tokio::test]
async fn wrong_parameters_are_400_and_name_what_is_right() {
    let stage = Stage::new().await;
    stage.metrics.asked.lock().clear();
    for (query, named) in [
        ("window=0.5s", "1s to 3s"),
        ("window=4s", "1s to 3s"),
        ("window=abc", "1s to 3s"),
        ("window=", "1s to 3s"),
        ("view=full", "standard"),
        ("timeout=soon", "timeout"),
    ] {
        let answer = stage.front().get(&format!("{METRICS}?{query}"), ALICE).await;
        assert_eq!(answer.code, 400, "{query}");
        assert_eq!(answer.json()["reason"], "BadRequest");
        assert!(answer.message().contains(named), "{answer:?}");
    }
    assert!(stage.metrics.asked.lock().is_empty());
}

#[tokio::test]
async fn refusals_are_the_contracts_codes() {
    let stage = Stage::new().await;
    stage.metrics.reply("none", |_| {
        async { Err(Refusal::NoAnswer("no Pod exists yet".into())) }.boxed()
    });
    stage.metrics.reply("dark", |_| {
        async { Err(Refusal::NoAnswer("2 Pods, the first: Timeout".into())) }.boxed()
    });
    for (name, sentence) in [("none", "no Pod exists yet"), ("dark", "2 Pods, the first: Timeout")] {
        let answer = stage.front().get(&METRICS.replace("chat", name), ALICE).await;
        assert_eq!(answer.code, 503);
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.message(), sentence);
        assert_eq!(answer.json()["reason"], "ServiceUnavailable");
    }
    let answer = stage.front().get(&METRICS.replace("chat", "absent"), ALICE).await;
    assert_eq!(answer.code, 404);
    assert_eq!(
        answer.json()["details"],
        json!({"name": "absent", "group": "worker.gpustack.ai", "kind": "modeldeployments"})
    );
}

#[tokio::test]
async fn get_alone() {
    let stage = Stage::new().await;
    for method in [
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ] {
        let answer = stage.front().send(method.clone(), METRICS, ALICE).await;
        assert_eq!(answer.code, 405, "{method}");
        assert_eq!(answer.header("allow"), Some("GET, HEAD"), "{method}");
        assert_eq!(answer.json()["reason"], "MethodNotAllowed");
        answer.message();
    }
}

/// kubernetes/kubernetes#50342, #67047: never 200 with something else than was asked for.
#[tokio::test]
async fn json_alone() {
    let stage = Stage::new().await;
    for accept in [
        "application/vnd.kubernetes.protobuf",
        "application/yaml",
        "application/cbor",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
    ] {
        let answer = stage
            .front()
            .get(METRICS, &[("x-remote-user", "alice"), ("accept", accept)])
            .await;
        assert_eq!(answer.code, 406, "{accept}");
        assert!(answer.message().contains("application/json"));
    }
    for accept in [
        "application/json, */*",
        "application/vnd.kubernetes.protobuf,application/json",
        "*/*",
    ] {
        let answer = stage
            .front()
            .get(METRICS, &[("x-remote-user", "alice"), ("accept", accept)])
            .await;
        assert_eq!(answer.code, 200, "{accept}");
    }
}

#[tokio::test]
async fn impossible_names_and_odd_paths_are_not_found_and_ask_nobody() {
    let stage = Stage::new().await;
    stage.metrics.asked.lock().clear();
    let base = "/apis/worker.gpustack.ai/v1/namespaces";
    for path in [
        format!("{base}/ns/modeldeployments/Chat/metrics"),
        format!("{base}/NS/modeldeployments/chat/metrics"),
        format!("{base}/n.s/modeldeployments/chat/metrics"),
        format!("{base}/ns/modeldeployments/{}/metrics", "a".repeat(254)),
        format!("{base}/ns/modeldeployments/chat/metrics/"),
        format!("{base}/ns/modeldeployments/..%2Fchat/metrics"),
        format!("{base}/ns/modeldeployments/chat/scale"),
        format!("{base}/ns/pods/chat/metrics"),
        "/apis/worker.gpustack.ai/v1/modeldeployments/chat/metrics".to_owned(),
    ] {
        let answer = stage.front().get(&path, ALICE).await;
        assert_eq!(answer.code, 404, "{path}");
        answer.message();
    }
    assert!(stage.metrics.asked.lock().is_empty());
}

/// The garbage collector takes a 404 for an object as "the owner is gone" and deletes its dependents.
#[tokio::test]
async fn objects_that_are_not_served_are_never_not_found() {
    let stage = Stage::of_mode(Mode::Off).await;
    let base = "/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments";
    for path in [
        format!("{base}/chat"),
        format!("{base}/chat/status"),
        base.to_owned(),
        "/apis/worker.gpustack.ai/v1/modeldeployments".to_owned(),
    ] {
        let answer = stage.front().get(&path, ALICE).await;
        assert_eq!(answer.code, 405, "{path}");
        answer.message();
    }
}

#[tokio::test]
async fn a_panic_is_500_and_the_connection_lives() {
    let stage = Stage::new().await;
    stage
        .metrics
        .reply("bad", |_| async { panic!("10.0.0.7 is on fire") }.boxed());
    let mut connection = stage.front().open().await.unwrap();
    let answer = connection
        .send(Method::GET, &METRICS.replace("chat", "bad"), ALICE)
        .await
        .unwrap();
    assert_eq!(answer.code, 500);
    assert_eq!(answer.message(), "Internal error occurred");
    assert_eq!(connection.send(Method::GET, METRICS, ALICE).await.unwrap().code, 200);
}

#[tokio::test]
async fn a_callers_timeout_is_504_without_retry_after() {
    let stage = Stage::new().await;
    stage.metrics.reply("slow", |_| std::future::pending().boxed());
    let answer = stage
        .front()
        .get(&format!("{}?timeout=20ms", METRICS.replace("chat", "slow")), ALICE)
        .await;
    assert_eq!(answer.code, 504);
    assert_eq!(answer.header("retry-after"), None);
    assert_eq!(
        answer.message(),
        "Timeout: request did not complete within the allotted timeout"
    );
}

/// Slow reads never starve discovery, and what is too much is 429.
#[tokio::test]
async fn too_many_reads_are_refused_and_discovery_is_not() {
    let stage = Stage::new().await;
    stage.metrics.reply("slow", |_| std::future::pending().boxed());
    let path = METRICS.replace("chat", "slow");
    let mut reads = Vec::new();
    for _ in 0..256 {
        let (front, path) = (stage.front(), path.clone());
        reads.push(tokio::spawn(async move { front.get(&path, ALICE).await }));
    }
    let asked = || {
        stage
            .metrics
            .asked
            .lock()
            .iter()
            .filter(|(_, name, _)| name == "slow")
            .count()
    };
    while asked() < 256 {
        tokio::task::yield_now().await;
    }
    let answer = stage.front().get(METRICS, ALICE).await;
    assert_eq!(answer.code, 429);
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.json()["details"]["retryAfterSeconds"], 1);
    assert_eq!(stage.anyone().get("/apis/worker.gpustack.ai/v1", &[]).await.code, 200);
    // Callers who leave give their places back.
    reads.iter().for_each(|read| read.abort());
    stage.until_code(&stage.front(), 200).await;
}
