//! What a write is upstream, and what is refused before it gets there.

use http::Method;
use serde_json::{Value, json};

use super::{COLLECTION, OBJECT, STORED, holding, object, saying};
use crate::api::{parts, reply};
use crate::stage::{ALICE, METRICS};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn alice(content_type: &str) -> [(&str, &str); 2] {
    [("x-remote-user", "alice"), ("content-type", content_type)]
}

#[tokio::test]
async fn what_is_written_as_v1_goes_upstream_as_v1alpha1_and_comes_back_as_v1() {
    let stage = holding().await;
    for (method, path) in [(Method::POST, COLLECTION), (Method::PUT, OBJECT)] {
        let answer = stage
            .front()
            .write(method, path, &alice(JSON), object("v1").to_string())
            .await;
        assert!(answer.code.is_success());
        assert_eq!(answer.json(), object("v1"));
        let passed = stage.api.passed().pop().unwrap();
        assert_eq!(passed.body, object("v1alpha1"));
        assert_eq!(passed.header("content-type"), Some(JSON));
    }
    let fields = |version: &str| json!([{"apiVersion": format!("worker.gpustack.ai/{version}")}]);
    let cases: [(&str, Value, Value); 3] = [
        (
            MERGE,
            json!({"apiVersion": "worker.gpustack.ai/v1", "metadata": {"managedFields": fields("v1")}}),
            json!({"apiVersion": "worker.gpustack.ai/v1alpha1", "metadata": {"managedFields": fields("v1alpha1")}}),
        ),
        (
            PATCH,
            json!([{"op": "replace", "path": "/metadata/managedFields", "value": fields("v1")}]),
            json!([{"op": "replace", "path": "/metadata/managedFields", "value": fields("v1alpha1")}]),
        ),
        (
            APPLY,
            json!({"apiVersion": "worker.gpustack.ai/v1", "kind": "ModelDeployment"}),
            json!({"apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment"}),
        ),
    ];
    for (content_type, sent, expected) in cases {
        let answer = stage
            .front()
            .write(Method::PATCH, OBJECT, &alice(content_type), sent.to_string())
            .await;
        assert_eq!(answer.code, 200);
        let passed = stage.api.passed().pop().unwrap();
        assert_eq!((passed.path.as_str(), &passed.body), (STORED, &expected));
        assert_eq!(passed.header("content-type"), Some(content_type));
    }
    let yaml = "apiVersion: worker.gpustack.ai/v1\nkind: ModelDeployment\n";
    stage.front().write(Method::PATCH, OBJECT, &alice(APPLY), yaml).await;
    let passed = stage.api.passed().pop().unwrap();
    assert_eq!(
        passed.bytes,
        "apiVersion: worker.gpustack.ai/v1alpha1\nkind: ModelDeployment\n"
    );
}

/// How an object is to be deleted is not read here: the API server reads it of any version, and in Protocol Buffers.
#[tokio::test]
async fn options_of_a_deletion_go_upstream_untouched() {
    let stage = holding().await;
    let options = r#"{"kind":"DeleteOptions","apiVersion":"worker.gpustack.ai/v1","propagationPolicy":"Foreground"}"#;
    for (content_type, body) in [
        (JSON, options.as_bytes()),
        ("application/vnd.kubernetes.protobuf", b"k8s\0\xff"),
    ] {
        for path in [OBJECT, COLLECTION] {
            let answer = stage
                .front()
                .write(Method::DELETE, path, &alice(content_type), body.to_vec())
                .await;
            assert_eq!(answer.code, 200);
            let passed = stage.api.passed().pop().unwrap();
            assert_eq!(
                (&passed.bytes[..], passed.header("content-type")),
                (body, Some(content_type))
            );
        }
    }
    stage.front().send(Method::DELETE, OBJECT, ALICE).await;
    let passed = stage.api.passed().pop().unwrap();
    assert_eq!((passed.bytes.len(), passed.header("content-type")), (0, None));
}

