//! What a fake engine reads from its container's command line.
//!
//! Owns the few options that change how the fake behaves. It is deliberately not the operator's own grammar: a test that reads
//! our command lines with our own reader could not find a fault in either.

use std::path::PathBuf;

/// Which program is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `vllm serve`.
    Vllm,
    /// `sglang.launch_server`.
    Sglang,
    /// Neither: something that only has to listen.
    Stub,
}

/// Half of a prefill/decode pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Produces KV.
    Prefill,
    /// Consumes KV.
    Decode,
}

/// The options that count.
#[derive(Debug, Clone, PartialEq)]
pub struct Arguments {
    /// Which program.
    pub kind: Kind,
    /// Served model name.
    pub model: String,
    /// Ports to listen on; an engine has one, a follower none.
    pub ports: Vec<u16>,
    /// Certificate and key, as paths inside the container.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether engine families are exported (`--disable-log-stats` of vLLM, `--enable-metrics` of SGLang).
    pub statistics: bool,
    /// Half of a pair, or an ordinary server.
    pub half: Option<Half>,
    /// Whether a host tier for KV was asked for.
    pub host_tier: bool,
    /// Requests that run at once; more of them wait.
    pub slots: usize,
}

/// Requests that run at once where the command line does not say (`--max-num-seqs`, `--max-running-requests`).
const SLOTS: usize = 256;

/// The port of both engines' images in this project's manifests.
const PORT: u16 = 8000;

impl Arguments {
    /// Reads the whole argv of a container.
    #[must_use]
    pub fn read(argv: &[String]) -> Self {
        let kind = if argv.iter().any(|a| a.contains("sglang")) {
            Kind::Sglang
        } else {
            Kind::Vllm
        };
        let value = |names: &[&str]| last(argv, names);
        let given = |names: &[&str]| argv.iter().any(|a| names.contains(&flag(a).0.as_str()));
        let port = value(&["--port"]).and_then(|p| p.parse().ok()).unwrap_or(PORT);
        let follows = given(&["--headless"]) || value(&["--node-rank"]).is_some_and(|rank| rank != "0");
        let positional = || {
            let serve = argv.iter().position(|a| a == "serve")?;
            argv.get(serve + 1).filter(|a| !a.starts_with('-')).cloned()
        };
        let model = value(&["--served-model-name"])
            .or_else(|| value(&["--model-path", "--model"]))
            .or_else(positional)
            .unwrap_or_else(|| "model".to_owned());
        let certificate = value(&["--ssl-certfile"]).zip(value(&["--ssl-keyfile"]));
        let connector = value(&["--kv-transfer-config"]).unwrap_or_default();
        let half = match value(&["--disaggregation-mode"]).as_deref() {
            Some("prefill") => Some(Half::Prefill),
            Some("decode") => Some(Half::Decode),
            _ if connector.contains("kv_producer") => Some(Half::Prefill),
            _ if connector.contains("kv_consumer") => Some(Half::Decode),
            _ => None,
        };
        let statistics = match kind {
            Kind::Sglang => given(&["--enable-metrics"]),
            _ => !given(&["--disable-log-stats"]),
        };
        let host_tier = match kind {
            Kind::Sglang => given(&["--enable-hierarchical-cache", "--enable-hicache"]),
            _ => connector.contains("OffloadingConnector") || given(&["--kv-offloading-size"]),
        };
        let slots = value(&["--max-num-seqs", "--max-running-requests"])
            .and_then(|n| n.parse().ok())
            .unwrap_or(SLOTS);
        Self {
            kind,
            model,
            ports: if follows { Vec::new() } else { vec![port] },
            certificate: certificate.map(|(c, k)| (c.into(), k.into())),
            statistics,
            half,
            host_tier,
            slots,
        }
    }

    /// Something that answers on `ports` and plays no engine.
    #[must_use]
    pub fn stub(ports: Vec<u16>) -> Self {
        Self {
            kind: Kind::Stub,
            model: "stub".to_owned(),
            ports,
            certificate: None,
            statistics: true,
            half: None,
            host_tier: false,
            slots: SLOTS,
        }
    }
}

/// A flag with dashes for underscores, and its value after `=`.
fn flag(argument: &str) -> (String, Option<&str>) {
    match argument.split_once('=') {
        Some((name, value)) => (name.replace('_', "-"), Some(value)),
        None => (argument.replace('_', "-"), None),
    }
}

fn last(argv: &[String], names: &[&str]) -> Option<String> {
    argv.iter().enumerate().rev().find_map(|(at, argument)| {
        let (name, value) = flag(argument);
        if !names.contains(&name.as_str()) {
            return None;
        }
        value.map(str::to_owned).or_else(|| argv.get(at + 1).cloned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Arguments {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Arguments::read(&argv)
    }

    #[test]
    fn vllm_command_line() {
        let read = read(
            "vllm serve org/model --host 0.0.0.0 --port 8000 --port=9001 --ssl_certfile=/c.pem --ssl-keyfile /k.pem --max-num-seqs 4",
        );
        assert_eq!(read.kind, Kind::Vllm);
        assert_eq!(read.model, "org/model");
        assert_eq!(read.ports, [9001]);
        assert_eq!(read.certificate, Some(("/c.pem".into(), "/k.pem".into())));
        assert!(read.statistics);
        assert_eq!(read.slots, 4);
    }

    #[test]
    fn vllm_half_and_statistics() {
        let read = read(
            "vllm serve m --served-model-name s --disable-log-stats --kv-transfer-config {\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_consumer\"}",
        );
        assert_eq!(read.half, Some(Half::Decode));
        assert_eq!(read.model, "s");
        assert!(!read.statistics);
        assert_eq!(read.ports, [8000]);
    }

    #[test]
    fn sglang_prefill() {
        let read = read(
            "python3 -m sglang.launch_server --model-path /models/m --served-model-name chat --enable-metrics --disaggregation-mode prefill --port 30000 --enable-hicache",
        );
        assert_eq!(read.kind, Kind::Sglang);
        assert_eq!(
            (read.half, read.host_tier, read.statistics),
            (Some(Half::Prefill), true, true)
        );
        assert_eq!((read.model.as_str(), read.ports.as_slice()), ("chat", &[30000_u16][..]));
    }

    #[test]
    fn a_follower_listens_nowhere() {
        assert!(read("vllm serve m --headless").ports.is_empty());
        assert!(
            read("python3 -m sglang.launch_server --model-path m --node-rank 1")
                .ports
                .is_empty()
        );
    }
}
