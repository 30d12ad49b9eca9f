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
/// The resource's plural name.
pub const PLURAL: &str = "modeldeployments";
