//! The scheduler: every Pod that has no Node gets the only one. Respects nothing else.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinHandle;

/// The Node.
pub(crate) const NODE: &str = "n1";

/// Bindings made at once: a role of many replicas must not wait for one round trip after the other.
const AT_ONCE: usize = 16;

/// Binds Pods until the handle is aborted.
pub(crate) fn start(client: Client) -> JoinHandle<()> {
    tokio::spawn(async move {
        let pending = watcher::Config::default().fields("spec.nodeName=");
        watcher(Api::<Pod>::all(client.clone()), pending)
            .default_backoff()
            .applied_objects()
            .inspect_err(|error| tracing::warn!(%error, "watch of pending Pods"))
            .filter_map(|pod| async { pod.ok() })
            .for_each_concurrent(AT_ONCE, |pod| bind(client.clone(), pod))
            .await;
    })
}

async fn bind(client: Client, pod: Pod) {
    if pod.metadata.deletion_timestamp.is_some() {
        return;
    }
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            uid: pod.uid(),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(NODE.to_owned()),
            ..ObjectReference::default()
        },
    };
    let pods = Api::<Pod>::namespaced(client, &namespace);
    let bound: kube::Result<Status> = pods
        .create_subresource("binding", &name, &PostParams::default(), &binding)
        .await;
    match bound {
        Ok(_) => {}
        // Bound already, or gone.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        Err(error) => tracing::warn!(%error, namespace, name, "Pod not bound"),
    }
}
