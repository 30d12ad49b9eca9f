//! ModelDeployments under `worker.gpustack.ai/v1`, passed through to a played API server.

mod answers;
mod identity;
mod modes;
mod reads;
mod watches;
mod writes;

use http::Method;
use serde_json::{Value, json};

use crate::api::{Answer, Asked, reply};
use crate::stage::Stage;

pub const COLLECTION: &str = "/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments";
pub const OBJECT: &str = "/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/chat";
pub const STORED: &str = "/apis/worker.gpustack.ai/v1alpha1/namespaces/ns/modeldeployments/chat";

/// A ModelDeployment of a version, with the other version's name where it is nobody's version.
pub fn object(version: &str) -> Value {
    json!({
        "apiVersion": format!("worker.gpustack.ai/{version}"),
        "kind": "ModelDeployment",
        "metadata": {
            "name": "chat",
            "namespace": "ns",
            "annotations": {"note": "worker.gpustack.ai/v1alpha1 and worker.gpustack.ai/v1"},
            "managedFields": [
                {"manager": "kubectl", "apiVersion": format!("worker.gpustack.ai/{version}")},
                {"manager": "scaler", "apiVersion": "autoscaling/v1"},
            ],
        },
        "spec": {"model": {"name": "worker.gpustack.ai/v1alpha1"}},
    })
}

/// A server before an API server that says `answer` to everything that is passed on.
pub async fn saying(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Stage {
    let stage = Stage::new().await;
    stage.api.script(move |asked| (is_passed(asked)).then(|| answer(asked)));
    stage.until_writing().await;
    stage
}

/// One that holds the object.
pub async fn holding() -> Stage {
    saying(|asked| match asked.method {
        Method::POST => reply(201, &object("v1alpha1")),
        _ => reply(200, &object("v1alpha1")),
    })
    .await
}

pub fn is_passed(asked: &Asked) -> bool {
    asked.path.starts_with("/apis/worker.gpustack.ai/v1alpha1/") && !asked.is_probe()
}
