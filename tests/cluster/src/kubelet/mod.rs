//! The kubelet: runs the Pods that are bound to this Node, really where their program can run here and played where it cannot.
//!
//! Owns the Node and the Pods on it. Which program an image stands for is `image`; how a real one is kept apart is
//! `crate::sandbox`; how an engine is played is [`crate::engine`]. Plays no more than the tests and the quick start need:
//! `exec` probes are refused, `preStop` is not run, security contexts and resource limits are not enforced, and volumes
//! are not refreshed.

mod addresses;
mod container;
mod environment;
mod fault;
mod image;
mod life;
mod log;
mod node;
mod objects;
mod probe;
mod program;
mod resident;
mod server;
mod status;
mod trust;
mod volume;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use fault::FaultError;
pub use server::LOG_PORT;
pub use trust::TrustError;

use addresses::Addresses;
use image::Programs;
use log::Log;
use objects::Objects;
use resident::Resident;

use crate::sandbox::Gateway;

/// What the kubelet needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of its Node.
    pub node_name: String,
    /// Address of its Node, where it serves logs.
    pub node_address: IpAddr,
    /// A folder of its own; removed at the end.
    pub state_dir: PathBuf,
    /// What runs for the operator's image.
    pub operator_binary: PathBuf,
    /// The virtual environment with the routers' wheels.
    pub router_venv: PathBuf,
    /// What runs for Prometheus' image, if it was built.
    pub prometheus: Option<PathBuf>,
    /// Its own certificate, PEM.
    pub serving_certificate: String,
    /// The certificate's key, PEM.
    pub serving_key: String,
    /// The CA whose clients may read logs, PEM.
    pub client_ca: String,
}

/// Why the kubelet cannot start.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// The Node could not be registered.
    #[error("cannot register the Node")]
    Register(#[from] kube::Error),
    /// Its certificate cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// Its folder, its port or its netlink socket cannot be had.
    #[error("cannot {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Its Node has no IPv4 address.
    #[error("the Node's address {0} is not of IPv4")]
    Address(IpAddr),
}

/// A running kubelet. Clones are the same one.
#[derive(Clone)]
pub struct Kubelet {
    node: Arc<Node>,
}

/// What all Pods share.
struct Node {
    client: Client,
    config: Config,
    programs: Programs,
    gateway: Gateway,
    addresses: Mutex<Addresses>,
    residents: Mutex<HashMap<String, Arc<Resident>>>,
    /// Pods, by namespace and name, that are reported unready whatever their probes say.
    held: Mutex<HashSet<(String, String)>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Kubelet {
    /// Registers the Node and takes over the Pods that are bound to it. Call it inside the cluster's network namespace.
    ///
    /// # Errors
    /// The Node cannot be registered, or port, folder or certificate cannot be used.
    pub async fn start(client: Client, config: Config) -> Result<Self, KubeletError> {
        let IpAddr::V4(address) = config.node_address else {
            return Err(KubeletError::Address(config.node_address));
        };
        let system = |action| move |source| KubeletError::System { action, source };
        let gateway = Gateway::open(address).map_err(system("open a netlink socket"))?;
        let programs = Programs {
            operator: config.operator_binary.clone(),
            routers: config.router_venv.clone(),
            prometheus: config.prometheus.clone(),
        };
        let node = Arc::new(Node {
            client: client.clone(),
            programs,
            gateway,
            addresses: Mutex::default(),
            residents: Mutex::default(),
            held: Mutex::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            config,
        });
        tokio::fs::create_dir_all(node.sandbox_root())
            .await
            .map_err(system("make the kubelet's folder"))?;
        let trust = &node.config;
        let acceptor = trust::server(&trust.serving_certificate, &trust.serving_key, &trust.client_ca)?;
        let listener = server::bind(node.config.node_address)
            .await
            .map_err(system("listen for log requests"))?;
        node.tasks.spawn(server::serve(node.clone(), listener, acceptor));
        node::register(&client, &node.config.node_name, node.config.node_address, LOG_PORT).await?;
        let beat = node::heartbeat(client.clone(), node.config.node_name.clone());
        let stop = node.stop.clone();
        node.tasks
            .spawn(async move { stop.run_until_cancelled_owned(beat).await });
        let (stop, pods) = (node.stop.clone(), watch(node.clone()));
        node.tasks
            .spawn(async move { stop.run_until_cancelled_owned(pods).await });
        Ok(Self { node })
    }

    /// Ends every container at once, leaves the objects as they are, and removes the folder.
    pub async fn shutdown(&self) {
        self.node.stop.cancel();
        for resident in self.node.residents.lock().values() {
            resident.gone.cancel();
        }
        self.node.tasks.close();
        self.node.tasks.wait().await;
        // Already gone if this is called twice.
        let _ = tokio::fs::remove_dir_all(&self.node.config.state_dir).await;
    }
}

impl Node {
    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn objects(&self, namespace: &str) -> Objects {
        Objects::new(self.client.clone(), namespace)
    }

