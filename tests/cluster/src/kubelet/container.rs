//! The life of one container: start, probes, end, restart.
//!
//! Owns the run of its program and what is reported of it. Refuses to know the Pod's phase; that is `status`.

use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use nix::sys::signal::Signal;
use tokio::io::BufReader;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Node;
use super::environment;
use super::image::Image;
use super::log::Log;
use super::probe;
use super::resident::{Order, Resident};
use super::volume::Volumes;
use crate::engine::{Arguments, Engine};
use crate::error::chain;
use crate::sandbox::{Output, Plan, Sandbox};

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

/// Exit code of a program that a signal ended, as shells and runtimes count.
const KILLED: i32 = 128 + 9;

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

/// Why a container could not be started.
struct Refusal {
    reason: &'static str,
    message: String,
}

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
        let begun = begin(&node, &resident, &container, part, &volumes, restarts).await;
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

/// A running program, real or played.
enum Run {
    Real(Box<Sandbox>, Vec<JoinHandle<()>>),
    Played {
        task: JoinHandle<i32>,
        stop: CancellationToken,
        code: Option<i32>,
    },
}

impl Run {
    async fn wait(&mut self) -> i32 {
        match self {
            Self::Real(sandbox, copies) => {
                let code = sandbox.wait().await.map_or(1, exit_code);
                // The last words are written before the end is told.
                for copy in copies.drain(..) {
                    let _ = copy.await;
                }
                code
            }
            Self::Played { task, code, .. } => {
                if code.is_none() {
                    *code = Some(task.await.unwrap_or(KILLED));
                }
                code.unwrap_or(KILLED)
            }
        }
    }

    fn signal(&self, signal: Signal) {
        match self {
            Self::Real(sandbox, _) => sandbox.signal(signal),
            Self::Played { task, .. } if signal == Signal::SIGKILL => task.abort(),
            Self::Played { stop, .. } => stop.cancel(),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Self::Played { task, .. } = self {
            task.abort();
        }
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

async fn begin(
    node: &Node,
    resident: &Resident,
    container: &Container,
    part: Part,
    volumes: &Volumes,
    restarts: i32,
) -> Result<(Run, Log), Refusal> {
    let log = node.log(resident, &container.name, restarts);
    let log = log.map_err(|error| Refusal {
        reason: "CreateContainerError",
        message: format!("no log file: {error}"),
    })?;
    let run = start(node, resident, container, part, volumes, &log).await;
    if let Err(Refusal { message, .. }) = &run {
        log.line(message);
        log.close();
    }
    Ok((run?, log))
}

async fn start(
    node: &Node,
    resident: &Resident,
    container: &Container,
    part: Part,
    volumes: &Volumes,
    log: &Log,
) -> Result<Run, Refusal> {
    let config = |message: String| Refusal {
        reason: "CreateContainerConfigError",
        message,
    };
    let create = |message: String| Refusal {
        reason: "CreateContainerError",
        message,
    };
    if let Some(why) = probe::refusal(container) {
        return Err(config(why));
    }
    let pod = resident.pod();
    let objects = node.objects(&resident.namespace);
    let variables = environment::resolve(&pod, container, resident.addresses(node), &objects).await;
    let variables = variables.map_err(|error| config(chain(&error)))?;
    let expanded = |words: &Option<Vec<String>>| {
        let words = words.iter().flatten().map(|word| environment::expand(word, &variables));
        words.collect::<Vec<_>>()
    };
    let (command, args) = (expanded(&container.command), expanded(&container.args));
    let image = Image::of(container.image.as_deref().unwrap_or_default());
    let invocation = node.programs.invocation(image, &command, &args).map_err(create)?;
    let Some(invocation) = invocation else {
        if part == Part::Init {
            log.line("nothing to do here: an init container of an image that is only played");
            let task = tokio::spawn(async { 0 });
            return Ok(Run::Played {
                task,
                stop: CancellationToken::new(),
                code: None,
            });
        }
        let engine = resident.engine(&container.name, || {
            let argv: Vec<String> = command.iter().chain(&args).cloned().collect();
            let arguments = match image {
                Image::Stub => Arguments::stub(declared(container)),
                _ => Arguments::read(&argv),
            };
            let file = |path: &Path| volumes.find(container, path).unwrap_or_else(|| path.to_owned());
            let certificate = arguments
                .certificate
                .clone()
                .map(|(chain, key)| (file(&chain), file(&key)));
            Engine::new(arguments, resident.address.into(), certificate)
        });
        return Ok(play(engine, log));
    };
    let mut mounts = volumes
        .mounts(container)
        .await
        .map_err(|error| create(error.to_string()))?;
    mounts.push(resident.hosts_file().await.map_err(|error| create(error.to_string()))?);
    let plan = Plan {
        program: invocation.program,
        arguments: invocation.arguments,
        environment: variables,
        directory: container.working_dir.as_deref().unwrap_or(image.directory()).into(),
        hostname: environment::hostname(&pod),
        address: resident.address,
        root: node.sandbox_root(),
        mounts,
    };
    let (sandbox, Output { stdout, stderr }) = Sandbox::start(&node.gateway, plan)
        .await
        .map_err(|error| create(chain(&error)))?;
    let copies = vec![
        tokio::spawn(log.clone().copy(stdout)),
        tokio::spawn(log.clone().copy(BufReader::new(stderr))),
    ];
    Ok(Run::Real(Box::new(sandbox), copies))
}

fn play(engine: Engine, log: &Log) -> Run {
    let stop = CancellationToken::new();
    let (stopped, lines) = (stop.clone(), log.clone());
    let task = tokio::spawn(async move {
        let said = lines.clone();
        match engine.run(stopped, move |line| said.line(line)).await {
            Ok(()) => 0,
            Err(error) => {
                lines.line(&chain(&error));
                1
            }
        }
    });
    Run::Played { task, stop, code: None }
}

fn declared(container: &Container) -> Vec<u16> {
    let ports = container.ports.iter().flatten();
    ports
        .filter_map(|port| u16::try_from(port.container_port).ok())
        .collect()
}
