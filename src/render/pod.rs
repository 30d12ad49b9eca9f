//! The Pods of an engine role: one template for leaders, one for followers, and the Pod of a position.

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource, HTTPGetAction,
    LocalObjectReference, ObjectFieldSelector, Pod, PodSpec, Probe, TCPSocketAction, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use model_deployment_crds::role::{ImagePullPolicy, Role};

use super::engine::{Engine, STORE_CLIENT_FILE, STORE_CLIENT_FOLDER};
use super::setting::Setting;
use super::{Refusal, environment, ports, proxy, quantity, security};
use crate::pod::labels::{self, Map, Position};
use crate::pod::{Member, annotations};

/// The engine's container.
pub(super) const MAIN: &str = "main";
const SHM: &str = "model-deployment-shm";
const SHM_PATH: &str = "/dev/shm";
const STORE_CLIENT: &str = "model-deployment-kvcache";
/// The content of the pool client's file, which the Pod mounts from its own annotation.
const STORE_CLIENT_ANNOTATION: &str = "kvcache.gpustack.ai/client-config";

/// The Pod of one member of a replica, without what differs between replicas.
pub(super) fn template(setting: &Setting<'_>, role: &Role, engine: &Engine, member: Member) -> Result<Pod, Refusal> {
    check_volumes(role, engine)?;
    let proxied = member == Member::Leader && setting.has_proxy(role);
    let mut volumes = vec![memory(role)];
    volumes.extend(engine.store_client.as_ref().map(|_| store_client_volume()));
    volumes.extend(role.volumes.iter().cloned());

    let mut annotations: Map = engine.annotations.clone();
    if let Some(client) = &engine.store_client {
        annotations.insert(STORE_CLIENT_ANNOTATION.into(), client.clone());
    }
    let mut labels = labels::of_role(&setting.name, &role.name);
    labels.insert(labels::ROLE_KIND.into(), labels::spell(role.kind).into());

    Ok(Pod {
        metadata: ObjectMeta {
            labels: Some(labels),
            annotations: Some(annotations),
            namespace: Some(setting.namespace.clone()),
            owner_references: Some(vec![setting.owner.clone()]),
            ..Default::default()
        },
        spec: Some(PodSpec {
            containers: vec![container(setting, role, engine, member)],
            init_containers: proxied.then(|| vec![proxy::container(setting, role, engine)]),
            volumes: Some(volumes),
            restart_policy: Some("Always".into()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            security_context: Some(security::of_pod(role.pod_security_context.as_ref())),
            image_pull_secrets: some(&pull_secrets(setting, role)),
            node_selector: (!role.node_selector.is_empty()).then(|| role.node_selector.clone()),
            tolerations: some(&role.tolerations),
            affinity: role.affinity.clone(),
            topology_spread_constraints: some(&role.topology_spread_constraints),
            runtime_class_name: role.runtime_class_name.clone(),
            priority_class_name: role.priority_class_name.clone(),
            service_account_name: role.service_account_name.clone(),
            termination_grace_period_seconds: role.termination_grace_period_seconds,
            ..Default::default()
        }),
        status: None,
    })
}

/// The Pod of a position, made from its template.
pub(super) fn place(template: &Pod, instance: &str, role: &str, size: u32, position: Position) -> Pod {
    let Position { ordinal, member } = position;
    let replica = format!("{instance}-{role}-{ordinal}");
    let mut pod = template.clone();
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(labels::ORDINAL.into(), ordinal.to_string());
    labels.insert(labels::MEMBER.into(), member.to_string());
    if size == 1 {
        pod.metadata.name = Some(replica);
        return pod;
    }
    let name = format!("{replica}-{member}");
    let namespace = template.metadata.namespace.as_deref().unwrap_or_default();
    let leader = format!("{replica}-0.{replica}.{namespace}.svc");
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(name.clone());
        spec.subdomain = Some(replica);
        for container in spec.containers.iter_mut().filter(|container| container.name == MAIN) {
            // First, so that a user's own variables and the arguments may refer to them.
            let rank = [
                environment::variable(environment::LEADER_ADDRESS, leader.clone()),
                environment::variable(environment::MEMBER_INDEX, member.to_string()),
            ];
            container.env.get_or_insert_default().splice(0..0, rank);
        }
    }
    pod.metadata.name = Some(name);
    pod
}

/// Writes the revision and the annotations that hang on it into a template.
pub(super) fn seal(template: &mut Pod, facts: &crate::pod::Facts) {
    template
        .metadata
        .labels
        .get_or_insert_default()
        .insert(labels::REVISION.into(), facts.revision.clone());
    template
        .metadata
        .annotations
        .get_or_insert_default()
        .extend(annotations::write(facts));
}

fn container(setting: &Setting<'_>, role: &Role, engine: &Engine, member: Member) -> Container {
    let leads = member == Member::Leader;
    let probed = engine.probed && leads;
    let mut mounts = vec![VolumeMount {
        name: SHM.into(),
        mount_path: SHM_PATH.into(),
        ..Default::default()
    }];
    if engine.store_client.is_some() {
        mounts.push(VolumeMount {
            name: STORE_CLIENT.into(),
            mount_path: STORE_CLIENT_FOLDER.into(),
            read_only: Some(true),
            ..Default::default()
        });
    }
    mounts.extend(role.volume_mounts.iter().cloned());
    let mut env = Vec::new();
    if role.size > 1 {
        env.push(environment::variable(environment::SIZE, role.size.to_string()));
    }
    env.extend(engine.env.iter().cloned());
    env.extend(role.env.iter().cloned());
    Container {
        name: MAIN.into(),
        image: Some(role.image.clone().unwrap_or_else(|| setting.spec.engine.image.clone())),
        image_pull_policy: role.image_pull_policy.map(spell_pull_policy),
        command: Some(if leads {
            engine.leader.clone()
        } else {
            engine.follower.clone()
        }),
        env: (!env.is_empty()).then_some(env),
        ports: Some(container_ports(setting, role, engine)),
        resources: role.resources.clone(),
        security_context: Some(security::of_container(
            role.security_context.as_ref(),
            setting.uses_rdma(),
        )),
        volume_mounts: Some(mounts),
        startup_probe: probed.then(|| probe(engine, STARTUP_FAILURES)),
        readiness_probe: probed.then(|| probe(engine, READINESS_FAILURES)),
        liveness_probe: probed.then(|| probe(engine, LIVENESS_FAILURES)),
        ..Default::default()
    }
}

