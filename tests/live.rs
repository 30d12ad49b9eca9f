//! The live answer, over sockets: one fetch a Pod a second, limits, and the Pod's identity after the fetch.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model_deployment::index::{Deployment, ExpectedRole, IndexedPod, Phase};
use model_deployment::pod::{Endpoint, Facts, Life, Listener, Member, Producer, Scheme};
use model_deployment::scrape::{Config, Scraper};
use model_deployment::snapshot::{Query, Refusal, Snapshots};
use model_deployment_crds::role::RoleKind;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const BODY: &str = "vllm:num_requests_running 3\nvllm:num_requests_waiting 1\n";

/// A server that answers every connection with one thing.
#[derive(Clone)]
enum Behaviour {
    Serve(&'static str),
    Hang,
    Status(u16),
}

struct Engine {
    port: u16,
    asked: Arc<AtomicUsize>,
}

async fn engine(behaviour: Behaviour) -> Engine {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (behaviour, count) = (behaviour.clone(), count.clone());
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                count.fetch_add(1, Ordering::SeqCst);
                let (status, body) = match behaviour {
                    Behaviour::Hang => return std::future::pending().await,
                    Behaviour::Serve(body) => (200, body),
                    Behaviour::Status(status) => (status, ""),
                };
                let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
            });
        }
    });
    Engine { port, asked }
}

/// A role `server` with one Pod a port.
fn deployment(ports: &[u16]) -> Deployment {
    let pods = ports.iter().enumerate().map(|(ordinal, port)| IndexedPod {
        name: format!("chat-server-{ordinal}"),
        uid: format!("uid-{ordinal}"),
        role: "server".into(),
        ordinal: ordinal as u32,
        phase: Phase::Running,
        terminating: false,
        address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        contested: false,
        host_network: false,
        life: Some(Life {
            restart_count: 0,
            started_at: None,
        }),
        facts: Some(Facts {
            version: 1,
            producer: Producer::Vllm,
            role: "server".into(),
            kind: Some(RoleKind::Server),
            paired: false,
            member: Some(Member::Leader),
            endpoint: Endpoint::Listener(Listener {
                scheme: Scheme::Http,
                port: *port,
                path: "/metrics".into(),
            }),
            pool: false,
            connector: None,
            transfer_connector: None,
            host_tier: false,
            storage_tier: false,
            native_offload: false,
            tracks_load: None,
            ranks: Some(1),
            stats_enabled: true,
            take_over: false,
            revision: "r".into(),
        }),
    });
    Deployment {
        namespace: "ns".into(),
        name: "chat".into(),
        uid: "uid".into(),
        pods: pods.collect(),
        expected: vec![ExpectedRole {
            role: "server".into(),
            producer: Producer::Vllm,
            kind: Some(RoleKind::Server),
            replicas: ports.len() as u32,
            take_over: false,
        }],
    }
}

/// An index that may say something else at each question; the last state stays.
fn snapshots(states: Vec<Deployment>) -> Snapshots {
    let config = Config {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        ..Config::default()
    };
    let states = Mutex::new(states);
    Snapshots::new(Scraper::new(config).unwrap(), move |_, _| {
        let mut states = states.lock();
        match states.len() {
            1 => states.first().cloned(),
            _ => Some(states.remove(0)),
        }
    })
}

#[tokio::test]
async fn pods_are_read_and_a_hanging_one_is_a_timeout() {
    let (good, hung, broken) = (
        engine(Behaviour::Serve(BODY)).await,
        engine(Behaviour::Hang).await,
        engine(Behaviour::Status(500)).await,
    );
    let deployment = deployment(&[good.port, hung.port, broken.port]);
    let snapshots = snapshots(vec![deployment.clone()]);
    let answer = snapshots.answer(&deployment, Query::default()).await.unwrap();
    assert_eq!(answer.processing[0].value, 3.0);
    assert_eq!(
        (answer.processing[0].pod_count, answer.processing[0].expected_pods),
        (1, 3)
    );
    let scrapes: Vec<_> = answer
        .missing
        .iter()
        .filter(|missing| missing.source == "scrape")
        .map(|missing| (missing.pod.as_str(), missing.code.as_str()))
        .collect();
    assert_eq!(scrapes, [("chat-server-1", "Timeout"), ("chat-server-2", "HttpStatus")]);
    assert!(answer.partial);
}

#[tokio::test]
async fn no_readable_pod_is_a_refusal_that_counts_and_names_the_first_cause() {
    let broken = engine(Behaviour::Status(404)).await;
    let deployment = deployment(&[broken.port, broken.port]);
    let refusal = snapshots(vec![deployment.clone()])
        .answer(&deployment, Query::default())
        .await
        .unwrap_err();
    let expected = "none of the 2 Pods of ModelDeployment chat could be read, first cause HttpStatus";
    assert_eq!(refusal.to_string(), expected);
}

#[tokio::test]
async fn simultaneous_reads_share_one_fetch_and_a_fresh_sample_is_reused() {
    let good = engine(Behaviour::Serve(BODY)).await;
    let deployment = deployment(&[good.port]);
    let snapshots = snapshots(vec![deployment.clone()]);
    let asks = (0..8).map(|_| snapshots.answer(&deployment, Query::default()));
    let answers = futures::future::join_all(asks).await;
    assert!(answers.iter().all(Result::is_ok));
    snapshots.answer(&deployment, Query::default()).await.unwrap();
    assert_eq!(good.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_window_takes_two_reads_itself() {
    let good = engine(Behaviour::Serve(
        "vllm:num_requests_running 0\nvllm:time_to_first_token_seconds_sum 1\nvllm:time_to_first_token_seconds_count 1\n",
    ))
    .await;
    let deployment = deployment(&[good.port]);
    let window = Some(Duration::from_secs(1));
    let answer = snapshots(vec![deployment.clone()])
        .answer(&deployment, Query { window })
        .await
        .unwrap();
    assert_eq!(good.asked.load(Ordering::SeqCst), 2);
    let ttft = answer
        .missing
        .iter()
        .find(|missing| missing.source == "vllm:time_to_first_token_seconds")
        .unwrap();
    assert_eq!(ttft.code, "Idle", "measured, and nothing happened");
}

#[tokio::test]
async fn a_pod_whose_identity_changed_meanwhile_is_discarded() {
    let good = engine(Behaviour::Serve(BODY)).await;
    let before = deployment(&[good.port]);
    let gone = Deployment {
        pods: Vec::new(),
        ..before.clone()
    };
    let mut replaced = before.clone();
    replaced.pods[0].uid = "another".into();
    let mut moved = before.clone();
    moved.pods[0].address = Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    let mut restarted = before.clone();
    restarted.pods[0].life = Some(Life {
        restart_count: 1,
        started_at: None,
    });
    let mut ended = before.clone();
    ended.pods[0].phase = Phase::Failed;
    for (after, code) in [
        (gone, "Unreadable"),
        (replaced, "Unreadable"),
        (moved, "Unreadable"),
        (restarted, "Unreadable"),
        (ended, "NotRunning"),
    ] {
        // Asked before the fetch and after it.
        let snapshots = snapshots(vec![before.clone(), after.clone()]);
        let refusal = snapshots.answer(&before, Query::default()).await.unwrap_err();
        assert!(
            matches!(&refusal, Refusal::AllUnreadable { first, .. } if first.to_string() == code),
            "{code}: {refusal:?} after {after:?}"
        );
    }
}
