//! The serving certificate, from an authority of our own or from a Secret that somebody else keeps.
//!
//! Two Secrets are the truth: the leaf with the trusted authorities beside it, and the authority with its key. Every replica
//! watches them and serves the leaf in force; the first replica creates what is not there; the leader renews, repairs, and tells
//! the API server whom to trust (`caBundle` of the APIService). Where somebody else keeps the leaf's Secret (cert-manager, or a
//! person), it is read and never written, and whom the API server trusts is their affair too. Replicas know one another by
//! certificates of the operator's own authority, whoever keeps the leaf. Knows nothing of what is served.

mod bundle;
mod issue;
mod keeper;
mod pair;
mod plan;
mod replica;
mod secret;
mod serving;

use kube::Client;
use tokio::sync::watch;

pub use replica::{Credentials, NoReplica, ReplicaIdentity};
pub use serving::ServingCertificate;

/// Who keeps the serving certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Provider {
    /// The operator: it issues the certificate, renews it, and tells the API server its authority.
    #[default]
    Operator,
    /// Whoever writes the Secret: cert-manager, or a person. The operator only reads it.
    Secret,
}

/// Where the certificates are kept and whom they are for.
#[derive(Debug, Clone)]
pub struct Config {
    /// Who keeps the serving certificate.
    pub provider: Provider,
    /// Namespace of the operator: of its Secrets and its Service.
    pub namespace: String,
    /// The Service that the API server calls.
    pub service: String,
    /// Secret of the leaf.
    pub secret: String,
    /// Secret of the operator's own authority and its key.
    pub authority_secret: String,
    /// The APIService whose `caBundle` is kept.
    pub api_service: String,
}

impl Config {
    /// The names the leaf is for. The API server checks the first.
    fn names(&self) -> [String; 4] {
        let Config { service, namespace, .. } = self;
        [
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}"),
            service.clone(),
            format!("{service}.{namespace}.svc.cluster.local"),
        ]
    }
}

/// Keeps `serving` and `identity` loaded, and the certificates alive while `leading` says so. Never ends; nothing that goes wrong is fatal.
pub async fn run(
    client: Client,
    config: Config,
    leading: watch::Receiver<bool>,
    serving: ServingCertificate,
    identity: ReplicaIdentity,
) {
    keeper::Keeper::new(client, config, leading, serving, identity)
        .run()
        .await;
}
