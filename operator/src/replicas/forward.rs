//! The way to the owner: one request over a connection of its own.
//!
//! A kept connection could be dead without anyone's knowing, and then cost the time that it takes to find out. Addresses are dialled as
//! they are: no name is resolved, no proxy asked, no redirect followed. Knows deadlines and limits; nothing of what an answer says.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{Either, select};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use model_deployment_crds::metrics::{Metadata, ModelDeploymentMetrics};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::members::Member;
use super::question::{Question, Reply};
use crate::certificates::{Credentials, ReplicaIdentity};
use crate::server::metrics::Refusal;
use crate::server::tls::H2;

/// Until the connection stands, its handshake included: a machine that is gone, or a process that has stopped, is noticed so soon.
const CONNECT: Duration = Duration::from_secs(1);
/// While an answer is awaited: a ping so often, and its answer within so long, or the owner is dead. One that only waits for its Pods
/// answers pings.
const PING: Duration = Duration::from_secs(1);
const PONG: Duration = Duration::from_millis(1500);
/// What of the time for an answer is left to its way back.
const WAY_BACK: Duration = Duration::from_millis(100);
/// Bytes of an answer. One of 64 Pods with every source takes less than a quarter of it.
const BYTES: usize = 4 << 20;

const USER_AGENT: &str = concat!("model-deployment-operator/", env!("CARGO_PKG_VERSION"));

/// What the owner answers.
pub(super) type Answer = Result<ModelDeploymentMetrics, Refusal>;

/// Why the owner gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    #[error("this replica has no certificate to show yet")]
    NoCertificate,
    #[error("it cannot be reached")]
    Unreachable(#[source] io::Error),
    #[error("the connection to it broke")]
    Broken(#[source] hyper::Error),
    #[error("it did not answer in time")]
    Late,
    #[error("it refused with status {0}")]
    Refused(StatusCode),
    #[error("its answer cannot be read")]
    Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("it does not know the ModelDeployment yet")]
    Unknown,
}

impl Unanswered {
    /// Every [`Unanswered::outcome`].
    pub(super) const OUTCOMES: [&'static str; 7] = [
        "NoCertificate",
        "Unreachable",
        "Broken",
        "Late",
        "Refused",
        "Unreadable",
        "Unknown",
    ];

    /// The word for it in counters.
    pub(super) fn outcome(&self) -> &'static str {
        let place = match self {
            Unanswered::NoCertificate => 0,
            Unanswered::Unreachable(_) => 1,
            Unanswered::Broken(_) => 2,
            Unanswered::Late => 3,
            Unanswered::Refused(_) => 4,
            Unanswered::Unreadable(_) => 5,
            Unanswered::Unknown => 6,
        };
        Self::OUTCOMES[place]
    }
}

/// Asks `owner` as `identity`, and has its answer by `until` or none. `question` comes to ask for what is left of that time.
pub(super) async fn ask(
    identity: &ReplicaIdentity,
    owner: &Member,
    mut question: Question,
    until: Instant,
) -> Result<Answer, Unanswered> {
    let asking = async {
        let stream = timeout(CONNECT, connect(identity, owner))
            .await
            .unwrap_or_else(|_| Err(Unanswered::Unreachable(io::ErrorKind::TimedOut.into())))?;
        question.within = until.duration_since(Instant::now()).saturating_sub(WAY_BACK);
        exchange(stream, identity, &question).await
    };
    timeout_at(until, asking).await.unwrap_or(Err(Unanswered::Late))
}

async fn connect(identity: &ReplicaIdentity, owner: &Member) -> Result<TlsStream<TcpStream>, Unanswered> {
    let config = tls(&identity.credentials())?;
    let dial = async {
        let socket = TcpStream::connect(&owner.addresses[..]).await?;
        socket.set_nodelay(true)?;
        TlsConnector::from(Arc::new(config))
            .connect(identity.server().clone(), socket)
            .await
    };
    dial.await.map_err(Unanswered::Unreachable)
}

fn tls(credentials: &Credentials) -> Result<ClientConfig, Unanswered> {
    let key = credentials.key.clone().ok_or(Unanswered::NoCertificate)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| Unanswered::Unreachable(io::Error::other(error)))?
        .with_root_certificates(credentials.servers.clone())
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    config.alpn_protocols = vec![H2.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

async fn exchange(
    stream: TlsStream<TcpStream>,
    identity: &ReplicaIdentity,
    question: &Question,
) -> Result<Answer, Unanswered> {
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(Unanswered::Broken)?;
    let mut connection = pin!(connection.fuse());
    let request = request(identity, question)?;
    let asked = pin!(async move {
        let response = sender.send_request(request).await.map_err(Unanswered::Broken)?;
        if response.status() != StatusCode::OK {
            return Err(Unanswered::Refused(response.status()));
        }
        let body = Limited::new(response.into_body(), BYTES).collect().await;
        let body = body.map_err(Unanswered::Unreadable)?.to_bytes();
        read(&body, question)
    });
    match select(asked, &mut connection).await {
        Either::Left((reply, _)) => reply,
        // What arrived before the end is still to be read.
        Either::Right((_, asked)) => asked.await,
    }
}

fn request(identity: &ReplicaIdentity, question: &Question) -> Result<Request<Empty<Bytes>>, Unanswered> {
    let server = identity.server().to_str();
    let uri: Result<Uri, _> = format!("https://{server}{}", question.target()).parse();
    Request::get(uri.map_err(|error| Unanswered::Unreadable(error.into()))?)
        .header(http::header::USER_AGENT, USER_AGENT)
        .body(Empty::new())
        .map_err(|error| Unanswered::Unreadable(error.into()))
}

/// Reads a reply, which must be about what was asked.
fn read(body: &[u8], question: &Question) -> Result<Answer, Unanswered> {
    match serde_json::from_slice(body).map_err(|error| Unanswered::Unreadable(error.into()))? {
        Reply::Metrics(metrics) => {
            let Metadata { namespace, name } = &metrics.metadata;
            match (namespace, name) == (&question.namespace, &question.name) {
                true => Ok(Ok(*metrics)),
                false => Err(Unanswered::Unreadable("it is about another ModelDeployment".into())),
            }
        }
        Reply::NoAnswer(sentence) => Ok(Err(Refusal::NoAnswer(sentence))),
        Reply::Unknown => Err(Unanswered::Unknown),
    }
}
