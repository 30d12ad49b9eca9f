//! What the operator says of itself: its log, and its own metrics page over plain HTTP.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use http::{Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use model_deployment_operator::replicas::Counts;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::arguments::LogFormat;

/// Prefix of the operator's own series.
const PREFIX: &str = "model_deployment_operator";
/// Before the next try when a connection cannot be accepted, which is when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Starts logging to standard error.
pub fn log(format: LogFormat, filter: &str) -> Result<(), ParseError> {
    let builder = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_env_filter(EnvFilter::try_new(filter)?);
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}

/// Serves `/metrics` until dropped.
pub async fn serve(listener: TcpListener, leading: watch::Receiver<bool>, counts: Counts) {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register(
        "build",
        "The running build",
        Info::new([("version", env!("CARGO_PKG_VERSION"))]),
    );
    let leads = Gauge::<i64, AtomicI64>::default();
    registry.register("leading", "1 while this replica reconciles", leads.clone());
    counts.register(&mut registry);
    let registry = Arc::new(registry);
    loop {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                tracing::warn!(%error, "a connection to the metrics page was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (registry, leads, leading) = (registry.clone(), leads.clone(), leading.clone());
        tokio::spawn(async move {
            let page = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
                leads.set(i64::from(*leading.borrow()));
                let response = respond(&registry, request.uri().path());
                async move { Ok::<_, Infallible>(response) }
            });
            // A scraper that hangs up early is its own business.
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(socket), page)
                .await;
        });
    }
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
    let content = header::HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, content);
    response
}
