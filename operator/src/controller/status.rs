//! Last step, its pure half: the status that follows from what was seen. No client required.
//!
//! Every reason is listed in `docs/conditions.md`; a test compares.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use model_deployment_crds::ModelDeploymentStatus;
use model_deployment_crds::role::RoleKind;
use model_deployment_crds::router::RouterName;
use model_deployment_crds::status::{Phase, RoleStatus, RouterStatus};

use super::rollout::Counts;

/// Everything that a status is made of.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Generation of the spec.
    pub generation: Option<i64>,
    /// Whether the ModelDeployment is being deleted.
    pub deleting: bool,
    /// Why the spec is not rendered, if it is not.
    pub refused: Option<String>,
    /// The roles, in the spec's order.
    pub roles: Vec<SeenRole>,
    /// The router, where there is one.
    pub router: Option<SeenRouter>,
    /// Where requests are taken without a router.
    pub endpoint: Option<String>,
    /// What kept the plan from being carried out: a reason and a sentence.
    pub blocked: Option<(&'static str, String)>,
}

/// One role.
#[derive(Clone, Debug)]
pub struct SeenRole {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: RoleKind,
    /// Replicas wanted.
    pub desired: u32,
    /// Replicas seen.
    pub counts: Counts,
    /// Whether a user's `command` took it over.
    pub take_over: bool,
    /// What keeps a Pod of it from becoming ready.
    pub trouble: Option<String>,
}

/// The router, and its coordinator.
#[derive(Clone, Debug)]
pub struct SeenRouter {
    /// Which.
    pub name: RouterName,
    /// Pods wanted.
    pub desired: i32,
    /// Pods ready.
    pub ready: i32,
    /// The coordinator's Pods, wanted and ready, where there is a coordinator.
    pub coordinator: Option<(i32, i32)>,
    /// Where it takes requests.
    pub endpoint: String,
    /// Port of its Prometheus listener.
    pub metrics_port: i32,
}

impl SeenRouter {
    /// Requests pass it.
    fn is_ready(&self) -> bool {
        self.ready > 0 && self.coordinator.is_none_or(|(_, ready)| ready > 0)
    }

    /// Nothing more of it is on its way.
    fn is_settled(&self) -> bool {
        let starts = |(desired, ready): (i32, i32)| desired > 0 && ready == 0;
        !starts((self.desired, self.ready)) && !self.coordinator.is_some_and(starts)
    }
}

impl SeenRole {
    fn is_ready(&self) -> bool {
        self.counts.ready >= self.desired
    }
}

impl Seen {
    fn roles_ready(&self) -> bool {
        self.roles.iter().all(SeenRole::is_ready)
    }

    fn router_settled(&self) -> bool {
        self.router.as_ref().is_none_or(SeenRouter::is_settled)
    }

    /// The router does what the roles need of it: nothing, where there are none.
    fn router_suffices(&self) -> bool {
        if self.is_scaled_to_zero() {
            self.router_settled()
        } else {
            self.router.as_ref().is_none_or(SeenRouter::is_ready)
        }
    }

    /// No role is asked for a replica.
    fn is_scaled_to_zero(&self) -> bool {
        self.roles.iter().all(|role| role.desired == 0)
    }

    fn any_ready(&self) -> bool {
        self.roles.iter().any(|role| role.counts.ready > 0)
    }

    fn is_rolling(&self, previous: Option<&ModelDeploymentStatus>) -> bool {
        let outdated = self.roles.iter().any(|role| role.counts.outdated > 0);
        outdated || (was_rolling(previous) && !self.roles_ready())
    }
}

/// Whether `status` speaks of a rollout that has not finished.
pub fn was_rolling(status: Option<&ModelDeploymentStatus>) -> bool {
    reason(status, "Progressing").is_some_and(|reason| matches!(reason, "RolloutInProgress" | "RolloutStalled"))
}

/// The reason of the condition `type_` in `status`.
pub fn reason<'a>(status: Option<&'a ModelDeploymentStatus>, type_: &str) -> Option<&'a str> {
    let condition = status?.conditions.iter().find(|condition| condition.type_ == type_)?;
    Some(&condition.reason)
}

