//! As whom a write goes upstream.

use http::Method;
use serde_json::json;

use super::{COLLECTION, OBJECT, holding, is_passed, object};
use crate::api::{Api, Asked, reply, status};
use crate::log::Log;
use crate::stage::{ALICE, Stage};

/// Every way to write: method, path, content type and body.
const WRITES: [(Method, &str, &str, &str); 7] = [
    (Method::POST, COLLECTION, "application/json", "{}"),
    (Method::PUT, OBJECT, "application/json", "{}"),
    (Method::PATCH, OBJECT, "application/merge-patch+json", "{}"),
    (Method::DELETE, OBJECT, "application/json", "{}"),
    (Method::DELETE, COLLECTION, "application/json", "{}"),
    (Method::PUT, STATUS, "application/json", "{}"),
    (Method::PATCH, STATUS, "application/merge-patch+json", "{}"),
];
const STATUS: &str = "/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/chat/status";

fn identity(asked: &Asked) -> Vec<(String, String)> {
    let mut identity: Vec<_> = asked
        .headers
        .iter()
        .filter(|(name, _)| name.as_str() == "authorization" || name.as_str().starts_with("impersonate-"))
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    identity.sort();
    identity
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

const TOKEN: (&str, &str) = ("authorization", "Bearer impersonators-token");

#[tokio::test]
async fn every_write_is_the_callers() {
    let stage = holding().await;
    for (method, path, content_type, body) in WRITES {
        let headers = [
            ("x-remote-user", "alice"),
            ("x-remote-uid", "42"),
            ("x-remote-group", "dev,ops"),
            ("x-remote-group", "more"),
            ("x-remote-extra-example.com%2fscope", "read"),
            ("x-remote-extra-secret", "x"),
            ("impersonate-user", "root"),
            ("impersonate-group", "system:masters"),
            ("authorization", "Bearer stolen"),
            ("content-type", content_type),
        ];
        let answer = stage.front().write(method.clone(), path, &headers, body).await;
        assert!(answer.code.is_success(), "{method} {path}: {answer:?}");
        let passed = stage.api.passed().pop().unwrap();
        assert_eq!((&passed.method, passed.path.contains("/v1alpha1/")), (&method, true));
        assert_eq!(
            identity(&passed),
            pairs(&[
                TOKEN,
                ("impersonate-extra-example.com%2fscope", "read"),
                ("impersonate-group", "dev,ops"),
                ("impersonate-group", "more"),
                ("impersonate-group", "system:authenticated"),
                ("impersonate-uid", "42"),
                ("impersonate-user", "alice"),
            ])
        );
    }
}

#[tokio::test]
async fn of_service_accounts_and_nodes_only_the_name_goes_upstream() {
    let stage = holding().await;
    for user in ["system:serviceaccount:ns:robot", "system:node:n1"] {
        let headers = [
            ("x-remote-user", user),
            ("x-remote-uid", "42"),
            ("x-remote-group", "system:serviceaccounts"),
            ("x-remote-extra-example.com%2fscope", "read"),
        ];
        assert_eq!(stage.front().send(Method::DELETE, OBJECT, &headers).await.code, 200);
        assert_eq!(
            identity(&stage.api.passed().pop().unwrap()),
            pairs(&[TOKEN, ("impersonate-user", user)])
        );
    }
}

/// Kubernetes impersonates nobody who may do everything: such a write is the operator's own, and the log names who asked.
#[tokio::test]
async fn a_master_writes_as_the_operator_and_the_log_says_so() {
    let log = Log::default();
    let _guard = log.take();
    let stage = holding().await;
    let headers = [
        ("x-remote-user", "root"),
        ("x-remote-group", "system:masters"),
        ("audit-id", "1f0a"),
    ];
    assert_eq!(stage.front().send(Method::DELETE, OBJECT, &headers).await.code, 200);
    assert_eq!(identity(&stage.api.passed().pop().unwrap()), []);
    let text = log.text();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("a write under v1")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    for part in [
        "audit",
        "user=\"root\"",
        "verb=\"delete\"",
        "name=\"chat\"",
        "as_operator=true",
        "audit_id=\"1f0a\"",
        "code=200",
    ] {
        assert!(lines[0].contains(part), "{part}: {}", lines[0]);
    }
}

/// mckinsey/agents-at-scale-ark#2684, kubernetes/website#49369: the API server's audit log has no bodies of such requests, so each
/// write leaves a line here, whatever becomes of it.
#[tokio::test]
async fn every_write_leaves_one_line_in_the_log() {
    let log = Log::default();
    let _guard = log.take();
    let stage = holding().await;
    let lines = || {
        let text = log.text();
        let lines: Vec<_> = text
            .lines()
            .filter(|line| line.contains("a write under v1"))
            .map(str::to_owned)
            .collect();
        lines
    };
    for (number, (method, path, content_type, body)) in WRITES.into_iter().enumerate() {
        let headers = [("x-remote-user", "alice"), ("content-type", content_type)];
        stage
            .front()
            .write(method, &format!("{path}?dryRun=All"), &headers, body)
            .await;
        let lines = lines();
        assert_eq!(lines.len(), number + 1, "{lines:?}");
        assert!(
            lines[number].contains("user=\"alice\"") && lines[number].contains("dry_run=true"),
            "{lines:?}"
        );
    }
    // One that is refused here, and reads.
    let headers = [("x-remote-user", "alice"), ("content-type", "application/cbor")];
    assert_eq!(stage.front().write(Method::PUT, OBJECT, &headers, "x").await.code, 415);
    stage.front().get(OBJECT, ALICE).await;
    let lines = lines();
    assert_eq!(lines.len(), WRITES.len() + 1);
    assert!(lines[WRITES.len()].contains("code=415"), "{lines:?}");
    assert!(!log.text().contains("impersonators-token"));
}

/// Before there is a token nothing is sent, so it may be repeated.
#[tokio::test]
async fn without_a_token_writes_are_503_and_nothing_is_sent() {
    let api = Api::new();
    api.script(|asked| {
        let token = asked.path.ends_with("/token");
        (token || is_passed(asked)).then(|| status(500, "InternalError", "not now", json!({})))
    });
    let stage = Stage::after(api).await;
    let tried = |api: &Api| api.asked().iter().any(|asked| asked.path.ends_with("/token"));
    stage.api.until("a token was asked for", tried).await;
    let answer = stage.front().send(Method::DELETE, OBJECT, ALICE).await;
    assert_eq!((answer.code.as_u16(), answer.header("retry-after")), (503, Some("1")));
    assert!(stage.api.passed().is_empty());
}

/// Without the rights to act for callers v1 is read-only, in discovery too.
#[tokio::test]
async fn without_the_rights_v1_is_read_only() {
    let refusals: [fn(&Asked) -> bool; 2] = [|asked| asked.path.ends_with("/token"), Asked::is_probe];
    for is_refused in refusals {
        let log = Log::default();
        let _guard = log.take();
        let api = Api::new();
        api.script(move |asked| {
            let message =
                "modeldeployments is forbidden: User \"system:serviceaccount:system:impersonator\" cannot impersonate";
            if is_refused(asked) {
                return Some(status(403, "Forbidden", message, json!({})));
            }
            is_passed(asked).then(|| reply(200, &object("v1alpha1")))
        });
        let stage = Stage::after(api).await;
        stage
            .api
            .until("it was refused", |_| log.text().contains("cannot be written under v1"))
            .await;
        let answer = stage.front().send(Method::DELETE, OBJECT, ALICE).await;
        assert_eq!((answer.code.as_u16(), answer.header("allow")), (405, Some("GET, HEAD")));
        assert_eq!(
            answer.message(),
            "delete is not supported on resources of kind \"modeldeployments.worker.gpustack.ai\""
        );
        assert_eq!(stage.front().get(OBJECT, ALICE).await.code, 200);
        let resources = stage.anyone().get("/apis/worker.gpustack.ai/v1", &[]).await.json();
        assert_eq!(resources["resources"][0]["verbs"], json!(["get", "list", "watch"]));
    }
}
