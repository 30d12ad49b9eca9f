//! The labels of what we render, in both directions: the Pods of an engine and of a router, and the selectors that find them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use model_deployment_crds::role::RoleKind;

/// Labels or annotations.
pub type Map = BTreeMap<String, String>;

/// What the object belongs to as a product.
pub const NAME: &str = "app.kubernetes.io/name";
/// The ModelDeployment's name.
pub const INSTANCE: &str = "app.kubernetes.io/instance";
/// The role's name; only on engine Pods and their Services.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// Who keeps the object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The installation that the object belongs to.
pub const PART_OF: &str = "app.kubernetes.io/part-of";
/// The role's kind in lower case; only on engine Pods.
pub const ROLE_KIND: &str = "modeldeployment.gpustack.ai/role-kind";
/// The replica's ordinal; only on engine Pods and the Services of one replica.
pub const ORDINAL: &str = "modeldeployment.gpustack.ai/ordinal";
/// The Pod's index in its replica, 0 for the leader; only on engine Pods.
pub const MEMBER: &str = "modeldeployment.gpustack.ai/member";
/// Hash of the rendered Pod.
pub const REVISION: &str = "modeldeployment.gpustack.ai/revision";
/// The router's name, or [`COORDINATOR`]; only on their objects.
pub const ROUTER: &str = "modeldeployment.gpustack.ai/router";

/// Value of [`NAME`].
pub const PRODUCT: &str = "model-deployment";
/// Value of [`MANAGED_BY`] and [`PART_OF`].
pub const OPERATOR: &str = "model-deployment-operator";
/// The router's role name in facts and answers.
pub const ROUTER_ROLE: &str = "router";
/// The coordinator's role name, and its value of [`ROUTER`].
pub const COORDINATOR: &str = "coordinator";

/// Labels of every object that is rendered for the ModelDeployment `instance`.
pub fn of_object(instance: &str) -> Map {
    map([
        (NAME, PRODUCT),
        (INSTANCE, instance),
        (MANAGED_BY, OPERATOR),
        (PART_OF, OPERATOR),
    ])
}

/// Labels of every object of one engine role.
pub fn of_role(instance: &str, role: &str) -> Map {
    with(of_object(instance), COMPONENT, role)
}

/// Labels of every object of the router called `router`, or of the [`COORDINATOR`].
pub fn of_router(instance: &str, router: &str) -> Map {
    with(of_object(instance), ROUTER, router)
}

/// Selects the Pods of the router called `router`, or of the [`COORDINATOR`].
pub fn select_router(instance: &str, router: &str) -> Map {
    map([(NAME, PRODUCT), (INSTANCE, instance), (ROUTER, router)])
}

/// Selects the leaders of one engine role.
pub fn select_role(instance: &str, role: &str) -> Map {
    map([(NAME, PRODUCT), (INSTANCE, instance), (COMPONENT, role), (MEMBER, "0")])
}

/// Selects the leaders of every role of one kind, whether a user's `command` took the role over or not.
pub fn select_kind(instance: &str, kind: RoleKind) -> Map {
    map([(INSTANCE, instance), (ROLE_KIND, spell(kind)), (MEMBER, "0")])
}

/// A role's kind as a label value.
pub fn spell(kind: RoleKind) -> &'static str {
    match kind {
        RoleKind::Server => "server",
        RoleKind::Prefill => "prefill",
        RoleKind::Decode => "decode",
    }
}

/// `labels` with one more.
pub fn with(mut labels: Map, key: &str, value: impl Into<String>) -> Map {
    labels.insert(key.into(), value.into());
    labels
}

/// Where a Pod stands among those of its ModelDeployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The ModelDeployment's name.
    pub instance: String,
    /// The role's name, `router` or `coordinator`.
    pub role: String,
    /// Ordinal of the replica and index in it; none for router and coordinator, whose Pods have no ordinal of their own.
    pub position: Option<Position>,
    /// Hash of the rendered Pod.
    pub revision: String,
}

/// An engine Pod's replica, and its index in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The replica's ordinal.
    pub ordinal: u32,
    /// The Pod's index in its replica.
    pub member: u32,
}

/// Reads a Pod's labels. None where they are not those of a Pod that we render.
pub fn read(pod: &Pod) -> Option<Place> {
    let labels = pod.metadata.labels.as_ref()?;
    let get = |key: &str| labels.get(key).cloned();
    if get(NAME)? != PRODUCT {
        return None;
    }
    let (role, position) = match get(ROUTER) {
        Some(router) if router == COORDINATOR => (COORDINATOR.into(), None),
        Some(_) => (ROUTER_ROLE.into(), None),
        None => {
            let position = Position {
                ordinal: get(ORDINAL)?.parse().ok()?,
                member: get(MEMBER)?.parse().ok()?,
            };
            (get(COMPONENT)?, Some(position))
        }
    };
    Some(Place {
        instance: get(INSTANCE)?,
        role,
        position,
        revision: get(REVISION)?,
    })
}

fn map<const N: usize>(entries: [(&str, &str); N]) -> Map {
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
