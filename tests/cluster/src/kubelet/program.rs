//! One run of a container's program: the real one in its sandbox, or a played one in this process.
//!
//! Owns how a run begins and ends. Refuses to know restarts; that is `container`.

use std::path::Path;
use std::process::ExitStatus;

use k8s_openapi::api::core::v1::Container;
use nix::sys::signal::Signal;
use tokio::io::BufReader;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Node;
use super::container::Part;
use super::environment;
use super::image::Image;
use super::log::Log;
use super::probe;
use super::resident::Resident;
use super::volume::Volumes;
use crate::engine::{Arguments, Engine};
use crate::error::chain;
use crate::sandbox::{Output, Plan, Sandbox};

/// Exit code of a program that SIGKILL ended, as shells and runtimes count.
const KILLED: i32 = 128 + 9;

/// Why a container could not be started.
pub(super) struct Refusal {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// A running program, real or played.
pub(super) enum Run {
    Real(Box<Sandbox>, Vec<JoinHandle<()>>),
    Played {
        task: JoinHandle<i32>,
        stop: CancellationToken,
        code: Option<i32>,
    },
}

impl Run {
    /// Waits for its end: the exit code. May be cancelled and called again.
    pub(super) async fn wait(&mut self) -> i32 {
        match self {
            Self::Real(sandbox, copies) => {
                let code = sandbox.wait().await.map_or(1, exit_code);
                // The last words are written before the end is told.
                while let Some(copy) = copies.last_mut() {
                    let _ = copy.await;
                    copies.pop();
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

    /// Sends it a signal; a played program knows SIGKILL, and takes all others for SIGTERM.
    pub(super) fn signal(&self, signal: Signal) {
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

/// Starts a run of a container, with a log of its own.
pub(super) async fn begin(
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
