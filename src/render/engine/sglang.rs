//! SGLang: its cache tiers, the halves of its pairs, and what they ask of their Pods.

use model_deployment_crds::model_deployment::{KvCacheConnector, Pool, Protocol, TransferConnector};
use model_deployment_crds::role::Role;

use super::super::setting::{Cache, Setting, TransferPath};
use super::vllm::protocol;
use super::{Engine, Half, Tiers, half, malformed, model, pod_address, port_argument, refuse_owned};
use crate::arguments::{Choices, Owned, Sglang, Transfer};
use crate::pod::labels::Map;
use crate::render::environment::variable;
use crate::render::{Refusal, environment, ports};

/// Prefill Pods tell the gateway their bootstrap port with it; without it no pair forms (compatibility notes, finding C).
const BOOTSTRAP_ANNOTATION: &str = "sglang.ai/bootstrap-port";
/// `--hicache-size` counts in these (compatibility notes, finding N).
const GIGABYTE: u64 = 1_000_000_000;

/// Variables that a user may not set.
const OWNED_VARIABLES: [&str; 8] = [
    "MOONCAKE_DEVICE",
    "MOONCAKE_GLOBAL_SEGMENT_SIZE",
    "MOONCAKE_LOCAL_HOSTNAME",
    "MOONCAKE_MASTER",
    "MOONCAKE_PROTOCOL",
    "MOONCAKE_TENANT_ID",
    "MOONCAKE_TE_META_DATA_SERVER",
    "SGLANG_HICACHE_MOONCAKE_CONFIG_PATH",
];

pub(super) fn engine(setting: &Setting<'_>, role: &Role) -> Result<Engine, Refusal> {
    let choices = Choices::sglang(&role.extra_args).map_err(malformed(role))?;
    refuse_owned(role, &choices, &owned(setting, role))?;
    refuse_flexkv(setting, role, &choices)?;
    refuse_half_of_tls(role, &choices)?;
    environment::refuse_owned(role, &environment::RANK_NAMES, "")?;
    environment::refuse_owned(role, &OWNED_VARIABLES, environment::OR_COMMAND)?;

    let decode = half(role) == Some(Half::Decode);
    let store = match setting.cache {
        Some(Cache::Store(pool)) => Some(pool),
        _ => None,
    };
    let host_cache = match setting.cache {
        Some(Cache::Host(bytes)) if !decode => Some(per_rank(setting, role, &choices, bytes)?),
        _ => None,
    };
    let hierarchical_cache = !decode && choices.host_tier.is_none() && (store.is_some() || host_cache.is_some());
    let transfer = half(role)
        .zip(setting.transfer)
        .map(|(half, path)| (half, path, transfer(half, path, &choices)));

    let (model, served_name) = model(setting);
    let (port, port_argument) = port_argument(setting, role, &choices);
    let options = Sglang {
        model,
        served_name,
        port: port_argument,
        hierarchical_cache,
        host_cache,
        store: store.is_some(),
        transfer: transfer.map(|(.., options)| options),
    };
    let mut line = options.line();
    line.extend(&role.extra_args);
    let arguments = line.into_arguments();

    let mut more_ports = Vec::new();
    let mut annotations = Map::new();
    if let Some(Transfer::Prefill { bootstrap_port, .. }) = options.transfer {
        more_ports.push(ports::declare("bootstrap", bootstrap_port));
        annotations.insert(BOOTSTRAP_ANNOTATION.into(), bootstrap_port.to_string());
    }
    Ok(Engine {
        leader: arguments.clone(),
        follower: arguments,
        env: store.map(store_environment).into_iter().flatten().collect(),
        port,
        tls: choices.tls(),
        probed: true,
        more_ports,
        annotations,
        store_client: None,
        tiers: Tiers {
            pool: store.is_some(),
            connector: match (store, host_cache) {
                (Some(_), _) => Some(KvCacheConnector::Mooncake),
                (None, Some(_)) => Some(KvCacheConnector::Offloading),
                (None, None) => None,
            },
            transfer: transfer.map(|(_, path, _)| path.connector),
            host: hierarchical_cache || choices.host_tier.is_some(),
            storage: store.is_some(),
            native_offload: false,
        },
        ranks: choices.all_ranks(),
        stats_enabled: true,
    })
}

fn transfer(half: Half, path: TransferPath, choices: &Choices) -> Transfer {
    let backend = match (path.connector, path.protocol) {
        (TransferConnector::Nixl, _) => "nixl",
        (TransferConnector::Mooncake, Protocol::Tcp) => "mooncake_tcp",
        (TransferConnector::Mooncake, Protocol::Rdma) => "mooncake",
    };
    match half {
        Half::Prefill => Transfer::Prefill {
            backend,
            bootstrap_port: ports::BOOTSTRAP,
        },
        Half::Decode => Transfer::Decode {
            backend,
            retraction_backup: !choices.gives("--disaggregation-decode-retraction-backup"),
        },
    }
}

