//! A real Kubernetes control plane in a network namespace of its own, shared by the cluster tests and the quick start.
//!
//! Owns: the order of things, from an ordinary `main` to a running cluster and back to a clean machine. One executable plays
//! several parts, told apart by `argv[0]` before a second thread exists:
//!
//! | Part | Where | Does |
//! |---|---|---|
//! | host | as it was started | finds or builds every program, listens on 127.0.0.1, passes Ctrl-C on |
//! | guardian | new user, network, mount and PID namespaces | outlives a killed host just long enough to leave nothing behind |
//! | inside | first process of the PID namespace | etcd, API server, controllers, scheduler, kubelet, and the caller's closure |
//! | sandbox | namespaces of one Pod | becomes a Pod's program |
//!
//! Because the inside part is the first process of its PID namespace, the kernel ends everything in it, however it ends.
//!
//! Refuses to know: what the operator is for, and what a test checks.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the test cluster needs Linux network namespaces: run it on Linux, or install charts/model-deployment-operator into `kind`"
);

mod certificates;
mod cluster;
mod control_plane;
pub mod engine;
mod error;
mod forwarder;
mod guardian;
mod host;
mod inside;
mod kubeconfig;
pub mod kubelet;
mod namespaces;
mod network;
mod part;
mod progress;
mod sandbox;
mod scheduler;
mod tools;

use std::process::ExitCode;

pub use certificates::{FrontProxy, FrontProxyRenewal, Pair};
pub use cluster::{Cluster, Output};
pub use control_plane::Program;
pub use error::Error;
pub use tools::helm;

/// What a cluster needs beyond the control plane, helm and the routers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// Build Prometheus and promtool (three minutes of two cores the first time).
    pub prometheus: bool,
}

/// Starts a cluster, runs `inside` with it, and shuts the cluster down however `inside` ends.
///
/// Call it first in `main`, before any thread exists: the same executable is started again, with the same arguments, as the
/// other parts of the cluster. `inside` runs in the cluster's network; an await point must come up now and then, so
/// blocking work belongs on `tokio::task::spawn_blocking`. The exit code is that of `inside`, 101 after a panic, 130 after
/// Ctrl-C, and 1, with one sentence on standard error, when there is no cluster to run in.
pub fn run<F>(setup: Setup, inside: F) -> ExitCode
where
    F: AsyncFnOnce(Cluster) -> ExitCode,
{
    let name = std::env::args().next().unwrap_or_default();
    let outcome = match name.as_str() {
        part::GUARDIAN => guardian::run(),
        part::INSIDE => inside::run(inside),
        sandbox::ROLE => return sandbox::init(),
        _ => host::run(setup),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {}", error::chain(&error));
        ExitCode::FAILURE
    })
}
