//! Owns which programs a cluster runs, and the order of looking for each: what a person already has, the cache, a build.
//! Refuses to know what they are started with.

mod cache;
mod found;
mod go;
mod operator;
mod routers;

use std::{io, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Setup, progress};
use cache::Cache;

/// A program of the cluster is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither `XDG_CACHE_HOME` nor `HOME` is set.
    #[error("the programs of the test cluster are kept in a cache folder: set XDG_CACHE_HOME or HOME")]
    NoCache,
    /// A file of the cache or of the tool modules.
    #[error("{what} {}", .path.display())]
    File {
        /// What was being done.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A tool module does not require what it is there for.
    #[error("{} does not require {module}", .path.display())]
    NoVersion {
        /// The go.mod file.
        path: PathBuf,
        /// The module looked for.
        module: &'static str,
    },
    /// The program that builds is not installed.
    #[error("{program} is not installed, and {what} needs it: {remedy}")]
    Missing {
        /// The program.
        program: String,
        /// What it was to do.
        what: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A build could not be run.
    #[error("run {program} for {what}")]
    Run {
        /// The program.
        program: String,
        /// What it was to do.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A build failed.
    #[error("{what} failed; its last lines:\n{log}")]
    Failed {
        /// What failed.
        what: String,
        /// The end of what it printed.
        log: String,
    },
}

/// Where every program is.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Tools {
    pub(crate) etcd: PathBuf,
    pub(crate) kube_apiserver: PathBuf,
    pub(crate) kube_controller_manager: PathBuf,
    pub(crate) kubectl: PathBuf,
    pub(crate) helm: PathBuf,
    pub(crate) prometheus: Option<Prometheus>,
    /// The virtual environment with the routers' programs.
    pub(crate) routers: PathBuf,
    /// The operator, built from this source tree.
    pub(crate) operator: PathBuf,
}

/// Only for tests that ask for it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Prometheus {
    pub(crate) prometheus: PathBuf,
    pub(crate) promtool: PathBuf,
}

impl Tools {
    /// Finds or builds everything that `setup` asks for.
    pub(crate) async fn prepare(setup: Setup) -> Result<Self, Error> {
        let cache = Cache::open()?;
        let kubernetes = go::Module::read(&go::KUBERNETES)?;
        let (kube_apiserver, etcd, kubectl, minor) = match found::assets().await {
            Some(assets) => (assets.kube_apiserver, assets.etcd, Some(assets.kubectl), assets.minor),
            None => {
                let etcd = go::Module::read(&go::ETCD)?.program(&cache, "etcd").await?;
                (
                    kubernetes.program(&cache, "kube-apiserver").await?,
                    etcd,
                    None,
                    kubernetes.minor(),
                )
            }
        };
        let kube_controller_manager = kubernetes.program(&cache, "kube-controller-manager").await?;
        let kubectl = match kubectl.or(found::kubectl(minor).await) {
            Some(kubectl) => kubectl,
            None => kubernetes.program(&cache, "kubectl").await?,
        };
        let helm = helm().await?;
        let prometheus = if setup.prometheus {
            let module = go::Module::read(&go::PROMETHEUS)?;
            let (prometheus, promtool) = (
                module.program(&cache, "prometheus").await?,
                module.program(&cache, "promtool").await?,
            );
            Some(Prometheus { prometheus, promtool })
        } else {
            None
        };
        let routers = routers::prepare(&cache).await?;
        let operator = operator::build().await?;
        Ok(Self {
            etcd,
            kube_apiserver,
            kube_controller_manager,
            kubectl,
            helm,
            prometheus,
            routers,
            operator,
        })
    }
}

/// Finds or builds helm, which needs no cluster for what it renders.
///
/// # Errors
/// If it is neither there nor can be built.
pub async fn helm() -> Result<PathBuf, Error> {
    match found::helm().await {
        Some(helm) => Ok(helm),
        None => go::Module::read(&go::HELM)?.program(&Cache::open()?, "helm").await,
    }
}

/// Runs a build and shows for how long; an error says what to do if the builder is not installed, and quotes its last lines.
async fn build(what: &str, command: tokio::process::Command, remedy: &'static str) -> Result<Vec<u8>, Error> {
    /// Lines of the output that an error quotes.
    const QUOTED_LINES: usize = 30;
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let output = progress::run(what, command)
        .await
        .map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Error::Missing {
                program,
                what: what.to_owned(),
                remedy,
            },
            _ => Error::Run {
                program,
                what: what.to_owned(),
                source,
            },
        })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    Err(Error::Failed {
        what: what.to_owned(),
        log: lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n"),
    })
}
