//! The life of one container: start, probes, end, restart.
//!
//! Owns what is reported of it. Refuses to know the Pod's phase, which is `status`, and what runs, which is `program`.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use nix::sys::signal::Signal;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::Node;
use super::probe;
use super::program::{self, Refusal, Run};
use super::resident::{Order, Resident};
use super::volume::Volumes;

/// Which list of the Pod's spec a container stands in, and what that means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Runs to its end before the next one.
    Init,
    /// An init container with `restartPolicy: Always`.
    Sidecar,
    /// One of `containers`.
    Main,
}

/// What is said of a container in the Pod's status.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Report {
    pub(super) state: State,
    pub(super) last: Option<Ended>,
    pub(super) restarts: i32,
    pub(super) started: bool,
    pub(super) ready: bool,
    pub(super) id: String,
}

/// State of a container.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    Waiting { reason: &'static str, message: String },
    Running { since: Timestamp },
    Terminated(Ended),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) since: Timestamp,
    pub(super) at: Timestamp,
    pub(super) id: String,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            state: State::Waiting {
                reason: "PodInitializing",
                message: String::new(),
            },
            last: None,
            restarts: 0,
            started: false,
            ready: false,
            id: String::new(),
        }
    }
}

/// Pause before a container that keeps ending is started again: none the first time, then doubled up to the last. A tenth of a
/// real kubelet's, since a test waits for it.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// A run this long ends the back-off.
const STABLE: Duration = Duration::from_secs(60);

/// Pause before a container is tried again that could not be made (a Secret is missing).
const RETRY: Duration = Duration::from_millis(500);

/// Time that an unhealthy container gets to end by itself.
const UNHEALTHY_GRACE: Duration = Duration::from_secs(5);

/// Runs a container until it need not run any more.
pub(super) async fn live(
    node: Arc<Node>,
    resident: Arc<Resident>,
    container: Container,
    part: Part,
    volumes: Arc<Volumes>,
) {
    let name = container.name.clone();
    let mut orders = resident.orders(&name);
    let policy = resident.restart_policy();
    let mut backoff = Duration::ZERO;
    let mut crashing = false;
    loop {
        if resident.stop.is_cancelled() {
            return;
        }
        if crashing {
            resident.report(&name, |report| {
                report.state = State::Waiting {
                    reason: "CrashLoopBackOff",
                    message: format!("back-off restarting failed container {name}"),
                };
            });
            tokio::select! {
                () = resident.stop.cancelled() => return,
                Some(order) = orders.recv() => crashing = order != Order::Mend,
            }
            if crashing {
                continue;
            }
            resident.report(&name, |report| report.restarts += 1);
        }
        let restarts = resident.container(&name).restarts;
        let begun = program::begin(&node, &resident, &container, part, &volumes, restarts).await;
        let (mut run, log) = match begun {
            Ok(begun) => begun,
            Err(Refusal { reason, message }) => {
                resident.report(&name, |report| report.state = State::Waiting { reason, message });
                tokio::select! {
                    () = resident.stop.cancelled() => return,
                    () = sleep(RETRY) => continue,
                }
            }
        };
        let since = Timestamp::now();
        let begun = Instant::now();
        let id = format!("test-cluster://{}-{name}-{restarts}", resident.uid);
        resident.report(&name, |report| {
            report.state = State::Running { since };
            report.id.clone_from(&id);
        });
        let (ended, ordered) = attend(&resident, &container, &mut run, &mut orders).await;
        log.close();
        let (code, message) = ended;
        let reason = if code == 0 { "Completed" } else { "Error" };
        let ended = Ended {
            code,
            reason,
            message,
            since,
            at: Timestamp::now(),
            id,
        };
        resident.report(&name, |report| {
            report.state = State::Terminated(ended.clone());
            report.started = false;
            report.ready = false;
        });
        let again = match (part, policy.as_str()) {
            (Part::Sidecar, _) | (Part::Main, "Always") => true,
            (_, "Never") => false,
            _ => code != 0,
        };
        if resident.stop.is_cancelled() || !(again || ordered == Some(Order::Restart)) {
            return;
        }
        crashing = ordered == Some(Order::Crash);
        resident.report(&name, |report| report.last = Some(ended.clone()));
        if crashing {
            continue;
        }
        if begun.elapsed() >= STABLE || ordered == Some(Order::Restart) {
            backoff = Duration::ZERO;
        }
        if !backoff.is_zero() {
            let message = format!("back-off {} s restarting failed container {name}", backoff.as_secs());
            resident.report(&name, |report| {
                report.state = State::Waiting {
                    reason: "CrashLoopBackOff",
                    message,
                }
            });
            tokio::select! {
                () = resident.stop.cancelled() => return,
                () = sleep(backoff) => {}
            }
        }
        backoff = (backoff * 2).clamp(FIRST_BACKOFF, LONGEST_BACKOFF);
        resident.report(&name, |report| report.restarts += 1);
    }
}

/// Watches over one run to its end: exit code, message, and the order that brought it about.
async fn attend(
    resident: &Resident,
    container: &Container,
    run: &mut Run,
    orders: &mut mpsc::UnboundedReceiver<Order>,
) -> ((i32, String), Option<Order>) {
    let (events, mut found) = mpsc::unbounded_channel();
    let probing = tokio::spawn(probe::watch(
        container.clone(),
        resident.address.into(),
        resident.frozen.subscribe(),
        events,
    ));
    let mut ordered = None;
    let mut message = String::new();
    let mut kill_at = None;
    let mut stopping = false;
    let code = loop {
        let deadline = kill_at.unwrap_or_else(Instant::now);
        tokio::select! {
            code = run.wait() => break code,
            Some(order) = orders.recv() => {
                ordered = Some(order);
                match order {
                    Order::Restart => {
                        run.signal(Signal::SIGTERM);
                        kill_at = Some(Instant::now() + resident.grace());
                    }
                    Order::Kill | Order::Crash => run.signal(Signal::SIGKILL),
                    Order::Mend => ordered = None,
                }
            }
            Some(event) = found.recv() => match event {
                probe::Event::Started => resident.report(&container.name, |report| report.started = true),
                probe::Event::Ready(ready) => resident.report(&container.name, |report| report.ready = ready),
                probe::Event::Unhealthy(why) => {
                    message = why;
                    run.signal(Signal::SIGTERM);
                    kill_at = Some(Instant::now() + UNHEALTHY_GRACE);
                }
            },
            () = resident.stop.cancelled(), if !stopping => {
                stopping = true;
                run.signal(Signal::SIGTERM);
                kill_at = Some(Instant::now() + resident.grace());
            }
            () = resident.hurry.cancelled(), if stopping => {
                run.signal(Signal::SIGKILL);
                break run.wait().await;
            }
            () = sleep_until(deadline), if kill_at.is_some() => {
                run.signal(Signal::SIGKILL);
                kill_at = None;
            }
        }
    };
    probing.abort();
    ((code, message), ordered)
}
