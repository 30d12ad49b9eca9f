//! The engines' command lines as typed options: what we decided, written out once and never read back.

use serde_json::{Value, json};

use super::line::Line;

/// `vllm serve`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vllm {
    /// What is loaded.
    pub model: String,
    /// The name under which it is served, where that is another one.
    pub served_name: Option<String>,
    /// What moves KV cache blocks out of the Pod or into it.
    pub connector: Option<VllmConnector>,
    /// Where cache events are published.
    pub events: Option<KvEvents>,
    /// Our listening port; none where the user's own arguments name one.
    pub port: Option<u16>,
    /// A follower serves no HTTP.
    pub headless: bool,
}

impl Vllm {
    /// The command line up to where a user's arguments follow.
    pub fn line(&self) -> Line {
        let mut line = Line::program(["vllm", "serve"]);
        line.word(&self.model);
        if let Some(name) = &self.served_name {
            line.option("--served-model-name", name);
        }
        if let Some(connector) = &self.connector {
            line.option("--kv-transfer-config", connector.configuration());
        }
        if let Some(events) = &self.events {
            line.option("--kv-events-config", events.configuration());
        }
        line.option("--host", EVERY_ADDRESS);
        if let Some(port) = self.port {
            line.option("--port", port);
        }
        if self.headless {
            line.word("--headless");
        }
        line
    }
}

/// One half's part in a vLLM connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Gives blocks away.
    Producer,
    /// Takes blocks in.
    Consumer,
    /// Both.
    Both,
}

impl Part {
    fn spell(self) -> &'static str {
        match self {
            Self::Producer => "kv_producer",
            Self::Consumer => "kv_consumer",
            Self::Both => "kv_both",
        }
    }
}

/// A `--kv-transfer-config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VllmConnector {
    /// Mooncake's transfer engine between the halves of a pair; its `mooncake_protocol`.
    Mooncake(Part, &'static str),
    /// NIXL between the halves of a pair.
    Nixl(Part),
    /// A Mooncake store.
    Store(Part),
    /// The engine's own tier in host memory, in bytes.
    Offloading(u64),
    /// Several at once, with the part of the whole.
    Multi(Part, Vec<VllmConnector>),
}

impl VllmConnector {
    /// The JSON that vLLM takes. Extras stand under `kv_connector_extra_config`, and every connector carries its own `kv_role`, also
    /// the one that holds others (compatibility notes, finding G).
    fn configuration(&self) -> Value {
        match self {
            Self::Mooncake(part, protocol) => connector(
                "MooncakeConnector",
                *part,
                Some(json!({ "mooncake_protocol": protocol })),
            ),
            Self::Nixl(part) => connector("NixlConnector", *part, None),
            Self::Store(part) => connector("MooncakeStoreConnector", *part, None),
            Self::Offloading(bytes) => connector(
                "OffloadingConnector",
                Part::Both,
                Some(json!({ "cpu_bytes_to_use": bytes })),
            ),
            Self::Multi(part, connectors) => {
                let connectors: Vec<_> = connectors.iter().map(Self::configuration).collect();
                connector("MultiConnector", *part, Some(json!({ "connectors": connectors })))
            }
        }
    }
}

fn connector(name: &str, part: Part, extra: Option<Value>) -> Value {
    let mut configuration = json!({ "kv_connector": name, "kv_role": part.spell() });
    if let Some(extra) = extra {
        configuration["kv_connector_extra_config"] = extra;
    }
    configuration
}

/// Publishing of cache events over ZeroMQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvEvents {
    /// Port of the stream.
    pub port: u16,
    /// Port at which what was missed is asked for again.
    pub replay_port: u16,
    /// Topic of the stream.
    pub topic: String,
}

impl KvEvents {
    /// Without `enable_kv_cache_events` vLLM accepts the rest and publishes nothing (compatibility notes, finding H).
    fn configuration(&self) -> Value {
        json!({
            "enable_kv_cache_events": true,
            "publisher": "zmq",
            "endpoint": format!("tcp://*:{}", self.port),
            "replay_endpoint": format!("tcp://*:{}", self.replay_port),
            "topic": self.topic,
        })
    }
}

/// `sglang.launch_server`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sglang {
    /// What is loaded.
    pub model: String,
    /// The name under which it is served, where that is another one.
    pub served_name: Option<String>,
    /// Our listening port; none where the user's own arguments name one.
    pub port: Option<u16>,
    /// Whether the hierarchical cache is switched on by us.
    pub hierarchical_cache: bool,
    /// Host memory of the hierarchical cache, in 10⁹ bytes a rank.
    pub host_cache: Option<u64>,
    /// Whether the Mooncake store stands behind the cache.
    pub store: bool,
    /// The half of a pair that this is.
    pub transfer: Option<Transfer>,
}

/// One half of an SGLang pair; the backend is spelled as SGLang does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The half that computes a prompt's KV cache.
    Prefill {
        /// `--disaggregation-transfer-backend`.
        backend: &'static str,
        /// Port at which the decode half finds this one.
        bootstrap_port: u16,
    },
    /// The half that generates.
    Decode {
        /// `--disaggregation-transfer-backend`.
        backend: &'static str,
        /// Whether retracted requests keep their cache in host memory: our default, unless the user's own arguments say.
        retraction_backup: bool,
    },
}

impl Sglang {
    /// The command line up to where a user's arguments follow.
    pub fn line(&self) -> Line {
        let mut line = Line::program(["python3", "-m", "sglang.launch_server"]);
        line.option("--model-path", &self.model);
        if let Some(name) = &self.served_name {
            line.option("--served-model-name", name);
        }
        line.word("--enable-metrics");
        match self.transfer {
            Some(Transfer::Prefill {
                backend,
                bootstrap_port,
            }) => {
                line.option("--disaggregation-mode", "prefill")
                    .option("--disaggregation-transfer-backend", backend)
                    .option("--disaggregation-bootstrap-port", bootstrap_port);
            }
            Some(Transfer::Decode {
                backend,
                retraction_backup,
            }) => {
                line.option("--disaggregation-mode", "decode")
                    .option("--disaggregation-transfer-backend", backend);
                if retraction_backup {
                    line.option("--disaggregation-decode-retraction-backup", "cpu_tensor");
                }
            }
            None => {}
        }
        if self.hierarchical_cache {
            line.word("--enable-hierarchical-cache");
        }
        if let Some(size) = self.host_cache {
            line.option("--hicache-size", size);
        }
        if self.store {
            line.option("--hicache-storage-backend", "mooncake");
        }
        line.option("--host", EVERY_ADDRESS);
        if let Some(port) = self.port {
            line.option("--port", port);
        }
        line
    }
}

/// Probes and routers come from other Pods.
const EVERY_ADDRESS: &str = "0.0.0.0";
