//! Owns the part that stays in the host's own namespaces: it prepares while there is a network, starts the guardian, serves the
//! forwarders, and passes Ctrl-C on. Refuses to know what happens inside.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{ExitCode, ExitStatus},
};

use nix::{sys::signal::kill, unistd::Pid};
use tokio::{
    process::Child,
    signal::unix::{Signal, SignalKind, signal},
};

use crate::{
    Error, Setup, forwarder,
    part::{self, INTERRUPTED, Prepared},
    tools::Tools,
};

pub(crate) fn run(setup: Setup) -> Result<ExitCode, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("start the runtime"))?
        .block_on(serve(setup))
}

async fn serve(setup: Setup) -> Result<ExitCode, Error> {
    let mut interrupts = Interrupts::new()?;
    let tools = tokio::select! {
        tools = Tools::prepare(setup) => tools?,
        () = interrupts.next() => return Ok(INTERRUPTED.into()),
    };
    let state = tempfile::Builder::new()
        .prefix("model-deployment-cluster-")
        .tempdir()
        .map_err(Error::io("make the state folder"))?;
    Prepared {
        host: std::process::id(),
        tools,
    }
    .write(state.path())?;

    let (ours, theirs) = UnixStream::pair().map_err(Error::io("make the control socket"))?;
    // A process group of its own: the terminal's Ctrl-C reaches the host part only, which passes it on once.
    let mut guardian = part::start_as(part::GUARDIAN, state.path())?
        .stdin(OwnedFd::from(theirs))
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(Error::io("start the guardian"))?;

    let forwards = forwarder::HostSide::new(ours).map_err(Error::io("open the control socket"))?;
    let stop = forwards.stopper();
    let serving = tokio::spawn(forwards.serve());
    let status = tokio::select! {
        status = guardian.wait() => status,
        () = interrupts.next() => {
            stop.cancel();
            end(&mut guardian, &mut interrupts).await
        }
    }
    .map_err(Error::io("wait for the guardian"))?;
    // The control socket ends when the last process that holds it has, even if the guardian was killed.
    let _ = serving.await;
    match state.close() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove the state folder")(error)),
        _ => Ok(part::exit_code(status)),
    }
}

/// Waits for the cluster to shut down; a second Ctrl-C makes the guardian end it at once.
async fn end(guardian: &mut Child, interrupts: &mut Interrupts) -> io::Result<ExitStatus> {
    tokio::select! {
        status = guardian.wait() => return status,
        () = interrupts.next() => {}
    }
    if let Some(id) = guardian.id().and_then(|id| i32::try_from(id).ok()) {
        kill(Pid::from_raw(id), nix::sys::signal::SIGTERM)?;
    }
    guardian.wait().await
}

/// The three signals by which a person or a supervisor asks a program to end.
struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Interrupts {
    fn new() -> Result<Self, Error> {
        let listen = |kind| signal(kind).map_err(Error::io("listen for signals"));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
