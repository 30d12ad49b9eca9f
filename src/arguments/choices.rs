//! What a user's extra arguments to an engine decide: these become facts of the Pod, and nothing else of the text does.

use thiserror::Error;

use super::grammar::{Given, Grammar};

/// Decisions of a user's extra arguments; the last of several wins, as in the engines' own parsers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// `--port`.
    pub port: Option<u16>,
    /// A certificate file is named.
    pub certificate: bool,
    /// A key file is named.
    pub key: bool,
    /// Clients must show a certificate, so that no probe could.
    pub client_certificates: bool,
    /// Statistics are exported; `--disable-log-stats` of vLLM switches them off.
    pub stats_enabled: bool,
    /// vLLM's own offloading is on (`--kv-offloading-size`).
    pub native_offload: bool,
    /// SGLang's host tier.
    pub host_tier: Option<HostTier>,
    /// Tensor parallel ranks.
    pub tensor: u32,
    /// Pipeline parallel ranks.
    pub pipeline: u32,
    /// Data parallel ranks beside the tensor parallel ones: under SGLang's attention data parallelism they are the same ranks.
    pub data: u32,
    given: Vec<Given>,
}

/// A way to give SGLang a cache tier in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostTier {
    /// `--enable-hierarchical-cache`.
    Hierarchical,
    /// `--enable-lmcache`.
    LmCache,
    /// `--enable-flexkv`, or `--radix-cache-backend flexkv`.
    FlexKv,
}

/// An option that decides something has a value that it cannot have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{spelled} {value:?} is not {wanted}")]
pub struct MalformedValue {
    /// As the user spelled the option.
    pub spelled: String,
    /// The value, empty if there was none.
    pub value: String,
    /// What it should be.
    pub wanted: &'static str,
}

/// Python's `ssl.CERT_REQUIRED`, the value of vLLM's `--ssl-cert-reqs` that asks clients for a certificate.
const CERTIFICATE_REQUIRED: u8 = 2;

impl Choices {
    /// Reads a user's extra arguments to vLLM.
    ///
    /// # Errors
    /// The first option that decides something and has an impossible value.
    pub fn vllm(arguments: &[String]) -> Result<Self, MalformedValue> {
        let mut choices = Self::none(Grammar::Vllm.read(arguments))?;
        let asked = choices.value("--ssl-cert-reqs").map(str::trim).map(str::parse);
        choices.client_certificates = choices.tls() && asked == Some(Ok(CERTIFICATE_REQUIRED));
        choices.stats_enabled = !choices.gives("--disable-log-stats");
        choices.native_offload = choices.gives("--kv-offloading-size");
        choices.tensor = choices.ranks("--tensor-parallel-size")?;
        choices.pipeline = choices.ranks("--pipeline-parallel-size")?;
        choices.data = choices.ranks("--data-parallel-size")?;
        Ok(choices)
    }

    /// Reads a user's extra arguments to SGLang.
    ///
    /// # Errors
    /// The first option that decides something and has an impossible value.
    pub fn sglang(arguments: &[String]) -> Result<Self, MalformedValue> {
        let mut choices = Self::none(Grammar::Sglang.read(arguments))?;
        choices.host_tier = choices.sglang_host_tier();
        choices.tensor = choices.ranks("--tp-size")?;
        choices.pipeline = choices.ranks("--pp-size")?;
        let shared = choices.gives("--enable-dp-attention") || choices.ranks("--attn-dp-size")? > 1;
        choices.data = if shared { 1 } else { choices.ranks("--dp-size")? };
        Ok(choices)
    }

    /// Whether an option is given, by its first name.
    pub fn gives(&self, flag: &str) -> bool {
        self.last(flag).is_some()
    }

    /// The value of an option, by its first name.
    pub fn value(&self, flag: &str) -> Option<&str> {
        self.last(flag)?.value.as_deref()
    }

    /// The options, in order.
    pub fn given(&self) -> &[Given] {
        &self.given
    }

    /// Tensor × pipeline × data parallel ranks.
    pub fn all_ranks(&self) -> u32 {
        self.tensor.saturating_mul(self.pipeline).saturating_mul(self.data)
    }

    /// Whether the engine serves over TLS: a certificate or a key is named (resource contract, section 2).
    pub fn tls(&self) -> bool {
        self.certificate || self.key
    }

    fn none(given: Vec<Given>) -> Result<Self, MalformedValue> {
        let mut choices = Self {
            port: None,
            certificate: false,
            key: false,
            client_certificates: false,
            stats_enabled: true,
            native_offload: false,
            host_tier: None,
            tensor: 1,
            pipeline: 1,
            data: 1,
            given,
        };
        choices.certificate = choices.gives("--ssl-certfile");
        choices.key = choices.gives("--ssl-keyfile");
        choices.port = choices
            .last("--port")
            .map(|given| number(given, "a port from 1 to 65535"))
            .transpose()?;
        Ok(choices)
    }

    fn sglang_host_tier(&self) -> Option<HostTier> {
        if self.gives("--enable-hierarchical-cache") {
            Some(HostTier::Hierarchical)
        } else if self.gives("--enable-lmcache") {
            Some(HostTier::LmCache)
        } else if self.gives("--enable-flexkv") || self.value("--radix-cache-backend") == Some("flexkv") {
            Some(HostTier::FlexKv)
        } else {
            None
        }
    }

    fn ranks(&self, flag: &str) -> Result<u32, MalformedValue> {
        self.last(flag).map_or(Ok(1), |given| {
            number(given, "a whole number of ranks from 1 to 65535").map(u32::from)
        })
    }

    fn last(&self, flag: &str) -> Option<&Given> {
        self.given.iter().rev().find(|given| given.flag == flag)
    }
}

fn number(given: &Given, wanted: &'static str) -> Result<u16, MalformedValue> {
    let value = given.value.as_deref().unwrap_or_default();
    match value.parse::<u16>() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(MalformedValue {
            spelled: given.spelled.clone(),
            value: value.to_owned(),
            wanted,
        }),
    }
}
