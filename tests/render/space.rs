//! Whatever a spec may ask for: what is rendered is whole, and nothing in it collides.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Service};
use model_deployment::pod::annotations::{self, FACTS};
use model_deployment::pod::labels::{self, Map, Position};
use model_deployment::pod::{Endpoint, Member};
use model_deployment::render::{Defaults, Plan, RouterPlan, render};
use model_deployment_crds::ModelDeployment;

use super::generator;
use super::manifest::hold_rules;

/// How many manifests.
const MANIFESTS: u64 = 500;

#[test]
fn whatever_is_rendered_is_whole_and_collides_with_nothing() {
    let mut rendered = 0;
    for number in 0..MANIFESTS {
        let manifest = generator::manifest(number);
        let deployment: ModelDeployment = serde_json::from_value(manifest.clone()).expect("it is a ModelDeployment");
        hold_rules(&serde_json::to_value(&deployment).expect("it is JSON"));
        match render(&deployment, &Defaults::default()) {
            Ok(plan) => {
                rendered += 1;
                let name = deployment.metadata.name.as_deref().unwrap_or_default();
                if let Err(amiss) = check(name, &plan) {
                    panic!("{number}: {amiss}:\n{manifest:#}");
                }
            }
            Err(refusal) => {
                let sentence = refusal.to_string();
                assert!(
                    sentence.starts_with("spec.") && sentence.len() < 400,
                    "{number}: {sentence}"
                );
            }
        }
    }
    assert!(rendered > MANIFESTS / 2, "only {rendered} were rendered");
}

fn check(name: &str, plan: &Plan) -> Result<(), String> {
    let mut pods = Vec::new();
    for role in &plan.roles {
        for position in role.positions() {
            let pod = role.pod(position);
            facts_hold(&pod, role.facts(position.member), position)?;
            pods.push(pod);
        }
    }
    for router in routers(plan) {
        let template = router.deployment.spec.clone().unwrap_or_default().template;
        let pod = Pod {
            metadata: template.metadata.unwrap_or_default(),
            spec: template.spec,
            status: None,
        };
        if !annotations::read(&pod).is_ok_and(|facts| facts == router.facts) {
            return Err("a router's facts do not come back".into());
        }
        spec_is_sound(&pod)?;
        let selector = router
            .deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.selector.match_labels.clone());
        selects(&selector.unwrap_or_default(), [&pod].into_iter(), 1)?;
    }
    for pod in &pods {
        spec_is_sound(pod)?;
    }
    names_are_sound(plan)?;
    services_find_their_pods(name, plan, &pods)
}

fn routers(plan: &Plan) -> impl Iterator<Item = &RouterPlan> {
    [&plan.router, &plan.coordinator].into_iter().flatten()
}

fn facts_hold(pod: &Pod, facts: &model_deployment::pod::Facts, position: Position) -> Result<(), String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let read = annotations::read(pod).map_err(|error| format!("{name}: {error}"))?;
    if read != *facts {
        return Err(format!("{name}: the facts do not come back"));
    }
    let place = labels::read(pod).ok_or_else(|| format!("{name}: its labels are not ours"))?;
    if place.position != Some(position) || place.revision != facts.revision {
        return Err(format!("{name}: its labels say {place:?}"));
    }
    let annotations = pod.metadata.annotations.clone().unwrap_or_default();
    let scraped: Vec<_> = annotations
        .keys()
        .filter(|key| key.starts_with("prometheus.io/"))
        .collect();
    match &facts.endpoint {
        Endpoint::Listener(listener) => {
            let spec = pod.spec.as_ref().ok_or("a Pod has a spec")?;
            let declaring = containers(spec).filter(|container| {
                let mut ports = container.ports.iter().flatten();
                ports.any(|port| port.container_port == i32::from(listener.port))
            });
            if declaring.count() != 1 || scraped.len() != 4 || facts.member == Some(Member::Follower) {
                return Err(format!(
                    "{name}: its metrics port is not one container's, or it is not scraped"
                ));
            }
            if annotations.get("prometheus.io/port") != Some(&listener.port.to_string()) {
                return Err(format!("{name}: {annotations:?} and {listener:?} differ"));
            }
        }
        Endpoint::None { .. } if !scraped.is_empty() => return Err(format!("{name} is scraped: {scraped:?}")),
        Endpoint::None { .. } => {}
    }
    Ok(())
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// Everything that must be there once is there once, and refers to what is there.
fn spec_is_sound(pod: &Pod) -> Result<(), String> {
    let spec = pod.spec.as_ref().ok_or("a Pod has a spec")?;
    let ports = containers(spec).flat_map(|container| container.ports.iter().flatten());
    once("port", ports.map(|port| port.container_port))?;
    let names = containers(spec).flat_map(|container| container.ports.iter().flatten());
    once("port name", names.filter_map(|port| port.name.clone()))?;
    let volumes: Vec<_> = spec
        .volumes
        .iter()
        .flatten()
        .map(|volume| volume.name.clone())
        .collect();
    once("volume", volumes.iter())?;
    for container in containers(spec) {
        once(
            "variable",
            container.env.iter().flatten().map(|variable| &variable.name),
        )?;
        let mounts: Vec<_> = container.volume_mounts.iter().flatten().collect();
        once("mount", mounts.iter().map(|mount| cleaned(&mount.mount_path)))?;
        if let Some(mount) = mounts.iter().find(|mount| !volumes.contains(&mount.name)) {
            return Err(format!("{} is mounted and not there", mount.name));
        }
        let words = container.command.iter().chain(&container.args).flatten();
        if container.command.is_none() || words.into_iter().any(|word| word.contains('\0')) {
            return Err(format!("{} has no command", container.name));
        }
    }
    let labels = pod.metadata.labels.iter().flatten();
    for (key, value) in labels {
        let outer = |c: char| c.is_ascii_alphanumeric();
        let inner = |c: char| outer(c) || matches!(c, '-' | '_' | '.');
        let sound = value.is_empty() || value.starts_with(outer) && value.ends_with(outer) && value.chars().all(inner);
        if !sound || value.len() > 63 {
            return Err(format!("label {key}: {value:?}"));
        }
    }
    if !pod.metadata.annotations.iter().flatten().any(|(key, _)| key == FACTS) {
        return Err("a Pod without facts".into());
    }
    Ok(())
}

