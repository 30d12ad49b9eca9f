//! Keeps the front proxy's configuration current from the ConfigMap that the API server publishes.
//!
//! Knows where it is published and how to follow it. The last good content stays in force when an update is broken, the
//! object vanishes or the API server cannot be reached.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};

use super::FrontProxy;
use crate::console::sentence;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// Besides the watch, in case a watch has gone silent.
const POLL: Duration = Duration::from_secs(60);

/// The configuration in force, shared with those who read it. Empty until it was first loaded.
#[derive(Debug, Clone, Default)]
pub struct Published {
    current: Arc<ArcSwapOption<FrontProxy>>,
}

impl Published {
    /// What is in force now.
    pub fn load(&self) -> Option<Arc<FrontProxy>> {
        self.current.load_full()
    }

    /// Follows the published object. Never ends.
    pub async fn follow(&self, client: Client) {
        let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
        let watched = watcher::watch_object(api.clone(), NAME)
            .default_backoff()
            .map_err(|error| match error {
                watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => error.into(),
                error => Problem::Watch(error),
            });
        let polled = futures::stream::unfold(tokio::time::interval(POLL), |mut interval| {
            let api = api.clone();
            async move {
                interval.tick().await;
                Some((api.get_opt(NAME).await.map_err(Problem::from), interval))
            }
        });
        let mut states = std::pin::pin!(futures::stream::select(watched, polled));
        let mut said = None;
        while let Some(state) = states.next().await {
            let problem = match state {
                Ok(Some(object)) => self.take(&object).err(),
                Ok(None) => Some(Problem::Absent),
                Err(problem) => Some(problem),
            };
            // One line for each change, not one for each attempt.
            let text = problem.as_ref().map(|problem| sentence(problem));
            match &text {
                Some(text) if said.as_ref() != Some(text) => {
                    tracing::warn!(loaded = self.load().is_some(), "{text}");
                }
                None if said.is_some() => tracing::info!("the front proxy's configuration is read again"),
                _ => {}
            }
            said = text;
        }
    }

    fn take(&self, object: &ConfigMap) -> Result<(), Problem> {
        let data = object.data.clone().unwrap_or_default();
        let fresh = FrontProxy::parse(&data)?;
        self.current.store(Some(Arc::new(fresh)));
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(
        "callers cannot be identified: reading ConfigMap {NAMESPACE}/{NAME} is forbidden; bind the operator's ServiceAccount to the \
         Role extension-apiserver-authentication-reader with a RoleBinding in {NAMESPACE}"
    )]
    Forbidden,
    #[error(
        "ConfigMap {NAMESPACE}/{NAME} does not exist; the API server publishes it when it runs with --requestheader-client-ca-file"
    )]
    Absent,
    #[error("ConfigMap {NAMESPACE}/{NAME} cannot be used")]
    Unusable(#[from] super::Unusable),
    #[error("ConfigMap {NAMESPACE}/{NAME} cannot be read")]
    Read(#[source] kube::Error),
    #[error("ConfigMap {NAMESPACE}/{NAME} cannot be watched")]
    Watch(#[source] watcher::Error),
}

impl From<kube::Error> for Problem {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 403 => Problem::Forbidden,
            error => Problem::Read(error),
        }
    }
}
