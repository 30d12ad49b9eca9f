//! One Pod on this Node: what is shared between its containers, its status and the faults of a test.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::Node;
use super::container::Report;
use super::environment::{self, Addresses};
use super::log::Log;
use crate::engine::Engine;
use crate::network::KUBERNETES;
use crate::sandbox::Mount;

/// What a test tells a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// End in order and start again at once.
    Restart,
    /// SIGKILL; the restart policy decides what follows.
    Kill,
    /// SIGKILL, and wait in back-off until mended.
    Crash,
    /// Leave the back-off.
    Mend,
}

/// A verdict over the whole Pod that its containers do not change any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: Option<&'static str>,
    pub(super) message: String,
}

/// A Pod on this Node.
pub(super) struct Resident {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The address that it was given; what is reported may differ.
    pub(super) address: Ipv4Addr,
    pub(super) started: Timestamp,
    pub(super) folder: PathBuf,
    /// The object as the API server last showed it.
    pub(super) object: watch::Sender<Arc<Pod>>,
    /// The object is gone.
    pub(super) gone: CancellationToken,
    /// Containers must end, within the grace.
    pub(super) stop: CancellationToken,
    /// Containers must end now.
    pub(super) hurry: CancellationToken,
    /// Probes are not called.
    pub(super) frozen: watch::Sender<bool>,
    /// Something of the status may have changed.
    pub(super) dirty: Notify,
    pub(super) inside: Mutex<Inside>,
    changes: watch::Sender<u64>,
}

/// What changes.
#[derive(Default)]
pub(super) struct Inside {
    pub(super) containers: BTreeMap<String, Report>,
    pub(super) initialized: bool,
    pub(super) conditions: Vec<PodCondition>,
    pub(super) failure: Option<Failure>,
    /// `Some(None)`: no address is reported; `Some(Some(a))`: another one.
    pub(super) reported: Option<Option<Ipv4Addr>>,
    /// No status is written.
    pub(super) silent: bool,
    orders: HashMap<String, mpsc::UnboundedSender<Order>>,
    engines: BTreeMap<String, Engine>,
    pub(super) logs: HashMap<String, Vec<Log>>,
    grace: Option<Duration>,
}

impl Resident {
    pub(super) fn new(pod: Arc<Pod>, address: Ipv4Addr, folder: PathBuf) -> Self {
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            address,
            started: Timestamp::now(),
            folder,
            object: watch::Sender::new(pod),
            gone: CancellationToken::new(),
            stop: CancellationToken::new(),
            hurry: CancellationToken::new(),
            frozen: watch::Sender::new(false),
            dirty: Notify::new(),
            inside: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }

    pub(super) fn pod(&self) -> Arc<Pod> {
        self.object.borrow().clone()
    }

    pub(super) fn restart_policy(&self) -> String {
        let pod = self.pod();
        let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.clone());
        policy.unwrap_or_else(|| "Always".to_owned())
    }

    pub(super) fn addresses(&self, node: &Node) -> Addresses {
        Addresses {
            pod: self.address.into(),
            host: node.config.node_address,
        }
    }

    /// Time between SIGTERM and SIGKILL.
    pub(super) fn grace(&self) -> Duration {
        let pod = self.pod();
        let seconds = pod.metadata.deletion_grace_period_seconds;
        let seconds = seconds.or_else(|| pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds));
        let seconds = u64::try_from(seconds.unwrap_or(30)).unwrap_or(0);
        self.inside.lock().grace.unwrap_or(Duration::from_secs(seconds))
    }

    /// Changes the report of a container.
    pub(super) fn report(&self, container: &str, change: impl FnOnce(&mut Report)) {
        change(self.inside.lock().containers.entry(container.to_owned()).or_default());
        self.touch();
    }

    /// The report of a container.
    pub(super) fn container(&self, name: &str) -> Report {
        self.inside.lock().containers.get(name).cloned().unwrap_or_default()
    }

    /// Says that something of the status may have changed.
    pub(super) fn touch(&self) {
        self.dirty.notify_one();
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Waits until `is` holds; it is asked again after every change.
    pub(super) async fn until(&self, mut is: impl FnMut(&Inside) -> bool) {
        let mut changes = self.changes.subscribe();
        while !is(&self.inside.lock()) {
            // The sender lives in `self`.
            let _ = changes.changed().await;
        }
    }

    /// The receiving end of a container's orders. Asked for once a container.
    pub(super) fn orders(&self, container: &str) -> mpsc::UnboundedReceiver<Order> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.inside.lock().orders.insert(container.to_owned(), sender);
        receiver
    }

    /// Gives a container an order; `false` if there is no such container or it has ended for good.
    pub(super) fn order(&self, container: &str, order: Order) -> bool {
        let inside = self.inside.lock();
        inside
            .orders
            .get(container)
            .is_some_and(|sender| sender.send(order).is_ok())
    }

    /// The engine of a container, made on its first run.
    pub(super) fn engine(&self, container: &str, make: impl FnOnce() -> Engine) -> Engine {
        self.inside
            .lock()
            .engines
            .entry(container.to_owned())
            .or_insert_with(make)
            .clone()
    }

    /// All engines, by container.
    pub(super) fn engines(&self) -> BTreeMap<String, Engine> {
        self.inside.lock().engines.clone()
    }

    /// `/etc/hosts` of the Pod: itself, and the API server, which clients in a Pod look for by name.
    pub(super) async fn hosts_file(&self) -> io::Result<Mount> {
        let pod = self.pod();
        let mut text = format!(
            "127.0.0.1 localhost\n::1 localhost\n{} {}\n{} kubernetes.default.svc kubernetes.default kubernetes.default.svc.cluster.local\n",
            self.address,
            environment::hostname(&pod),
            KUBERNETES.ip(),
        );
        for alias in pod.spec.iter().flat_map(|spec| spec.host_aliases.iter().flatten()) {
            text += &format!(
                "{} {}\n",
                alias.ip,
                alias.hostnames.iter().flatten().cloned().collect::<Vec<_>>().join(" ")
            );
        }
        let source = self.folder.join("hosts");
        tokio::fs::write(&source, text).await?;
        Ok(Mount {
            source,
            target: "/etc/hosts".into(),
            read_only: false,
        })
    }

    /// Ends the containers within `grace`, or the Pod's own.
    pub(super) fn end(&self, grace: Option<Duration>) {
        if grace.is_some() {
            self.inside.lock().grace = grace;
        }
        if grace == Some(Duration::ZERO) {
            self.hurry.cancel();
        }
        self.stop.cancel();
    }
}
