//! The kubelet's HTTPS endpoint: container logs, so that `kubectl logs` works for every Pod.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::Node;
use super::log::{Log, Progress};

/// The port that the Node declares, as every kubelet's.
pub const LOG_PORT: u16 = 10250;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Listens at the Node's address.
pub(super) async fn bind(address: IpAddr) -> io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::new(address, LOG_PORT)).await
}

/// Serves until the kubelet stops.
pub(super) async fn serve(node: Arc<Node>, listener: TcpListener, acceptor: TlsAcceptor) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = node.stop.cancelled() => return,
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                connections.spawn(connection(node.clone(), stream, acceptor.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(node: Arc<Node>, stream: TcpStream, acceptor: TlsAcceptor) {
    // A client without a certificate of the cluster's CA ends here.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(move |request| {
        let node = node.clone();
        async move { Ok::<_, Infallible>(answer(&node, &request)) }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn answer(node: &Node, request: &Request<Incoming>) -> Response<Body> {
    let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let ["containerLogs", namespace, pod, container] = path.as_slice() else {
        return text(
            StatusCode::NOT_FOUND,
            "this kubelet serves /containerLogs/<namespace>/<pod>/<container> alone\n".to_owned(),
        );
    };
    let Some(resident) = node.find(namespace, pod) else {
        return text(StatusCode::NOT_FOUND, format!("pod {pod:?} is not on this Node\n"));
    };
    let wanted = Wanted::read(request.uri().query().unwrap_or_default());
    let inside = resident.inside.lock();
    let runs = inside.logs.get(*container).map(Vec::as_slice).unwrap_or_default();
    let log = if wanted.previous {
        runs.iter().rev().nth(1)
    } else {
        runs.last()
    };
    match log {
        Some(log) => stream_log(log.clone(), wanted),
        None if wanted.previous => text(
            StatusCode::BAD_REQUEST,
            format!("previous terminated container {container:?} in pod {pod:?} not found\n"),
        ),
        None => text(
            StatusCode::NOT_FOUND,
            format!("container {container:?} of pod {pod:?} has not been started\n"),
        ),
    }
}

fn text(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// What the client asked for.
#[derive(Debug, Default, PartialEq)]
struct Wanted {
    follow: bool,
    previous: bool,
    timestamps: bool,
    tail: Option<usize>,
    since: Option<Timestamp>,
    limit: Option<usize>,
}

impl Wanted {
    fn read(query: &str) -> Self {
        let options: HashMap<&str, &str> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let is = |name: &str| options.get(name).is_some_and(|value| *value == "true" || *value == "1");
        let seconds = options
            .get("sinceSeconds")
            .and_then(|s| s.parse().ok())
            .map(Duration::from_secs);
        let time = options
            .get("sinceTime")
            .and_then(|time| time.replace("%3A", ":").parse().ok());
        Self {
            follow: is("follow"),
            previous: is("previous"),
            timestamps: is("timestamps"),
            tail: options.get("tailLines").and_then(|n| n.parse().ok()),
            since: time.or_else(|| seconds.and_then(|since| (Timestamp::now() - since).into())),
            limit: options.get("limitBytes").and_then(|n| n.parse().ok()),
        }
    }

    /// Out of whole lines as they are in the file, what the client gets.
    fn select(&self, lines: &str, first: bool) -> String {
        let late = |line: &&str| match (self.since, line.split_once(' ')) {
            (Some(since), Some((time, _))) => time.parse::<Timestamp>().is_ok_and(|time| time >= since),
            _ => true,
        };
        let kept: Vec<&str> = lines.lines().filter(late).collect();
        let skip = self
            .tail
            .filter(|_| first)
            .map_or(0, |tail| kept.len().saturating_sub(tail));
        let mut selected = String::new();
        for line in &kept[skip..] {
            let bare = line.split_once(' ').map_or(*line, |(_, rest)| rest);
            selected.push_str(if self.timestamps { line } else { bare });
            selected.push('\n');
        }
        selected
    }
}

/// The log's lines now and, where wanted, those to come until the run ends.
fn stream_log(log: Log, wanted: Wanted) -> Response<Body> {
    let reading = Reading {
        progress: log.progress(),
        left: wanted.limit.unwrap_or(usize::MAX),
        log,
        wanted,
        from: None,
        ended: false,
    };
    let pieces = stream::unfold(reading, |mut reading| async {
        let piece = reading.next().await?;
        Some((Ok(Frame::data(piece)), reading))
    });
    Response::new(BodyExt::boxed_unsync(StreamBody::new(pieces)))
}

/// How far a client has read.
struct Reading {
    log: Log,
    progress: watch::Receiver<Progress>,
    wanted: Wanted,
    /// The first byte that was not read yet; nothing was, in the beginning.
    from: Option<u64>,
    left: usize,
    ended: bool,
}

impl Reading {
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended || self.left == 0 {
            return None;
        }
        let now = match self.from {
            None => *self.progress.borrow(),
            Some(from) => {
                let more = self.progress.wait_for(|now| now.bytes > from || now.closed);
                *more.await.ok()?
            }
        };
        self.ended = !self.wanted.follow || now.closed;
        let lines = read(&self.log, self.from.unwrap_or(0), now.bytes).await.ok()?;
        let mut selected = self.wanted.select(&lines, self.from.is_none());
        self.from = Some(now.bytes);
        if selected.len() > self.left {
            let end = (0..=self.left).rev().find(|at| selected.is_char_boundary(*at));
            selected.truncate(end.unwrap_or(0));
            self.ended = true;
        }
        self.left -= selected.len();
        Some(Bytes::from(selected))
    }
}

async fn read(log: &Log, from: u64, to: u64) -> io::Result<String> {
    let mut file = File::open(log.path()).await?;
    file.seek(io::SeekFrom::Start(from)).await?;
    let mut bytes = Vec::new();
    file.take(to.saturating_sub(from)).read_to_end(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_kubectl_logs() {
        let lines = "2026-01-01T00:00:00.000000000Z one\n2026-01-01T00:00:01.000000000Z two words\n2026-01-01T00:00:02.000000000Z three\n";
        let select = |query: &str| Wanted::read(query).select(lines, true);
        assert_eq!(select(""), "one\ntwo words\nthree\n");
        assert_eq!(select("tailLines=1"), "three\n");
        assert_eq!(
            select("tailLines=1&timestamps=true"),
            "2026-01-01T00:00:02.000000000Z three\n"
        );
        assert_eq!(select("sinceTime=2026-01-01T00%3A00%3A01Z"), "two words\nthree\n");
        assert_eq!(select("tailLines=0&follow=true"), "");
    }
}
