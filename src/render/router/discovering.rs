//! vllm-router and the SGLang gateway: one program that finds its workers by their labels and one port.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;
use model_deployment_crds::model_deployment::TransferConnector;
use model_deployment_crds::role::RoleKind;
use model_deployment_crds::router::{Policy, Router, RouterName};

use super::{Program, Workers, connects, image};
use crate::arguments::{Discovery, RouterLine};
use crate::pod::labels;
use crate::render::setting::Setting;
use crate::render::{Refusal, pod, ports, security};

pub(super) fn program(setting: &Setting<'_>, router: &Router, workers: &Workers<'_>) -> Result<Program, Refusal> {
    let vllm = router.name == RouterName::Vllm;
    let select = |kind| labels::select_kind(&setting.name, kind);
    let options = RouterLine {
        program: if vllm { "vllm-router" } else { "sgl-model-gateway" },
        port: ports::ROUTER,
        metrics_port: ports::ROUTER_METRICS,
        request_timeout: router.request_timeout_seconds,
        kv_connector: setting.transfer.filter(|_| vllm).map(|path| match path.connector {
            TransferConnector::Mooncake => "mooncake",
            TransferConnector::Nixl => "nixl",
        }),
        namespace: setting.namespace.clone(),
        discovery: if setting.paired {
            Discovery::Pair {
                switch: if vllm {
                    "--vllm-pd-disaggregation"
                } else {
                    "--pd-disaggregation"
                },
                prefill: select(RoleKind::Prefill),
                decode: select(RoleKind::Decode),
            }
        } else {
            Discovery::Ordinary(select(RoleKind::Server))
        },
        worker_port: ports::of_workers(router.name, workers.iter().map(|(role, engine)| (*role, engine.port)))?,
        policies: policies(router),
    };
    let mut line = options.line();
    line.extend(&router.extra_args);
    let mut words = line.into_arguments().into_iter();
    let container = Container {
        name: "router".into(),
        image: Some(image(setting)),
        image_pull_policy: router.image_pull_policy.map(pod::spell_pull_policy),
        command: words.next().map(|program| vec![program]),
        args: Some(words.collect()),
        ports: Some(vec![
            ports::declare("http", ports::ROUTER),
            ports::declare("metrics", ports::ROUTER_METRICS),
        ]),
        readiness_probe: Some(connects(ports::ROUTER)),
        resources: router.resources.clone(),
        security_context: Some(security::of_container(None, false)),
        ..Default::default()
    };
    Ok(Program {
        containers: vec![container],
        volumes: Vec::new(),
        files: BTreeMap::new(),
    })
}

fn policies(router: &Router) -> Vec<(&'static str, &'static str)> {
    [
        ("--policy", router.policy),
        ("--prefill-policy", router.prefill_policy),
        ("--decode-policy", router.decode_policy),
    ]
    .into_iter()
    .filter_map(|(flag, policy)| Some((flag, spell(policy?))))
    .collect()
}

/// A policy as the routers spell it.
fn spell(policy: Policy) -> &'static str {
    match policy {
        Policy::Random => "random",
        Policy::RoundRobin => "round_robin",
        Policy::CacheAware => "cache_aware",
        Policy::PowerOfTwo => "power_of_two",
        Policy::ConsistentHash => "consistent_hash",
        Policy::KvAware => "kv_aware",
        Policy::StickyLeastLoaded => "sticky_least_loaded",
        Policy::Manual => "manual",
        Policy::Bucket => "bucket",
    }
}
