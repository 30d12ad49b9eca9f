//! Deadlines: of one fetch and of many.

use std::sync::Arc;
use std::time::Duration;

use model_deployment::pod::Scheme;
use model_deployment::scrape::{Unread, limits};
use tokio::time::{self, Instant};

use super::certificates::Authority;
use super::fake::{Event, Fake, Step, metrics};
use super::{http, https, read, scraper, target};

/// Fetches from a server that comes to wait, and says what was read and after how long.
async fn fetch_until_waiting(steps: Vec<Step>) -> (Result<usize, Unread>, Duration) {
    let mut fake = Fake::following(steps).await;
    let (scraper, target) = (scraper(None), http(fake.socket));
    let fetch = tokio::spawn(async move {
        let start = Instant::now();
        let reading = read(&scraper, target).await;
        (reading.body.map(|body| body.len()), start.elapsed())
    });
    fake.reach(Event::Waiting).await;
    time::pause();
    fetch.await.expect("the fetch ends")
}

fn is_a_timeout_after_two_seconds((body, elapsed): (Result<usize, Unread>, Duration)) {
    assert_eq!(body, Err(Unread::Timeout));
    assert!(
        elapsed >= limits::FETCH && elapsed < limits::FETCH + Duration::from_millis(500),
        "{elapsed:?}"
    );
}

#[tokio::test]
async fn a_server_that_never_answers_times_out() {
    is_a_timeout_after_two_seconds(fetch_until_waiting(vec![Step::Hang]).await);
}

#[tokio::test]
async fn a_server_that_stalls_after_its_headers_times_out() {
    let headers = Step::Write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_vec());
    is_a_timeout_after_two_seconds(fetch_until_waiting(vec![headers, Step::Hang]).await);
}

#[tokio::test]
async fn a_server_that_stalls_inside_its_body_times_out() {
    let half = Step::Write(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\na 1.0".to_vec());
    is_a_timeout_after_two_seconds(fetch_until_waiting(vec![half, Step::Hang]).await);
}

#[tokio::test]
async fn a_server_that_drips_its_body_times_out_though_every_byte_is_in_time() {
    let headers = Step::Write(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n".to_vec());
    is_a_timeout_after_two_seconds(fetch_until_waiting(vec![headers, Step::Drip]).await);
}

#[tokio::test]
async fn a_server_that_drips_its_headers_times_out_though_every_byte_is_in_time() {
    let half = Step::Write(b"HTTP/1.1 200 OK\r\nX: ".to_vec());
    is_a_timeout_after_two_seconds(fetch_until_waiting(vec![half, Step::Drip]).await);
}

#[tokio::test]
async fn a_server_that_never_speaks_tls_times_out() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let socket = listener.local_addr().expect("an address");
    let fetch = tokio::spawn(async move { read(&scraper(None), https(socket)).await });
    let _connection = listener.accept().await.expect("a connection");
    time::pause();
    assert_eq!(fetch.await.expect("the fetch ends").body, Err(Unread::Timeout));
}

#[tokio::test]
async fn a_fetch_that_is_dropped_closes_its_connection() {
    let mut fake = Fake::following(vec![Step::Hang]).await;
    let target = http(fake.socket);
    let fetch = tokio::spawn(async move { read(&scraper(None), target).await });
    fake.reach(Event::Waiting).await;
    fetch.abort();
    fake.reach(Event::Closed).await;
}

#[tokio::test]
async fn pods_queued_behind_hanging_ones_are_read() {
    let mut fake = Fake::answering(metrics()).await;
    let path = |place: usize| if place < limits::FETCHES { "/hang" } else { "/metrics" };
    let targets: Vec<_> = (0..64)
        .map(|place| target(fake.socket, Scheme::Http, path(place)))
        .collect();
    let scraper = Arc::new(scraper(None));
    let start = Instant::now();
    let fan_out = tokio::spawn(async move { scraper.fan_out(targets, start + limits::REQUEST).await });
    for _ in 0..limits::FETCHES {
        fake.reach(Event::Waiting).await;
    }
    // All places are taken: none of the others has been asked.
    assert!(fake.is_untouched());
    time::pause();
    time::advance(limits::FETCH).await;
    time::resume();
    let readings = fan_out.await.expect("the readings come");
    for (place, reading) in readings.iter().enumerate() {
        assert_eq!(
            reading.target.listener.path,
            path(place),
            "the readings stand in the order of the targets"
        );
        let expected = if path(place) == "/hang" {
            Err(Unread::Timeout)
        } else {
            Ok(&b"a 1.0"[..])
        };
        assert_eq!(reading.body.as_deref().map_err(|unread| *unread), expected);
    }
    assert!(start.elapsed() < limits::FETCH * 2);
}

#[tokio::test]
async fn a_hanging_pod_keeps_no_more_than_its_own_place() {
    let mut fake = Fake::answering(metrics()).await;
    let path = |place: usize| if place == 0 { "/hang" } else { "/metrics" };
    let targets: Vec<_> = (0..64)
        .map(|place| target(fake.socket, Scheme::Http, path(place)))
        .collect();
    let scraper = Arc::new(scraper(None));
    let fan_out = tokio::spawn(async move { scraper.fan_out(targets, Instant::now() + limits::REQUEST).await });
    let mut answered = 0;
    while answered < 63 {
        answered += usize::from(fake.request().await.starts_with("GET /metrics "));
    }
    time::pause();
    let readings = fan_out.await.expect("the readings come");
    assert_eq!(readings.iter().filter(|reading| reading.body.is_ok()).count(), 63);
}

#[tokio::test(start_paused = true)]
async fn a_fan_out_answers_by_its_deadline() {
    let mut fake = Fake::following(vec![Step::Hang]).await;
    let targets: Vec<_> = (0..64).map(|_| http(fake.socket)).collect();
    let deadline = Instant::now() + Duration::from_millis(1500);
    let readings = scraper(None).fan_out(targets, deadline).await;
    assert_eq!(readings.len(), 64);
    assert!(readings.iter().all(|reading| reading.body == Err(Unread::Timeout)));
    assert!(Instant::now() >= deadline && Instant::now() < deadline + Duration::from_millis(100));
    // Those that had no turn were not asked.
    assert!(fake.requests() <= limits::FETCHES);
}

#[tokio::test(start_paused = true)]
async fn hanging_pods_alone_leave_half_of_the_request() {
    let fake = Fake::following(vec![Step::Hang]).await;
    let targets: Vec<_> = (0..64).map(|_| http(fake.socket)).collect();
    let start = Instant::now();
    let readings = scraper(None)
        .fan_out(targets, start + limits::REQUEST - limits::ASSEMBLY)
        .await;
    assert!(readings.iter().all(|reading| reading.body == Err(Unread::Timeout)));
    assert!(
        start.elapsed() < limits::REQUEST / 2 + Duration::from_millis(100),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn secured_pods_are_read_side_by_side() {
    let authority = Authority::new();
    let fake = Fake::secured(authority.issue("127.0.0.1").server()).await;
    let targets: Vec<_> = (0..64).map(|_| https(fake.socket)).collect();
    let readings = scraper(Some(authority.pem()))
        .fan_out(targets, Instant::now() + limits::REQUEST)
        .await;
    assert!(readings.iter().all(|reading| reading.body.is_ok()));
}
