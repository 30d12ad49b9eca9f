//! Direct decode: the routing proxy in front of a decode engine under llm-d-router.

use k8s_openapi::api::core::v1::Container;
use model_deployment_crds::model_deployment::{EngineName, TransferConnector};
use model_deployment_crds::role::Role;

use super::engine::Engine;
use super::setting::Setting;
use super::{environment, pod, ports, router, security};
use crate::arguments::Line;

/// The proxy as a sidecar: it starts before the engine and has the role's serving port.
pub(super) fn container(setting: &Setting<'_>, role: &Role, engine: &Engine) -> Container {
    let serving = ports::serving(role);
    let mut line = Line::default();
    line.assign("--port", serving)
        .assign("--model-server-port", engine.port);
    let mut env = None;
    match (setting.engine(), setting.transfer.map(|path| path.connector)) {
        (EngineName::Sglang, _) => {
            line.assign("--kv-connector", "sglang");
            env = Some(vec![environment::variable(
                "SGLANG_BOOTSTRAP_PORT",
                ports::BOOTSTRAP.to_string(),
            )]);
        }
        (EngineName::Vllm, Some(TransferConnector::Nixl)) => {
            line.assign("--kv-connector", "nixlv2");
        }
        (EngineName::Vllm, _) => {
            line.assign("--kv-connector", "mooncake")
                .assign("--mooncake-bootstrap-port", ports::BOOTSTRAP);
        }
    }
    line.assign("--secure-proxy", false);
    if engine.tls {
        // The hop stays inside the Pod, so that there is nobody to verify.
        line.assign("--enable-tls", "decoder")
            .assign("--tls-insecure-skip-verify", "decoder");
    }
    Container {
        name: "routing-proxy".into(),
        image: Some(router::image(setting)),
        image_pull_policy: setting
            .router()
            .and_then(|router| router.image_pull_policy)
            .map(pod::spell_pull_policy),
        command: Some(vec!["routing-proxy".into()]),
        args: Some(line.into_arguments()),
        env,
        ports: Some(vec![ports::declare("http", serving)]),
        restart_policy: Some("Always".into()),
        readiness_probe: Some(pod::connects(serving, 3)),
        liveness_probe: Some(pod::connects(serving, 6)),
        security_context: Some(security::of_container(None, false)),
        ..Default::default()
    }
}
