//! The aggregated API server of `worker.gpustack.ai/v1`.
//!
//! Owns the way of a request: what is static is answered without asking anyone; every other request is authenticated by the
//! front proxy's certificate and headers, authorised by the API server's own review, and only then looked at. What a
//! ModelDeployment's metrics are is not known here.

pub(crate) mod attributes;
mod authorization;
mod connection;
mod discovery;
mod duration;
mod front_proxy;
mod health;
mod limits;
pub mod listener;
mod meters;
pub mod metrics;
mod negotiation;
pub mod objects;
mod openapi;
pub(crate) mod query;
pub(crate) mod response;
mod route;
pub(crate) mod status;
pub mod tls;
mod version;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use prometheus_client::registry::Registry;
use sha2::{Digest, Sha512};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::certificates::ServingCertificate;
use crate::crowd::{Crowd, Place};
use authorization::Authorizer;
use connection::Connections;
use discovery::Discovery;
use front_proxy::source::Published;
use limits::Limits;
use meters::{Asked, Meters};
use metrics::Answers;
use objects::Objects;
use openapi::OpenApi;

use model_deployment_crds::{
    AGGREGATED_API_VERSION as GROUP_VERSION, AGGREGATED_VERSION as VERSION, GROUP, KIND, METRICS_KIND,
    PLURAL as RESOURCE, STORED_API_VERSION as STORED_GROUP_VERSION,
};

/// Paths that replicas ask each other at, outside of the API.
pub const REPLICAS: &str = "/replicas/";

/// Connections at once, and from one address. The API server needs one or two; every one of them may come from one address.
const CONNECTIONS: usize = 2048;
const CONNECTIONS_OF_ONE: usize = 1024;
/// For requests under way when the server stops listening: as long as the slowest admission webhook may keep a write waiting.
const GRACE: Duration = Duration::from_secs(30);
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
    limits: Limits,
    meters: Meters,
    objects: Objects,
    openapi: &'static OpenApi,
    published: Published,
    /// Cancelled when open connections are told to finish.
    finishing: CancellationToken,
    started: Instant,
}

impl Server {
    /// A server that reviews rights through `client`, has its metrics from `answers` and everything else from `objects`, and shows
    /// `certificate`.
    pub fn new(
        config: Config,
        client: Client,
        answers: Arc<dyn Answers>,
        objects: Objects,
        certificate: ServingCertificate,
    ) -> Self {
        let state = State {
            answers,
            authorizer: Authorizer::new(client.clone()),
            certificate,
            discovery: Discovery::new(),
            leaving: AtomicBool::new(false),
            limits: Limits::default(),
            meters: Meters::default(),
            objects,
            openapi: OpenApi::served(),
            published: Published::default(),
            finishing: CancellationToken::new(),
            started: Instant::now(),
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

    /// Keeps current whether writes can be made in callers' names, and the token for it. To be polled for as long as the server serves;
    /// does not end.
    pub fn keep_impersonator(&self) -> impl Future<Output = ()> + Send + use<> {
        let state = self.state.clone();
        async move { state.objects.keep().await }
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
        let mut open = self.accept(&listener, &connections, stop).await;
        drop(listener);
        self.state.finishing.cancel();
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
                    Some(place) => drop(open.spawn(self.connection(socket, connections.clone(), place))),
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
        place: Place,
    ) -> impl Future<Output = ()> + Send + 'static {
        let state = self.state.clone();
        async move {
            let _place = place;
            let (meters, finishing) = (state.meters.clone(), state.finishing.clone());
            let handle = move |peer, request| {
                let (state, asked, begun) = (state.clone(), Asked::of(&request), Instant::now());
                async move {
                    let response = state.handle(peer, request).await;
                    state.meters.answered(asked, response.status(), begun.elapsed());
                    response
                }
            };
            if connections.serve(socket, finishing, handle).await.is_err() {
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
