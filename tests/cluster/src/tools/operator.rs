//! Owns building the operator and its kubectl plug-in from this source tree, in the profile of the running executable.

use std::{
    env,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde::Deserialize;
use tokio::process::Command;

use super::Error;

const PACKAGE: &str = "model-deployment-operator";
/// kubectl's plug-in, which lies beside the operator.
const PLUGIN: &str = "kubectl-modeldeployment";

/// The one line of cargo's messages that is read.
#[derive(Deserialize)]
struct Artifact {
    target: Target,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// Builds the operator and the plug-in, and returns the operator's path. Cargo shows its own progress.
pub(super) async fn build() -> Result<PathBuf, Error> {
    // Choosing this package too makes cargo settle on the dependencies' features of a test run, so nothing is compiled twice.
    let selected = ["--package", PACKAGE, "--package", env!("CARGO_PKG_NAME")];
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(&cargo);
    command
        .arg("build")
        .args(selected)
        .args([
            "--bin",
            PACKAGE,
            "--bin",
            PLUGIN,
            "--message-format=json-render-diagnostics",
            "--manifest-path",
        ])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let what = "building the operator".to_owned();
    // Not `output`, which would capture standard error as well.
    let output = match async { command.spawn()?.wait_with_output().await }.await {
        Ok(output) => output,
        Err(source) => {
            return Err(Error::Run {
                program: cargo,
                what,
                source,
            });
        }
    };
    if !output.status.success() {
        return Err(Error::Failed {
            what,
            log: "see cargo's messages above".to_owned(),
        });
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
        .filter(|artifact| artifact.target.name == PACKAGE)
        .find_map(|artifact| artifact.executable)
        .ok_or_else(|| Error::Failed {
            what,
            log: "cargo named no executable".to_owned(),
        })
}