/// The status that follows from what was seen. `previous` is the last one written: a condition whose status has not changed keeps its
/// transition time.
pub fn status(seen: &Seen, previous: Option<&ModelDeploymentStatus>, now: &Time) -> ModelDeploymentStatus {
    let router = seen.router.as_ref();
    let endpoint = match router {
        Some(router) if router.is_ready() => Some(router.endpoint.clone()),
        Some(_) => None,
        None if seen.refused.is_some() => previous.and_then(|previous| previous.endpoint.clone()),
        None => seen.endpoint.clone(),
    };
    let conditions = [
        available(seen),
        progressing(seen, previous),
        router_ready(seen),
        roles_ready(seen),
        accepted(seen),
    ];
    ModelDeploymentStatus {
        observed_generation: seen.generation,
        phase: Some(phase(seen)),
        endpoint,
        role_summary: Some(summary(seen)),
        roles: seen
            .roles
            .iter()
            .map(|role| RoleStatus {
                name: role.name.clone(),
                kind: role.kind,
                desired: signed(role.desired),
                ready: signed(role.counts.ready),
                updated: signed(role.counts.updated),
                unmanaged: role.take_over,
            })
            .collect(),
        router: router.map(|router| RouterStatus {
            name: router.name,
            desired: router.desired,
            ready: router.ready,
            endpoint: router.endpoint.clone(),
            metrics_port: router.metrics_port,
        }),
        conditions: conditions
            .map(|judged| judged.condition(seen.generation, previous, now))
            .into(),
    }
}

fn phase(seen: &Seen) -> Phase {
    if seen.deleting {
        Phase::Deleting
    } else if seen.roles_ready() && seen.router_suffices() {
        Phase::Ready
    } else if seen.any_ready() {
        Phase::Degraded
    } else {
        Phase::Starting
    }
}

/// Ready instances by kind, such as `1R2S` or `1R3P4D`; a kind that the spec has and that has none ready shows 0.
fn summary(seen: &Seen) -> String {
    let router = seen.router.as_ref().map(|router| format!("{}R", router.ready));
    let kinds = [
        (RoleKind::Server, 'S'),
        (RoleKind::Prefill, 'P'),
        (RoleKind::Decode, 'D'),
    ];
    let roles = kinds.into_iter().filter_map(|(kind, letter)| {
        let mut roles = seen.roles.iter().filter(|role| role.kind == kind).peekable();
        roles.peek()?;
        Some(format!("{}{letter}", roles.map(|role| role.counts.ready).sum::<u32>()))
    });
    router.into_iter().chain(roles).collect()
}

/// One condition before it has its times.
struct Judged {
    type_: &'static str,
    status: bool,
    reason: &'static str,
    message: String,
}

impl Judged {
    fn condition(self, generation: Option<i64>, previous: Option<&ModelDeploymentStatus>, now: &Time) -> Condition {
        let status = if self.status { "True" } else { "False" };
        let before = previous.and_then(|previous| previous.conditions.iter().find(|before| before.type_ == self.type_));
        let since = before
            .filter(|before| before.status == status)
            .map(|before| before.last_transition_time.clone());
        Condition {
            type_: self.type_.into(),
            status: status.into(),
            reason: self.reason.into(),
            message: self.message,
            observed_generation: generation,
            last_transition_time: since.unwrap_or_else(|| now.clone()),
        }
    }
}

fn judged(type_: &'static str, status: bool, reason: &'static str, message: impl Into<String>) -> Judged {
    Judged {
        type_,
        status,
        reason,
        message: message.into(),
    }
}

/// Whether what is asked for is there to answer: every role that wants replicas has a ready one, and so has the router. Of a deployment
/// that is scaled to zero nothing is asked for, which is how Kubernetes' own Deployments see it.
fn available(seen: &Seen) -> Judged {
    let judged = |status, reason, message: String| judged("Available", status, reason, message);
    if seen.deleting {
        return judged(false, "Deleting", "the ModelDeployment is being deleted".into());
    }
    if seen.is_scaled_to_zero() && seen.router_suffices() {
        return judged(
            true,
            "NoReplicas",
            "every role is scaled to zero, as the spec asks for".into(),
        );
    }
    if let Some(role) = seen
        .roles
        .iter()
        .find(|role| role.desired > 0 && role.counts.ready == 0)
    {
        return judged(
            false,
            "NoReadyReplicas",
            format!("role {} has no ready replica", role.name),
        );
    }
    if !seen.router_suffices() {
        let router = seen.router.as_ref().map(router_judged);
        return judged(
            false,
            "RouterNotReady",
            router.map(|(.., message)| message).unwrap_or_default(),
        );
    }
    judged(true, "MinimumReplicasReady", "requests are answered".into())
}

