//! Owns the errors of the cluster as a whole. The rooms below have their own.

use std::{error::Error as StdError, io};

/// Why there is no cluster, or why a request to it failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program could not be found or built.
    #[error(transparent)]
    Tools(#[from] crate::tools::Error),
    /// The machine refuses namespaces.
    #[error(transparent)]
    Namespaces(#[from] crate::namespaces::Error),
    /// The cluster's network could not be set up.
    #[error(transparent)]
    Network(#[from] crate::network::Error),
    /// Certificates could not be made.
    #[error("make the cluster's certificates")]
    Certificates(#[from] crate::certificates::Error),
    /// A program of the control plane did not start.
    #[error(transparent)]
    ControlPlane(#[from] crate::control_plane::Error),
    /// An address could not be reached from the host.
    #[error(transparent)]
    Forwarder(#[from] crate::forwarder::Error),
    /// The kubelet did not start.
    #[error("start the kubelet: {0}")]
    Kubelet(String),
    /// The API server's answer.
    #[error("ask the API server")]
    Kube(#[from] kube::Error),
    /// A kubeconfig did not make a client.
    #[error("read the kubeconfig")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// A watch ended before the thing waited for was seen.
    #[error("wait for the namespace's default ServiceAccount")]
    Wait(#[from] kube::runtime::wait::Error),
    /// A file or process of the cluster itself.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
}

impl Error {
    /// Names what was being done when an I/O error came up.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// The error and its sources in one line.
pub(crate) fn chain(error: &dyn StdError) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        source = cause.source();
    }
    line
}
