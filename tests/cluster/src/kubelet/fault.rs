//! Faults on demand: what a test can make a Pod do.
//!
//! Every method names a Pod by namespace and name. None waits for the API server to show the effect; tests watch for it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use super::resident::{Failure, Order, Resident};
use super::{Kubelet, Node};
use crate::engine::{Engine, Kind, State};

/// Why a fault could not be played.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FaultError {
    /// No such Pod is on the Node.
    #[error("pod {namespace}/{name} is not on the Node")]
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The Pod has no such container, or the container has ended for good.
    #[error("pod {pod} runs no container {container:?}")]
    Container {
        /// The Pod's name.
        pod: String,
        /// The container's name.
        container: String,
    },
}

impl Kubelet {
    /// The engine that a Pod plays, or its first stub if it has no engine; `None` if the Pod is not there, has neither, or has not
    /// started it yet.
    #[must_use]
    pub fn engine(&self, namespace: &str, pod: &str) -> Option<Engine> {
        let resident = self.node.find(namespace, pod)?;
        let mut engines: Vec<Engine> = resident.engines().into_values().collect();
        engines.sort_by_key(|engine| engine.arguments().kind == Kind::Stub);
        engines.into_iter().next()
    }

    /// The engine (or stub) that one container of a Pod plays.
    #[must_use]
    pub fn engine_of(&self, namespace: &str, pod: &str, container: &str) -> Option<Engine> {
        let resident = self.node.find(namespace, pod)?;
        resident.engines().remove(container)
    }

    /// The address that a Pod was given, whatever its status says.
    ///
    /// # Errors
    /// The Pod is not on the Node.
    pub fn address(&self, namespace: &str, pod: &str) -> Result<Ipv4Addr, FaultError> {
        Ok(self.resident(namespace, pod)?.address)
    }

    /// Ends a container with SIGTERM and starts it again at once: `restartCount` one higher, a new `startedAt`, counters anew.
    ///
    /// # Errors
    /// There is no such Pod or container.
    pub fn restart_container(&self, namespace: &str, pod: &str, container: &str) -> Result<(), FaultError> {
        self.order(namespace, pod, container, Order::Restart)
    }

    /// Ends a container's process with SIGKILL; what follows is the Pod's restart policy.
    ///
    /// # Errors
    /// There is no such Pod or container.
    pub fn kill_container(&self, namespace: &str, pod: &str, container: &str) -> Result<(), FaultError> {
        self.order(namespace, pod, container, Order::Kill)
    }

    /// Kills a container and leaves it in `CrashLoopBackOff` until [`Self::mend_container`].
    ///
    /// # Errors
    /// There is no such Pod or container.
    pub fn crash_container(&self, namespace: &str, pod: &str, container: &str) -> Result<(), FaultError> {
        self.order(namespace, pod, container, Order::Crash)
    }

    /// Starts a container again that [`Self::crash_container`] left in back-off.
    ///
    /// # Errors
    /// There is no such Pod or container.
    pub fn mend_container(&self, namespace: &str, pod: &str, container: &str) -> Result<(), FaultError> {
        self.order(namespace, pod, container, Order::Mend)
    }

    /// Ends a Pod in phase `Failed`.
    ///
    /// # Errors
    /// The Pod is not on the Node.
    pub fn fail(&self, namespace: &str, pod: &str) -> Result<(), FaultError> {
        let failure = Failure {
            reason: None,
            message: "failed on demand".to_owned(),
        };
        self.condemn(namespace, pod, failure)
    }

    /// Ends a Pod in phase `Failed` with reason `Evicted`.
    ///
    /// # Errors
    /// The Pod is not on the Node.
    pub fn evict(&self, namespace: &str, pod: &str) -> Result<(), FaultError> {
        let message = "The node was low on resource: memory.".to_owned();
        self.condemn(
            namespace,
            pod,
            Failure {
                reason: Some("Evicted"),
                message,
            },
        )
    }

    /// The Pod's engines take connections and never answer, while its status stays as it is (its probes are not called).
    ///
    /// # Errors
    /// The Pod is not on the Node.
    pub fn hang(&self, namespace: &str, pod: &str) -> Result<(), FaultError> {
        let resident = self.resident(namespace, pod)?;
        resident.frozen.send_replace(true);
        resident.engines().values().for_each(|engine| engine.enter(State::Hang));
        Ok(())
    }

    /// Calls a Pod's probes again, or stops calling them: its readiness stays as it is.
    ///
    /// # Errors
    /// The Pod is not on the Node.
    pub fn freeze_probes(&self, namespace: &str, pod: &str, frozen: bool) -> Result<(), FaultError> {
        self.resident(namespace, pod)?.frozen.send_replace(frozen);
        Ok(())
    }

