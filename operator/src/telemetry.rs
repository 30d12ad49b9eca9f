//! The operator's own metrics: the page, over plain HTTP.
//!
//! Owns how the page is served and within which limits. What stands on it belongs to the parts, each of which registers its own
//! series; docs/telemetry.md lists them.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::crowd::Crowd;

/// Prefix of the operator's own series.
const PREFIX: &str = "model_deployment_operator";
/// A connection's whole life: one request and its answer.
const CONNECTION: Duration = Duration::from_secs(10);
/// Connections at once, and from one address.
const CONNECTIONS: usize = 64;
const CONNECTIONS_OF_ONE: usize = 16;
/// Before the next try when a connection cannot be accepted, which is when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The text that Prometheus asks for.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One label: its name, and words of ours.
pub type Label<V = &'static str> = [(&'static str, V); 1];
/// Histograms of one name, by label.
pub type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// A registry that says which build this is.
pub fn registry() -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register(
        "build",
        "The running build",
        Info::new([("version", env!("CARGO_PKG_VERSION"))]),
    );
    registry
}

/// Registers a gauge that is read when the page is. Where there is nothing to say, nothing is.
pub fn gauge(
    registry: &mut Registry,
    name: &'static str,
    help: &'static str,
    read: impl Fn() -> Option<i64> + Send + Sync + 'static,
) {
    registry.register_collector(Box::new(Gauge { name, help, read }));
}

struct Gauge<R> {
    name: &'static str,
    help: &'static str,
    read: R,
}

impl<R> fmt::Debug for Gauge<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauge").field(&self.name).finish()
    }
}

impl<R: Fn() -> Option<i64> + Send + Sync + 'static> Collector for Gauge<R> {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Some(value) = (self.read)() else { return Ok(()) };
        let gauge = ConstGauge::new(value);
        gauge.encode(encoder.encode_descriptor(self.name, self.help, None, gauge.metric_type())?)
    }
}

/// Serves `/metrics` until dropped.
pub async fn serve(listener: TcpListener, registry: Registry) {
    let registry = Arc::new(registry);
    let crowd = Crowd::new(CONNECTIONS, CONNECTIONS_OF_ONE);
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            Some(_) = open.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, address)) => match crowd.enter(address.ip()) {
                Some(place) => {
                    let registry = registry.clone();
                    open.spawn(async move {
                        let _place = place;
                        // A scraper that hangs up early, or hangs, is its own business.
                        let _ = tokio::time::timeout(CONNECTION, connection(socket, &registry)).await;
                    });
                }
                None => tracing::warn!("too many connections to the metrics page, one is refused"),
            },
            Err(error) => {
                tracing::warn!(%error, "a connection to the metrics page cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(socket: TcpStream, registry: &Registry) -> Result<(), hyper::Error> {
    let page = service_fn(|request: hyper::Request<Incoming>| {
        let response = respond(registry, request.uri().path());
        async move { Ok::<_, Infallible>(response) }
    });
    http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(socket), page)
        .await
}

fn respond(registry: &Registry, path: &str) -> Response<Full<Bytes>> {
    let mut text = String::new();
    let status = match path {
        "/metrics" if encode(&mut text, registry).is_ok() => StatusCode::OK,
        "/metrics" => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::NOT_FOUND,
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(OPEN_METRICS));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn page(fill: impl FnOnce(&mut Registry)) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut registry = registry();
        fill(&mut registry);
        tokio::spawn(serve(listener, registry));
        address
    }

    async fn ask(address: std::net::SocketAddr, path: &str) -> String {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: operator\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_page_has_the_build_and_what_is_known_when_it_is_read() {
        let address = page(|registry| {
            gauge(registry, "known", "A gauge", || Some(7));
            gauge(registry, "unknown", "Another", || None);
        })
        .await;
        let answer = ask(address, "/metrics").await;
        let version = env!("CARGO_PKG_VERSION");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains(OPEN_METRICS), "{answer}");
        for line in [
            &format!("model_deployment_operator_build_info{{version=\"{version}\"}} 1"),
            "# TYPE model_deployment_operator_known gauge",
            "model_deployment_operator_known 7",
        ] {
            assert!(answer.lines().any(|found| found == line), "{line}: {answer}");
        }
        assert!(!answer.contains("unknown"), "{answer}");
        assert!(answer.ends_with("# EOF\n"), "{answer}");
        assert!(ask(address, "/").await.starts_with("HTTP/1.1 404 Not Found\r\n"));
    }

    /// Neither a connection that says nothing nor one that never ends its head keeps its place.
    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_after_ten_seconds_whatever_it_does() {
        let address = page(|_| {}).await;
        for head in ["", "GET /metrics HTTP/1.1\r\nX-Slow: "] {
            let begun = tokio::time::Instant::now();
            let mut socket = TcpStream::connect(address).await.unwrap();
            socket.write_all(head.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            // The server may end it with a reset.
            let _ = socket.read_to_end(&mut answer).await;
            assert_eq!(answer, b"");
            assert!(begun.elapsed() >= CONNECTION, "{:?}", begun.elapsed());
        }
    }

    #[tokio::test]
    async fn one_address_has_sixteen_connections_and_others_after_it_are_refused() {
        let address = page(|_| {}).await;
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS_OF_ONE {
            open.push(TcpStream::connect(address).await.unwrap());
        }
        let mut refused = TcpStream::connect(address).await.unwrap();
        let mut answer = Vec::new();
        let _ = refused.read_to_end(&mut answer).await;
        assert_eq!(answer, b"");
        // A place that is given back is taken again.
        drop(open);
        while !ask(address, "/metrics").await.starts_with("HTTP/1.1 200") {
            tokio::task::yield_now().await;
        }
    }
}
