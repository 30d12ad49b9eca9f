//! Why a spec is not rendered: the sentence that `SpecAccepted` carries. Each names the field, the value and the way out (resource
//! contract, section 3).

use model_deployment_crds::router::RouterName;
use thiserror::Error;

use crate::arguments::{MalformedValue, OwnedFlag};

/// Why a spec is not rendered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// A role's extra arguments name an option that the operator keeps.
    #[error("spec.roles[{role}].extraArgs: {owned}; leave it out, or take the role over with command")]
    RoleFlag {
        /// The role.
        role: String,
        /// The option.
        owned: OwnedFlag,
    },
    /// A router's or coordinator's extra arguments name an option that the operator keeps.
    #[error("{field}: {owned}; leave it out")]
    RouterFlag {
        /// Path of the field.
        field: &'static str,
        /// The option.
        owned: OwnedFlag,
    },
    /// An option that decides something has an impossible value.
    #[error("spec.roles[{role}].extraArgs: {malformed}; correct it, or take the role over with command")]
    RoleValue {
        /// The role.
        role: String,
        /// The option.
        malformed: MalformedValue,
    },
    /// A variable that the operator sets.
    #[error("spec.roles[{role}].env: {name} is set by the operator; leave it out{way_out}")]
    RoleVariable {
        /// The role.
        role: String,
        /// The variable.
        name: String,
        /// Another way out, or nothing.
        way_out: &'static str,
    },
    /// SGLang starts with both or none.
    #[error(
        "spec.roles[{role}].extraArgs: {given} is given without {lacking}, and SGLang serves TLS only with both; give both, or take the role over with command"
    )]
    HalfOfTls {
        /// The role.
        role: String,
        /// What is there.
        given: &'static str,
        /// What is not.
        lacking: &'static str,
    },
    /// Routers speak plain HTTP to engines.
    #[error(
        "spec.roles[{role}].extraArgs: a certificate or key file makes the engine serve TLS, and {router} speaks plain HTTP to its workers; remove the file options, or remove spec.router"
    )]
    TlsUnderRouter {
        /// The role.
        role: String,
        /// The router.
        router: &'static str,
    },
    /// A port of the role is used by something else in its Pods.
    #[error("spec.roles[{role}]: port {port} ({field}) is {user}; choose another port")]
    ReservedPort {
        /// The role.
        role: String,
        /// The port.
        port: u16,
        /// `port`, or `--port` in `extraArgs`.
        field: &'static str,
        /// Who has it.
        user: &'static str,
    },
    /// The router looks for every worker at one port.
    #[error(
        "spec.roles: {router} finds its workers at one port, but role {first} listens on {first_port} and role {second} on {second_port}; give them the same port"
    )]
    PortsDiffer {
        /// The router.
        router: &'static str,
        /// One role.
        first: String,
        /// Its port.
        first_port: u16,
        /// Another role.
        second: String,
        /// Its port.
        second_port: u16,
    },
    /// Two objects would have one name.
    #[error(
        "spec.roles: the {kind} name {name} is that of roles {first} and {second} both; a role's name is immutable, so create the ModelDeployment with another one"
    )]
    SameName {
        /// `Pod` or `Service`.
        kind: &'static str,
        /// The name.
        name: String,
        /// One role.
        first: String,
        /// Another role.
        second: String,
    },
    /// A volume's name is taken.
    #[error("spec.roles[{role}].volumes: the name {name} is taken by the operator; rename the volume")]
    VolumeName {
        /// The role.
        role: String,
        /// The name.
        name: String,
    },
    /// A mount's path is taken.
    #[error("spec.roles[{role}].volumeMounts: {path} is mounted by the operator; {way_out}")]
    MountPath {
        /// The role.
        role: String,
        /// The path.
        path: String,
        /// What to do instead.
        way_out: &'static str,
    },
    /// A mount of no volume.
    #[error(
        "spec.roles[{role}].volumeMounts: {path} names volume {name}, which spec.roles[{role}].volumes lacks; add the volume"
    )]
    MountWithoutVolume {
        /// The role.
        role: String,
        /// The path.
        path: String,
        /// The volume.
        name: String,
    },
    /// The size of the shared memory says nothing.
    #[error("spec.roles[{role}].shmSize: {value:?} is not a quantity of bytes; write one such as 16Gi")]
    ShmSize {
        /// The role.
        role: String,
        /// As given.
        value: String,
    },
    /// The host tier's size says nothing.
    #[error(
        "spec.kvCache.hostMemory: {value:?} is not a quantity of at least one byte; write one such as 64Gi, in a new ModelDeployment"
    )]
    HostMemory {
        /// As given.
        value: String,
    },
    /// SGLang counts the host tier in whole 10⁹ bytes a rank.
    #[error(
        "spec.kvCache.hostMemory: {value} over {ranks} tensor parallel ranks of role {role} is less than 1G a rank, the least that SGLang can set aside; give at least {ranks}G, in a new ModelDeployment, or fewer ranks"
    )]
    HostMemoryPerRank {
        /// As given.
        value: String,
        /// The role.
        role: String,
        /// Its tensor parallel ranks.
        ranks: u32,
    },
}

/// A router as a sentence names it.
pub(super) fn spell(router: RouterName) -> &'static str {
    match router {
        RouterName::LlmD => "llm-d-router",
        RouterName::Vllm => "vllm-router",
        RouterName::SglangGateway => "sglang-gateway",
    }
}
