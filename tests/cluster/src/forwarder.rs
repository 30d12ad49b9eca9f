//! Owns the way from 127.0.0.1 on the host to an address inside: a listener on the host hands each connection to a path socket,
//! since path sockets cross network namespaces, and the inside side takes it to the address.
//!
//! The two sides talk over one control socket, line by line: `expose <path>` is answered by the host's address or by
//! `error <why>`. Its end tells either side that the other is gone. Refuses to know what is carried.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::net::UnixStream as StdUnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, copy_bidirectional},
    net::{
        TcpListener, TcpStream, UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Mutex, mpsc},
};
use tokio_util::sync::CancellationToken;

const EXPOSE: &str = "expose ";
const ERROR: &str = "error ";

/// An address could not be made reachable from the host.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path socket inside.
    #[error("listen for the host's connections to {address}")]
    Listen {
        /// The address inside.
        address: SocketAddr,
        /// Why it failed.
        source: io::Error,
    },
    /// The host part is gone.
    #[error("ask the host part for an address")]
    Control(#[source] io::Error),
    /// The host part could not listen.
    #[error("the host part could not listen on 127.0.0.1: {0}")]
    Host(String),
}

/// The host's side: listens on 127.0.0.1 for whatever the inside asks for.
pub(crate) struct HostSide {
    requests: Lines<BufReader<OwnedReadHalf>>,
    answers: OwnedWriteHalf,
    stop: CancellationToken,
}

impl HostSide {
    pub(crate) fn new(control: StdUnixStream) -> io::Result<Self> {
        let (requests, answers) = open(control)?;
        Ok(Self {
            requests,
            answers,
            stop: CancellationToken::new(),
        })
    }

    /// Cancelling it asks the inside to shut down.
    pub(crate) fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Serves until no process inside holds the control socket any more.
    pub(crate) async fn serve(mut self) {
        let mut stopping = false;
        loop {
            tokio::select! {
                request = self.requests.next_line() => {
                    let Ok(Some(request)) = request else { return };
                    let Some(path) = request.strip_prefix(EXPOSE) else { continue };
                    let answer = match listen(PathBuf::from(path)).await {
                        Ok(address) => format!("{address}\n"),
                        Err(error) => format!("{ERROR}{error}\n"),
                    };
                    if self.answers.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
                () = self.stop.cancelled(), if !stopping => {
                    stopping = true;
                    // The inside reads the end of the control socket as the wish to stop.
                    let _ = self.answers.shutdown().await;
                }
            }
        }
    }
}

async fn listen(path: PathBuf) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((outer, _)) = listener.accept().await {
            let path = path.clone();
            tokio::spawn(async move {
                // A refused connection closes the outer one, which is what a refused connection looks like from afar.
                if let Ok(inner) = UnixStream::connect(path).await {
                    carry(outer, inner).await;
                }
            });
        }
    });
    Ok(address)
}

/// The inside's side.
pub(crate) struct InsideSide {
    folder: PathBuf,
    sockets: AtomicUsize,
    control: Mutex<(OwnedWriteHalf, mpsc::Receiver<String>)>,
}

impl InsideSide {
    /// Takes over the control socket; the token is cancelled when the host part wants the cluster to stop, or is gone.
    pub(crate) fn new(control: StdUnixStream, state: &Path) -> io::Result<(Arc<Self>, CancellationToken)> {
        let folder = state.join("sockets");
        fs::create_dir(&folder)?;
        let (mut lines, requests) = open(control)?;
        let (sender, answers) = mpsc::channel(1);
        let stop = CancellationToken::new();
        let ended = stop.clone().drop_guard();
        tokio::spawn(async move {
            let _ended = ended;
            while let Ok(Some(line)) = lines.next_line().await {
                if sender.send(line).await.is_err() {
                    return;
                }
            }
        });
        Ok((
            Arc::new(Self {
                folder,
                sockets: AtomicUsize::new(0),
                control: Mutex::new((requests, answers)),
            }),
            stop,
        ))
    }

    /// Makes `address` reachable from the host, and returns where.
    pub(crate) async fn expose(&self, address: SocketAddr) -> Result<SocketAddr, Error> {
        let path = self
            .folder
            .join(self.sockets.fetch_add(1, Ordering::Relaxed).to_string());
        let listener = UnixListener::bind(&path).map_err(|source| Error::Listen { address, source })?;
        tokio::spawn(async move {
            while let Ok((outer, _)) = listener.accept().await {
                tokio::spawn(async move {
                    if let Ok(inner) = TcpStream::connect(address).await {
                        carry(outer, inner).await;
                    }
                });
            }
        });
        let mut control = self.control.lock().await;
        let (requests, answers) = &mut *control;
        requests
            .write_all(format!("{EXPOSE}{}\n", path.display()).as_bytes())
            .await
            .map_err(Error::Control)?;
        let answer = answers
            .recv()
            .await
            .ok_or_else(|| Error::Control(io::ErrorKind::UnexpectedEof.into()))?;
        if let Some(why) = answer.strip_prefix(ERROR) {
            return Err(Error::Host(why.to_owned()));
        }
        answer
            .parse()
            .map_err(|_| Error::Host(format!("it answered `{answer}`")))
    }
}

fn open(control: StdUnixStream) -> io::Result<(Lines<BufReader<OwnedReadHalf>>, OwnedWriteHalf)> {
    control.set_nonblocking(true)?;
    let (read, write) = UnixStream::from_std(control)?.into_split();
    Ok((BufReader::new(read).lines(), write))
}

/// Copies both ways until both ends are closed. A broken connection ends the other one, and that is all there is to report.
async fn carry<A, B>(mut outer: A, mut inner: B)
where
    A: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    B: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let _ = copy_bidirectional(&mut outer, &mut inner).await;
}
