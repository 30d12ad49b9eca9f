//! Owns the process between the host part and the inside part: it makes the namespaces, and when the host part is killed, or in
//! a hurry, it ends everything inside and removes the state folder. Refuses to know what runs inside.

use std::{fs, path::Path, process::ExitCode};

use nix::{
    sys::{prctl, signal},
    unistd::getppid,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    Error, namespaces,
    part::{self, INTERRUPTED, Prepared},
};

pub(crate) fn run() -> Result<ExitCode, Error> {
    let (state, prepared) = Prepared::read()?;
    // Namespaces first: they need a process of one thread, and changing the user namespace forgets the death signal.
    namespaces::enter()?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("start the runtime"))?
        .block_on(guard(&state, prepared.host))
}

async fn guard(state: &Path, host: u32) -> Result<ExitCode, Error> {
    let mut terminated = signal(SignalKind::terminate()).map_err(Error::io("listen for signals"))?;
    prctl::set_pdeathsig(signal::Signal::SIGTERM).map_err(|errno| Error::io("watch the host part")(errno.into()))?;
    if u32::try_from(getppid().as_raw()) != Ok(host) {
        return remove(state);
    }
    let mut inside = part::start_as(part::INSIDE, state)?
        .kill_on_drop(true)
        .spawn()
        .map_err(Error::io("start the inside part"))?;
    tokio::select! {
        status = inside.wait() => {
            Ok(part::exit_code(status.map_err(Error::io("wait for the inside part"))?))
        }
        _ = terminated.recv() => {
            // Returns once every process of the PID namespace is gone, so nothing writes to the folder any more.
            inside.kill().await.map_err(Error::io("end the inside part"))?;
            remove(state)
        }
    }
}

fn remove(state: &Path) -> Result<ExitCode, Error> {
    fs::remove_dir_all(state).map_err(Error::io("remove the state folder"))?;
    Ok(INTERRUPTED.into())
}
