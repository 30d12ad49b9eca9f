//! Owns etcd, kube-apiserver and kube-controller-manager as processes: their flags (test-cluster contract, section 3), logs,
//! readiness, and killing one on demand. Refuses to know what is stored in them.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use kube::Client;
use tokio::{
    process::{Child, Command},
    sync::Mutex,
    time::{Instant, sleep},
};

use crate::{
    certificates::Certificates,
    network::{API_SERVER, KUBERNETES, SERVICES},
    tools::Tools,
};

/// Five seconds are usual on two idle cores; a full test run keeps them busy.
const START_LIMIT: Duration = Duration::from_secs(120);
/// A port that opens cannot be watched; this is how often it is tried.
const TRY_AGAIN: Duration = Duration::from_millis(50);
/// Lines of a log that an error quotes.
const QUOTED_LINES: usize = 20;

const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}"#;

/// A program of the control plane did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be started.
    #[error("start {}", .program.name())]
    Start {
        /// Which one.
        program: Program,
        /// Why it failed.
        source: io::Error,
    },
    /// It ended by itself.
    #[error("{} ended at start; its last lines:\n{log}", .program.name())]
    Ended {
        /// Which one.
        program: Program,
        /// The end of its log.
        log: String,
    },
    /// It never answered.
    #[error("kube-apiserver was not ready after {}; its last lines:\n{log}", START_LIMIT.as_secs())]
    NotReady {
        /// The end of its log.
        log: String,
    },
    /// It could not be killed.
    #[error("kill {}", .program.name())]
    Kill {
        /// Which one.
        program: Program,
        /// Why it failed.
        source: io::Error,
    },
}

/// One program of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
        }
    }
}

/// The three programs, each running or not.
pub(crate) struct ControlPlane {
    commands: HashMap<Program, (PathBuf, Vec<String>)>,
    logs: PathBuf,
    client: Client,
    running: Mutex<HashMap<Program, Child>>,
}

impl ControlPlane {
    /// Starts all three and returns when the API server is ready.
    pub(crate) async fn start_all(
        state: &Path,
        tools: &Tools,
        certificates: &Certificates,
        controller_manager_kubeconfig: &Path,
        client: Client,
    ) -> Result<Self, Error> {
        let logs = state.join("logs");
        let audit_policy = state.join("audit-policy.json");
        fs::create_dir(&logs)
            .and_then(|()| fs::write(&audit_policy, AUDIT_POLICY))
            .map_err(|source| Error::Start {
                program: Program::ApiServer,
                source,
            })?;
        let commands = HashMap::from([
            (Program::Etcd, (tools.etcd.clone(), etcd(state))),
            (
                Program::ApiServer,
                (
                    tools.kube_apiserver.clone(),
                    api_server(state, &audit_policy, certificates),
                ),
            ),
            (
                Program::ControllerManager,
                (
                    tools.kube_controller_manager.clone(),
                    controller_manager(controller_manager_kubeconfig, certificates),
                ),
            ),
        ]);
        let plane = Self {
            commands,
            logs,
            client,
            running: Mutex::default(),
        };
        for program in [Program::Etcd, Program::ApiServer, Program::ControllerManager] {
            plane.start(program).await?;
        }
        Ok(plane)
    }

    /// Starts a program that is not running. Returns when it is ready, if it is the API server.
    pub(crate) async fn start(&self, program: Program) -> Result<(), Error> {
        let mut running = self.running.lock().await;
        if running.contains_key(&program) {
            return Ok(());
        }
        let mut child = self.spawn(program).map_err(|source| Error::Start { program, source })?;
        if program == Program::ApiServer {
            self.ready(&mut child, running.get_mut(&Program::Etcd)).await?;
        }
        running.insert(program, child);
        Ok(())
    }

    /// Ends a program with SIGKILL, as a crash does. (An orderly end of the API server waits a minute for its watches.)
    pub(crate) async fn kill(&self, program: Program) -> Result<(), Error> {
        let Some(mut child) = self.running.lock().await.remove(&program) else {
            return Ok(());
        };
        child.kill().await.map_err(|source| Error::Kill { program, source })
    }

    fn spawn(&self, program: Program) -> io::Result<Child> {
        let (path, arguments) = &self.commands[&program];
        let log = File::options().create(true).append(true).open(self.log(program))?;
        Command::new(path)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
    }

