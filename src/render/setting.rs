//! The deployment as each of its roles sees it: what the spec leaves to defaults, decided once.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use model_deployment_crds::model_deployment::{EngineName, Pool, Protocol, TransferConnector};
use model_deployment_crds::role::{Role, RoleKind};
use model_deployment_crds::router::{Router, RouterName};
use model_deployment_crds::{GROUP, ModelDeployment, ModelDeploymentSpec, STORED_VERSION};

use super::{Defaults, Refusal, quantity};
use crate::pod::labels::Map;

/// A ModelDeployment that has no UID yet is rendered with this one.
const NO_UID: &str = "00000000-0000-0000-0000-000000000000";

/// Where KV cache blocks go beyond the accelerator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cache<'a> {
    /// A Mooncake store.
    Store(&'a Pool),
    /// The engine's own tier in host memory, in bytes a replica.
    Host(u64),
}

/// The path between the halves of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferPath {
    pub connector: TransferConnector,
    pub protocol: Protocol,
}

/// The deployment as each of its roles sees it.
pub(super) struct Setting<'a> {
    pub name: String,
    pub namespace: String,
    pub owner: OwnerReference,
    pub spec: &'a ModelDeploymentSpec,
    pub defaults: &'a Defaults,
    pub paired: bool,
    pub cache: Option<Cache<'a>>,
    /// None in a vLLM pair with a pool and no router, whose halves meet in the store alone.
    pub transfer: Option<TransferPath>,
}

impl<'a> Setting<'a> {
    pub fn of(deployment: &'a ModelDeployment, defaults: &'a Defaults) -> Result<Self, Refusal> {
        let spec = &deployment.spec;
        let metadata = &deployment.metadata;
        let name = metadata.name.clone().unwrap_or_default();
        let cache = cache(spec)?;
        let paired = spec.is_pair();
        let store_alone =
            spec.engine.name == EngineName::Vllm && spec.router.is_none() && matches!(cache, Some(Cache::Store(_)));
        Ok(Self {
            owner: OwnerReference {
                api_version: format!("{GROUP}/{STORED_VERSION}"),
                kind: "ModelDeployment".into(),
                name: name.clone(),
                uid: metadata.uid.clone().unwrap_or_else(|| NO_UID.into()),
                controller: Some(true),
                block_owner_deletion: Some(true),
            },
            name,
            namespace: metadata
                .namespace
                .clone()
                .filter(|namespace| !namespace.is_empty())
                .unwrap_or_else(|| "default".into()),
            spec,
            defaults,
            paired,
            cache,
            transfer: (paired && !store_alone).then(|| transfer_path(spec)),
        })
    }

    /// Metadata of an object of ours.
    pub fn metadata(&self, name: String, labels: Map) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace.clone()),
            labels: Some(labels),
            owner_references: Some(vec![self.owner.clone()]),
            ..Default::default()
        }
    }

    pub fn engine(&self) -> EngineName {
        self.spec.engine.name
    }

    pub fn router(&self) -> Option<&'a Router> {
        self.spec.router.as_ref()
    }

    pub fn is_routed_by(&self, router: RouterName) -> bool {
        self.router().is_some_and(|present| present.name == router)
    }

    /// Whether a routing proxy stands in front of the engine in the role's Pods.
    pub fn has_proxy(&self, role: &Role) -> bool {
        role.kind == RoleKind::Decode
            && role.direct_decode
            && role.command.is_empty()
            && self.is_routed_by(RouterName::LlmD)
    }

    /// Whether the role's engine publishes its cache events: under llm-d-router every vLLM role but a decode half.
    pub fn publishes_events(&self, role: &Role) -> bool {
        self.engine() == EngineName::Vllm && self.is_routed_by(RouterName::LlmD) && role.kind != RoleKind::Decode
    }

    /// Whether blocks travel over RDMA anywhere, for which memory must be locked.
    pub fn uses_rdma(&self) -> bool {
        let store = matches!(self.cache, Some(Cache::Store(pool)) if pool.protocol == Protocol::Rdma);
        store || self.transfer.is_some_and(|path| path.protocol == Protocol::Rdma)
    }

    /// The role behind the Service that is named after the deployment: the first that answers whole requests, taken over or not.
    pub fn front(&self) -> Option<&'a Role> {
        self.spec.roles.iter().find(|role| role.kind != RoleKind::Prefill)
    }
}

fn cache(spec: &ModelDeploymentSpec) -> Result<Option<Cache<'_>>, Refusal> {
    let Some(cache) = &spec.kv_cache else { return Ok(None) };
    if let Some(pool) = &cache.pool {
        return Ok(Some(Cache::Store(pool)));
    }
    let Some(memory) = &cache.host_memory else {
        return Ok(None);
    };
    match quantity::whole(memory) {
        Some(bytes) if bytes > 0 => Ok(Some(Cache::Host(bytes))),
        _ => Err(Refusal::HostMemory {
            value: memory.0.clone(),
        }),
    }
}

fn transfer_path(spec: &ModelDeploymentSpec) -> TransferPath {
    let given = spec.kv_transfer.clone().unwrap_or_default();
    let vllm_router = spec
        .router
        .as_ref()
        .is_some_and(|router| router.name == RouterName::Vllm);
    let default = if vllm_router {
        TransferConnector::Nixl
    } else {
        TransferConnector::Mooncake
    };
    TransferPath {
        connector: given.connector.unwrap_or(default),
        protocol: given.protocol,
    }
}
