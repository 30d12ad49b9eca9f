//! What one role's engine is started with, and the facts that follow: the two come from the same decisions and never from each other.

mod sglang;
mod vllm;

use k8s_openapi::api::core::v1::{ContainerPort, EnvVar};
use model_deployment_crds::model_deployment::{EngineName, KvCacheConnector, TransferConnector};
use model_deployment_crds::role::{Role, RoleKind};

use super::refusal::spell;
use super::setting::Setting;
use super::{Refusal, environment, ports};
use crate::arguments::{Choices, MalformedValue, Owned, OwnedFlag};
use crate::pod::labels::Map;
use crate::pod::{Endpoint, Facts, Listener, Member, NoEndpoint, Scheme, facts};

pub(super) use vllm::{STORE_CLIENT_FILE, STORE_CLIENT_FOLDER};

/// What one role's engine is started with.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    /// The leader's whole argument vector.
    pub leader: Vec<String>,
    /// A follower's.
    pub follower: Vec<String>,
    /// Variables of ours; a user's follow.
    pub env: Vec<EnvVar>,
    /// Port on which the engine listens.
    pub port: u16,
    /// Whether it serves TLS.
    pub tls: bool,
    /// Whether its health can be asked.
    pub probed: bool,
    /// Ports beside the serving one.
    pub more_ports: Vec<ContainerPort>,
    /// Annotations beside facts and scraping.
    pub annotations: Map,
    /// What stays in the Pod as `/etc/gpustack/kvcache/mooncake.json`.
    pub store_client: Option<String>,
    /// What the arguments decided.
    pub tiers: Tiers,
    /// Ranks that the arguments ask for.
    pub ranks: u32,
    /// Whether the engine exports its statistics.
    pub stats_enabled: bool,
}

/// Where the engine's KV cache blocks go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tiers {
    pub pool: bool,
    pub connector: Option<KvCacheConnector>,
    pub transfer: Option<TransferConnector>,
    pub host: bool,
    pub storage: bool,
    pub native_offload: bool,
}

impl Engine {
    /// Decides what `role` is started with.
    pub fn of(setting: &Setting<'_>, role: &Role) -> Result<Self, Refusal> {
        if !role.command.is_empty() {
            return Self::taken_over(role);
        }
        let engine = match setting.engine() {
            EngineName::Vllm => vllm::engine(setting, role)?,
            EngineName::Sglang => sglang::engine(setting, role)?,
        };
        ports::check(setting, role, &engine)?;
        refuse_tls_under_router(setting, role, &engine)?;
        Ok(engine)
    }

    /// A user's `command` is used as it is; the operator adds the rank environment alone.
    fn taken_over(role: &Role) -> Result<Self, Refusal> {
        environment::refuse_owned(role, &environment::RANK_NAMES, "")?;
        Ok(Self {
            leader: role.command.clone(),
            follower: role.command.clone(),
            env: Vec::new(),
            port: ports::serving(role),
            tls: false,
            probed: false,
            more_ports: Vec::new(),
            annotations: Map::new(),
            store_client: None,
            tiers: Tiers::default(),
            ranks: 1,
            stats_enabled: true,
        })
    }

    /// The facts of one member of a replica.
    pub fn facts(&self, setting: &Setting<'_>, role: &Role, member: Member, revision: &str) -> Facts {
        let take_over = !role.command.is_empty();
        let endpoint = if take_over {
            Endpoint::None {
                none: NoEndpoint::TakeOver,
            }
        } else if member == Member::Follower {
            Endpoint::None {
                none: NoEndpoint::Follower,
            }
        } else {
            Endpoint::Listener(Listener {
                scheme: if self.tls { Scheme::Https } else { Scheme::Http },
                port: self.port,
                path: facts::METRICS_PATH.into(),
            })
        };
        Facts {
            version: facts::VERSION,
            producer: setting.engine().into(),
            role: role.name.clone(),
            kind: Some(role.kind),
            paired: setting.paired,
            member: Some(member),
            endpoint,
            pool: self.tiers.pool,
            connector: self.tiers.connector,
            transfer_connector: self.tiers.transfer,
            host_tier: self.tiers.host,
            storage_tier: self.tiers.storage,
            native_offload: self.tiers.native_offload,
            tracks_load: None,
            ranks: Some(self.ranks),
            stats_enabled: self.stats_enabled,
            take_over,
            revision: revision.to_owned(),
        }
    }
}

/// Routers speak plain HTTP to engines. Behind a routing proxy the hop stays inside the Pod.
fn refuse_tls_under_router(setting: &Setting<'_>, role: &Role, engine: &Engine) -> Result<(), Refusal> {
    match setting.router() {
        Some(router) if engine.tls && !setting.has_proxy(role) => Err(Refusal::TlsUnderRouter {
            role: role.name.clone(),
            router: spell(router.name),
        }),
        _ => Ok(()),
    }
}

fn refuse_owned(role: &Role, choices: &Choices, owned: &[Owned]) -> Result<(), Refusal> {
    OwnedFlag::refuse(choices.given(), owned).map_err(|owned| Refusal::RoleFlag {
        role: role.name.clone(),
        owned,
    })
}

fn malformed(role: &Role) -> impl Fn(MalformedValue) -> Refusal {
    let role = role.name.clone();
    move |malformed| Refusal::RoleValue {
        role: role.clone(),
        malformed,
    }
}

/// What the engine loads, and its other name if it is served under one.
fn model(setting: &Setting<'_>) -> (String, Option<String>) {
    let model = &setting.spec.model;
    match &model.path {
        Some(path) => (path.clone(), Some(model.name.clone())),
        None => (model.name.clone(), None),
    }
}

/// The port that our arguments name: none where the user's do.
fn port_argument(setting: &Setting<'_>, role: &Role, choices: &Choices) -> (u16, Option<u16>) {
    match choices.port {
        Some(port) => (port, None),
        None => {
            let port = if setting.has_proxy(role) {
                ports::behind_proxy(role)
            } else {
                ports::serving(role)
            };
            (port, Some(port))
        }
    }
}

/// A variable that holds the Pod's own address.
fn pod_address(name: &str) -> EnvVar {
    environment::field(name, "status.podIP")
}

/// Our value of a variable that a user may set too.
fn unless_given(role: &Role, variable: EnvVar) -> Option<EnvVar> {
    role.env
        .iter()
        .all(|given| given.name != variable.name)
        .then_some(variable)
}

/// The half of a pair that a role is; `Server` roles are none.
fn half(role: &Role) -> Option<Half> {
    match role.kind {
        RoleKind::Server => None,
        RoleKind::Prefill => Some(Half::Prefill),
        RoleKind::Decode => Some(Half::Decode),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Prefill,
    Decode,
}
