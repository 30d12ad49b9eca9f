//! Owns the life of a cluster: network up, control plane up, the caller's closure, everything down. Refuses to know how any of
//! them is done.

use std::{
    fs::File,
    io::{self, IsTerminal},
    os::{fd::AsFd, unix::net::UnixStream},
    panic::AssertUnwindSafe,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use futures::FutureExt;
use nix::{
    sys::{prctl, signal::Signal},
    unistd::dup2_stdin,
};

use crate::{
    Cluster, Error,
    forwarder::InsideSide,
    network,
    part::{INTERRUPTED, Prepared},
};

/// What a Rust program reports when it panics.
const PANICKED: u8 = 101;
/// Pods that take longer to end are ended with the namespace.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn run<F>(inside: F) -> Result<ExitCode, Error>
where
    F: AsyncFnOnce(Cluster) -> ExitCode,
{
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|errno| Error::io("watch the guardian")(errno.into()))?;
    // What scheduler and kubelet could not do is said at once; kube's own warnings of a killed API server are not.
    tracing_subscriber::fmt()
        .with_env_filter(concat!(env!("CARGO_CRATE_NAME"), "=warn"))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    let (state, prepared) = Prepared::read()?;
    let control = take_control().map_err(Error::io("take the control socket"))?;
    let runtime = tokio::runtime::Runtime::new().map_err(Error::io("start the runtime"))?;
    let outcome = runtime.block_on(live(inside, state, prepared, control));
    // A blocking task that the closure left behind must not hold the end up.
    runtime.shutdown_background();
    outcome
}

async fn live<F>(inside: F, state: PathBuf, prepared: Prepared, control: UnixStream) -> Result<ExitCode, Error>
where
    F: AsyncFnOnce(Cluster) -> ExitCode,
{
    let (exposer, stop) = InsideSide::new(control, &state).map_err(Error::io("open the control socket"))?;
    network::set_up().await?;
    eprintln!("etcd, kube-apiserver and kube-controller-manager start");
    let cluster = tokio::select! {
        cluster = Cluster::start(state, prepared.tools, exposer) => cluster?,
        () = stop.cancelled() => return Ok(INTERRUPTED.into()),
    };
    let code = tokio::select! {
        outcome = AssertUnwindSafe(inside(cluster.clone())).catch_unwind() => outcome.unwrap_or(PANICKED.into()),
        () = stop.cancelled() => INTERRUPTED.into(),
    };
    // Whatever is left after this ends with this process, the first of its PID namespace.
    let _ = tokio::time::timeout(SHUTDOWN_LIMIT, cluster.kubelet().shutdown()).await;
    Ok(code)
}

/// The control socket came as standard input, which then is as empty as for every other background process.
fn take_control() -> io::Result<UnixStream> {
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    dup2_stdin(File::open("/dev/null")?)?;
    Ok(control)
}
