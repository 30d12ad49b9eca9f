//! llm-d-router: Envoy takes requests, and asks the endpoint picker beside it where each should go.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMapVolumeSource, Container, GRPCAction, Probe, Volume, VolumeMount};
use model_deployment_crds::model_deployment::EngineName;
use model_deployment_crds::role::RoleKind;
use model_deployment_crds::router::{Router, RouterName};

use super::{Program, READINESS_FAILURES, Workers, connects, image};
use crate::arguments::EndpointPicker;
use crate::pod::labels;
use crate::render::environment::field;
use crate::render::setting::Setting;
use crate::render::{Refusal, pod, ports, security};

const FOLDER: &str = "/config";
const CONFIG: &str = "config";
const PICKER_FILE: &str = "epp.yaml";
const ENVOY_FILE: &str = "envoy.yaml";
/// Where Envoy asks the endpoint picker.
const PICKER: u16 = 9002;
/// Where the endpoint picker tells its health.
const PICKER_HEALTH: u16 = 9003;
/// A day: what a request may take where the spec does not say.
const TIMEOUT: i32 = 86_400;
/// A request with at least as many tokens that the decode half has not cached goes through the prefill half.
const NON_CACHED_TOKENS: u32 = 8;

pub(super) fn program(setting: &Setting<'_>, router: &Router, workers: &Workers<'_>) -> Result<Program, Refusal> {
    let options = EndpointPicker {
        selector: select_workers(setting),
        port: ports::of_workers(
            RouterName::LlmD,
            workers
                .iter()
                .map(|(role, engine)| (*role, ports::in_pod(setting, role, engine))),
        )?,
        configuration: format!("{FOLDER}/{PICKER_FILE}"),
        health_port: PICKER_HEALTH,
    };
    let mut line = options.line();
    line.extend(&router.extra_args);
    let common = |name: &str| Container {
        name: name.into(),
        image: Some(image(setting)),
        image_pull_policy: router.image_pull_policy.map(pod::spell_pull_policy),
        command: Some(vec![name.into()]),
        security_context: Some(security::of_container(None, false)),
        volume_mounts: Some(vec![VolumeMount {
            name: CONFIG.into(),
            mount_path: FOLDER.into(),
            read_only: Some(true),
            ..Default::default()
        }]),
        ..Default::default()
    };
    let envoy = Container {
        args: Some(vec!["-c".into(), format!("{FOLDER}/{ENVOY_FILE}")]),
        ports: Some(vec![ports::declare("http", ports::ROUTER)]),
        readiness_probe: Some(connects(ports::ROUTER)),
        ..common("envoy")
    };
    let picker = Container {
        args: Some(line.into_arguments()),
        // Without an InferencePool the picker takes its namespace and its pool's name from these.
        env: Some(vec![
            field("NAMESPACE", "metadata.namespace"),
            field("POD_NAME", "metadata.name"),
        ]),
        ports: Some(vec![
            ports::declare("grpc", PICKER),
            ports::declare("grpc-health", PICKER_HEALTH),
            ports::declare("metrics", ports::ROUTER_METRICS),
        ]),
        readiness_probe: Some(Probe {
            grpc: Some(GRPCAction {
                port: PICKER_HEALTH.into(),
                service: None,
            }),
            ..pod::timing(READINESS_FAILURES)
        }),
        resources: router.resources.clone(),
        ..common("epp")
    };
    let timeout = router.request_timeout_seconds.unwrap_or(TIMEOUT).to_string();
    let files = [
        (PICKER_FILE.to_owned(), picker_configuration(setting)),
        (
            ENVOY_FILE.to_owned(),
            include_str!("envoy.yaml").replace("${TIMEOUT}", &timeout),
        ),
    ];
    let volume = Volume {
        name: CONFIG.into(),
        config_map: Some(ConfigMapVolumeSource {
            name: format!("{}-router", setting.name),
            ..Default::default()
        }),
        ..Default::default()
    };
    Ok(Program {
        containers: vec![envoy, picker],
        volumes: vec![volume],
        files: BTreeMap::from(files),
    })
}

fn select_workers(setting: &Setting<'_>) -> labels::Map {
    let mut selector = labels::select_kind(&setting.name, RoleKind::Server);
    if setting.paired {
        selector.remove(labels::ROLE_KIND);
    }
    selector
}

/// One filter a kind of role; queue, cache use and cached prefix scored 2 : 2 : 3; the best score taken.
fn picker_configuration(setting: &Setting<'_>) -> String {
    let kinds: &[RoleKind] = if setting.paired {
        &[RoleKind::Prefill, RoleKind::Decode]
    } else {
        &[RoleKind::Server]
    };
    let engine = match setting.engine() {
        EngineName::Vllm => "vllm",
        EngineName::Sglang => "sglang",
    };
    let mut text = format!(
        "apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: metrics-data-source
  parameters:
    scheme: http
    path: /metrics
- type: core-metrics-extractor
  parameters:
    defaultEngine: {engine}
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: max-score-picker
"
    );
    for kind in kinds {
        let (kind, label) = (labels::spell(*kind), labels::ROLE_KIND);
        text.push_str(&format!(
            "- type: by-label-selector
  name: {kind}-filter
  parameters:
    matchLabels:
      {label}: {kind}
"
        ));
    }
    if setting.paired {
        text.push_str(&format!(
            "- type: disagg-headers-handler
- type: prefix-based-pd-decider
  parameters:
    nonCachedTokens: {NON_CACHED_TOKENS}
- type: disagg-profile-handler
  parameters:
    deciders:
      prefill: prefix-based-pd-decider
"
        ));
    } else {
        text.push_str("- type: single-profile-handler\n");
    }
    text.push_str("schedulingProfiles:\n");
    for kind in kinds {
        let kind = labels::spell(*kind);
        let profile = if setting.paired { kind } else { "default" };
        text.push_str(&format!(
            "- name: {profile}
  plugins:
  - pluginRef: {kind}-filter
  - pluginRef: queue-scorer
    weight: 2
  - pluginRef: kv-cache-utilization-scorer
    weight: 2
  - pluginRef: prefix-cache-scorer
    weight: 3
  - pluginRef: max-score-picker
"
        ));
    }
    text
}
