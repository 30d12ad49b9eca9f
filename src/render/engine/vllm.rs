//! vLLM: which connector each role runs, and what that asks of its Pod.

use k8s_openapi::api::core::v1::EnvVar;
use model_deployment_crds::model_deployment::{KvCacheConnector, Pool, Protocol, TransferConnector};
use model_deployment_crds::role::Role;
use serde_json::json;

use super::super::setting::{Cache, Setting, TransferPath};
use super::{Engine, Half, Tiers, half, malformed, model, pod_address, port_argument, refuse_owned, unless_given};
use crate::arguments::{Choices, KvEvents, Owned, Part, Vllm, VllmConnector};
use crate::pod::labels::Map;
use crate::render::environment::variable;
use crate::render::{Refusal, environment, ports};

/// Where the pool's client reads its file, and in which variable it finds that.
pub(in crate::render) const STORE_CLIENT_FOLDER: &str = "/etc/gpustack/kvcache";
pub(in crate::render) const STORE_CLIENT_FILE: &str = "mooncake.json";
/// Prefill Pods tell vllm-router their bootstrap port with it (compatibility notes, finding B).
const BOOTSTRAP_ANNOTATION: &str = "vllm.ai/bootstrap-port";

/// Variables that a user may not set.
const OWNED_VARIABLES: [&str; 5] = [
    "MOONCAKE_CONFIG_PATH",
    "VLLM_MOONCAKE_BOOTSTRAP_PORT",
    "VLLM_NIXL_SIDE_CHANNEL_HOST",
    "VLLM_NIXL_SIDE_CHANNEL_PORT",
    environment::POD_ADDRESS,
];

pub(super) fn engine(setting: &Setting<'_>, role: &Role) -> Result<Engine, Refusal> {
    let choices = Choices::vllm(&role.extra_args).map_err(malformed(role))?;
    let plan = Connectors::of(setting, role);
    refuse_owned(role, &choices, &owned(&choices, plan.connector.is_some()))?;
    environment::refuse_owned(role, &environment::RANK_NAMES, "")?;
    environment::refuse_owned(role, &OWNED_VARIABLES, environment::OR_COMMAND)?;

    let (model, served_name) = model(setting);
    let (port, port_argument) = port_argument(setting, role, &choices);
    let events = setting.publishes_events(role).then(|| KvEvents {
        port: ports::EVENTS,
        replay_port: ports::EVENTS_REPLAY,
        topic: format!("kv@$({})@{}", environment::POD_ADDRESS, setting.spec.model.name),
    });
    let options = Vllm {
        model,
        served_name,
        connector: plan.connector.clone(),
        events,
        port: port_argument,
        headless: false,
    };
    let arguments = |headless| {
        let mut line = Vllm {
            headless,
            ..options.clone()
        }
        .line();
        line.extend(&role.extra_args);
        line.into_arguments()
    };

    let mut env = Vec::new();
    let mut more_ports = Vec::new();
    let mut annotations = Map::new();
    if options.events.is_some() {
        env.push(pod_address(environment::POD_ADDRESS));
        more_ports.push(ports::declare("kv-events", ports::EVENTS));
        more_ports.push(ports::declare("kv-replay", ports::EVENTS_REPLAY));
    }
    let store_client = plan.store.map(client_file);
    if store_client.is_some() {
        env.push(variable(
            "MOONCAKE_CONFIG_PATH",
            format!("{STORE_CLIENT_FOLDER}/{STORE_CLIENT_FILE}"),
        ));
    }
    match plan.transfer {
        Some(TransferPath {
            connector: TransferConnector::Mooncake,
            protocol,
        }) => {
            if half(role) == Some(Half::Prefill) {
                env.push(variable("VLLM_MOONCAKE_BOOTSTRAP_PORT", ports::BOOTSTRAP.to_string()));
                more_ports.push(ports::declare("mc-bootstrap", ports::BOOTSTRAP));
                annotations.insert(BOOTSTRAP_ANNOTATION.into(), ports::BOOTSTRAP.to_string());
            }
            env.extend(mooncake_defaults(role, protocol));
        }
        Some(TransferPath {
            connector: TransferConnector::Nixl,
            ..
        }) => {
            env.push(pod_address("VLLM_NIXL_SIDE_CHANNEL_HOST"));
            env.push(variable("VLLM_NIXL_SIDE_CHANNEL_PORT", ports::NIXL.to_string()));
            more_ports.push(ports::declare("nixl", ports::NIXL));
        }
        None => {}
    }

    let offloads = plan.offloads || choices.native_offload;
    Ok(Engine {
        leader: arguments(false),
        follower: arguments(true),
        env,
        port,
        tls: choices.tls(),
        probed: !choices.client_certificates,
        more_ports,
        annotations,
        store_client,
        tiers: Tiers {
            pool: plan.store.is_some(),
            connector: match (plan.store, plan.offloads) {
                (Some(_), _) => Some(KvCacheConnector::Mooncake),
                (None, true) => Some(KvCacheConnector::Offloading),
                (None, false) => None,
            },
            transfer: plan.transfer.map(|path| path.connector),
            host: offloads,
            storage: false,
            native_offload: offloads,
        },
        ranks: choices.all_ranks(),
        stats_enabled: choices.stats_enabled,
    })
}

