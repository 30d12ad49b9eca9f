//! What a read is upstream.

use http::Method;
use serde_json::json;

use super::{COLLECTION, OBJECT, STORED, holding, object, saying};
use crate::api::{bytes, parts, reply};
use crate::stage::{ALICE, Stage};

/// Of what the caller sends, upstream sees what is listed and no more.
#[tokio::test]
async fn a_read_goes_upstream_as_the_operator_with_listed_headers_alone() {
    let stage = holding().await;
    let headers = [
        ("x-remote-user", "alice"),
        ("x-remote-group", "dev"),
        ("X-Remote-Extra-Example.com%2Fscope", "read"),
        ("authorization", "Bearer stolen"),
        ("cookie", "session=1"),
        ("impersonate-user", "admin"),
        ("Impersonate-Group", "system:masters"),
        ("impersonate-extra-scope", "all"),
        ("x-forwarded-for", "192.0.2.1"),
        ("accept-encoding", "gzip"),
        ("if-none-match", "\"1\""),
        ("accept", "application/vnd.kubernetes.protobuf,application/json"),
        ("user-agent", "kubectl/v1.37.0"),
        ("audit-id", "1f0a"),
        ("traceparent", "00-1-2-01"),
        ("tracestate", "a=b"),
    ];
    let answer = stage.front().get(OBJECT, &headers).await;
    assert_eq!(answer.code, 200);
    let passed = stage.api.passed().pop().unwrap();
    assert_eq!((passed.method.as_str(), passed.path.as_str()), ("GET", STORED));
    let mut sent: Vec<_> = passed
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    sent.sort_unstable();
    assert_eq!(
        sent,
        [
            ("accept", "application/json"),
            ("accept-encoding", "identity"),
            ("audit-id", "1f0a"),
            ("traceparent", "00-1-2-01"),
            ("tracestate", "a=b"),
            ("user-agent", "kubectl/v1.37.0"),
        ]
    );
}

#[tokio::test]
async fn the_query_goes_upstream_byte_for_byte() {
    let stage = holding().await;
    let query = "labelSelector=a%3Db%2cc&limit=5&continue=%41&fieldSelector=&unknown=1&limit=6&a+b";
    for (path, stored) in [
        (
            COLLECTION,
            "/apis/worker.gpustack.ai/v1alpha1/namespaces/ns/modeldeployments",
        ),
        (
            "/apis/worker.gpustack.ai/v1/modeldeployments",
            "/apis/worker.gpustack.ai/v1alpha1/modeldeployments",
        ),
        (OBJECT, STORED),
        (&format!("{OBJECT}/status"), &format!("{STORED}/status")),
    ] {
        assert_eq!(
            stage.front().get(&format!("{path}?{query}"), ALICE).await.code,
            200,
            "{path}"
        );
        let passed = stage.api.passed().pop().unwrap();
        assert_eq!((passed.path.as_str(), passed.query.as_deref()), (stored, Some(query)));
    }
}

