//! The engine's sockets: bind, TLS, and connections, as the state of the moment wants them.
//!
//! Owns the accept loop. Refuses to know what is answered.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::script::State;
use super::{Engine, Shared, serving};

/// Why an engine ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The port is taken or the address is not of this machine.
    #[error("cannot listen on {address}")]
    Bind {
        /// Where it wanted to listen.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// Certificate or key cannot be used.
    #[error("cannot use the certificate {path}: {reason}")]
    Certificate {
        /// Certificate or key file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A self-signed certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Make(String),
}

/// A released address can still be held by the Pod that gives it away, for the time that its listener takes to close.
const BIND_PATIENCE: Duration = Duration::from_secs(2);
const BIND_PAUSE: Duration = Duration::from_millis(10);

/// What the listener must be, out of a state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Closed,
    Plain,
    Files,
    Untrusted,
    AsksClient,
}

impl Engine {
    /// Serves until `stop`; then takes no more connections and returns when those that are open have had their answers.
    ///
    /// # Errors
    /// The address or the certificate cannot be used.
    pub async fn run(
        &self,
        stop: CancellationToken,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<(), EngineError> {
        let shared = &self.shared;
        shared.reset();
        let log: serving::Log = Arc::new(log);
        log(&format!(
            "serving {} at ports {:?}",
            shared.arguments.model, shared.arguments.ports
        ));
        let mut state = shared.state.subscribe();
        let mut address = shared.address.subscribe();
        let mode = |state: &State| match state {
            State::Refuse => Mode::Closed,
            State::UntrustedCertificate => Mode::Untrusted,
            State::ClientCertificate => Mode::AsksClient,
            _ if shared.certificate.is_some() => Mode::Files,
            _ => Mode::Plain,
        };
        while !stop.is_cancelled() {
            let now = mode(&state.borrow_and_update());
            let here = *address.borrow_and_update();
            let acceptor = acceptor(now, here, shared)?;
            let mut serving = JoinSet::new();
            let connections = CancellationToken::new();
            if now != Mode::Closed {
                for port in &shared.arguments.ports {
                    let listener = bind(SocketAddr::new(here, *port)).await?;
                    serving.spawn(accept(
                        listener,
                        acceptor.clone(),
                        shared.clone(),
                        connections.clone(),
                        log.clone(),
                    ));
                }
            }
            tokio::select! {
                () = stop.cancelled() => {
                    connections.cancel();
                    while serving.join_next().await.is_some() {}
                }
                () = async { drop(state.wait_for(|state| mode(state) != now).await) } => {}
                () = async { drop(address.wait_for(|address| *address != here).await) } => {}
            }
            // Dropping the set ends the listeners and, after a change, the connections of the old mode with them.
        }
        Ok(())
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, EngineError> {
    let deadline = tokio::time::Instant::now() + BIND_PATIENCE;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(source) if source.kind() == io::ErrorKind::AddrInUse && tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(BIND_PAUSE).await;
            }
            Err(source) => return Err(EngineError::Bind { address, source }),
        }
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    stop: CancellationToken,
    log: serving::Log,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => {
                let Ok((stream, peer)) = accepted else { continue };
                connections.spawn(connection(stream, peer, acceptor.clone(), shared.clone(), stop.clone(), log.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    stop: CancellationToken,
    log: serving::Log,
) {
    let service = service_fn(move |request| {
        let (shared, log) = (shared.clone(), log.clone());
        async move { Ok::<_, Infallible>(serving::answer(shared, request, peer, log).await) }
    });
    let builder = hyper::server::conn::http1::Builder::new();
    // A client that goes away, or fails the handshake, is none of the engine's errors.
    macro_rules! serve {
        ($io:expr) => {{
            let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new($io), service));
            tokio::select! {
                _ = serving.as_mut() => {}
                () = stop.cancelled() => {
                    serving.as_mut().graceful_shutdown();
                    let _ = serving.await;
                }
            }
        }};
    }
    match acceptor {
        None => serve!(stream),
        Some(acceptor) => {
            if let Ok(stream) = acceptor.accept(stream).await {
                serve!(stream);
            }
        }
    }
}

fn acceptor(mode: Mode, address: IpAddr, shared: &Shared) -> Result<Option<TlsAcceptor>, EngineError> {
    let config = match mode {
        Mode::Closed | Mode::Plain => return Ok(None),
        Mode::Files => {
            let Some((certificate, key)) = &shared.certificate else {
                return Ok(None);
            };
            from_files(certificate, key)?
        }
        Mode::Untrusted | Mode::AsksClient => self_signed(address, mode == Mode::AsksClient)?,
    };
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

fn from_files(certificate: &Path, key: &Path) -> Result<ServerConfig, EngineError> {
    let fail = |path: &Path, reason: &dyn std::fmt::Display| EngineError::Certificate {
        path: path.to_owned(),
        reason: reason.to_string(),
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| fail(certificate, &e))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|e| fail(key, &e))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|e| fail(certificate, &e))
}

fn self_signed(address: IpAddr, asks_client: bool) -> Result<ServerConfig, EngineError> {
    let make = |e: &dyn std::fmt::Display| EngineError::Make(e.to_string());
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([address.to_string()]).map_err(|e| make(&e))?;
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).map_err(|e| make(&e))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| make(&e))?;
    let builder = if asks_client {
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).map_err(|e| make(&e))?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        builder.with_client_cert_verifier(verifier.map_err(|e| make(&e))?)
    } else {
        builder.with_no_client_auth()
    };
    builder
        .with_single_cert(vec![cert.der().clone()], key)
        .map_err(|e| make(&e))
}
