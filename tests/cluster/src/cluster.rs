//! Owns the handle that tests and the quick start hold: clients, kubectl and helm, fresh namespaces, and faults of the control
//! plane. Refuses to know what they check.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
    runtime::wait::await_condition,
};
use tokio::{io::AsyncWriteExt, process::Command};

use crate::{
    Error, Program,
    certificates::{Certificates, FrontProxyRenewal},
    control_plane::{self, ControlPlane},
    forwarder::InsideSide,
    kubeconfig,
    kubelet::{self, Kubelet},
    network, scheduler,
    tools::Tools,
};

/// Name of the one Node.
const NODE: &str = "n1";

/// A running cluster. Clones are the same cluster.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    state: PathBuf,
    tools: Tools,
    exposer: Arc<InsideSide>,
    config: kube::Config,
    client: Client,
    plane: ControlPlane,
    kubelet: Kubelet,
}

/// What a program printed and how it ended.
#[derive(Clone, Debug)]
pub struct Output {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// How it ended.
    pub status: ExitStatus,
}

impl Cluster {
    pub(crate) async fn start(state: PathBuf, tools: Tools, exposer: Arc<InsideSide>) -> Result<Self, Error> {
        let certificates = Certificates::make(certificates(&state))?;
        fs::create_dir(state.join("home")).map_err(Error::io("make a home for kubectl and helm"))?;
        let on_host = exposer.expose(network::KUBERNETES).await?;
        let admin = kubeconfig::text(network::KUBERNETES, &certificates, &certificates.admin);
        let controller_manager = state.join("controller-manager.kubeconfig");
        for (path, text) in [
            (inside_kubeconfig(&state), admin.clone()),
            (
                host_kubeconfig(&state),
                kubeconfig::text(on_host, &certificates, &certificates.admin),
            ),
            (
                controller_manager.clone(),
                kubeconfig::text(network::KUBERNETES, &certificates, &certificates.controller_manager),
            ),
        ] {
            fs::write(path, text).map_err(Error::io("write a kubeconfig"))?;
        }

        let config = kubeconfig::config(&admin).await?;
        let client = Client::try_from(config.clone())?;
        let plane = ControlPlane::start_all(&state, &tools, &certificates, &controller_manager, client.clone()).await?;
        scheduler::start(client.clone());
        let kubelet = Kubelet::start(
            client.clone(),
            kubelet::Config {
                node_name: NODE.to_owned(),
                node_address: IpAddr::V4(network::NODE),
                state_dir: state.join("kubelet"),
                operator_binary: tools.operator.clone(),
                router_venv: tools.routers.clone(),
                prometheus: tools.prometheus.as_ref().map(|built| built.prometheus.clone()),
                serving_certificate: certificates.kubelet.certificate,
                serving_key: certificates.kubelet.key,
                client_ca: certificates.authority,
            },
        )
        .await
        .map_err(|error| Error::Kubelet(crate::error::chain(&error)))?;
        Ok(Self(Arc::new(Inner {
            state,
            tools,
            exposer,
            config,
            client,
            plane,
            kubelet,
        })))
    }