    async fn ready(&self, api_server: &mut Child, etcd: Option<&mut Child>) -> Result<(), Error> {
        let deadline = Instant::now() + START_LIMIT;
        let mut children = vec![(Program::ApiServer, api_server)];
        children.extend(etcd.map(|etcd| (Program::Etcd, etcd)));
        loop {
            let request = http::Request::get("/readyz")
                .body(Vec::new())
                .expect("a constant request");
            if self.client.request_text(request).await.is_ok() {
                return Ok(());
            }
            for (program, child) in &mut children {
                if !matches!(child.try_wait(), Ok(None)) {
                    return Err(Error::Ended {
                        program: *program,
                        log: self.end_of_log(*program),
                    });
                }
            }
            if Instant::now() > deadline {
                return Err(Error::NotReady {
                    log: self.end_of_log(Program::ApiServer),
                });
            }
            sleep(TRY_AGAIN).await;
        }
    }

    fn log(&self, program: Program) -> PathBuf {
        self.logs.join(program.name()).with_extension("log")
    }

    fn end_of_log(&self, program: Program) -> String {
        let text = fs::read_to_string(self.log(program)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n")
    }
}

/// Where the API server writes its audit log.
pub(crate) fn audit_log(state: &Path) -> PathBuf {
    state.join("audit.log")
}

fn etcd(state: &Path) -> Vec<String> {
    let (client, peer) = ("http://127.0.0.1:2379", "http://127.0.0.1:2380");
    vec![
        format!("--data-dir={}", state.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // The data lives as long as the test run.
        "--unsafe-no-fsync".to_owned(),
    ]
}

fn api_server(state: &Path, audit_policy: &Path, certificates: &Certificates) -> Vec<String> {
    let file = |name: &str| certificates.path(name).display().to_string();
    vec![
        "--etcd-servers=http://127.0.0.1:2379".to_owned(),
        // Every address of the Service range is local, so the in-cluster address reaches it as it is.
        "--bind-address=0.0.0.0".to_owned(),
        format!("--secure-port={}", KUBERNETES.port()),
        format!("--advertise-address={API_SERVER}"),
        format!("--service-cluster-ip-range={}", services()),
        // Nothing here plays kube-proxy: an APIService is dialled at its Pods' addresses.
        "--enable-aggregator-routing=true".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
        format!("--cert-dir={}", state.join("pki").display()),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--tls-cert-file={}", file("kube-apiserver.crt")),
        format!("--tls-private-key-file={}", file("kube-apiserver.key")),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={}", file("service-account.pub")),
        format!("--service-account-signing-key-file={}", file("service-account.key")),
        format!("--requestheader-client-ca-file={}", file("front-proxy-ca.crt")),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-uid-headers=X-Remote-Uid".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        format!("--proxy-client-cert-file={}", file("front-proxy-client.crt")),
        format!("--proxy-client-key-file={}", file("front-proxy-client.key")),
        format!("--kubelet-certificate-authority={}", file("ca.crt")),
        format!("--kubelet-client-certificate={}", file("kubelet-client.crt")),
        format!("--kubelet-client-key={}", file("kubelet-client.key")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        format!("--audit-policy-file={}", audit_policy.display()),
        format!("--audit-log-path={}", audit_log(state).display()),
    ]
}

fn controller_manager(kubeconfig: &Path, certificates: &Certificates) -> Vec<String> {
    let file = |name: &str| certificates.path(name).display().to_string();
    vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        "--bind-address=127.0.0.1".to_owned(),
        "--leader-elect=false".to_owned(),
        "--use-service-account-credentials=true".to_owned(),
        format!("--service-cluster-ip-range={}", services()),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--service-account-private-key-file={}", file("service-account.key")),
        format!("--cluster-signing-cert-file={}", file("ca.crt")),
        format!("--cluster-signing-key-file={}", file("ca.key")),
        // A test machine that is too busy for a heartbeat must not cost the one Node its Pods.
        "--controllers=*,-node-lifecycle-controller".to_owned(),
        // The default of 20 requests a second is for thousands of Nodes, and slows a test run down.
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ]
}

fn services() -> String {
    let (address, prefix) = SERVICES;
    format!("{address}/{prefix}")
}