/// Host memory of one tensor parallel rank, in whole gigabytes.
fn per_rank(setting: &Setting<'_>, role: &Role, choices: &Choices, bytes: u64) -> Result<u64, Refusal> {
    match bytes / u64::from(choices.tensor) / GIGABYTE {
        0 => {
            let value = setting
                .spec
                .kv_cache
                .as_ref()
                .and_then(|cache| cache.host_memory.clone())
                .unwrap_or_default()
                .0;
            Err(Refusal::HostMemoryPerRank {
                value,
                role: role.name.clone(),
                ranks: choices.tensor,
            })
        }
        size => Ok(size),
    }
}

fn owned(setting: &Setting<'_>, role: &Role) -> Vec<Owned> {
    const MOVES: &str = "moves the metrics listener";
    const LMCACHE: &str = "--enable-lmcache";
    let mut owned = vec![
        Owned::rendered("--hicache-storage-backend"),
        Owned::rendered("--hicache-storage-backend-extra-config"),
        Owned::rendered("--disaggregation-mode"),
        Owned::rendered("--disaggregation-transfer-backend"),
        Owned::rendered("--disaggregation-bootstrap-port"),
        Owned::rendered("--host"),
        Owned {
            flag: "--config",
            why: "may hold any other option",
        },
        Owned {
            flag: "--grpc-mode",
            why: MOVES,
        },
        Owned {
            flag: "--smg-grpc-mode",
            why: MOVES,
        },
    ];
    match setting.cache {
        Some(Cache::Store(_)) => {
            owned.push(Owned {
                flag: LMCACHE,
                why: "excludes the hierarchical cache that the pool of spec.kvCache needs",
            });
        }
        Some(Cache::Host(_)) => {
            owned.push(Owned {
                flag: LMCACHE,
                why: INSTEAD_OF_HOST_MEMORY,
            });
            owned.push(Owned {
                flag: "--hicache-size",
                why: "is the field spec.kvCache.hostMemory",
            });
            owned.push(Owned {
                flag: "--enable-flexkv",
                why: INSTEAD_OF_HOST_MEMORY,
            });
        }
        None => {}
    }
    if half(role) == Some(Half::Decode) {
        const DECODE: &str = "gives a host tier to a decode half, which SGLang does not start with";
        owned.push(Owned {
            flag: "--enable-hierarchical-cache",
            why: DECODE,
        });
        owned.push(Owned {
            flag: LMCACHE,
            why: DECODE,
        });
    }
    owned
}

const INSTEAD_OF_HOST_MEMORY: &str = "is another host tier than that of spec.kvCache.hostMemory";

/// `--radix-cache-backend` is refused for one value only.
fn refuse_flexkv(setting: &Setting<'_>, role: &Role, choices: &Choices) -> Result<(), Refusal> {
    if matches!(setting.cache, Some(Cache::Host(_))) && choices.value("--radix-cache-backend") == Some("flexkv") {
        refuse_owned(
            role,
            choices,
            &[Owned {
                flag: "--radix-cache-backend",
                why: INSTEAD_OF_HOST_MEMORY,
            }],
        )?;
    }
    Ok(())
}

/// SGLang starts with certificate and key or with neither (compatibility notes, finding L).
fn refuse_half_of_tls(role: &Role, choices: &Choices) -> Result<(), Refusal> {
    let (given, lacking) = match (choices.certificate, choices.key) {
        (true, false) => ("--ssl-certfile", "--ssl-keyfile"),
        (false, true) => ("--ssl-keyfile", "--ssl-certfile"),
        _ => return Ok(()),
    };
    Err(Refusal::HalfOfTls {
        role: role.name.clone(),
        given,
        lacking,
    })
}

fn store_environment(pool: &Pool) -> [k8s_openapi::api::core::v1::EnvVar; 7] {
    [
        variable("MOONCAKE_MASTER", &pool.master_address),
        variable("MOONCAKE_TE_META_DATA_SERVER", "P2PHANDSHAKE"),
        variable("MOONCAKE_PROTOCOL", protocol(pool.protocol)),
        variable("MOONCAKE_DEVICE", ""),
        variable("MOONCAKE_GLOBAL_SEGMENT_SIZE", "0"),
        pod_address("MOONCAKE_LOCAL_HOSTNAME"),
        variable("MOONCAKE_TENANT_ID", pool.tenant.as_deref().unwrap_or("default")),
    ]
}