    /// Ends [`Self::hang`].
    ///
    /// # Errors
    /// The Pod is not on the Node.
    pub fn wake(&self, namespace: &str, pod: &str) -> Result<(), FaultError> {
        let resident = self.resident(namespace, pod)?;
        resident
            .engines()
            .values()
            .for_each(|engine| engine.enter(State::Normal));
        resident.frozen.send_replace(false);
        Ok(())
    }

    /// Writes no status of the Pod any more, or writes it again.
    ///
    /// # Errors
    /// The Pod is not on the Node.
    pub fn silence(&self, namespace: &str, pod: &str, silent: bool) -> Result<(), FaultError> {
        let resident = self.resident(namespace, pod)?;
        resident.inside.lock().silent = silent;
        resident.touch();
        Ok(())
    }

    /// Reports another address for the Pod; `None` reports no address at all. What listens stays where it is.
    ///
    /// # Errors
    /// The Pod is not on the Node.
    pub fn report_address(&self, namespace: &str, pod: &str, address: Option<Ipv4Addr>) -> Result<(), FaultError> {
        let resident = self.resident(namespace, pod)?;
        resident.inside.lock().reported = Some(address);
        resident.touch();
        Ok(())
    }

    /// Reports the Pod's own address again.
    ///
    /// # Errors
    /// The Pod is not on the Node.
    pub fn restore_address(&self, namespace: &str, pod: &str) -> Result<(), FaultError> {
        let resident = self.resident(namespace, pod)?;
        resident.inside.lock().reported = None;
        resident.touch();
        Ok(())
    }

    /// The address of `from` becomes that of `to`: the engines of `to` listen there and its status says so. The engines of
    /// `from` are gone, but its status still names the address, as between a Pod's end and its last status.
    ///
    /// # Errors
    /// One of the Pods is not on the Node.
    pub fn move_address(&self, namespace: &str, from: &str, to: &str) -> Result<(), FaultError> {
        let (from, to) = (self.resident(namespace, from)?, self.resident(namespace, to)?);
        from.frozen.send_replace(true);
        to.frozen.send_replace(true);
        from.engines().values().for_each(|engine| engine.enter(State::Refuse));
        to.engines()
            .values()
            .for_each(|engine| engine.relocate(from.address.into()));
        to.inside.lock().reported = Some(Some(from.address));
        to.touch();
        Ok(())
    }

    /// Reports a Pod unready, whatever its probes say, until it is released. The Pod need not exist yet.
    pub fn hold_readiness(&self, namespace: &str, pod: &str) {
        self.node.held.lock().insert((namespace.to_owned(), pod.to_owned()));
        self.touch(namespace, pod);
    }

    /// Ends [`Self::hold_readiness`].
    pub fn release_readiness(&self, namespace: &str, pod: &str) {
        self.node.held.lock().remove(&(namespace.to_owned(), pod.to_owned()));
        self.touch(namespace, pod);
    }

    fn touch(&self, namespace: &str, pod: &str) {
        if let Some(resident) = self.node.find(namespace, pod) {
            resident.touch();
        }
    }

    fn condemn(&self, namespace: &str, pod: &str, failure: Failure) -> Result<(), FaultError> {
        let resident = self.resident(namespace, pod)?;
        resident.inside.lock().failure = Some(failure);
        resident.end(Some(Duration::ZERO));
        resident.touch();
        Ok(())
    }

    fn order(&self, namespace: &str, pod: &str, container: &str, order: Order) -> Result<(), FaultError> {
        let resident = self.resident(namespace, pod)?;
        if resident.order(container, order) {
            return Ok(());
        }
        Err(FaultError::Container {
            pod: pod.to_owned(),
            container: container.to_owned(),
        })
    }

    fn resident(&self, namespace: &str, pod: &str) -> Result<Arc<Resident>, FaultError> {
        let found = self.node.find(namespace, pod);
        found.ok_or_else(|| FaultError::Pod {
            namespace: namespace.to_owned(),
            name: pod.to_owned(),
        })
    }
}

impl Node {
    /// The Pod of this name; the newest, where one of that name is just ending.
    pub(super) fn find(&self, namespace: &str, name: &str) -> Option<Arc<Resident>> {
        let residents = self.residents.lock();
        let named = residents
            .values()
            .filter(|r| r.namespace == namespace && r.name == name);
        named.max_by_key(|resident| resident.started).cloned()
    }
}
