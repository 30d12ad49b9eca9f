//! The end of a server: what has begun is finished, and nothing new is taken.

use futures::FutureExt;
use http::Method;
use std::sync::Arc;
use tokio::sync::Notify;

use crate::stage::{ALICE, METRICS, Stage, answer};

/// kubernetes/kubernetes#135285: a request under way is answered although the server is told to end.
#[tokio::test]
async fn a_request_under_way_is_finished() {
    let stage = Stage::new().await;
    let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, held) = (begun.clone(), finish.clone());
    stage.metrics.reply("slow", move |_| {
        let (told, held) = (told.clone(), held.clone());
        async move {
            told.notify_one();
            held.notified().await;
            Ok(answer())
        }
        .boxed()
    });
    let mut connection = stage.front().open().await.unwrap();
    let path = METRICS.replace("chat", "slow");
    let read = tokio::spawn(async move { connection.send(Method::GET, &path, ALICE).await });
    begun.notified().await;
    stage.shutdown.cancel();
    // The listener is gone when no connection can be made.
    while stage.front().open().await.is_ok() {
        tokio::task::yield_now().await;
    }
    finish.notify_one();
    assert_eq!(read.await.unwrap().unwrap().code, 200);
    stage.serving.await.unwrap();
}

#[tokio::test]
async fn idle_connections_do_not_hold_the_end_up() {
    let stage = Stage::new().await;
    let mut connection = stage.front().open().await.unwrap();
    assert_eq!(connection.send(Method::GET, METRICS, ALICE).await.unwrap().code, 200);
    stage.shutdown.cancel();
    stage.serving.await.unwrap();
    assert!(connection.send(Method::GET, METRICS, ALICE).await.is_err());
}