#[tokio::test]
async fn what_is_read_is_v1_and_nothing_else_of_it_differs() {
    let list = json!({
        "apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeploymentList",
        "metadata": {"resourceVersion": "7", "continue": "x", "remainingItemCount": 1}, "items": [object("v1alpha1")],
    });
    let table = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "Table", "metadata": {}, "columnDefinitions": [],
        "rows": [{"cells": ["worker.gpustack.ai/v1alpha1"], "object": {
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"managedFields": [{"apiVersion": "worker.gpustack.ai/v1alpha1"}]},
        }}],
    });
    let stage = saying(
        move |asked| match (asked.path.ends_with("/chat"), asked.header("accept")) {
            (true, _) => reply(200, &object("v1alpha1")),
            (_, Some(accept)) if accept.contains("Table") => reply(200, &table),
            _ => reply(200, &list),
        },
    )
    .await;
    assert_eq!(stage.front().get(OBJECT, ALICE).await.json(), object("v1"));
    let list = stage.front().get(COLLECTION, ALICE).await.json();
    assert_eq!(list["apiVersion"], "worker.gpustack.ai/v1");
    assert_eq!(list["items"], json!([object("v1")]));
    assert_eq!(
        list["metadata"],
        json!({"resourceVersion": "7", "continue": "x", "remainingItemCount": 1})
    );
    let headers = [
        ("x-remote-user", "alice"),
        (
            "accept",
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        ),
    ];
    let table = stage.front().get(COLLECTION, &headers).await.json();
    let row = &table["rows"][0];
    assert_eq!(row["cells"], json!(["worker.gpustack.ai/v1alpha1"]));
    assert_eq!(
        row["object"]["metadata"]["managedFields"][0]["apiVersion"],
        "worker.gpustack.ai/v1"
    );

    let head = stage.front().send(Method::HEAD, OBJECT, ALICE).await;
    assert_eq!((head.code.as_u16(), head.body.len()), (200, 0));
    assert_eq!(stage.api.passed().pop().unwrap().method, Method::GET);
}

/// kubernetes/kubernetes#50342, #67047: who takes no JSON gets 406, never JSON with 200.
#[tokio::test]
async fn who_takes_no_json_gets_406_and_nothing_is_passed_on() {
    let stage = holding().await;
    for (accept, expected) in [
        ("application/vnd.kubernetes.protobuf", 406),
        ("application/cbor", 406),
        ("application/yaml", 406),
        ("text/html", 406),
        ("application/json;q=0", 406),
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        ("*/*", 200),
        ("", 200),
    ] {
        let before = stage.api.passed().len();
        for method in [Method::GET, Method::DELETE] {
            let headers = [("x-remote-user", "alice"), ("accept", accept)];
            let answer = stage.front().send(method, OBJECT, &headers).await;
            assert_eq!(answer.code, expected, "{accept:?}");
        }
        let passed = stage.api.passed().len() - before;
        assert_eq!(passed, if expected == 200 { 2 } else { 0 }, "{accept:?}");
    }
}

#[tokio::test]
async fn odd_paths_reach_nothing() {
    let stage = holding().await;
    for (path, code) in [
        ("/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/", 404),
        ("/apis/worker.gpustack.ai/v1/namespaces/ns//modeldeployments", 404),
        ("/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/a%2Fb", 404),
        ("/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/%2e%2e", 404),
        (
            "/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/chat/scale",
            404,
        ),
        (
            "/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/chat/status/more",
            404,
        ),
        ("/apis/worker.gpustack.ai/v1/namespaces/ns/pods/chat", 404),
        ("/apis/worker.gpustack.ai/v1/watch/namespaces/ns/modeldeployments", 404),
        ("/apis/worker.gpustack.ai/v1/watch/modeldeployments", 404),
        ("/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/chat;x", 404),
        ("/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/Chat", 404),
        ("/apis/worker.gpustack.ai/v1/namespaces/n.s/modeldeployments", 400),
        ("/apis/worker.gpustack.ai/v1/modeldeployments/chat", 400),
    ] {
        let answer = stage.front().get(path, ALICE).await;
        assert_eq!(answer.code, code, "{path}");
        answer.message();
    }
    assert!(stage.api.passed().is_empty());
}