fn cleaned(path: &str) -> PathBuf {
    Path::new(path)
        .components()
        .filter(|component| *component != Component::CurDir)
        .collect()
}

fn once<T: Ord + std::fmt::Debug>(what: &str, items: impl Iterator<Item = T>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for item in items {
        if seen.contains(&item) {
            return Err(format!("{what} {item:?} twice"));
        }
        seen.insert(item);
    }
    Ok(())
}

/// Every name is a DNS-1035 label and once of its kind.
fn names_are_sound(plan: &Plan) -> Result<(), String> {
    let objects: Vec<_> = plan
        .objects()
        .map(|object| (object.kind(), object.metadata().clone()))
        .collect();
    once(
        "object",
        objects.iter().map(|(kind, metadata)| (kind, metadata.name.clone())),
    )?;
    for (kind, metadata) in &objects {
        let name = metadata.name.as_deref().unwrap_or_default();
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let sound =
            name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.ends_with('-') && name.chars().all(inner);
        if !sound || name.len() > 63 {
            return Err(format!("{kind} {name:?}"));
        }
        let owners = metadata.owner_references.iter().flatten();
        if owners.filter(|owner| owner.controller == Some(true)).count() != 1 {
            return Err(format!("{kind} {name} is not controlled"));
        }
    }
    Ok(())
}

fn matches(selector: &Map, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn selects<'a>(selector: &Map, pods: impl Iterator<Item = &'a Pod>, expected: usize) -> Result<(), String> {
    let found = pods.filter(|pod| matches(selector, pod)).count();
    if found == expected && !selector.is_empty() {
        Ok(())
    } else {
        Err(format!("{selector:?} selects {found} Pods, not {expected}"))
    }
}

/// A role's Service finds its leaders, a replica's its members, and each leads to a port that is declared.
fn services_find_their_pods(name: &str, plan: &Plan, pods: &[Pod]) -> Result<(), String> {
    let selector = |service: &Service| service.spec.clone().unwrap_or_default().selector.unwrap_or_default();
    let services: BTreeMap<_, _> = plan
        .services
        .iter()
        .map(|service| (service.metadata.name.clone().unwrap_or_default(), service))
        .collect();
    let front = plan
        .roles
        .iter()
        .find(|role| role.kind != model_deployment_crds::role::RoleKind::Prefill)
        .ok_or("no role answers")?;
    for (service, role) in plan
        .roles
        .iter()
        .map(|role| (format!("{name}-{}", role.name), role))
        .chain([(name.to_owned(), front)])
    {
        let service = services.get(&service).ok_or_else(|| format!("no Service {service}"))?;
        selects(&selector(service), pods.iter(), role.replicas as usize)?;
        let target = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()).next();
        let target = target.and_then(|port| match &port.target_port {
            Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(port)) => Some(*port),
            _ => None,
        });
        for pod in pods.iter().filter(|pod| matches(&selector(service), pod)) {
            let spec = pod.spec.as_ref().ok_or("a Pod has a spec")?;
            let mut ports = containers(spec).flat_map(|container| container.ports.iter().flatten());
            if !ports.any(|port| Some(port.container_port) == target) {
                return Err(format!(
                    "{:?} leads to {target:?}, which nobody declares",
                    service.metadata.name
                ));
            }
        }
    }
    for role in &plan.roles {
        for ordinal in 0..role.replicas {
            if let Some(service) = role.replica_service(ordinal) {
                selects(&selector(&service), pods.iter(), role.size as usize)?;
            }
        }
    }
    Ok(())
}
