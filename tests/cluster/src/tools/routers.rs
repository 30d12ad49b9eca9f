//! Owns the virtual environment with the real routers' programs (test-cluster contract, section 1). Refuses to know their
//! arguments.

use std::{fs, path::PathBuf};

use tokio::process::Command;

use super::{Error, build, cache::Cache};

/// The wheels that the default router images are made from.
const WHEELS: [&str; 3] = ["vllm-router==0.1.17", "sglang-router==0.3.2", "smg==1.13.0"];
const REMEDY: &str = "install Python 3.10 or newer with its venv module";
/// Written last, since a virtual environment knows its own path and cannot be made elsewhere and renamed.
const COMPLETE: &str = "complete";

/// The virtual environment: out of the cache, or made in it.
pub(super) async fn prepare(cache: &Cache) -> Result<PathBuf, Error> {
    let what = "installing the routers";
    let mut python = Command::new("python3");
    python.args(["-c", "import sys; print(sys.executable, sys.version)"]);
    let interpreter = build(what, python, REMEDY).await?;
    let entry = cache.entry("routers", &[&interpreter, WHEELS.join(" ").as_bytes()])?;
    let (environment, complete) = (entry.path().join("venv"), entry.path().join(COMPLETE));
    if complete.exists() {
        return Ok(environment);
    }
    let _lock = entry.lock(what).await?;
    if complete.exists() {
        return Ok(environment);
    }
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(&environment);
    build(what, venv, REMEDY).await?;
    let mut pip = Command::new(environment.join("bin/python"));
    pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--only-binary=:all:"]).args(WHEELS);
    build(what, pip, REMEDY).await?;
    fs::write(&complete, "").map_err(|source| Error::File { what: "write", path: complete, source })?;
    Ok(environment)
}