/// cozystack/cozystack#3971: an aggregated server that did not know `dryRun` wrote.
#[tokio::test]
async fn dry_run_and_every_other_parameter_of_a_write_go_upstream() {
    let stage = holding().await;
    let query = "dryRun=All&fieldValidation=Strict&fieldManager=a%20b&force=true&pretty=true&new=x";
    for (method, path, content_type) in [
        (Method::POST, COLLECTION, JSON),
        (Method::PUT, OBJECT, JSON),
        (Method::PATCH, OBJECT, MERGE),
        (Method::DELETE, OBJECT, JSON),
        (Method::DELETE, COLLECTION, JSON),
    ] {
        stage
            .front()
            .write(method, &format!("{path}?{query}"), &alice(content_type), "{}")
            .await;
        assert_eq!(stage.api.passed().pop().unwrap().query.as_deref(), Some(query));
    }
}

#[tokio::test]
async fn what_cannot_be_taken_is_refused_before_it_goes_anywhere() {
    let stage = holding().await;
    let long = "x".repeat((3 << 20) + 1);
    for (method, path, content_type, body, code, said) in [
        (
            Method::POST,
            COLLECTION,
            "application/cbor",
            "x",
            415,
            "accepted media types",
        ),
        (
            Method::POST,
            COLLECTION,
            "application/vnd.kubernetes.protobuf",
            "k8s",
            415,
            "accepted media types",
        ),
        (
            Method::PATCH,
            OBJECT,
            "application/apply-patch+cbor",
            "x",
            415,
            "accepted media types",
        ),
        (Method::PATCH, OBJECT, JSON, "{}", 415, "accepted media types"),
        (Method::POST, COLLECTION, JSON, &long, 413, "limit is 3145728"),
        (Method::DELETE, OBJECT, JSON, &long, 413, "limit is 3145728"),
        (
            Method::POST,
            "/apis/worker.gpustack.ai/v1/modeldeployments",
            JSON,
            "{}",
            400,
            "the path names none",
        ),
        (
            Method::DELETE,
            "/apis/worker.gpustack.ai/v1/modeldeployments",
            JSON,
            "",
            400,
            "the path names none",
        ),
        (Method::PUT, OBJECT, JSON, "{", 400, "JSON"),
        (
            Method::PUT,
            OBJECT,
            JSON,
            r#"{"apiVersion":"worker.gpustack.ai/v1alpha1"}"#,
            400,
            "the API version in the data (worker.gpustack.ai/v1alpha1) does not match the expected API version (worker.gpustack.ai/v1)",
        ),
    ] {
        let answer = stage
            .front()
            .write(method.clone(), path, &alice(content_type), body.to_owned())
            .await;
        assert_eq!(answer.code, code, "{method} {content_type}");
        assert!(answer.message().contains(said), "{answer:?}");
    }
    assert!(stage.api.passed().is_empty());
    // As long as may be is taken.
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat((3 << 20) - 8));
    assert_eq!(body.len(), 3 << 20);
    assert_eq!(
        stage.front().write(Method::PUT, OBJECT, &alice(JSON), body).await.code,
        200
    );
}

/// Writes that hang starve neither reads nor discovery, and what is too much is 429.
#[tokio::test]
async fn too_many_writes_are_refused_and_reads_are_not() {
    let (sender, _) = parts();
    let senders = std::sync::Arc::new(parking_lot::Mutex::new(vec![sender]));
    let held = senders.clone();
    let stage = saying(move |asked| match asked.method {
        Method::GET => reply(200, &object("v1alpha1")),
        _ => {
            let (sender, answer) = parts();
            held.lock().push(sender);
            answer
        }
    })
    .await;
    let mut writes = Vec::new();
    for _ in 0..64 {
        let front = stage.front();
        writes.push(tokio::spawn(
            async move { front.send(Method::DELETE, OBJECT, ALICE).await },
        ));
    }
    while stage.api.passed().len() < 64 {
        tokio::task::yield_now().await;
    }
    let answer = stage.front().send(Method::DELETE, OBJECT, ALICE).await;
    assert_eq!((answer.code.as_u16(), answer.header("retry-after")), (429, Some("1")));
    assert_eq!(stage.front().get(OBJECT, ALICE).await.code, 200);
    assert_eq!(stage.front().get(METRICS, ALICE).await.code, 200);
    assert_eq!(stage.anyone().get("/apis/worker.gpustack.ai/v1", &[]).await.code, 200);
    // Callers who leave give their places back, and are let go upstream.
    writes.iter().for_each(|write| write.abort());
    while senders.lock().iter().skip(1).any(|sender| !sender.is_closed()) {
        tokio::task::yield_now().await;
    }
}
