//! Security settings: everything of the `restricted` Pod security level except `runAsNonRoot`, since the engines' official images start
//! as root. Seccomp stands on the Pod, the rest on the container.

use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, SeccompProfile, SecurityContext};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Of the Pod; a user's members win.
pub(super) fn of_pod(given: Option<&PodSecurityContext>) -> PodSecurityContext {
    let own = PodSecurityContext {
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".into(),
            localhost_profile: None,
        }),
        ..Default::default()
    };
    overlay(own, given)
}

/// Of a container; a user's members win, `capabilities` being one. RDMA needs locked memory.
pub(super) fn of_container(given: Option<&SecurityContext>, rdma: bool) -> SecurityContext {
    let own = SecurityContext {
        allow_privilege_escalation: (!given.is_some_and(must_escalate)).then_some(false),
        capabilities: Some(Capabilities {
            add: rdma.then(|| vec!["IPC_LOCK".into()]),
            drop: Some(vec!["ALL".into()]),
        }),
        ..Default::default()
    };
    overlay(own, given)
}

/// The API server refuses `allowPrivilegeEscalation: false` beside these.
fn must_escalate(given: &SecurityContext) -> bool {
    let adds_sys_admin = given
        .capabilities
        .as_ref()
        .and_then(|capabilities| capabilities.add.as_ref())
        .is_some_and(|added| {
            added
                .iter()
                .any(|capability| capability == "SYS_ADMIN" || capability == "CAP_SYS_ADMIN")
        });
    given.privileged == Some(true) || adds_sys_admin
}

/// `own` with each member that is `given` in its place.
fn overlay<T: Serialize + DeserializeOwned>(own: T, given: Option<&T>) -> T {
    let Some(given) = given else { return own };
    let members = |settings: &T| match serde_json::to_value(settings) {
        Ok(Value::Object(members)) => members,
        _ => serde_json::Map::new(),
    };
    let mut merged = members(&own);
    merged.extend(members(given));
    serde_json::from_value(Value::Object(merged)).unwrap_or(own)
}
