//! The deadline of a fetch.

use std::time::Duration;

use futures::future::join_all;
use model_deployment::scrape::{Unread, limits};
use tokio::time::{self, Instant};

use super::certificates::Authority;
use super::fake::{Event, Fake, Step};
use super::{http, https, read, scraper};

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

/// A request that is about to end does not wait for the fetch's own deadline.
#[tokio::test]
async fn the_callers_deadline_holds_where_it_comes_first() {
    let mut fake = Fake::following(vec![Step::Hang]).await;
    let (scraper, target) = (scraper(None), http(fake.socket));
    let start = Instant::now();
    let fetch = tokio::spawn(async move { scraper.get(target, start + limits::FETCH / 2).await });
    fake.reach(Event::Waiting).await;
    time::pause();
    assert_eq!(fetch.await.expect("the fetch ends").body, Err(Unread::Timeout));
    assert!(start.elapsed() < limits::FETCH, "{:?}", start.elapsed());
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
async fn secured_pods_are_read_side_by_side() {
    let authority = Authority::new();
    let fake = Fake::secured(authority.issue("127.0.0.1").server()).await;
    let scraper = scraper(Some(authority.pem()));
    let readings = join_all((0..64).map(|_| read(&scraper, https(fake.socket)))).await;
    assert!(readings.iter().all(|reading| reading.body.is_ok()));
}
