//! One connection: handshake, HTTP, and its end.
//!
//! Knows deadlines and limits of a connection; nothing of what is asked on it.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls_pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::response::Body;
use super::tls;

/// From the first byte to the end of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For the head of an HTTP/1.1 request, as the API server allows itself.
const HEADER_READ: Duration = Duration::from_secs(32);
/// A connection on which nothing is asked for so long is closed.
const IDLE: Duration = Duration::from_secs(90);
/// HTTP/2: a ping so often, and its answer within so long, or the peer is dead.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(10);
/// HTTP/2 streams at once. The API server opens another connection when they are used up.
const STREAMS: u32 = 100;
/// HTTP/2 streams that a peer opened and reset before they were looked at: with more of them the connection is given up. The API
/// server may cancel every stream of a connection at once.
const RESETS: usize = STREAMS as usize;
/// HTTP/2 stream window, in bytes. Frames keep HTTP/2's own 16 KiB: a connection on which one request's headers take more frames than
/// the most headers would need is given up, with everybody's requests on it, and clients cut headers into such frames.
const WINDOW: u32 = 256 << 10;
/// A request's headers, in bytes and (HTTP/1.1) lines: a user may be in very many groups, each on a line of its own.
const HEADER_BYTES: usize = 1 << 20;
const HEADER_LINES: usize = 4096;

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The chain it showed, the leaf first, and holds the key of. Empty where it showed none. Not yet trusted for anything.
    pub chain: Arc<[CertificateDer<'static>]>,
}

/// There was no TLS with a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the TLS handshake failed")]
pub struct HandshakeFailed;

/// Makes connections of accepted sockets.
#[derive(Clone)]
pub struct Connections {
    acceptor: TlsAcceptor,
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
}

impl Connections {
    /// Connections that speak TLS as `config` says.
    pub fn new(config: rustls::ServerConfig) -> Self {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_READ)
            .max_buf_size(HEADER_BYTES)
            .max_headers(HEADER_LINES);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .max_concurrent_streams(STREAMS)
            .max_pending_accept_reset_streams(RESETS)
            .initial_stream_window_size(WINDOW)
            .max_header_list_size(HEADER_BYTES as u32);
        Connections {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            http1: builder.clone().http1_only(),
            http2: builder.http2_only(),
        }
    }

    /// Serves one connection to its end. `leaving` asks it to finish what it has begun and close.
    ///
    /// # Errors
    /// If the TLS handshake failed or did not end in time. How the connection ends after it is the peer's business.
    pub async fn serve<H, F>(
        &self,
        socket: TcpStream,
        leaving: CancellationToken,
        handle: H,
    ) -> Result<(), HandshakeFailed>
    where
        H: Fn(Peer, Request<Incoming>) -> F + Clone,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let _ = socket.set_nodelay(true);
        let stream = match tokio::time::timeout(HANDSHAKE, self.acceptor.accept(socket)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                return Err(HandshakeFailed);
            }
            Err(_) => {
                tracing::debug!("a TLS handshake did not end in time");
                return Err(HandshakeFailed);
            }
        };
        let session = stream.get_ref().1;
        let peer = Peer {
            chain: session
                .peer_certificates()
                .unwrap_or_default()
                .iter()
                .map(|one| one.clone().into_owned())
                .collect(),
        };
        let builder = match session.alpn_protocol() {
            Some(tls::H2) => &self.http2,
            _ => &self.http1,
        };
        let (under_way, busy) = watch::channel(0usize);
        let service = service_fn(|request| {
            let begun = Begun::new(&under_way);
            let answer = handle(peer.clone(), request);
            async move {
                let _begun = begun;
                Ok::<_, Infallible>(answer.await)
            }
        });
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = leaving.cancelled() => None,
            () = idle(busy) => None,
        };
        let ended = match ended {
            Some(ended) => Ok(ended),
            None => {
                connection.as_mut().graceful_shutdown();
                tokio::time::timeout(IDLE, connection).await
            }
        };
        // The API server's probes cut each other off, so a broken connection is everyday.
        if let Ok(Err(error)) = ended {
            tracing::debug!(%error, "a connection broke");
        }
        Ok(())
    }
}

/// One request under way, counted until it is answered or dropped.
struct Begun(watch::Sender<usize>);

impl Begun {
    fn new(under_way: &watch::Sender<usize>) -> Self {
        under_way.send_modify(|count| *count += 1);
        Begun(under_way.clone())
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Ends when nothing was under way for [`IDLE`].
async fn idle(mut busy: watch::Receiver<usize>) {
    loop {
        let Ok(_) = busy.wait_for(|count| *count == 0).await else {
            return;
        };
        tokio::select! {
            () = tokio::time::sleep(IDLE) => return,
            _ = busy.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_ninety_seconds_after_its_last_request() {
        let (under_way, busy) = watch::channel(0);
        let begun = Begun::new(&under_way);
        let mut idle = std::pin::pin!(idle(busy));
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert!(idle.as_mut().now_or_never().is_none());
        drop(begun);
        assert!(idle.as_mut().now_or_never().is_none());
        tokio::time::advance(Duration::from_secs(89)).await;
        assert!(idle.as_mut().now_or_never().is_none());
        // Another request begins the time anew.
        drop(Begun::new(&under_way));
        assert!(idle.as_mut().now_or_never().is_none());
        tokio::time::advance(Duration::from_secs(89)).await;
        assert!(idle.as_mut().now_or_never().is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(idle.as_mut().now_or_never().is_some());
    }
}
