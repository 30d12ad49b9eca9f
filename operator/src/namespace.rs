//! The end of the operator's own namespace.
//!
//! An APIService whose Service is gone leaves the API server's list of resources incomplete, and then no namespace can finish
//! deleting: the operator's own would wait for itself. So every replica watches its namespace and deletes the APIService as soon as
//! the namespace is being deleted. Kubernetes leaves five seconds until it deletes what is inside, the operator's ServiceAccount among
//! it. Knows nothing of what the APIService serves.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};

/// Before a deletion that failed is tried again: at first, and at most.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MOST: Duration = Duration::from_secs(5);

/// What goes with the namespace.
#[derive(Debug, Clone)]
pub struct Config {
    /// Namespace of the operator.
    pub namespace: String,
    /// The operator's Service in it.
    pub service: String,
    /// The APIService that leads there.
    pub api_service: String,
}

/// Watches the namespace, and deletes the APIService once the namespace is being deleted. Does not end; nothing that goes wrong is fatal.
pub async fn guard(client: Client, config: Config) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let api_services: Api<APIService> = Api::all(client);
    let mut seen = std::pin::pin!(watcher::watch_object(namespaces, &config.namespace).default_backoff());
    while let Some(state) = seen.next().await {
        match state {
            Ok(Some(namespace)) if namespace.metadata.deletion_timestamp.is_some() => {
                tracing::warn!(
                    namespace = config.namespace,
                    "the operator's namespace is being deleted, and the APIService {} goes first",
                    config.api_service
                );
                withdraw(&api_services, &config).await;
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the operator's namespace cannot be watched"),
        }
    }
}

/// Deletes the APIService, unless it is gone or leads elsewhere. Tries until that is so.
async fn withdraw(api: &Api<APIService>, config: &Config) {
    let mut retry = RETRY;
    loop {
        match delete(api, config).await {
            Ok(()) => return,
            Err(error) => tracing::error!(
                error = &error as &dyn std::error::Error,
                "the APIService cannot be deleted, and no namespace can finish deleting while it is there; \
                 run `kubectl delete apiservice {}`",
                config.api_service
            ),
        }
        tokio::time::sleep(retry).await;
        retry = (retry * 2).min(RETRY_MOST);
    }
}

async fn delete(api: &Api<APIService>, config: &Config) -> Result<(), kube::Error> {
    let Some(found) = api.get_opt(&config.api_service).await? else {
        return Ok(());
    };
    let service = found.spec.as_ref().and_then(|spec| spec.service.as_ref());
    let ours = service.is_some_and(|service| {
        service.namespace.as_ref() == Some(&config.namespace) && service.name.as_ref() == Some(&config.service)
    });
    if !ours {
        tracing::info!("the APIService {} leads elsewhere and stays", config.api_service);
        return Ok(());
    }
    // Only as it was seen: somebody may have it lead elsewhere meanwhile.
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: found.metadata.uid,
            resource_version: found.metadata.resource_version,
        }),
        ..DeleteParams::default()
    };
    match api.delete(&config.api_service, &params).await {
        Ok(_) => {
            tracing::info!("the APIService {} was deleted", config.api_service);
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
