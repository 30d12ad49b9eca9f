//! Routers: what every one of them is made of. Which containers, and how they are started, is each router's own file.

mod coordinator;
mod discovering;
mod llm_d;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, Pod, PodSpec, PodTemplateSpec, Probe, Service, ServiceAccount, Volume,
};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role as RbacRole, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use model_deployment_crds::role::Role;
use model_deployment_crds::router::{Policy, Router, RouterName};

use super::engine::Engine;
use super::refusal::spell;
use super::setting::Setting;
use super::{Refusal, pod, ports, revision, security, service};
use crate::arguments::{Owned, OwnedFlag, router_grammars, router_owned};
use crate::pod::labels;
use crate::pod::{Endpoint, Facts, Listener, Producer, Scheme, TracksLoad, facts};

/// A router or the coordinator: its objects, and the facts of its Pods.
#[derive(Clone, Debug)]
pub struct RouterPlan {
    /// Pods wanted.
    pub replicas: u32,
    /// The identity of its Pods, and what that may do. The coordinator has none.
    pub identity: Option<Identity>,
    /// Configuration files (llm-d-router).
    pub config_map: Option<ConfigMap>,
    /// The Pods.
    pub deployment: Deployment,
    /// The address.
    pub service: Service,
    /// What each of its Pods is created with.
    pub facts: Facts,
}

/// The identity of a router's Pods: it finds its workers in Kubernetes.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Who.
    pub service_account: ServiceAccount,
    /// May read Pods.
    pub role: RbacRole,
    /// The two together.
    pub role_binding: RoleBinding,
}

/// What one router's own file decides.
struct Program {
    containers: Vec<Container>,
    volumes: Vec<Volume>,
    files: BTreeMap<String, String>,
}

/// Each role with what its engine is started with.
pub(super) type Workers<'a> = [(&'a Role, Engine)];

/// Renders the router.
pub(super) fn plan(setting: &Setting<'_>, router: &Router, workers: &Workers<'_>) -> Result<RouterPlan, Refusal> {
    refuse_owned("spec.router.extraArgs", router.name, &router.extra_args)?;
    let program = match router.name {
        RouterName::LlmD => llm_d::program(setting, router, workers)?,
        RouterName::Vllm | RouterName::SglangGateway => discovering::program(setting, router, workers)?,
    };
    let name = format!("{}-router", setting.name);
    let labels = labels::of_router(&setting.name, spell(router.name));
    let files = (!program.files.is_empty()).then(|| ConfigMap {
        metadata: setting.metadata(name.clone(), labels.clone()),
        data: Some(program.files),
        ..Default::default()
    });
    let facts = facts_of(
        setting,
        router.name.into(),
        Some(tracks_load(setting, router)),
        Scheme::Http,
    );
    let pod = PodSpec {
        containers: program.containers,
        volumes: (!program.volumes.is_empty()).then_some(program.volumes),
        service_account_name: Some(name.clone()),
        image_pull_secrets: pod::some(&router.image_pull_secrets),
        ..pod_spec()
    };
    let beside: Vec<String> = files
        .iter()
        .flat_map(|files| files.data.iter().flatten())
        .map(|(k, v)| format!("{k}\n{v}"))
        .collect();
    let (deployment, facts) = deployment(setting, &name, spell(router.name), router.replicas, pod, facts, &beside);
    Ok(RouterPlan {
        replicas: u32::try_from(router.replicas).unwrap_or_default(),
        identity: Some(identity(setting, &name, labels.clone())),
        config_map: files,
        deployment,
        service: service::virtual_address(
            setting.metadata(name, labels),
            labels::select_router(&setting.name, spell(router.name)),
            "http",
            ports::ROUTER,
            ports::ROUTER,
        ),
        facts,
    })
}

/// Renders the coordinator of a pair under llm-d-router.
pub(super) fn coordinator(setting: &Setting<'_>) -> Result<Option<RouterPlan>, Refusal> {
    setting
        .router()
        .and_then(|router| router.coordinator.as_ref())
        .map(|given| coordinator::plan(setting, given))
        .transpose()
}

/// Refuses what a user may not give a router, in every spelling that some version of it takes.
fn refuse_owned(field: &'static str, router: RouterName, given: &[String]) -> Result<(), Refusal> {
    router_grammars(router)
        .iter()
        .try_for_each(|grammar| refuse(field, &grammar.read(given), router_owned(router)))
}

fn refuse(field: &'static str, given: &[crate::arguments::Given], owned: &[Owned]) -> Result<(), Refusal> {
    OwnedFlag::refuse(given, owned).map_err(|owned| Refusal::RouterFlag { field, owned })
}

/// The router's image: the user's, or the pinned one.
pub(super) fn image(setting: &Setting<'_>) -> String {
    let Some(router) = setting.router() else {
        return String::new();
    };
    router
        .image
        .clone()
        .unwrap_or_else(|| pinned_image(setting, router.name).to_owned())
}

