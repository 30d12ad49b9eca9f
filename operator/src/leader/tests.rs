use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tower::service_fn;

use super::*;

/// An API server that keeps one Lease, with optimistic locking, and can be made to hang.
#[derive(Clone, Default)]
struct Leases {
    lease: Arc<Mutex<Option<Value>>>,
    hangs: Arc<Mutex<bool>>,
}

impl Leases {
    fn client(&self) -> Client {
        let leases = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let leases = leases.clone();
            async move {
                if *leases.hangs.lock() {
                    std::future::pending::<()>().await;
                }
                let method = request.method().clone();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                Ok::<_, Infallible>(leases.answer(&method, &body))
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, method: &Method, body: &[u8]) -> Response<Body> {
        let mut kept = self.lease.lock();
        let answer = |code: u16, value: &Value| {
            Response::builder()
                .status(code)
                .body(Body::from(serde_json::to_vec(value).unwrap()))
                .unwrap()
        };
        let refuse = |code: u16| {
            answer(
                code,
                &json!({"kind": "Status", "status": "Failure", "code": code, "message": "", "reason": if code == 404 { "NotFound" } else { "Conflict" }}),
            )
        };
        if *method == Method::GET {
            return kept.as_ref().map_or_else(|| refuse(404), |lease| answer(200, lease));
        }
        let mut written: Value = serde_json::from_slice(body).unwrap();
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let before = kept.as_ref().and_then(version);
        if version(&written) != before {
            return refuse(409);
        }
        let next = before.map_or(1, |version| version.parse::<u64>().unwrap() + 1);
        written["metadata"]["resourceVersion"] = next.to_string().into();
        *kept = Some(written.clone());
        answer(200, &written)
    }

    fn holder(&self) -> Option<String> {
        self.lease.lock().as_ref()?["spec"]["holderIdentity"]
            .as_str()
            .map(str::to_owned)
    }

    /// A candidate, how to end it, and whether it leads.
    fn candidate(&self, identity: &str) -> (oneshot::Sender<()>, watch::Receiver<bool>) {
        let election = Election::new(self.client(), "default", "operator", identity);
        let (leads, leading) = watch::channel(false);
        let (end, ended) = oneshot::channel::<()>();
        tokio::spawn(election.run(leads, std::future::pending, async move { drop(ended.await) }));
        (end, leading)
    }
}

async fn becomes(leading: &mut watch::Receiver<bool>, value: bool) {
    leading.wait_for(|leading| *leading == value).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_of_two_leads_and_the_other_follows_at_once_when_it_leaves() {
    let leases = Leases::default();
    let (end, mut first) = leases.candidate("a");
    becomes(&mut first, true).await;
    let (_end, mut second) = leases.candidate("b");
    sleep(LEASE_DURATION * 4).await;
    assert!(*first.borrow() && !*second.borrow());
    let left = Instant::now();
    drop(end);
    becomes(&mut second, true).await;
    assert!(left.elapsed() < 2 * RETRY_PERIOD, "{:?}", left.elapsed());
    assert_eq!(leases.holder().as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_vanished_is_followed_when_its_lease_was_unchanged_long_enough() {
    let leases = Leases::default();
    // Written by somebody whose clock is years ahead: only that it does not change counts.
    *leases.lease.lock() = Some(json!({
        "metadata": {"name": "operator", "namespace": "default", "resourceVersion": "1"},
        "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 15, "renewTime": "2099-01-01T00:00:00.000000Z"},
    }));
    let started = Instant::now();
    let (_end, mut leading) = leases.candidate("b");
    becomes(&mut leading, true).await;
    assert!(started.elapsed() > LEASE_DURATION && started.elapsed() <= LEASE_DURATION + 2 * RETRY_PERIOD);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_stops_before_another_may_start() {
    let leases = Leases::default();
    let (_end, mut leading) = leases.candidate("a");
    becomes(&mut leading, true).await;
    let renewed = Instant::now();
    *leases.hangs.lock() = true;
    becomes(&mut leading, false).await;
    assert!(
        renewed.elapsed() < LEASE_DURATION - RETRY_PERIOD,
        "{:?}",
        renewed.elapsed()
    );
    *leases.hangs.lock() = false;
    becomes(&mut leading, true).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_of_somebody_else_between_reading_and_writing_is_looked_at_again() {
    let leases = Leases::default();
    let (_end, mut leading) = leases.candidate("a");
    becomes(&mut leading, true).await;
    let mut election = Election::new(leases.client(), "default", "operator", "a");
    // Our own earlier attempt, of which we never had the answer: the Lease is ours, in another version.
    assert_eq!(election.attempt(RENEW_DEADLINE).await.unwrap(), Attempt::Held);
    sleep(LEASE_DURATION * 2).await;
    assert!(*leading.borrow());
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_before_the_lease_is_given_up() {
    struct Dropped(Leases, Arc<Mutex<Option<String>>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            *self.1.lock() = self.0.holder();
        }
    }
    let (leases, holder) = (Leases::default(), Arc::default());
    let (leads, mut leading) = watch::channel(false);
    let (end, ended) = oneshot::channel::<()>();
    let election = Election::new(leases.client(), "default", "operator", "a");
    let running = tokio::spawn({
        let (leases, holder) = (leases.clone(), Arc::clone(&holder));
        let work = move || {
            let dropped = Dropped(leases.clone(), Arc::clone(&holder));
            async move {
                std::future::pending::<()>().await;
                drop(dropped);
            }
        };
        election.run(leads, work, async move { drop(ended.await) })
    });
    becomes(&mut leading, true).await;
    sleep(RETRY_PERIOD * 2).await;
    drop(end);
    running.await.unwrap();
    assert_eq!(holder.lock().as_deref(), Some("a"));
    assert_eq!(leases.holder(), None);
}
