//! Owns what the host part hands to the other two: the state folder and the programs in it. Knows no program.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{Error, tools::Tools};

/// `argv[0]` of the guardian part.
pub(crate) const GUARDIAN: &str = "test-cluster-guardian";
/// `argv[0]` of the inside part.
pub(crate) const INSIDE: &str = "test-cluster-inside";
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
pub(crate) fn part(name: &str, state: &Path) -> Result<tokio::process::Command, Error> {
    let executable = env::current_exe().map_err(Error::io("find this executable"))?;
    let mut command = tokio::process::Command::new(executable);
    command.arg0(name).args(env::args_os().skip(1)).env(STATE, state);
    Ok(command)
}
