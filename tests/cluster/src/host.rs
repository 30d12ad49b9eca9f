//! Owns the part that stays in the host's own namespaces: it prepares while there is a network, starts the guardian, serves the
//! forwarders, and passes Ctrl-C on. Refuses to know what happens inside.

use std::{os::unix::process::ExitStatusExt, process::ExitCode};

use tokio::{
    process::Child,
    signal::unix::{Signal, SignalKind, signal},
};

use crate::{
    Error, Setup, forwarder,
    prepared::{self, Prepared},
    tools::Tools,
};

/// What a shell reports for a program that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

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

    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(Error::io("make the control socket"))?;
    // A process group of its own: the terminal's Ctrl-C reaches the host part only, which passes it on once.
    let mut guardian = prepared::part(prepared::GUARDIAN, state.path())?
        .stdin(std::os::fd::OwnedFd::from(theirs))
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(Error::io("start the guardian"))?;

    let forwards = forwarder::HostSide::new(ours).map_err(Error::io("open the control socket"))?;
    let stop = forwards.stopper();
    let mut serving = tokio::spawn(forwards.serve());
    let status = tokio::select! {
        status = guardian.wait() => status,
        () = interrupts.next() => {
            stop.stop();
            end(&mut guardian, &mut interrupts).await
        }
    }
    .map_err(Error::io("wait for the guardian"))?;
    // The control socket ends when the last process that holds it has, even if the guardian was killed.
    let _ = (&mut serving).await;
    match state.close() {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove the state folder")(error)),
        _ => Ok(exit_code(status)),
    }
}

/// Waits for the cluster to shut down; a second Ctrl-C ends it at once.
async fn end(guardian: &mut Child, interrupts: &mut Interrupts) -> std::io::Result<std::process::ExitStatus> {
    tokio::select! {
        status = guardian.wait() => status,
        () = interrupts.next() => {
            guardian.start_kill()?;
            guardian.wait().await
        }
    }
}

fn exit_code(status: std::process::ExitStatus) -> ExitCode {
    let signal = |number: i32| 128 + number;
    let code = status.code().or_else(|| status.signal().map(signal)).unwrap_or(1);
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
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
