//! The request that goes out, and where it goes.

use std::net::{IpAddr, Ipv6Addr};

use jiff::Timestamp;
use model_deployment::pod::Scheme;
use model_deployment::scrape::{Config, Scraper, Unread, Unreadable};
use tokio::time::Instant;

use super::fake::{Event, Fake, Step, metrics};
use super::{http, read, scraper, target};

/// Run once more by [`proxy_variables_change_nothing`], under its variables.
#[tokio::test]
async fn a_request_asks_for_plain_text_and_carries_nothing_else() {
    let mut fake = Fake::answering(metrics()).await;
    let reading = read(&scraper(None), target(fake.socket, Scheme::Http, "/some/path?name=a")).await;
    assert!(reading.body.is_ok());
    let head = fake.request().await.to_lowercase();
    let mut lines: Vec<&str> = head.trim_end().lines().collect();
    lines.sort_unstable();
    let expected = [
        "accept-encoding: identity".to_owned(),
        "accept: text/plain;version=0.0.4".to_owned(),
        "connection: close".to_owned(),
        "get /some/path?name=a http/1.1".to_owned(),
        format!("host: {}", fake.socket),
        format!("user-agent: model-deployment-operator/{}", env!("CARGO_PKG_VERSION")),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn proxy_variables_change_nothing() {
    let mut again = std::process::Command::new(std::env::current_exe().expect("this test"));
    again.args([
        "--exact",
        "request::a_request_asks_for_plain_text_and_carries_nothing_else",
    ]);
    for variable in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        // Port 1 refuses: a reader that asked the proxy would fail.
        again
            .env(variable, "http://127.0.0.1:1")
            .env(variable.to_lowercase(), "http://127.0.0.1:1");
    }
    again.env_remove("NO_PROXY").env_remove("no_proxy");
    let output = again.output().expect("this test runs again");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[tokio::test]
async fn every_fetch_has_its_own_connection_and_no_cookies() {
    let cookie = "HTTP/1.1 200 OK\r\nSet-Cookie: session=1\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\na 1.0";
    let mut fake = Fake::following(vec![Step::Write(cookie.into()), Step::Hang]).await;
    let scraper = scraper(None);
    for _ in 0..2 {
        assert!(read(&scraper, http(fake.socket)).await.body.is_ok());
        fake.reach(Event::Accepted).await;
        assert!(!fake.request().await.to_lowercase().contains("cookie"));
        // The connection is not kept, although the server would.
        fake.reach(Event::Closed).await;
    }
}

#[tokio::test]
async fn an_address_of_version_6_is_read() {
    let mut fake = Fake::start(IpAddr::V6(Ipv6Addr::LOCALHOST), None, vec![Step::Write(metrics())]).await;
    assert!(read(&scraper(None), http(fake.socket)).await.body.is_ok());
    assert!(
        fake.request()
            .await
            .contains(&format!("\r\nhost: [::1]:{}\r\n", fake.socket.port()))
    );
}

#[tokio::test]
async fn a_closed_port_refuses() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let socket = listener.local_addr().expect("an address");
    drop(listener);
    assert_eq!(read(&scraper(None), http(socket)).await.body, Err(Unread::Refused));
}

#[tokio::test]
async fn a_path_that_is_none_is_unreadable() {
    let fake = Fake::answering(metrics()).await;
    let reading = read(&scraper(None), target(fake.socket, Scheme::Http, "/a b")).await;
    assert_eq!(reading.body, Err(Unread::Unreadable(Unreadable::Http)));
}

#[tokio::test]
async fn a_denied_address_is_not_even_connected_to() {
    let mut fake = Fake::answering(metrics()).await;
    let strict = Scraper::new(Config::default()).expect("a reader");
    assert_eq!(read(&strict, http(fake.socket)).await.body, Err(Unread::AddressDenied));
    let mut mapped = http(fake.socket);
    mapped.address = "::ffff:127.0.0.1".parse().expect("an address");
    assert_eq!(read(&strict, mapped.clone()).await.body, Err(Unread::AddressDenied));
    assert!(fake.is_untouched());
    assert!(read(&scraper(None), mapped).await.body.is_ok());
}

#[tokio::test]
async fn a_pod_on_its_nodes_network_is_denied_unless_allowed() {
    let fake = Fake::answering(metrics()).await;
    let mut on_node = http(fake.socket);
    on_node.host_network = true;
    // By its range.
    assert!(read(&scraper(None), on_node.clone()).await.body.is_ok());
    // By the switch, which opens no range.
    let config = Config {
        allow_host_network: true,
        ..Config::default()
    };
    let switched = Scraper::new(config).expect("a reader");
    assert_eq!(read(&switched, on_node.clone()).await.body, Err(Unread::AddressDenied));
    // An address of no denied range.
    on_node.address = "192.0.2.7".parse().expect("an address");
    let strict = Scraper::new(Config::default()).expect("a reader");
    assert_eq!(read(&strict, on_node).await.body, Err(Unread::AddressDenied));
}

#[tokio::test]
async fn the_time_of_a_reading_is_when_its_request_went_out() {
    let fake = Fake::answering(metrics()).await;
    let (before, start) = (Timestamp::now(), Instant::now());
    let reading = read(&scraper(None), http(fake.socket)).await;
    assert!(reading.instant >= start && reading.instant <= Instant::now());
    assert!(reading.observed_at.as_microsecond() >= before.as_microsecond() && reading.observed_at <= Timestamp::now());
    assert_eq!(reading.observed_at.subsec_nanosecond() % 1000, 0);
    assert_eq!((&*reading.target.uid, &*reading.target.name), ("8a2c", "chat-0"));
}
