//! Owns how the parts of one cluster start each other: their names, what one hands to the next, and their exit codes. Refuses to
//! know what a part does.

use std::{
    env, fs, io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus},
};

use serde::{Deserialize, Serialize};

use crate::{Error, tools::Tools};

/// `argv[0]` of the guardian part.
pub(crate) const GUARDIAN: &str = "test-cluster-guardian";
/// `argv[0]` of the inside part.
pub(crate) const INSIDE: &str = "test-cluster-inside";
/// What a shell reports for a program that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;
/// What a shell adds to the number of a signal that ended a program.
const SIGNALED: i32 = 128;
/// Environment variable that names the state folder to the guardian and the inside part.
const STATE: &str = "TEST_CLUSTER_STATE";
const FILE: &str = "prepared.json";

/// Everything the host part found out.
#[derive(Serialize, Deserialize)]
pub(crate) struct Prepared {
    /// Process ID of the host part, by which the guardian knows its parent.
    pub(crate) host: u32,
    pub(crate) tools: Tools,
}

impl Prepared {
    pub(crate) fn write(&self, state: &Path) -> Result<(), Error> {
        serde_json::to_vec(self)
            .map_err(io::Error::from)
            .and_then(|text| fs::write(state.join(FILE), text))
            .map_err(Error::io("write the state folder"))
    }

    /// The state folder named by the environment, and what the host part left in it.
    pub(crate) fn read() -> Result<(PathBuf, Self), Error> {
        let read = || {
            let state = PathBuf::from(env::var_os(STATE).ok_or(io::ErrorKind::NotFound)?);
            let prepared = serde_json::from_slice(&fs::read(state.join(FILE))?)?;
            Ok((state, prepared))
        };
        read().map_err(Error::io("read the state folder"))
    }
}

/// A command that starts this executable again as another part of the same cluster, with the same arguments.
pub(crate) fn start_as(name: &str, state: &Path) -> Result<tokio::process::Command, Error> {
    let executable = env::current_exe().map_err(Error::io("find this executable"))?;
    let mut command = tokio::process::Command::new(executable);
    command.arg0(name).args(env::args_os().skip(1)).env(STATE, state);
    Ok(command)
}

/// A part ends as the part that it started.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let signaled = || status.signal().map(|signal| SIGNALED + signal);
    let code = status.code().or_else(signaled).unwrap_or(1);
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}
