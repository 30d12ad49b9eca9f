//! The second cluster: this executable once more, inside the first cluster's namespaces, with which it ends however they end.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::{env, io};

use test_cluster::Cluster;
use tokio::process::Command;
use tokio::task::JoinHandle;

/// Environment variable that names the file in which the second cluster leaves its audit log. Set, it is the second.
const AUDIT_COPY: &str = "ON_CLUSTER_AUDIT_COPY";

/// A second cluster under way.
pub struct Second(JoinHandle<io::Result<Output>>);

impl Second {
    /// Starts it, with the arguments of this run.
    ///
    /// # Errors
    /// If this executable cannot be started.
    pub fn start(first: &Cluster) -> io::Result<Self> {
        let child = Command::new(env::current_exe()?)
            .args(env::args_os().skip(1))
            .env(AUDIT_COPY, audit_log(first))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self(tokio::spawn(child.wait_with_output())))
    }

    /// Waits for its end and prints what it said, which until then would be mixed with what the first says. Whether all went well.
    pub async fn ended(self) -> bool {
        match self.0.await.unwrap_or_else(|lost| Err(lost.into())) {
            Ok(output) => {
                // Nobody who listens is left to be told otherwise.
                let _ = io::stderr().write_all(&output.stderr);
                let _ = io::stdout().write_all(&output.stdout);
                output.status.success()
            }
            Err(error) => {
                eprintln!("the second cluster was lost: {error}");
                false
            }
        }
    }
}

/// Where the second cluster is to leave its audit log, in the second cluster.
pub fn audit_copy() -> Option<PathBuf> {
    env::var_os(AUDIT_COPY).map(PathBuf::from)
}

/// Where the second cluster has left its audit log, in the first.
pub fn audit_log(first: &Cluster) -> PathBuf {
    first.state_dir().join("second-audit.log")
}
