//! An object's controller, by UID.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model_deployment_crds::GROUP;

/// A kind whose objects control others here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// Of an engine Pod and of every other object that is rendered.
    ModelDeployment,
    /// Of a router's ReplicaSets.
    Deployment,
    /// Of a router's Pods.
    ReplicaSet,
}

/// The controller reference of an object. Only the UID identifies: a name is free again once its object is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) kind: OwnerKind,
    pub(super) uid: String,
}

impl Owner {
    /// The controller that `metadata` names, if it is of a kind that matters here.
    pub(super) fn of(metadata: &ObjectMeta) -> Option<Self> {
        let reference = metadata
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true))?;
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        let kind = match (group, reference.kind.as_str()) {
            (GROUP, "ModelDeployment") => OwnerKind::ModelDeployment,
            ("apps", "Deployment") => OwnerKind::Deployment,
            ("apps", "ReplicaSet") => OwnerKind::ReplicaSet,
            _ => return None,
        };
        Some(Self {
            kind,
            uid: reference.uid.clone(),
        })
    }
}
