//! The aggregated API server of `worker.gpustack.ai/v1`.
//!
//! Owns the way of a request: what is static is answered without asking anyone; every other request is authenticated by the
//! front proxy's certificate and headers, authorised by the API server's own review, and only then looked at. What a
//! ModelDeployment's metrics are is not known here.

pub mod attributes;
pub mod authorization;
pub mod connection;
pub mod discovery;
pub mod duration;
pub mod front_proxy;
pub mod health;
pub mod listener;
mod meters;
pub mod metrics;
pub mod negotiation;
pub mod openapi;
pub mod query;
pub mod response;
pub mod route;
pub mod status;
pub mod tls;
pub mod version;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use model_deployment_crds::metrics::ModelDeploymentMetrics;
use prometheus_client::registry::Registry;
use sha2::{Digest, Sha512};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::certificates::ServingCertificate;
use crate::crowd::{Crowd, Place};
use authorization::Authorizer;
use connection::Connections;
use discovery::Discovery;
use front_proxy::source::Published;
use meters::{Asked, Meters};
use metrics::Answers;
use openapi::OpenApi;

pub use model_deployment_crds::{AGGREGATED_VERSION as VERSION, GROUP, PLURAL as RESOURCE};

/// Group and version.
pub const GROUP_VERSION: &str = "worker.gpustack.ai/v1";
/// Paths that replicas ask each other at, outside of the API.
pub const REPLICAS: &str = "/replicas/";
/// Kind of the resource.
pub const KIND: &str = "ModelDeployment";
/// Kind of its `metrics` subresource.
pub const METRICS_KIND: &str = "ModelDeploymentMetrics";

/// Connections at once, and from one address. The API server needs one or two; every one of them may come from one address.
const CONNECTIONS: usize = 2048;
const CONNECTIONS_OF_ONE: usize = 1024;
/// Requests for metrics that are answered at once. Discovery, OpenAPI and health have no limit, so that nothing starves them.
const METRICS_AT_ONCE: usize = 256;
/// For requests under way when the server stops listening: a little more than the longest of them may take.
const GRACE: Duration = Duration::from_secs(10);
/// Before the next try when a connection cannot be accepted, which is when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the server is told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Between the order to end, when it stops being ready, and when it stops listening: longer than it takes until nobody is
    /// sent here any more.
    pub shutdown_delay: Duration,
}

/// The server.
#[derive(Clone)]
pub struct Server {
    config: Config,
    client: Client,
    state: Arc<State>,
}

/// What requests share.
struct State {
    answers: Arc<dyn Answers>,
    authorizer: Authorizer,
    certificate: ServingCertificate,
    discovery: Discovery,
    leaving: AtomicBool,
    meters: Meters,
    metrics_at_once: Semaphore,
    openapi: OpenApi,
    published: Published,
}

impl Server {
    /// A server that reviews rights through `client`, has its metrics from `answers`, and shows `certificate`.
    pub fn new(config: Config, client: Client, answers: Arc<dyn Answers>, certificate: ServingCertificate) -> Self {
        let state = State {
            answers,
            authorizer: Authorizer::new(client.clone()),
            certificate,
            discovery: Discovery::new(),
            leaving: AtomicBool::new(false),
            meters: Meters::default(),
            metrics_at_once: Semaphore::new(METRICS_AT_ONCE),
            openapi: OpenApi::of::<ModelDeploymentMetrics>(),
            published: Published::default(),
        };
        Server {
            config,
            client,
            state: Arc::new(state),
        }
    }

    /// Registers what the server counts of itself.
    pub fn register(&self, registry: &mut Registry) {
        self.state.meters.register(registry);
    }

    /// Keeps current who may speak for a caller; until it first knows, nobody is identified. To be polled for as long as the server
    /// serves; does not end.
    pub fn follow_front_proxy(&self) -> impl Future<Output = ()> + Send + use<> {
        let (published, client) = (self.state.published.clone(), self.client.clone());
        async move { published.follow(client).await }
    }

    /// Serves until `shutdown`, then leaves: no longer ready, still serving for the delay; then no longer listening, open
    /// connections told to finish, and at last cut off.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) -> Result<(), rustls::Error> {
        let connections = Connections::new(tls::config(self.state.certificate.clone())?);
        let state = self.state.clone();
        let stop = async {
            shutdown.cancelled().await;
            state.leaving.store(true, Ordering::Relaxed);
            tokio::time::sleep(self.config.shutdown_delay).await;
        };
        let leaving = CancellationToken::new();
        let mut open = self.accept(&listener, &connections, &leaving, stop).await;
        drop(listener);
        leaving.cancel();
        let finished = async { while open.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, finished).await.is_err() {
            tracing::warn!("requests were still under way at the end of the grace period");
        }
        open.shutdown().await;
        Ok(())
    }

    async fn accept(
        &self,
        listener: &TcpListener,
        connections: &Connections,
        leaving: &CancellationToken,
        stop: impl Future<Output = ()>,
    ) -> JoinSet<()> {
        let crowd = Crowd::new(CONNECTIONS, CONNECTIONS_OF_ONE);
        let mut open = JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = stop.as_mut() => return open,
                Some(_) = open.join_next() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, address)) => match crowd.enter(address.ip()) {
                    Some(place) => {
                        drop(open.spawn(self.connection(socket, connections.clone(), leaving.clone(), place)))
                    }
                    None => {
                        self.state.meters.connection_refused();
                        tracing::warn!("too many connections, one is refused");
                    }
                },
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn connection(
        &self,
        socket: TcpStream,
        connections: Connections,
        leaving: CancellationToken,
        place: Place,
    ) -> impl Future<Output = ()> + Send + 'static {
        let state = self.state.clone();
        async move {
            let _place = place;
            let meters = state.meters.clone();
            let handle = move |peer, request| {
                let (state, asked, begun) = (state.clone(), Asked::of(&request), Instant::now());
                async move {
                    let response = state.handle(peer, request).await;
                    state.meters.answered(asked, response.status(), begun.elapsed());
                    response
                }
            };
            if connections.serve(socket, leaving, handle).await.is_err() {
                meters.handshake_failed();
            }
        }
    }
}

/// SHA-512 in lower-case hexadecimal, Kubernetes' form of a document's hash.
fn hash(bytes: &[u8]) -> String {
    Sha512::digest(bytes)
        .iter()
        .fold(String::with_capacity(128), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}
