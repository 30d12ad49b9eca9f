//! Every port of what we render, and who may have it.

use k8s_openapi::api::core::v1::ContainerPort;
use model_deployment_crds::model_deployment::EngineName;
use model_deployment_crds::model_deployment::TransferConnector;
use model_deployment_crds::role::{Role, RoleKind};
use model_deployment_crds::router::RouterName;

use super::Refusal;
use super::engine::Engine;
use super::refusal::spell;
use super::setting::Setting;

/// Where a decode half finds its prefill half: the engines' own default.
pub(super) const BOOTSTRAP: u16 = 8998;
/// vLLM's cache events: the engine's own default.
pub(super) const EVENTS: u16 = 5557;
/// Where missed cache events are asked for.
pub(super) const EVENTS_REPLAY: u16 = 5558;
/// NIXL's side channel: vLLM's own default.
pub(super) const NIXL: u16 = 5600;
/// Where the engine listens behind a routing proxy.
const BEHIND_PROXY: u16 = 8200;
/// The serving port of a deployment without roles, which the schema refuses.
const DEFAULT: u16 = 8000;
/// Where every router takes requests.
pub const ROUTER: u16 = 8081;
/// Where the coordinator takes requests.
pub(super) const COORDINATOR: u16 = 8080;
/// Metrics listener of every router and of the coordinator.
pub const ROUTER_METRICS: u16 = 9090;

/// The role's serving port: what the schema holds to 1–65535.
pub(super) fn serving(role: &Role) -> u16 {
    u16::try_from(role.port).unwrap_or_default()
}

/// The port of an engine behind a proxy that has the role's serving port.
pub(super) fn behind_proxy(role: &Role) -> u16 {
    if serving(role) == BEHIND_PROXY {
        BEHIND_PROXY + 1
    } else {
        BEHIND_PROXY
    }
}

/// The port at which a role takes requests in its Pods: behind a proxy, the proxy's.
pub(super) fn in_pod(setting: &Setting<'_>, role: &Role, engine: &Engine) -> u16 {
    if setting.has_proxy(role) {
        serving(role)
    } else {
        engine.port
    }
}

/// A port of a container.
pub(super) fn declare(name: &str, port: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.into()),
        container_port: port.into(),
        protocol: Some("TCP".into()),
        ..Default::default()
    }
}

/// Refuses a serving port that something else in the role's Pods has.
pub(super) fn check(setting: &Setting<'_>, role: &Role, engine: &Engine) -> Result<(), Refusal> {
    let refuse = |port, field, user| {
        Err(Refusal::ReservedPort {
            role: role.name.clone(),
            port,
            field,
            user,
        })
    };
    let own_port = engine.port != serving(role) && !(setting.has_proxy(role) && engine.port == behind_proxy(role));
    if setting.has_proxy(role) && engine.port == serving(role) {
        return refuse(
            engine.port,
            EXTRA_ARGS,
            "that of the routing proxy in front of the engine",
        );
    }
    let candidates = [
        (serving(role), FIELD),
        (engine.port, if own_port { EXTRA_ARGS } else { FIELD }),
    ];
    for (port, field) in candidates {
        if let Some((_, user)) = reserved(setting, role)
            .into_iter()
            .find(|(reserved, _)| *reserved == port)
        {
            return refuse(port, field, user);
        }
    }
    Ok(())
}

const FIELD: &str = "port";
const EXTRA_ARGS: &str = "--port in extraArgs";

fn reserved(setting: &Setting<'_>, role: &Role) -> Vec<(u16, &'static str)> {
    let mut reserved = Vec::new();
    let vllm = setting.engine() == EngineName::Vllm;
    if setting.publishes_events(role) {
        reserved.push((EVENTS, "that of the engine's cache events"));
        reserved.push((
            EVENTS_REPLAY,
            "that at which the engine's cache events are asked for again",
        ));
    }
    if let Some(path) = setting.transfer {
        let bootstraps = !vllm || path.connector == TransferConnector::Mooncake;
        if bootstraps && role.kind == RoleKind::Prefill {
            reserved.push((BOOTSTRAP, "that at which the decode half finds this one"));
        }
        if path.connector == TransferConnector::Nixl {
            reserved.push((NIXL, "that of the NIXL side channel"));
        }
    }
    reserved
}

/// The port at which a router finds every worker.
pub(super) fn of_workers<'a>(
    router: RouterName,
    mut workers: impl Iterator<Item = (&'a Role, u16)>,
) -> Result<u16, Refusal> {
    let Some((first, first_port)) = workers.next() else {
        return Ok(DEFAULT);
    };
    match workers.find(|(_, port)| *port != first_port) {
        Some((second, second_port)) => Err(Refusal::PortsDiffer {
            router: spell(router),
            first: first.name.clone(),
            first_port,
            second: second.name.clone(),
            second_port,
        }),
        None => Ok(first_port),
    }
}
