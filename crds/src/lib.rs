//! API types of model-deployment-operator, group `worker.gpustack.ai`.
//!
//! Types only: what people write (`ModelDeployment`), what the operator reports back (its status), and what the aggregated API
//! answers (`ModelDeploymentMetrics`). Nothing here renders, reads or decides.

pub mod definition;
pub mod metrics;
pub mod model_deployment;
pub mod role;
pub mod router;
pub mod status;

pub use model_deployment::{ModelDeployment, ModelDeploymentSpec};
pub use status::ModelDeploymentStatus;

/// The API group of everything in this crate.
pub const GROUP: &str = "worker.gpustack.ai";
/// The stored version of `ModelDeployment`.
pub const STORED_VERSION: &str = "v1alpha1";
/// The version that the aggregated API serves.
pub const AGGREGATED_VERSION: &str = "v1";
/// `apiVersion` of a stored `ModelDeployment`.
pub const STORED_API_VERSION: &str = "worker.gpustack.ai/v1alpha1";
/// `apiVersion` of what the aggregated API serves.
pub const AGGREGATED_API_VERSION: &str = "worker.gpustack.ai/v1";
/// The APIService that leads to the aggregated API.
pub const API_SERVICE: &str = "v1.worker.gpustack.ai";
/// The resource's kind.
pub const KIND: &str = "ModelDeployment";
/// The resource's plural name.
pub const PLURAL: &str = "modeldeployments";
/// The kind that the resource's `metrics` subresource answers with.
pub const METRICS_KIND: &str = "ModelDeploymentMetrics";

#[cfg(test)]
mod tests {
    use kube::Resource;

    use super::*;

    #[test]
    fn every_name_is_made_of_the_same_parts() {
        assert_eq!(STORED_API_VERSION, format!("{GROUP}/{STORED_VERSION}"));
        assert_eq!(AGGREGATED_API_VERSION, format!("{GROUP}/{AGGREGATED_VERSION}"));
        assert_eq!(API_SERVICE, format!("{AGGREGATED_VERSION}.{GROUP}"));
        assert_eq!(ModelDeployment::api_version(&()), STORED_API_VERSION);
        assert_eq!(ModelDeployment::kind(&()), KIND);
        assert_eq!(ModelDeployment::plural(&()), PLURAL);
    }
}