/// What one role runs of the store, the host tier and the path to its other half.
struct Connectors<'a> {
    connector: Option<VllmConnector>,
    store: Option<&'a Pool>,
    offloads: bool,
    transfer: Option<TransferPath>,
}

impl<'a> Connectors<'a> {
    fn of(setting: &Setting<'a>, role: &Role) -> Self {
        let transfer = half(role).and(setting.transfer);
        // A decode half that takes blocks from its prefill half runs nothing else.
        let cache = if transfer.is_some() && half(role) == Some(Half::Decode) {
            None
        } else {
            setting.cache
        };
        let cached = match (cache, half(role)) {
            (None, _) => None,
            (Some(Cache::Host(_)), Some(Half::Decode)) => None,
            (Some(Cache::Host(bytes)), _) => Some(VllmConnector::Offloading(bytes)),
            (Some(Cache::Store(_)), _) if transfer.is_some() => Some(VllmConnector::Store(Part::Both)),
            (Some(Cache::Store(_)), half) => Some(VllmConnector::Store(half.map_or(Part::Both, Half::part))),
        };
        let moved = half(role).zip(transfer).map(|(half, path)| match path.connector {
            TransferConnector::Mooncake => VllmConnector::Mooncake(half.part(), protocol(path.protocol)),
            TransferConnector::Nixl => VllmConnector::Nixl(half.part()),
        });
        Self {
            store: match (&cached, cache) {
                (Some(_), Some(Cache::Store(pool))) => Some(pool),
                _ => None,
            },
            offloads: matches!(cached, Some(VllmConnector::Offloading(_))),
            transfer,
            connector: match (moved, cached) {
                (Some(moved), Some(cached)) => Some(VllmConnector::Multi(Part::Producer, vec![moved, cached])),
                (moved, cached) => moved.or(cached),
            },
        }
    }
}

impl Half {
    fn part(self) -> Part {
        match self {
            Self::Prefill => Part::Producer,
            Self::Decode => Part::Consumer,
        }
    }
}

fn owned(choices: &Choices, connected: bool) -> Vec<Owned> {
    const MOVES: &str = "moves or removes the metrics listener";
    const REPLACES: &str = "replaces the connector that the operator sets";
    let mut owned = vec![
        Owned::rendered("--kv-transfer-config"),
        Owned::rendered("--kv-events-config"),
        Owned::rendered("--host"),
        Owned {
            flag: "--config",
            why: "may hold any other option",
        },
        Owned {
            flag: "--uds",
            why: MOVES,
        },
        Owned {
            flag: "--headless",
            why: MOVES,
        },
        Owned {
            flag: "--grpc",
            why: MOVES,
        },
        // One listener a rank, each on a port of its own.
        Owned {
            flag: "--data-parallel-multi-port-external-lb",
            why: MOVES,
        },
    ];
    // Without a server vLLM is as with `--headless`.
    let servers = choices
        .value("--api-server-count")
        .map(str::trim)
        .map(str::parse::<i64>);
    if matches!(servers, Some(Ok(..1))) {
        owned.push(Owned {
            flag: "--api-server-count",
            why: MOVES,
        });
    }
    if connected {
        owned.push(Owned {
            flag: "--kv-offloading-size",
            why: REPLACES,
        });
        owned.push(Owned {
            flag: "--kv-offloading-backend",
            why: REPLACES,
        });
    }
    owned
}

fn mooncake_defaults(role: &Role, protocol: Protocol) -> impl Iterator<Item = EnvVar> {
    let metrics = unless_given(role, variable("MC_TE_METRIC", "1"));
    let tcp = (protocol == Protocol::Tcp)
        .then(|| unless_given(role, variable("MC_FORCE_TCP", "1")))
        .flatten();
    metrics.into_iter().chain(tcp)
}

/// A protocol as Mooncake spells it.
pub(super) fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Rdma => "rdma",
    }
}

/// The pool client's file: the process brings no memory of its own to the store, whose segments live elsewhere.
fn client_file(pool: &Pool) -> String {
    const LOCAL_BUFFER: u32 = 128 * 1024 * 1024;
    json!({
        "metadata_server": "P2PHANDSHAKE",
        "master_server_address": pool.master_address,
        "protocol": protocol(pool.protocol),
        "device_name": "",
        "mode": "standalone-store",
        "global_segment_size": 0,
        "local_buffer_size": LOCAL_BUFFER,
        "tenant_id": pool.tenant.as_deref().unwrap_or("default"),
    })
    .to_string()
}
