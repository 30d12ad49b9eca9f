//! Probes, really called.
//!
//! Owns when a container counts as started, ready and alive. One thing differs from a real kubelet: until a probe has succeeded
//! once it is repeated quickly, so that a test does not wait a whole period for a program that takes a moment to listen. How long
//! a start may take (`failureThreshold` × `periodSeconds`) stays. A gRPC probe is a connection without a call: only stubs have one.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::Request;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use super::trust::blind_client;

/// What a probe found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// The startup probe succeeded, or there is none.
    Started,
    /// Readiness as it is now.
    Ready(bool),
    /// The container must be restarted; why.
    Unhealthy(String),
}

/// Pause before the first repetition, doubled each time up to the second figure.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Defaults of the core API, in seconds and attempts.
const PERIOD: i32 = 10;
const TIMEOUT: i32 = 1;
const FAILURES: i32 = 3;
const SUCCESSES: i32 = 1;

/// Why a container's probes cannot be played; `None` if they can.
pub(super) fn refusal(container: &Container) -> Option<String> {
    let probes = [
        &container.startup_probe,
        &container.readiness_probe,
        &container.liveness_probe,
    ];
    let played = |probe: &Probe| probe.exec.is_none();
    let refused = !probes.into_iter().flatten().all(played);
    refused.then(|| format!("container {:?}: exec probes are not played here", container.name))
}

/// Calls the container's probes until the receiver is gone or the container unhealthy. While `frozen`, nothing is called.
pub(super) async fn watch(
    container: Container,
    address: IpAddr,
    frozen: watch::Receiver<bool>,
    events: mpsc::UnboundedSender<Event>,
) {
    let caller = Caller {
        container: &container,
        address,
        frozen,
    };
    if let Some(probe) = &container.startup_probe {
        let attempts = u32::try_from(probe.failure_threshold.unwrap_or(FAILURES)).unwrap_or(1);
        let limit = seconds(probe.period_seconds, PERIOD) * attempts;
        if let Err(why) = caller.first_success(probe, Some(limit)).await {
            let _ = events.send(Event::Unhealthy(format!("Startup probe failed: {why}")));
            return;
        }
    }
    if events.send(Event::Started).is_err() {
        return;
    }
    let readiness = async {
        let Some(probe) = &container.readiness_probe else {
            let _ = events.send(Event::Ready(true));
            return;
        };
        // Without a limit it cannot fail.
        let _ = caller.first_success(probe, None).await;
        let mut ready = true;
        while events.send(Event::Ready(ready)).is_ok() {
            let _ = caller.change(probe, ready).await;
            ready = !ready;
        }
    };
    let liveness = async {
        let Some(probe) = &container.liveness_probe else {
            return;
        };
        sleep(seconds(probe.initial_delay_seconds, 0)).await;
        let why = caller.change(probe, true).await;
        let _ = events.send(Event::Unhealthy(format!("Liveness probe failed: {why}")));
    };
    tokio::join!(readiness, liveness);
}

struct Caller<'a> {
    container: &'a Container,
    address: IpAddr,
    frozen: watch::Receiver<bool>,
}

