//! Variables of containers: how they are written, and those of the engine that the operator keeps for itself.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector};
use model_deployment_crds::role::Role;

use super::Refusal;

/// Address of the leader of a replica of several Pods.
pub const LEADER_ADDRESS: &str = "MODELDEPLOYMENT_LEADER_ADDRESS";
/// Number of Pods of the replica.
pub const SIZE: &str = "MODELDEPLOYMENT_SIZE";
/// The Pod's index in the replica.
pub const MEMBER_INDEX: &str = "MODELDEPLOYMENT_MEMBER_INDEX";
/// Owned on every role, also on one that a user's `command` took over.
pub(super) const RANK_NAMES: [&str; 3] = [LEADER_ADDRESS, SIZE, MEMBER_INDEX];
/// The Pod's own address, for the topic of its cache events.
pub(super) const POD_ADDRESS: &str = "MODELDEPLOYMENT_POD_ADDRESS";
/// The other way out of an owned variable of an engine.
pub(super) const OR_COMMAND: &str = ", or take the role over with command";

/// Refuses a user's variable whose name is `owned`.
pub(super) fn refuse_owned(role: &Role, owned: &[&str], way_out: &'static str) -> Result<(), Refusal> {
    match role.env.iter().find(|given| owned.contains(&given.name.as_str())) {
        Some(given) => Err(Refusal::RoleVariable {
            role: role.name.clone(),
            name: given.name.clone(),
            way_out,
        }),
        None => Ok(()),
    }
}

/// A variable with a value.
pub(super) fn variable(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar {
        name: name.into(),
        value: Some(value.into()),
        value_from: None,
    }
}

/// A variable that holds a field of its Pod.
pub(super) fn field(name: &str, path: &str) -> EnvVar {
    let field_ref = ObjectFieldSelector {
        api_version: Some("v1".into()),
        field_path: path.into(),
    };
    EnvVar {
        name: name.into(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(field_ref),
            ..Default::default()
        }),
    }
}
