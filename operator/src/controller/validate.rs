//! Second and third step: the spec becomes a plan, or one sentence that says why not; the plan's objects in the form that is applied.
//! No client required.

use model_deployment::pod::labels::Position;
use model_deployment::render::{self, Defaults, Object, Refusal, RolePlan};
use model_deployment_crds::ModelDeployment;
use serde_json::Value;

use super::rollout::WantedRole;

/// What is to exist for one ModelDeployment.
pub struct Wanted {
    /// Everything but Pods, in order of creation.
    pub objects: Vec<Value>,
    /// The roles, in the spec's order.
    pub roles: Vec<Role>,
    /// Where requests are taken.
    pub endpoint: String,
}

/// One role.
pub struct Role {
    /// Its name.
    pub name: String,
    /// What the rollout needs to know.
    pub wanted: WantedRole,
    plan: RolePlan,
}

impl Role {
    /// The name of one Pod.
    pub fn pod_name(&self, ordinal: u32, member: u32) -> String {
        self.plan.pod_name(Position { ordinal, member })
    }

    /// One Pod, as it is applied.
    pub fn pod(&self, ordinal: u32, member: u32) -> Value {
        applied(&self.plan.pod(Position { ordinal, member }).into())
    }
}

/// Renders `object`.
///
/// # Errors
/// Why its spec is refused.
pub fn validate(object: &ModelDeployment, defaults: &Defaults) -> Result<Wanted, Refusal> {
    let plan = render::render(object, defaults)?;
    Ok(Wanted {
        objects: plan.objects_but_pods().map(|object| applied(&object)).collect(),
        endpoint: plan.endpoint,
        roles: plan
            .roles
            .into_iter()
            .map(|plan| Role {
                name: plan.name.clone(),
                wanted: WantedRole {
                    replicas: plan.replicas,
                    size: plan.size,
                    revision: Some(plan.revision.clone()),
                },
                plan,
            })
            .collect(),
    })
}

/// The object in the form that is applied: without a status, which is not ours to write.
fn applied(object: &Object) -> Value {
    let mut object = serde_json::to_value(object).expect("a rendered object is JSON");
    if let Value::Object(members) = &mut object {
        members.remove("status");
    }
    object
}