fn pinned_image<'a>(setting: &Setting<'a>, router: RouterName) -> &'a str {
    match router {
        RouterName::Vllm => &setting.defaults.vllm_router_image,
        RouterName::SglangGateway => &setting.defaults.sglang_gateway_image,
        RouterName::LlmD => &setting.defaults.llm_d_router_image,
    }
}

/// Whether the router keeps a gauge of running requests (resource contract, "Role facts").
fn tracks_load(setting: &Setting<'_>, router: &Router) -> TracksLoad {
    let pinned = router
        .image
        .as_deref()
        .is_none_or(|image| image == pinned_image(setting, router.name));
    // The default of both.
    let policy = router.policy.or(pinned.then_some(Policy::CacheAware));
    match (router.name, setting.paired, policy) {
        (RouterName::LlmD, ..) => TracksLoad::Unknown,
        (RouterName::Vllm, true, _) => TracksLoad::No,
        (RouterName::SglangGateway, true, _) => TracksLoad::Yes,
        (RouterName::Vllm, false, Some(Policy::CacheAware | Policy::PowerOfTwo)) => TracksLoad::Yes,
        (RouterName::Vllm, false, Some(Policy::Random | Policy::RoundRobin | Policy::ConsistentHash)) => TracksLoad::No,
        (RouterName::SglangGateway, false, Some(Policy::CacheAware)) => TracksLoad::Yes,
        (RouterName::SglangGateway, false, Some(Policy::Random | Policy::RoundRobin | Policy::PowerOfTwo)) => {
            TracksLoad::No
        }
        _ => TracksLoad::Unknown,
    }
}

fn facts_of(setting: &Setting<'_>, producer: Producer, tracks_load: Option<TracksLoad>, scheme: Scheme) -> Facts {
    let role = if producer == Producer::Coordinator {
        labels::COORDINATOR
    } else {
        labels::ROUTER_ROLE
    };
    Facts {
        version: facts::VERSION,
        producer,
        role: role.into(),
        kind: None,
        paired: setting.paired,
        member: None,
        endpoint: Endpoint::Listener(Listener {
            scheme,
            port: ports::ROUTER_METRICS,
            path: facts::METRICS_PATH.into(),
        }),
        pool: false,
        connector: None,
        transfer_connector: None,
        host_tier: false,
        storage_tier: false,
        native_offload: false,
        tracks_load,
        ranks: None,
        stats_enabled: true,
        take_over: false,
        revision: String::new(),
    }
}

/// What every router Pod has.
fn pod_spec() -> PodSpec {
    PodSpec {
        enable_service_links: Some(false),
        security_context: Some(security::of_pod(None)),
        ..Default::default()
    }
}

/// The Deployment of these Pods, and their facts with the revision that the Pods turned out to have.
fn deployment(
    setting: &Setting<'_>,
    name: &str,
    router: &str,
    replicas: i32,
    pod: PodSpec,
    mut facts: Facts,
    beside: &[String],
) -> (Deployment, Facts) {
    let labels = labels::of_router(&setting.name, router);
    let mut template = Pod {
        metadata: ObjectMeta {
            labels: Some(labels.clone()),
            ..Default::default()
        },
        spec: Some(pod),
        status: None,
    };
    pod::seal(&mut template, &facts);
    facts.revision = revision::of(&[&template], beside);
    pod::seal(&mut template, &facts);
    let deployment = Deployment {
        metadata: setting.metadata(name.to_owned(), labels),
        spec: Some(DeploymentSpec {
            replicas: Some(replicas),
            selector: LabelSelector {
                match_labels: Some(labels::select_router(&setting.name, router)),
                ..Default::default()
            },
            template: PodTemplateSpec {
                metadata: Some(template.metadata),
                spec: template.spec,
            },
            ..Default::default()
        }),
        status: None,
    };
    (deployment, facts)
}

/// A router reads the Pods of its namespace, and nothing else.
fn identity(setting: &Setting<'_>, name: &str, labels: labels::Map) -> Identity {
    let metadata = || setting.metadata(name.to_owned(), labels.clone());
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    Identity {
        service_account: ServiceAccount {
            metadata: metadata(),
            ..Default::default()
        },
        role: RbacRole {
            metadata: metadata(),
            rules: Some(vec![PolicyRule {
                api_groups: Some(owned(&[""])),
                resources: Some(owned(&["pods"])),
                verbs: owned(&["get", "list", "watch"]),
                ..Default::default()
            }]),
        },
        role_binding: RoleBinding {
            metadata: metadata(),
            role_ref: RoleRef {
                api_group: RBAC_GROUP.into(),
                kind: "Role".into(),
                name: name.to_owned(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".into(),
                name: name.to_owned(),
                namespace: Some(setting.namespace.clone()),
                api_group: None,
            }]),
        },
    }
}

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
/// Out of the Service after half a minute.
const READINESS_FAILURES: i32 = 3;

/// A router takes requests once it takes connections.
fn connects(port: u16) -> Probe {
    pod::connects(port, READINESS_FAILURES)
}