    /// A client that may do everything.
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }

    /// A client that may do what `user`, a member of `groups`, may do.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client, Error> {
        kubeconfig::impersonate(self.0.config.clone(), user, groups)
    }

    /// The administrator's kubeconfig for programs inside.
    pub fn kubeconfig(&self) -> PathBuf {
        inside_kubeconfig(&self.0.state)
    }

    /// The administrator's kubeconfig for programs on the host.
    pub fn host_kubeconfig(&self) -> PathBuf {
        host_kubeconfig(&self.0.state)
    }

    /// The operator's program, built from this source tree.
    pub fn operator(&self) -> &Path {
        &self.0.tools.operator
    }

    /// Runs kubectl as the administrator.
    pub async fn kubectl<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<Output, Error> {
        self.kubectl_with_input(arguments, "").await
    }

    /// Runs kubectl as the administrator with `input` as its standard input (`apply -f -`).
    pub async fn kubectl_with_input<A: AsRef<OsStr>>(&self, arguments: &[A], input: &str) -> Result<Output, Error> {
        self.output(&self.0.tools.kubectl, arguments, input).await
    }

    /// Runs kubectl as the administrator, whose editor is this command (`edit`).
    pub async fn kubectl_with_editor(&self, editor: &str, arguments: &[&str]) -> Result<Output, Error> {
        let kubectl = self.0.tools.kubectl.display().to_string();
        let editor = format!("KUBE_EDITOR={editor}");
        let arguments = [&[editor.as_str(), &kubectl][..], arguments].concat();
        self.output(Path::new("env"), &arguments, "").await
    }

    /// Runs helm as the administrator.
    pub async fn helm<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<Output, Error> {
        self.output(&self.0.tools.helm, arguments, "").await
    }

    /// Runs promtool, if the set-up asked for Prometheus.
    pub async fn promtool<A: AsRef<OsStr>>(&self, arguments: &[A], input: &str) -> Option<Result<Output, Error>> {
        let promtool = &self.0.tools.prometheus.as_ref()?.promtool;
        Some(self.output(promtool, arguments, input).await)
    }

    /// The kubelet, which can be told to make a Pod fail.
    pub fn kubelet(&self) -> &Kubelet {
        &self.0.kubelet
    }

    /// The API server's audit log: every request at level `Metadata`, one JSON object a line.
    pub fn audit_log(&self) -> PathBuf {
        control_plane::audit_log(&self.0.state)
    }

    /// Makes an address of the cluster reachable from the host, and returns where on 127.0.0.1.
    pub async fn expose(&self, address: SocketAddr) -> Result<SocketAddr, Error> {
        Ok(self.0.exposer.expose(address).await?)
    }

    /// Creates a namespace of its own for a test and returns its name. Pods can be created in it at once.
    pub async fn namespace(&self, prefix: &str) -> Result<String, Error> {
        let namespace = Namespace {
            metadata: ObjectMeta {
                generate_name: Some(format!("{prefix}-")),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let created = Api::<Namespace>::all(self.client())
            .create(&PostParams::default(), &namespace)
            .await?;
        let name = created.metadata.name.unwrap_or_default();
        let accounts = Api::<ServiceAccount>::namespaced(self.client(), &name);
        await_condition(accounts, "default", |account: Option<&ServiceAccount>| {
            account.is_some()
        })
        .await?;
        Ok(name)
    }

    /// Starts a program of the control plane that was killed; the API server is ready when this returns.
    pub async fn start_program(&self, program: Program) -> Result<(), Error> {
        Ok(self.0.plane.start(program).await?)
    }

    /// Ends a program of the control plane with SIGKILL, as a crash does.
    pub async fn kill_program(&self, program: Program) -> Result<(), Error> {
        Ok(self.0.plane.kill(program).await?)
    }

    /// A new authority of the front proxy, to be put in the place of the present one.
    pub fn renew_front_proxy(&self) -> Result<FrontProxyRenewal, Error> {
        Ok(FrontProxyRenewal::begin(certificates(&self.0.state))?)
    }

    /// The folder with everything that this cluster wrote; gone after the run.
    pub fn state_dir(&self) -> &Path {
        &self.0.state
    }

    /// Where kubectl finds its plug-in, before anything of the person's.
    fn path(&self) -> OsString {
        let folder = self.0.tools.operator.parent().map(Path::to_path_buf);
        let inherited = env::var_os("PATH").unwrap_or_default();
        let folders = folder.into_iter().chain(env::split_paths(&inherited));
        env::join_paths(folders).unwrap_or(inherited.clone())
    }

    async fn output<A: AsRef<OsStr>>(&self, program: &Path, arguments: &[A], input: &str) -> Result<Output, Error> {
        let run = async {
            let mut child = Command::new(program)
                .args(arguments)
                .env("KUBECONFIG", self.kubeconfig())
                .env("PATH", self.path())
                // What they cache goes with the cluster, and nothing of the person's own set-up is read.
                .env("HOME", self.0.state.join("home"))
                .env_remove("XDG_CACHE_HOME")
                .env_remove("XDG_CONFIG_HOME")
                .env_remove("XDG_DATA_HOME")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let mut stdin = child.stdin.take();
            let feed = async {
                if let Some(mut stdin) = stdin.take() {
                    // A program that does not read all of its input is no failure of ours; its status tells.
                    let _ = stdin.write_all(input.as_bytes()).await;
                }
            };
            let (output, ()) = tokio::join!(child.wait_with_output(), feed);
            output
        };
        let output = run.await.map_err(Error::io(format!("run {}", program.display())))?;
        Ok(Output {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            status: output.status,
        })
    }
}

fn certificates(state: &Path) -> PathBuf {
    state.join("pki")
}

fn inside_kubeconfig(state: &Path) -> PathBuf {
    state.join("inside.kubeconfig")
}

fn host_kubeconfig(state: &Path) -> PathBuf {
    state.join("kubeconfig")
}
