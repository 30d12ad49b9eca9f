//! A sandbox for one real program: network, mount and host-name namespaces of its own.
//!
//! Owns both sides. The parent starts this executable again as [`ROLE`]; the child leaves the parent's namespaces while it has
//! one thread, says so, gets its end of a veth pair, builds its root, and becomes the program:
//!
//! ```text
//! parent                                  child (ROLE)
//!   plan, one line of JSON  ---stdin--->    unshare
//!   veth into the child     <--stdout---    "unshared"
//!   "linked"                ---stdin--->    address, routes, mounts, chroot
//!   the program's output    <--stdout---    "ready", then exec
//! ```
//!
//! Refuses to know Pods. Nothing is left when the program ends: mounts and interfaces go with its namespaces.

mod network;
mod root;

use std::convert::Infallible;
use std::io::{self, BufRead, Write};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, sethostname};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout};

use crate::error::chain;

pub(crate) use network::Gateway;
pub(crate) use root::host_path;

/// `argv[0]` of a process that must call [`init`] before it has a second thread.
pub(crate) const ROLE: &str = "test-cluster-sandbox";

/// This executable, even if its file is replaced while it runs.
const ITSELF: &str = "/proc/self/exe";

const UNSHARED: &str = "unshared";
const LINKED: &str = "linked";
const READY: &str = "ready";

/// Why a program could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    /// The child process could not be started or spoken to.
    #[error("cannot start the sandbox process")]
    Process(#[from] io::Error),
    /// The kernel refused the child's network.
    #[error("cannot link the sandbox to the cluster's network")]
    Network(#[from] rtnetlink::Error),
    /// The child ended before it became the program; this is what it said.
    #[error("{0}")]
    Refused(String),
    /// The kernel refused a namespace, a mount or a change of root.
    #[error("cannot {action}")]
    Kernel {
        /// What was tried.
        action: String,
        /// Why not.
        source: nix::Error,
    },
    /// A file or folder of the root could not be made.
    #[error("cannot {action}")]
    File {
        /// What was tried.
        action: String,
        /// Why not.
        source: io::Error,
    },
}

/// What the child does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Path of the program as this machine names it.
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    /// Working directory inside; made if it is not there.
    pub(crate) directory: PathBuf,
    pub(crate) hostname: String,
    pub(crate) address: Ipv4Addr,
    /// An empty folder of this machine on which the child mounts its root. Sandboxes may share it.
    pub(crate) root: PathBuf,
    pub(crate) mounts: Vec<Mount>,
}

/// A folder or file of this machine that the program sees elsewhere.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) read_only: bool,
}

/// What the parent tells the child about its end of the pair.
#[derive(Serialize, Deserialize)]
struct Errand {
    plan: Plan,
    interface: String,
}

/// A running program. Dropped, it is killed.
pub(crate) struct Sandbox {
    child: Child,
    /// The process, and the group of everything that it starts.
    process: Pid,
    link: network::Link,
}

/// The program's output.
pub(crate) struct Output {
    pub(crate) stdout: BufReader<ChildStdout>,
    pub(crate) stderr: ChildStderr,
}

impl Sandbox {
    /// Starts a program and returns once it is about to run.
    pub(crate) async fn start(gateway: &Gateway, plan: Plan) -> Result<(Self, Output), SandboxError> {
        let address = plan.address;
        let interface = gateway.name();
        let mut child = tokio::process::Command::new(ITSELF)
            .arg0(ROLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let (Some(mut stdin), Some(stdout), Some(mut stderr), Some(pid)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take(), child.id())
        else {
            return Err(io::Error::other("the process has no pipes").into());
        };
        let process = Pid::from_raw(i32::try_from(pid).map_err(io::Error::other)?);
        let mut stdout = BufReader::new(stdout);
        let errand = Errand {
            plan,
            interface: interface.clone(),
        };
        let mut line = serde_json::to_string(&errand).map_err(io::Error::from)?;
        line.push('\n');
        stdin.write_all(line.as_bytes()).await?;
        expect(UNSHARED, &mut stdout, &mut stderr).await?;
        let link = gateway.connect(&interface, pid, address).await?;
        stdin.write_all(format!("{LINKED}\n").as_bytes()).await?;
        expect(READY, &mut stdout, &mut stderr).await?;
        Ok((Self { child, process, link }, Output { stdout, stderr }))
    }

    /// Waits for the program to end; what it has started ends with it, and its interface goes.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.signal(Signal::SIGKILL);
        self.link.remove().await;
        Ok(status)
    }

    /// Sends a signal to the program; SIGKILL goes to everything that it started, too.
    pub(crate) fn signal(&self, signal: Signal) {
        // Processes that have ended meanwhile are what was wanted.
        let _ = if signal == Signal::SIGKILL {
            killpg(self.process, signal)
        } else {
            kill(self.process, signal)
        };
    }
}

async fn expect(word: &str, stdout: &mut BufReader<ChildStdout>, stderr: &mut ChildStderr) -> Result<(), SandboxError> {
    let mut line = String::new();
    stdout.read_line(&mut line).await?;
    if line.trim_end() == word {
        return Ok(());
    }
    let mut said = String::new();
    stderr.read_to_string(&mut said).await?;
    Err(SandboxError::Refused(said.trim_end().to_owned()))
}

/// The child's whole life. Returns only if the program could not be started, after saying why on standard error.
pub(crate) fn init() -> ExitCode {
    let Err(error) = become_program();
    eprintln!("{}", chain(&error));
    ExitCode::FAILURE
}

fn become_program() -> Result<Infallible, SandboxError> {
    let kernel = |action: &str| {
        let action = action.to_owned();
        |source| SandboxError::Kernel { action, source }
    };
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(kernel("watch the parent"))?;
    let mut lines = io::stdin().lock().lines();
    let mut next = || lines.next().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()));
    let Errand { plan, interface } = serde_json::from_str(&next()?).map_err(io::Error::from)?;
    let namespaces = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS;
    unshare(namespaces).map_err(kernel("leave the cluster's namespaces"))?;
    say(UNSHARED)?;
    if next()? != LINKED {
        return Err(io::Error::other("the parent did not link the sandbox").into());
    }
    sethostname(&plan.hostname).map_err(kernel("set the host name"))?;
    network::set_up(&interface, plan.address)?;
    root::enter(&plan)?;
    let program = root::host_path(&plan.program);
    say(READY)?;
    let mut command = std::process::Command::new(&program);
    command
        .args(&plan.arguments)
        .env_clear()
        .envs(plan.environment)
        .stdin(Stdio::null());
    let source = command.exec();
    Err(SandboxError::File {
        action: format!("start {}", plan.program.display()),
        source,
    })
}

fn say(word: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    writeln!(stdout, "{word}")?;
    stdout.flush()
}
