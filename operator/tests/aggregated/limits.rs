//! What one connection may take, and for how long. Time is tokio's, which moves when nothing else does.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use http::Method;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::stage::{ALICE, METRICS, Stage, answer};

/// How long it takes until the server closes a connection on which `bytes` and nothing else was sent.
async fn closed_after(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, bytes: &[u8]) -> Duration {
    let begun = Instant::now();
    stream.write_all(bytes).await.unwrap();
    // How it says so, with an answer, an alert or a reset, is its own choice.
    let _ = stream.read_to_end(&mut Vec::new()).await;
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_is_closed_after_ten_seconds() {
    let stage = Stage::bare().await;
    for bytes in [&b""[..], b"\x16\x03\x01"] {
        let socket = TcpStream::connect(stage.anyone().address).await.unwrap();
        let took = closed_after(socket, bytes).await;
        assert_eq!(took.as_secs(), 10, "{bytes:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_without_end_is_cut_off_after_thirty_two_seconds() {
    let stage = Stage::bare().await;
    let stream = stage.anyone().connect(b"http/1.1").await.unwrap().into_inner();
    let took = closed_after(stream, b"GET /apis HTTP/1.1\r\nhost: op\r\nx-slow: ").await;
    assert_eq!(took.as_secs(), 32, "{took:?}");
}

/// A peer that speaks HTTP/2, and then nothing more: neither a request nor the answer to a ping.
#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_answer_a_ping_is_dead() {
    let stage = Stage::bare().await;
    let stream = stage.anyone().connect(b"h2").await.unwrap().into_inner();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let took = closed_after(stream, preface).await;
    // A ping after 30 s, and 10 s for its answer.
    assert_eq!(took.as_secs(), 40, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_requests_is_closed_after_ninety_seconds() {
    let stage = Stage::bare().await;
    let mut connection = stage.anyone().open().await.unwrap();
    assert_eq!(connection.send(Method::GET, "/apis", &[]).await.unwrap().code, 200);
    let begun = Instant::now();
    connection.closed().await;
    assert_eq!(begun.elapsed().as_secs(), 90, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_connection_has_a_hundred_requests_at_once() {
    let stage = Stage::new().await;
    let finish = Arc::new(Semaphore::new(0));
    let held = finish.clone();
    stage.metrics.reply("slow", move |_| {
        let held = held.clone();
        async move {
            let _ = held.acquire().await;
            Ok(answer())
        }
        .boxed()
    });
    let connection = stage.front().open().await.unwrap();
    let path = METRICS.replace("chat", "slow");
    let reads = (0..150).map(|_| {
        let (mut connection, path) = (connection.clone(), path.clone());
        tokio::spawn(async move { connection.send(Method::GET, &path, ALICE).await.unwrap().code })
    });
    let reads: Vec<_> = reads.collect();
    let begun = || {
        stage
            .metrics
            .asked
            .lock()
            .iter()
            .filter(|(_, name, _)| name == "slow")
            .count()
    };
    while begun() < 100 {
        tokio::task::yield_now().await;
    }
    // Another connection is served meanwhile, and by then more would have come.
    assert_eq!(stage.front().get(METRICS, ALICE).await.code, 200);
    assert_eq!(begun(), 100);
    finish.add_permits(150);
    for code in join_all(reads).await {
        assert_eq!(code.unwrap(), 200);
    }
}

/// A user may be in very many groups; beyond 1 MiB of headers nobody is.
#[tokio::test]
async fn headers_of_a_megabyte_are_read_and_more_are_refused() {
    let stage = Stage::new().await;
    let group = "g".repeat(1000);
    let with = |groups: usize| {
        let mut headers = ALICE.to_vec();
        headers.extend((0..groups).map(|_| ("x-remote-group", group.as_str())));
        headers
    };
    assert_eq!(stage.front().get(METRICS, &with(900)).await.code, 200);
    let asked = stage.metrics.asked.lock().len();
    let mut connection = stage.front().open().await.unwrap();
    if let Ok(answer) = connection.send(Method::GET, METRICS, &with(1100)).await {
        assert_eq!(answer.code, 431);
    }
    assert_eq!(stage.metrics.asked.lock().len(), asked);
}

/// CVE-2023-44487: requests that are cancelled as soon as they are made leave no work behind, and nobody else feels them.
#[tokio::test]
async fn cancelled_requests_stop_their_work() {
    struct Running(Arc<Mutex<usize>>);
    impl Drop for Running {
        fn drop(&mut self) {
            *self.0.lock() -= 1;
        }
    }
    let stage = Stage::new().await;
    let running = Arc::new(Mutex::new(0));
    let counted = running.clone();
    stage.metrics.reply("endless", move |_| {
        *counted.lock() += 1;
        let running = Running(counted.clone());
        async move {
            let _running = running;
            std::future::pending().await
        }
        .boxed()
    });
    let path = METRICS.replace("chat", "endless");
    let mut connection = stage.front().open().await.unwrap();
    for _ in 0..500 {
        tokio::select! {
            biased;
            answer = connection.send(Method::GET, &path, ALICE) => match answer {
                Ok(answer) => panic!("{answer:?}"),
                // One who goes on like this may be hung up on, and comes back.
                Err(_) => connection = stage.front().open().await.unwrap(),
            },
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(stage.front().get(METRICS, ALICE).await.code, 200);
    while *running.lock() > 0 {
        tokio::task::yield_now().await;
    }
}
