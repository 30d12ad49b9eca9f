//! The states that a test can put a fake engine in, and what it remembers for the test.
//!
//! Owns the vocabulary. Refuses to know how a state is played; that is `listener` and `metrics`.

use std::net::IpAddr;
use std::time::Duration;

use hyper::HeaderMap;

/// How a fake engine behaves until it is told otherwise. States that name an answer are about `/metrics` alone, so that probes
/// and routers go on as before; states of the listener are about every connection.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum State {
    /// Works.
    #[default]
    Normal,
    /// Every answer of `/metrics` and of completions begins this much later.
    Slow(Duration),
    /// `/metrics`: this text for the body.
    Body(String),
    /// `/metrics`: the body, so many bytes at a time with a pause after each.
    Drip {
        /// Bytes a piece.
        bytes: usize,
        /// Pause after each piece.
        pause: Duration,
    },
    /// `/metrics`: status and headers, then nothing more.
    Stall,
    /// Every request is taken and none answered.
    Hang,
    /// The port is closed.
    Refuse,
    /// `/metrics`: a well-formed body of exactly so many bytes.
    Oversize {
        /// Length of the body.
        bytes: usize,
        /// Without `Content-Length`.
        chunked: bool,
    },
    /// `/metrics`: bytes that are no text.
    Garbage,
    /// `/metrics`: an HTML page with status 200.
    Html,
    /// `/metrics`: this status, with a body of text.
    Status(u16),
    /// `/metrics`: 302 to this address.
    Redirect(String),
    /// `/metrics`: 200 and nothing.
    Empty,
    /// `/metrics`: the body under this `Content-Type`; none at all for `None`.
    ContentType(Option<String>),
    /// `/metrics`: the body in gzip, although nobody asked.
    Gzip,
    /// TLS with a certificate that nobody trusts.
    UntrustedCertificate,
    /// TLS that asks the client for a certificate.
    ClientCertificate,
}

/// One `GET /metrics` that arrived.
#[derive(Debug, Clone)]
pub struct Scrape {
    /// When, on tokio's clock.
    pub at: tokio::time::Instant,
    /// From where: the address of the Pod that asks.
    pub from: IpAddr,
    /// Its headers.
    pub headers: HeaderMap,
    /// Path and query as sent.
    pub target: String,
}
