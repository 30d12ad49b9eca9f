//! A server that says exactly what a test wants it to say.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;

/// What the server does on one connection, after it has read the head of a request.
#[derive(Clone, Debug)]
pub enum Step {
    /// Writes these bytes.
    Write(Vec<u8>),
    /// Writes one byte every 100 ms for ever.
    Drip,
    /// Does nothing until the client closes.
    Hang,
}

/// What happened on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection was taken.
    Accepted,
    /// The head of a request was read.
    Request(String),
    /// The server hangs or drips.
    Waiting,
    /// The client closed while the server hung.
    Closed,
}

/// The server.
pub struct Fake {
    /// Where it listens.
    pub socket: SocketAddr,
    events: UnboundedReceiver<Event>,
}

impl Fake {
    /// Answers every request with these bytes, then closes.
    pub async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        Self::start(super::LOOPBACK, None, vec![Step::Write(answer.into())]).await
    }

    /// Follows the steps on every connection, then closes.
    pub async fn following(steps: Vec<Step>) -> Self {
        Self::start(super::LOOPBACK, None, steps).await
    }

    /// Listens with a certificate and answers with metrics.
    pub async fn secured(config: ServerConfig) -> Self {
        Self::start(super::LOOPBACK, Some(config), vec![Step::Write(metrics())]).await
    }

    /// Listens on an address.
    pub async fn start(address: IpAddr, tls: Option<ServerConfig>, steps: Vec<Step>) -> Self {
        let listener = TcpListener::bind((address, 0)).await.expect("a port");
        let socket = listener.local_addr().expect("an address");
        let (sender, events) = unbounded_channel();
        let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, steps, tls) = (sender.clone(), steps.clone(), tls.clone());
                tokio::spawn(async move {
                    let _ = sender.send(Event::Accepted);
                    match tls {
                        None => follow(stream, &steps, &sender).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => follow(stream, &steps, &sender).await,
                            Err(_) => Some(()),
                        },
                    }
                });
            }
        });
        Self { socket, events }
    }

    /// The head of the next request.
    pub async fn request(&mut self) -> String {
        loop {
            if let Event::Request(head) = self.event().await {
                return head;
            }
        }
    }

    /// Waits for an event.
    pub async fn reach(&mut self, event: Event) {
        while self.event().await != event {}
    }

    /// Whether no one came.
    pub fn is_untouched(&mut self) -> bool {
        self.events.try_recv().is_err()
    }

    async fn event(&mut self) -> Event {
        self.events.recv().await.expect("the server runs")
    }
}

/// An answer with one sample.
pub fn metrics() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\na 1.0".to_vec()
}

/// Ends early where the client is gone.
async fn follow<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    steps: &[Step],
    events: &UnboundedSender<Event>,
) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let _ = events.send(Event::Request(head));
    for step in steps {
        match step {
            Step::Write(bytes) => {
                stream.write_all(bytes).await.ok()?;
                stream.flush().await.ok()?;
            }
            Step::Drip => {
                let _ = events.send(Event::Waiting);
                loop {
                    stream.write_all(b"x").await.ok()?;
                    stream.flush().await.ok()?;
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
            Step::Hang => {
                let _ = events.send(Event::Waiting);
                while stream.read_u8().await.is_ok() {}
                let _ = events.send(Event::Closed);
                return None;
            }
        }
    }
    stream.shutdown().await.ok()
}
