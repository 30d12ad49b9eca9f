//! llm-d's coordinator of a pair: a Deployment and a Service of its own.

use k8s_openapi::api::core::v1::{Container, PodSpec, SecretVolumeSource, Volume, VolumeMount};
use model_deployment_crds::router::Coordinator;

use super::{RouterPlan, connects, deployment, facts_of, image, pod_spec, refuse};
use crate::arguments::{CoordinatorLine, Grammar, coordinator_owned};
use crate::pod::{Producer, Scheme, labels};
use crate::render::setting::Setting;
use crate::render::{Refusal, pod, ports, security, service};

/// Where the Secret of the metrics listener is mounted.
const CERTIFICATES: &str = "/etc/coordinator/metrics";
const VOLUME: &str = "metrics-certificate";

pub(super) fn plan(setting: &Setting<'_>, given: &Coordinator) -> Result<RouterPlan, Refusal> {
    refuse(
        "spec.router.coordinator.extraArgs",
        &Grammar::LlmD.read(&given.extra_args),
        coordinator_owned(),
    )?;
    let router = setting.router();
    let name = format!("{}-coordinator", setting.name);
    let mut line = CoordinatorLine {
        certificates: given.metrics_cert_secret.as_ref().map(|_| CERTIFICATES),
    }
    .line();
    line.extend(&given.extra_args);
    let secret = given.metrics_cert_secret.clone();
    let container = Container {
        name: labels::COORDINATOR.into(),
        image: Some(given.image.clone().unwrap_or_else(|| image(setting))),
        image_pull_policy: router
            .and_then(|router| router.image_pull_policy)
            .map(pod::spell_pull_policy),
        command: Some(vec!["coordinator".into()]),
        args: Some(line.into_arguments()),
        ports: Some(vec![
            ports::declare("http", ports::COORDINATOR),
            ports::declare("metrics", ports::ROUTER_METRICS),
        ]),
        readiness_probe: Some(connects(ports::COORDINATOR)),
        security_context: Some(security::of_container(None, false)),
        volume_mounts: secret.as_ref().map(|_| {
            vec![VolumeMount {
                name: VOLUME.into(),
                mount_path: CERTIFICATES.into(),
                read_only: Some(true),
                ..Default::default()
            }]
        }),
        ..Default::default()
    };
    let scheme = if secret.is_some() { Scheme::Https } else { Scheme::Http };
    let pod = PodSpec {
        containers: vec![container],
        volumes: secret.map(|secret| {
            let source = SecretVolumeSource {
                secret_name: Some(secret),
                ..Default::default()
            };
            vec![Volume {
                name: VOLUME.into(),
                secret: Some(source),
                ..Default::default()
            }]
        }),
        automount_service_account_token: Some(false),
        image_pull_secrets: router.and_then(|router| pod::some(&router.image_pull_secrets)),
        ..pod_spec()
    };
    let facts = facts_of(setting, Producer::Coordinator, None, scheme);
    let (deployment, facts) = deployment(setting, &name, labels::COORDINATOR, given.replicas, pod, facts, &[]);
    Ok(RouterPlan {
        replicas: u32::try_from(given.replicas).unwrap_or_default(),
        identity: None,
        config_map: None,
        deployment,
        service: service::virtual_address(
            setting.metadata(name, labels::of_router(&setting.name, labels::COORDINATOR)),
            labels::select_router(&setting.name, labels::COORDINATOR),
            "http",
            ports::COORDINATOR,
            ports::COORDINATOR,
        ),
        facts,
    })
}