    fn sandbox_root(&self) -> PathBuf {
        self.config.state_dir.join("root")
    }

    fn is_held(&self, namespace: &str, name: &str) -> bool {
        self.held.lock().contains(&(namespace.to_owned(), name.to_owned()))
    }

    /// The log of a new run of a container.
    fn log(&self, resident: &Resident, container: &str, run: i32) -> io::Result<Log> {
        let path = resident.folder.join("logs").join(format!("{container}-{run}.log"));
        let log = Log::create(&path)?;
        resident
            .inside
            .lock()
            .logs
            .entry(container.to_owned())
            .or_default()
            .push(log.clone());
        Ok(log)
    }
}

/// Follows the Pods of this Node.
async fn watch(node: Arc<Node>) {
    let mine = watcher::Config::default().fields(&format!("spec.nodeName={}", node.config.node_name));
    let mut events = std::pin::pin!(watcher(Api::<Pod>::all(node.client.clone()), mine).default_backoff());
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(pod)) => {
                listed.extend(pod.metadata.uid.clone());
                admit(&node, pod);
            }
            Ok(watcher::Event::InitDone) => {
                let vanished = |uid: &&String| !listed.contains(*uid);
                let vanished: Vec<String> = node.residents.lock().keys().filter(vanished).cloned().collect();
                vanished.iter().for_each(|uid| dismiss(&node, uid));
            }
            Ok(watcher::Event::Apply(pod)) => admit(&node, pod),
            Ok(watcher::Event::Delete(pod)) => dismiss(&node, pod.metadata.uid.as_deref().unwrap_or_default()),
            Err(error) => tracing::warn!(%error, "watch of this Node's Pods"),
        }
    }
}

/// Takes a Pod in, or tells it that it has changed.
fn admit(node: &Arc<Node>, pod: Pod) {
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let mut residents = node.residents.lock();
    if let Some(resident) = residents.get(&uid) {
        resident.object.send_replace(Arc::new(pod));
        return;
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
    let over = matches!(phase.as_deref(), Some("Failed" | "Succeeded"));
    let Some(address) = node.addresses.lock().take() else {
        tracing::error!("no Pod address is left");
        return;
    };
    let folder = node.config.state_dir.join("pods").join(&uid);
    let resident = Arc::new(Resident::new(Arc::new(pod), address, folder));
    if over {
        resident.end(Some(Duration::ZERO));
    }
    residents.insert(uid, resident.clone());
    let node = node.clone();
    node.tasks.clone().spawn(async move {
        life::live(node.clone(), resident).await;
    });
}

/// The Pod's object is gone.
fn dismiss(node: &Node, uid: &str) {
    if let Some(resident) = node.residents.lock().remove(uid) {
        resident.gone.cancel();
    }
}
