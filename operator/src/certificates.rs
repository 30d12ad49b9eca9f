//! The serving certificate, from an authority of our own.
//!
//! Two Secrets are the truth: the leaf with the trusted authorities beside it, and the authority with its key. Every replica
//! watches them and serves the leaf in force; the first replica creates what is not there; the leader renews, repairs, and tells
//! the API server whom to trust (`caBundle` of the APIService). Replicas know one another by certificates of the same authority. Knows
//! nothing of what is served.

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

/// Where the certificates are kept and whom they are for.
#[derive(Debug, Clone)]
pub struct Config {
    /// Namespace of the operator: of its Secrets and its Service.
    pub namespace: String,
    /// The Service that the API server calls.
    pub service: String,
    /// Secret of the leaf. The authority's key is in `<secret>-ca`.
    pub secret: String,
    /// The APIService whose `caBundle` is kept.
    pub api_service: String,
}

impl Config {
    fn authority_secret(&self) -> String {
        format!("{}-ca", self.secret)
    }

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