/// Behind a proxy, `http` is the proxy's.
fn container_ports(setting: &Setting<'_>, role: &Role, engine: &Engine) -> Vec<ContainerPort> {
    let name = if setting.has_proxy(role) {
        "model-server"
    } else {
        "http"
    };
    let mut declared = vec![ports::declare(name, engine.port)];
    declared.extend(engine.more_ports.iter().cloned());
    declared
}

/// Loading a model takes long: half an hour at one probe in ten seconds.
const STARTUP_FAILURES: i32 = 180;
/// Out of the Services after half a minute.
const READINESS_FAILURES: i32 = 3;
/// Restarted after a minute.
const LIVENESS_FAILURES: i32 = 6;

fn probe(engine: &Engine, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some("/health".into()),
            port: IntOrString::Int(engine.port.into()),
            scheme: Some(if engine.tls { "HTTPS" } else { "HTTP" }.into()),
            ..Default::default()
        }),
        ..timing(failures)
    }
}

/// A probe that only connects.
pub(super) fn connects(port: u16, failures: i32) -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::Int(port.into()),
            host: None,
        }),
        ..timing(failures)
    }
}

/// Every ten seconds, with three for an answer.
pub(super) fn timing(failures: i32) -> Probe {
    Probe {
        period_seconds: Some(10),
        timeout_seconds: Some(3),
        failure_threshold: Some(failures),
        ..Default::default()
    }
}

pub(super) fn spell_pull_policy(policy: ImagePullPolicy) -> String {
    match policy {
        ImagePullPolicy::Always => "Always",
        ImagePullPolicy::IfNotPresent => "IfNotPresent",
        ImagePullPolicy::Never => "Never",
    }
    .into()
}

/// The role's, and in front of an engine with a proxy, which has the router's image, the router's too.
fn pull_secrets(setting: &Setting<'_>, role: &Role) -> Vec<LocalObjectReference> {
    let mut secrets = role.image_pull_secrets.clone();
    if let Some(router) = setting.router().filter(|_| setting.has_proxy(role)) {
        secrets.extend(
            router
                .image_pull_secrets
                .iter()
                .filter(|secret| !role.image_pull_secrets.contains(secret))
                .cloned(),
        );
    }
    secrets
}

fn memory(role: &Role) -> Volume {
    Volume {
        name: SHM.into(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".into()),
            size_limit: Some(role.shm_size.clone()),
        }),
        ..Default::default()
    }
}

fn store_client_volume() -> Volume {
    let field_ref = ObjectFieldSelector {
        api_version: Some("v1".into()),
        field_path: format!("metadata.annotations['{STORE_CLIENT_ANNOTATION}']"),
    };
    let file = DownwardAPIVolumeFile {
        path: STORE_CLIENT_FILE.into(),
        field_ref: Some(field_ref),
        ..Default::default()
    };
    Volume {
        name: STORE_CLIENT.into(),
        downward_api: Some(DownwardAPIVolumeSource {
            items: Some(vec![file]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// A user's volumes beside ours, and mounts that the API server would refuse.
fn check_volumes(role: &Role, engine: &Engine) -> Result<(), Refusal> {
    let role_name = || role.name.clone();
    if let Some(volume) = role
        .volumes
        .iter()
        .find(|volume| [SHM, STORE_CLIENT].contains(&volume.name.as_str()))
    {
        return Err(Refusal::VolumeName {
            role: role_name(),
            name: volume.name.clone(),
        });
    }
    if quantity::whole(&role.shm_size).is_none() {
        return Err(Refusal::ShmSize {
            role: role_name(),
            value: role.shm_size.0.clone(),
        });
    }
    for mount in &role.volume_mounts {
        let path = cleaned(&mount.mount_path);
        let way_out = match path.as_path() {
            path if path == Path::new(SHM_PATH) => "set shmSize instead",
            path if engine.store_client.is_some() && path.starts_with(STORE_CLIENT_FOLDER) => "mount elsewhere",
            _ if role.volumes.iter().all(|volume| volume.name != mount.name) => {
                let (path, name) = (mount.mount_path.clone(), mount.name.clone());
                return Err(Refusal::MountWithoutVolume {
                    role: role_name(),
                    path,
                    name,
                });
            }
            _ => continue,
        };
        return Err(Refusal::MountPath {
            role: role_name(),
            path: mount.mount_path.clone(),
            way_out,
        });
    }
    Ok(())
}

/// A path as the container runtime sees it: from the root, and each step taken.
fn cleaned(path: &str) -> PathBuf {
    let mut cleaned = PathBuf::from("/");
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => cleaned.push(name),
            Component::ParentDir => drop(cleaned.pop()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    cleaned
}

/// Kubernetes tells an absent list from an empty one.
pub(super) fn some<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}
