//! ModelDeployment to objects and facts: a pure function.
//!
//! Knows no client and no clock, and reads no text that it wrote: the objects and the facts of each Pod come from the same decisions
//! (resource contract, section 2).

mod engine;
mod environment;
mod names;
mod object;
mod plan;
mod pod;
mod ports;
mod proxy;
mod quantity;
mod refusal;
mod revision;
mod router;
mod security;
mod service;
mod setting;

use model_deployment_crds::ModelDeployment;

pub use environment::{LEADER_ADDRESS, MEMBER_INDEX, SIZE};
pub use object::Object;
pub use plan::{Plan, RolePlan};
pub use ports::{ROUTER as ROUTER_PORT, ROUTER_METRICS as ROUTER_METRICS_PORT};
pub use refusal::Refusal;
pub use router::{Identity, RouterPlan};

/// What the spec leaves to the operator's own options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Image of vllm-router.
    pub vllm_router_image: String,
    /// Image of the SGLang gateway.
    pub sglang_gateway_image: String,
    /// Image of llm-d's Envoy, endpoint picker, routing proxy and coordinator.
    pub llm_d_router_image: String,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            vllm_router_image: "vllm/vllm-router:v0.1.17".into(),
            sglang_gateway_image: "lmsysorg/sgl-model-gateway:v0.3.2".into(),
            llm_d_router_image: "gpustack/llm-router:v0.3.1".into(),
        }
    }
}

/// Renders a ModelDeployment that the resource's own schema accepts. One without a namespace is rendered into `default`, one without a
/// UID with the zero UID.
///
/// # Errors
/// The sentence that `SpecAccepted` carries.
pub fn render(deployment: &ModelDeployment, defaults: &Defaults) -> Result<Plan, Refusal> {
    let setting = setting::Setting::of(deployment, defaults)?;
    names::check(&setting)?;
    plan::plan(&setting)
}
