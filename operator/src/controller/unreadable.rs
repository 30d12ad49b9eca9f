//! A ModelDeployment that cannot be read: stored under a definition that allowed more than this version of the operator knows. It is
//! told so in its own status; its Pods are left as they are.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::{Client, Resource, ResourceExt};
use model_deployment_crds::{ModelDeployment, ModelDeploymentStatus};

use super::events::{self, Happening};
use super::{report, status};

/// A ModelDeployment that cannot be read.
#[derive(Clone, Debug)]
pub struct Unreadable {
    raw: DynamicObject,
    /// Why not.
    pub why: String,
}

impl Unreadable {
    /// Reads a ModelDeployment.
    ///
    /// # Errors
    /// The object as it came, where it cannot be read.
    pub fn unless_read(raw: DynamicObject) -> Result<ModelDeployment, Arc<Self>> {
        let read = serde_json::to_value(&raw).and_then(serde_json::from_value);
        read.map_err(|error| {
            let why = error.to_string();
            Arc::new(Self { raw, why })
        })
    }

    /// Writes into its status that it cannot be read, and an Event; nothing, where that was written before.
    ///
    /// # Errors
    /// The status could not be written.
    pub async fn tell(&self, client: &Client, instance: &str) -> Result<(), kube::Error> {
        let previous = self.raw.data.get("status").cloned();
        let previous: Option<ModelDeploymentStatus> = previous.and_then(|status| serde_json::from_value(status).ok());
        let sentence = format!(
            "this version of the operator cannot read the object: {}; correct the spec",
            self.why
        );
        let now = report::whole_seconds(Timestamp::now());
        let status = status::unreadable(self.raw.metadata.generation, &sentence, previous.clone(), &now);
        if previous.as_ref() == Some(&status) {
            return Ok(());
        }
        report::patch(client, &self.raw.metadata, &status).await?;
        let refused = Happening::warning("SpecRefused", "Render", sentence);
        events::publish(client, instance, &self.reference(), vec![refused]).await;
        Ok(())
    }

    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(ModelDeployment::api_version(&()).into()),
            kind: Some(ModelDeployment::kind(&()).into()),
            namespace: self.raw.namespace(),
            name: Some(self.raw.name_any()),
            uid: self.raw.uid(),
            ..Default::default()
        }
    }
}
