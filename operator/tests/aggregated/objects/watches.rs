//! Watches: event by event, no faster than they are read, and gone when the caller is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use serde_json::json;

use super::{COLLECTION, is_passed, object};
use crate::api::{Answer, parts, reply, status};
use crate::stage::{ALICE, Stage};

const WATCH: &str = "/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments?watch=true&resourceVersion=7";

fn event(kind: &str, object: serde_json::Value) -> String {
    let mut line = json!({"type": kind, "object": object}).to_string();
    line.push('\n');
    line
}

/// A server that answers one watch with what the test sends.
async fn watched(answer: Answer) -> Stage {
    let stage = Stage::new().await;
    let answer = Mutex::new(Some(answer));
    stage
        .api
        .script(move |asked| is_passed(asked).then(|| answer.lock().take().unwrap()));
    stage
}

#[tokio::test]
async fn each_event_comes_as_soon_as_it_is_whole_and_is_v1() {
    let (sender, answer) = parts();
    let stage = watched(answer).await;
    let response = stage.front().begin(WATCH, ALICE).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(
        stage.api.passed()[0].query.as_deref(),
        Some("watch=true&resourceVersion=7")
    );
    let mut body = response.into_body();
    for kind in ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"] {
        let sent = event(kind, object("v1alpha1"));
        // In pieces, cut anywhere.
        for piece in sent.as_bytes().chunks(97) {
            sender.unbounded_send(Ok(Bytes::copy_from_slice(piece))).unwrap();
        }
        let expected = event(kind, object("v1"));
        let mut read = Vec::new();
        while read.len() < expected.len() {
            read.extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        assert_eq!(String::from_utf8(read).unwrap(), expected);
    }
    let error = event(
        "ERROR",
        json!({"kind": "Status", "apiVersion": "v1", "code": 410, "message": "worker.gpustack.ai/v1alpha1"}),
    );
    sender.unbounded_send(Ok(Bytes::from(error.clone()))).unwrap();
    let read = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(read, error.as_bytes());
    // The API server ends it, and it ends.
    drop(sender);
    assert!(
        body.frame()
            .await
            .is_none_or(|frame| frame.unwrap().into_data().unwrap().is_empty())
    );
}

#[tokio::test]
async fn a_watch_that_breaks_upstream_breaks_here() {
    let (sender, answer) = parts();
    let stage = watched(answer).await;
    let mut body = stage.front().begin(WATCH, ALICE).await.into_body();
    sender.unbounded_send(Err("reset".into())).unwrap();
    assert!(body.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn an_event_longer_than_8_mebibytes_ends_the_watch() {
    let (sender, answer) = parts();
    let stage = watched(answer).await;
    let body = stage.front().begin(WATCH, ALICE).await.into_body();
    let part = Bytes::from(vec![b'x'; 1 << 20]);
    for _ in 0..9 {
        let _ = sender.unbounded_send(Ok(part.clone()));
    }
    assert!(body.collect().await.is_err());
}

#[tokio::test]
async fn upstream_is_let_go_as_soon_as_the_caller_leaves() {
    let (sender, answer) = parts();
    let stage = watched(answer).await;
    let response = stage.front().begin(WATCH, ALICE).await;
    assert!(!sender.is_closed());
    drop(response);
    while !sender.is_closed() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn open_watches_end_cleanly_when_the_server_leaves() {
    let (sender, answer) = parts();
    let stage = watched(answer).await;
    let body = stage.front().begin(WATCH, ALICE).await.into_body();
    stage.shutdown.cancel();
    assert_eq!(body.collect().await.unwrap().to_bytes().len(), 0);
    stage.serving.await.unwrap();
    assert!(sender.is_closed());
}

#[tokio::test]
async fn a_refused_watch_is_a_refusal() {
    let stage = watched(status(410, "Expired", "too old resource version", json!({}))).await;
    let answer = stage.front().get(WATCH, ALICE).await;
    assert_eq!(
        (answer.code.as_u16(), answer.message().as_str()),
        (410, "too old resource version")
    );
    // Neither is said of the caller, whose rights were reviewed.
    for (code, reason) in [(404, "NotFound"), (403, "Forbidden")] {
        let stage = watched(status(code, reason, "not you", json!({}))).await;
        let answer = stage.front().get(WATCH, ALICE).await;
        assert_eq!(answer.code, 503);
        assert!(!answer.message().contains("not you"));
    }
}

/// Nobody reads, so nothing is read: an endless upstream is asked for no more than the buffers on the way hold.
#[tokio::test]
async fn upstream_is_read_no_faster_than_the_caller_reads() {
    let pulled = Arc::new(AtomicUsize::new(0));
    let counted = pulled.clone();
    let line = Bytes::from(event("ADDED", object("v1alpha1")));
    let size = line.len();
    let endless = stream::repeat_with(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(Frame::data(line.clone()))
    });
    let answer = Answer::new(StreamBody::new(endless.boxed()).boxed_unsync());
    let stage = watched(answer).await;
    let response = stage.front().begin(WATCH, ALICE).await;
    for _ in 0..100 {
        assert_eq!(stage.anyone().get("/apis/worker.gpustack.ai/v1", &[]).await.code, 200);
    }
    let held = pulled.load(Ordering::Relaxed) * size;
    assert!(held < 4 << 20, "{held} bytes were read ahead");
    drop(response);
}

/// A list asked for as a watch of another spelling is not read as a list.
#[tokio::test]
async fn a_watch_is_streamed_by_any_spelling() {
    let (sender, answer) = parts();
    let stage = watched(answer).await;
    let response = stage
        .front()
        .begin(&format!("{COLLECTION}?watch=yes&timeout=1ns"), ALICE)
        .await;
    assert_eq!(response.status(), 200);
    drop(sender);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), 0);
    let stage = watched(reply(
        200,
        &json!({"kind": "ModelDeploymentList", "apiVersion": "worker.gpustack.ai/v1alpha1"}),
    ))
    .await;
    let answer = stage.front().get(&format!("{COLLECTION}?watch=0"), ALICE).await;
    assert_eq!(answer.json()["apiVersion"], "worker.gpustack.ai/v1");
}
