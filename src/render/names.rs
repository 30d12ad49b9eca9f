//! Names: unique among Pods and, separately, among Services. That each is valid and short enough is held by the resource's own rules.

use model_deployment_crds::role::Role;

use super::Refusal;
use super::setting::Setting;

/// Refuses two roles of which one has the name of a replica of the other: `<md>-<role>-<ordinal>[-<member>]` is a Pod,
/// `<md>-<role>-<ordinal>` the Service of a replica of several Pods, `<md>-<role>` the Service of a role.
pub(super) fn check(setting: &Setting<'_>) -> Result<(), Refusal> {
    let roles = &setting.spec.roles;
    for several in roles.iter().filter(|role| role.size > 1) {
        for other in roles {
            let Some(ordinal) = replica_named(several, &other.name) else {
                continue;
            };
            if ordinal >= several.replicas {
                continue;
            }
            let (first, second) = (several.name.clone(), other.name.clone());
            if other.size == 1 && other.replicas > 0 {
                let name = format!("{}-{}-0", setting.name, other.name);
                return Err(Refusal::SameName {
                    kind: "Pod",
                    name,
                    first,
                    second,
                });
            }
            let name = format!("{}-{}", setting.name, other.name);
            return Err(Refusal::SameName {
                kind: "Service",
                name,
                first,
                second,
            });
        }
    }
    Ok(())
}

/// The ordinal of the replica of `role` that `name` spells.
fn replica_named(role: &Role, name: &str) -> Option<i32> {
    let digits = name.strip_prefix(&role.name)?.strip_prefix('-')?;
    let ordinal: i32 = digits.parse().ok()?;
    (ordinal.to_string() == digits).then_some(ordinal)
}