/// A right to one object by name, or to some by selector, is not stretched by a query that two programs read differently.
#[tokio::test]
async fn the_review_is_narrowed_only_by_what_the_api_server_reads_too() {
    let stage = holding().await;
    let reviewed = async |query: &str| {
        assert_eq!(
            stage.front().get(&format!("{COLLECTION}?{query}"), ALICE).await.code,
            200
        );
        stage.api.reviews().pop().unwrap()["resourceAttributes"].clone()
    };
    let attributes = reviewed("fieldSelector=metadata.name%3Dchat&labelSelector=a%3Db").await;
    assert_eq!(attributes["name"], "chat");
    assert_eq!(
        attributes["fieldSelector"],
        json!({"rawSelector": "metadata.name=chat"})
    );
    assert_eq!(attributes["labelSelector"], json!({"rawSelector": "a=b"}));
    for query in [
        "fieldSelector=metadata.namespace!%3D%ff&fieldSelector=metadata.name%3Dchat".to_owned(),
        "labelSelector=%zz&fieldSelector=metadata.name%3Dchat".to_owned(),
        format!("fieldSelector=metadata.name%3Dchat{}", "&x".repeat(300)),
    ] {
        let attributes = reviewed(&query).await;
        assert_eq!(attributes["verb"], "list");
        for narrowing in ["name", "fieldSelector", "labelSelector"] {
            assert_eq!(attributes.get(narrowing), None, "{query}");
        }
    }
    // A watch by any spelling is reviewed as one.
    assert_eq!(reviewed("watch=yes").await["verb"], "watch");
}

#[tokio::test]
async fn forbidden_comes_before_everything_else() {
    let stage = holding().await;
    stage.api.review(|spec| json!({"allowed": spec["user"] == "alice"}));
    for (method, path) in [
        (Method::GET, OBJECT),
        (Method::GET, COLLECTION),
        (Method::POST, COLLECTION),
        (Method::PUT, OBJECT),
        (Method::PATCH, OBJECT),
        (Method::DELETE, OBJECT),
        (Method::DELETE, COLLECTION),
    ] {
        let headers = [
            ("x-remote-user", "mallory"),
            ("accept", "application/yaml"),
            ("content-type", "text/plain"),
        ];
        let answer = stage.front().write(method, path, &headers, "x".repeat(4 << 20)).await;
        assert_eq!(answer.code, 403);
        assert!(answer.message().contains("User \"mallory\" cannot"));
    }
    assert!(stage.api.passed().is_empty());
}

#[tokio::test]
async fn a_list_longer_than_64_mebibytes_is_500_that_names_limit() {
    let stage = saying(|_| {
        let (sender, answer) = parts();
        let part = bytes::Bytes::from(vec![b' '; 1 << 20]);
        for _ in 0..65 {
            sender.unbounded_send(Ok(part.clone())).unwrap();
        }
        answer
    })
    .await;
    let answer = stage.front().get(COLLECTION, ALICE).await;
    assert_eq!(answer.code, 500);
    assert!(answer.message().contains("use limit and continue"), "{answer:?}");
    assert_eq!(answer.header("retry-after"), None);
}

#[tokio::test]
async fn what_is_of_no_known_kind_passes_as_it_came() {
    let stage = saying(|_| {
        bytes(
            200,
            "application/json",
            r#"{"kind":"New","apiVersion":"worker.gpustack.ai/v1alpha1"}"#,
        )
    })
    .await;
    let answer = stage.front().get(OBJECT, ALICE).await;
    assert_eq!(
        &answer.body[..],
        br#"{"kind":"New","apiVersion":"worker.gpustack.ai/v1alpha1"}"#
    );
}

/// The caller's time is up: nothing says whether to ask again.
#[tokio::test]
async fn a_callers_timeout_is_504() {
    let stage = Stage::new().await;
    let (sender, held) = parts();
    let held = parking_lot::Mutex::new(Some(held));
    stage
        .api
        .script(move |asked| super::is_passed(asked).then(|| held.lock().take().unwrap()));
    let answer = stage.front().get(&format!("{OBJECT}?timeout=20ms"), ALICE).await;
    assert_eq!(answer.code, 504);
    assert_eq!(answer.header("retry-after"), None);
    // And the API server is no longer asked.
    assert!(sender.is_closed());
    assert_eq!(
        stage.front().get(&format!("{OBJECT}?timeout=soon"), ALICE).await.code,
        400
    );
}
