//! Owns the virtual environment with the real routers' programs (test-cluster contract, section 1). Refuses to know their
//! arguments.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tokio::process::Command;

use super::{Error, build, cache::Cache};

/// The wheels that the default router images are made from.
const WHEELS: [&str; 3] = ["vllm-router==0.1.17", "sglang-router==0.3.2", "smg==1.13.0"];
const PYTHON: &str = "bin/python";
const REMEDY: &str = "install Python 3.10 or newer with its venv module";
/// Names the interpreter that the environment was made with. Written last, since a virtual environment knows its own path and
/// cannot be made elsewhere and renamed.
const COMPLETE: &str = "complete";

/// The virtual environment: out of the cache, or made in it.
pub(super) async fn prepare(cache: &Cache) -> Result<PathBuf, Error> {
    let what = "installing the real routers";
    let entry = cache.entry("routers", &[WHEELS.join(" ").as_bytes()])?;
    let (environment, complete) = (entry.path().join("venv"), entry.path().join(COMPLETE));
    if is_complete(&environment, &complete) {
        return Ok(environment);
    }
    let _lock = entry.lock(what).await?;
    if is_complete(&environment, &complete) {
        return Ok(environment);
    }
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(&environment);
    build("making a Python environment for the routers", venv, REMEDY).await?;
    let mut pip = Command::new(environment.join(PYTHON));
    pip.args([
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--only-binary=:all:",
    ])
    .args(WHEELS);
    build(what, pip, REMEDY).await?;
    fs::canonicalize(environment.join(PYTHON))
        .and_then(|interpreter| fs::write(&complete, interpreter.as_os_str().as_encoded_bytes()))
        .map_err(|source| Error::File {
            what: "write",
            path: complete,
            source,
        })?;
    Ok(environment)
}

/// An environment is of no use any more once its interpreter was upgraded.
fn is_complete(environment: &Path, complete: &Path) -> bool {
    let interpreter = fs::canonicalize(environment.join(PYTHON));
    interpreter.is_ok_and(|now| fs::read(complete).is_ok_and(|then| then == now.as_os_str().as_encoded_bytes()))
}