/// Whether the operator or a Pod is on the way to what the spec asks for.
fn progressing(seen: &Seen, previous: Option<&ModelDeploymentStatus>) -> Judged {
    let judged = |status, reason, message: String| judged("Progressing", status, reason, message);
    if seen.deleting {
        return judged(true, "Deleting", "Pods and other objects are being removed".into());
    }
    if seen.refused.is_some() {
        return left_as_it_is();
    }
    if let Some((reason, message)) = &seen.blocked {
        return judged(false, reason, message.clone());
    }
    let ready: u32 = seen.roles.iter().map(|role| role.counts.ready).sum();
    let updated: u32 = seen.roles.iter().map(|role| role.counts.updated).sum();
    let desired: u32 = seen.roles.iter().map(|role| role.desired).sum();
    let trouble = seen
        .roles
        .iter()
        .find_map(|role| role.trouble.as_ref().map(|trouble| (&role.name, trouble)));
    match (seen.is_rolling(previous), trouble) {
        (true, Some((role, trouble))) => judged(
            false,
            "RolloutStalled",
            format!("the rollout of role {role} has stopped: {trouble}"),
        ),
        (true, None) => judged(
            true,
            "RolloutInProgress",
            format!("{updated} of {desired} replicas are of the new revision"),
        ),
        (false, Some((role, trouble))) => judged(false, "ReplicasFailing", format!("role {role}: {trouble}")),
        (false, None) if !seen.roles_ready() => judged(
            true,
            "ReplicasStarting",
            format!("{ready} of {desired} replicas are ready"),
        ),
        (false, None) if seen.roles.iter().any(|role| role.counts.surplus > 0) => {
            judged(true, "ScalingDown", "Pods beyond the wanted replicas are ending".into())
        }
        (false, None) if !seen.router_settled() => judged(true, "RouterStarting", "the router has no ready Pod".into()),
        (false, None) => judged(false, "UpToDate", "everything is as the spec asks for".into()),
    }
}

fn router_ready(seen: &Seen) -> Judged {
    let (status, reason, message) = match &seen.router {
        None => (true, "NoRouter", "the spec asks for no router".into()),
        Some(router) => router_judged(router),
    };
    judged("RouterReady", status, reason, message)
}

fn router_judged(router: &SeenRouter) -> (bool, &'static str, String) {
    match router {
        SeenRouter { desired: 0, .. } => (false, "NoReplicas", "the router is scaled to zero".into()),
        SeenRouter { ready: 0, .. } => (false, "NoReadyReplicas", "the router has no ready Pod".into()),
        router if !router.is_ready() => (false, "CoordinatorNotReady", "the coordinator has no ready Pod".into()),
        router => (
            true,
            "Ready",
            format!("{} of {} router Pods are ready", router.ready, router.desired),
        ),
    }
}

fn roles_ready(seen: &Seen) -> Judged {
    let judged = |status, reason, message: String| judged("RolesReady", status, reason, message);
    let lacking: Vec<_> = seen
        .roles
        .iter()
        .filter(|role| !role.is_ready())
        .map(|role| {
            format!(
                "{} has {} of {} replicas ready",
                role.name, role.counts.ready, role.desired
            )
        })
        .collect();
    if lacking.is_empty() {
        judged(true, "AllReplicasReady", "every replica of every role is ready".into())
    } else {
        judged(false, "ReplicasNotReady", lacking.join("; "))
    }
}

fn accepted(seen: &Seen) -> Judged {
    match &seen.refused {
        None => judged("SpecAccepted", true, "Accepted", "the spec is rendered"),
        Some(sentence) => refused(sentence),
    }
}

fn refused(sentence: &str) -> Judged {
    judged("SpecAccepted", false, "Refused", sentence)
}

fn left_as_it_is() -> Judged {
    let message = "the spec is not accepted; running Pods are left as they are";
    judged("Progressing", false, "SpecRefused", message)
}

/// The status of a ModelDeployment that cannot be read: what was written before, and that its spec is not accepted.
pub fn unreadable(
    generation: Option<i64>,
    sentence: &str,
    previous: Option<ModelDeploymentStatus>,
    now: &Time,
) -> ModelDeploymentStatus {
    let mut status = previous.clone().unwrap_or_default();
    status.observed_generation = generation;
    status.phase.get_or_insert(Phase::Starting);
    for judged in [left_as_it_is(), refused(sentence)] {
        status.conditions.retain(|condition| condition.type_ != judged.type_);
        status
            .conditions
            .push(judged.condition(generation, previous.as_ref(), now));
    }
    status
}

fn signed(count: u32) -> i32 {
    count.try_into().unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