impl Caller<'_> {
    /// Repeats quickly until the probe succeeds as often as it must, or `limit` is over.
    async fn first_success(&self, probe: &Probe, limit: Option<Duration>) -> Result<(), String> {
        sleep(seconds(probe.initial_delay_seconds, 0)).await;
        let begun = Instant::now();
        let longest = LONGEST_PAUSE.min(seconds(probe.period_seconds, PERIOD));
        let mut pause = FIRST_PAUSE;
        let mut left = probe.success_threshold.unwrap_or(SUCCESSES).max(1);
        loop {
            match self.call(probe).await {
                Ok(()) => left -= 1,
                Err(why) if limit.is_some_and(|limit| begun.elapsed() >= limit) => return Err(why),
                Err(_) => left = probe.success_threshold.unwrap_or(SUCCESSES).max(1),
            }
            if left == 0 {
                return Ok(());
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// Calls every period until the outcome is other than `now` as often in a row as its threshold says. Why, where it failed.
    async fn change(&self, probe: &Probe, now: bool) -> String {
        let threshold = if now {
            probe.failure_threshold.unwrap_or(FAILURES)
        } else {
            probe.success_threshold.unwrap_or(SUCCESSES)
        };
        let mut left = threshold.max(1);
        loop {
            sleep(seconds(probe.period_seconds, PERIOD)).await;
            let outcome = self.call(probe).await;
            left = if outcome.is_ok() == now {
                threshold.max(1)
            } else {
                left - 1
            };
            if left == 0 {
                return outcome.err().unwrap_or_default();
            }
        }
    }

    async fn call(&self, probe: &Probe) -> Result<(), String> {
        // The sender lives as long as the Pod.
        let _ = self.frozen.clone().wait_for(|frozen| !frozen).await;
        let limit = seconds(probe.timeout_seconds, TIMEOUT);
        let call = timeout(limit, self.call_once(probe)).await;
        call.unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs())))
    }

    async fn call_once(&self, probe: &Probe) -> Result<(), String> {
        let grpc = probe.grpc.as_ref().map(|grpc| (None, IntOrString::Int(grpc.port)));
        let tcp = probe
            .tcp_socket
            .as_ref()
            .map(|tcp| (tcp.host.as_deref(), tcp.port.clone()));
        if let Some((host, port)) = tcp.or(grpc) {
            let target = self.target(host, &port)?;
            let connected = TcpStream::connect(target).await;
            return connected.map(drop).map_err(|e| format!("{target}: {e}"));
        }
        let Some(get) = &probe.http_get else {
            return Err("not a probe that is played here".to_owned());
        };
        let target = self.target(get.host.as_deref(), &get.port)?;
        let mut request = Request::get(get.path.as_deref().filter(|p| !p.is_empty()).unwrap_or("/"))
            .header("host", target.to_string())
            .header("user-agent", "kube-probe/1.37")
            .header("accept", "*/*");
        for header in get.http_headers.iter().flatten() {
            request = request.header(&header.name, &header.value);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|e| e.to_string())?;
        let stream = TcpStream::connect(target).await.map_err(|e| format!("{target}: {e}"))?;
        let status = if get.scheme.as_deref() == Some("HTTPS") {
            let stream = blind_client()
                .connect(target.ip().into(), stream)
                .await
                .map_err(|e| format!("{target}: {e}"))?;
            status(TokioIo::new(stream), request).await
        } else {
            status(TokioIo::new(stream), request).await
        };
        match status.map_err(|e| format!("{target}: {e}"))? {
            200..400 => Ok(()),
            code => Err(format!("HTTP probe failed with statuscode: {code}")),
        }
    }

    fn target(&self, host: Option<&str>, port: &IntOrString) -> Result<SocketAddr, String> {
        let host = match host.filter(|h| !h.is_empty()) {
            Some(host) => host.parse().map_err(|_| format!("{host:?} is not an address"))?,
            None => self.address,
        };
        let port = match port {
            IntOrString::Int(port) => u16::try_from(*port).ok(),
            IntOrString::String(name) => {
                let mut ports = self.container.ports.iter().flatten();
                let named = ports.find(|port| port.name.as_deref() == Some(name));
                named.and_then(|port| u16::try_from(port.container_port).ok())
            }
        };
        port.map(|port| SocketAddr::new(host, port))
            .ok_or_else(|| format!("the container has no port {port:?}"))
    }
}

async fn status<I>(io: I, request: Request<Empty<Bytes>>) -> hyper::Result<u16>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    let call = sender.send_request(request);
    let mut connection = std::pin::pin!(connection);
    let mut call = std::pin::pin!(call);
    tokio::select! {
        response = &mut call => Ok(response?.status().as_u16()),
        ended = &mut connection => {
            ended?;
            Ok(call.await?.status().as_u16())
        }
    }
}

fn seconds(value: Option<i32>, default: i32) -> Duration {
    Duration::from_secs(u64::try_from(value.unwrap_or(default)).unwrap_or(0))
}
