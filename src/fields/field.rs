//! What one row of the field table says. Knows no body and no Pod's state.

use std::borrow::Cow;
use std::fmt;

use model_deployment_crds::role::RoleKind;

use crate::exposition::Labels;
use crate::pod::{Facts, Producer, TracksLoad};

/// One row: a figure, and where one producer exports it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name of the figure; of a cache source, its cache scope.
    pub name: &'static str,
    /// The list of the answer that it stands in.
    pub list: List,
    /// The program that exports it.
    pub producer: Producer,
    /// Which series give it, and how.
    pub measure: Measure,
    /// How the series of one Pod are added.
    pub layout: Layout,
    /// Unit of the figure.
    pub unit: &'static str,
    /// Which Pods of the producer are asked for it.
    pub readers: Readers,
    /// What has to be configured for it.
    pub provision: Provision,
    /// Whether it exists from the producer's start.
    pub birth: Birth,
}

/// A list of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// `processing[]`.
    Processing,
    /// `queueing[]`.
    Queueing,
    /// `cacheHits[]`.
    CacheHits,
    /// `latency[]`.
    Latency,
    /// `traffic[]`.
    Traffic,
    /// `transfer[]`.
    Transfer,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Processing => "processing",
            Self::Queueing => "queueing",
            Self::CacheHits => "cacheHits",
            Self::Latency => "latency",
            Self::Traffic => "traffic",
            Self::Transfer => "transfer",
        })
    }
}

/// Which series give a figure, and how.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    /// The present value.
    Gauge(&'static str),
    /// The mean of a histogram's new observations, and their quantiles where `quantiles` is set.
    Mean {
        /// The histogram.
        histogram: &'static str,
        /// Whether its buckets are read.
        quantiles: bool,
    },
    /// A counter's increase per second.
    Rate(Pick),
    /// The increase of one counter as part of another's.
    Ratio {
        /// Hits or errors.
        part: Pick,
        /// Queries or requests.
        whole: Pick,
    },
}

/// Some series of a counter.
#[derive(Clone, Copy, Debug)]
pub struct Pick {
    /// Exact name of the counter.
    pub family: &'static str,
    /// Which of its series.
    pub only: Only,
}

/// Which series of a family count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// All.
    All,
    /// Those whose `status_code` is an integer from 500 to 599.
    ServerErrors,
    /// Those with one of these values of `mode`. Each has to be there: the producer exports all of them from its start.
    Modes(&'static [&'static str]),
}

/// How the series of one Pod are added (metrics contract, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All label sets.
    Added,
    /// One figure a scheduler of SGLang: the total over priorities, the greatest over the ranks that repeat it, added over `dp_rank`.
    Schedulers,
}

/// Which Pods of a producer are asked for a figure. The others are silent: no entry, no `missing[]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Every one.
    Every,
    /// Every one but the prefill half of a pair.
    NotPrefill,
    /// Every one but the decode half of a pair.
    NotDecode,
    /// The prefill half of a pair.
    Prefill,
    /// The decode half of a pair.
    Decode,
    /// A router that does not serve a pair.
    Ordinary,
    /// A router that serves a pair.
    Pair,
}

impl Readers {
    fn include(self, facts: &Facts) -> bool {
        let half = facts.kind.filter(|_| facts.paired);
        let (prefill, decode) = (half == Some(RoleKind::Prefill), half == Some(RoleKind::Decode));
        match self {
            Self::Every => true,
            Self::NotPrefill => !prefill,
            Self::NotDecode => !decode,
            Self::Prefill => prefill,
            Self::Decode => decode,
            Self::Ordinary => !facts.paired,
            Self::Pair => facts.paired,
        }
    }
}

impl fmt::Display for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Every => "every Pod",
            Self::NotPrefill => "every role but prefill of a pair",
            Self::NotDecode => "every role but decode of a pair",
            Self::Prefill => "prefill of a pair",
            Self::Decode => "decode of a pair",
            Self::Ordinary => "router of an ordinary deployment",
            Self::Pair => "router of a pair",
        })
    }
}

/// What has to be configured for a figure to exist; where it is not, the figure is `Unsupported`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provision {
    /// Nothing.
    None,
    /// A KV cache pool, on a Pod that is not the decode half of a pair.
    Pool,
    /// A cache tier in host memory.
    HostTier,
    /// A storage tier.
    StorageTier,
    /// A router that does not serve a pair.
    OrdinaryRouter,
    /// A routing policy that keeps the gauge. It is read wherever it is there.
    TracksLoad,
}

impl fmt::Display for Provision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "—",
            Self::Pool => "without a KV cache pool, and on decode of a pair",
            Self::HostTier => "without a cache tier in host memory",
            Self::StorageTier => "without a storage tier",
            Self::OrdinaryRouter => "in front of a pair",
            Self::TracksLoad => "under a routing policy that keeps no such gauge, until seen",
        })
    }
}

/// When a series comes into being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Birth {
    /// With the producer: one that is not there is `Absent`.
    Start,
    /// With its first increment or observation: until then `NotExportedYet`, which is required unless the named figure was read in
    /// the same body.
    Late {
        /// The documented pair.
        pair: Option<&'static str>,
    },
    /// Only in some versions or under some settings: `NotExportedYet` and not required until seen.
    Perhaps,
    /// With the first streamed answer: `NotExportedYet`, not required, while the Pod's TTFT did not move or is itself a first sample;
    /// else `Absent`.
    FirstStream,
}

impl fmt::Display for Birth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("from the start"),
            Self::Late { pair: None } => f.write_str("on first use"),
            Self::Late { pair: Some(pair) } => write!(f, "on first use; pair: `{pair}`"),
            Self::Perhaps => f.write_str("perhaps never"),
            Self::FirstStream => f.write_str("with the first streamed answer; pair: `ttft`"),
        }
    }
}

/// Whether a Pod is asked for a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It is read.
    Read,
    /// It is read if it is there; while it was never seen it is `Unsupported`, for this reason.
    IfThere(&'static str),
    /// `Unsupported`, for this reason.
    Unsupported(&'static str),
}

impl Field {
    /// Whether a Pod with these facts is asked for the figure; none where it is silent.
    pub fn support(&self, facts: &Facts) -> Option<Support> {
        if self.producer != facts.producer || !self.readers.include(facts) {
            return None;
        }
        Some(match self.lack(facts) {
            Some(reason) => reason,
            None if facts.stats_enabled => Support::Read,
            None => Support::IfThere("The Pod's arguments switch its statistics off."),
        })
    }

    fn lack(&self, facts: &Facts) -> Option<Support> {
        let decode = facts.paired && facts.kind == Some(RoleKind::Decode);
        match self.provision {
            Provision::Pool if decode => Some(Support::Unsupported(
                "On the decode half of a pair vLLM counts the blocks that the prefill half sends as external hits, so the counters do not measure a store.",
            )),
            Provision::Pool if facts.pool => None,
            Provision::Pool if facts.connector.is_none() && facts.transfer_connector.is_none() => Some(
                Support::Unsupported("The Pod runs no KV connector, so vLLM asks no external cache."),
            ),
            Provision::Pool => Some(Support::Unsupported(
                "No KV cache pool is attached, and vLLM counts the tokens of every KV connector as external hits.",
            )),
            Provision::HostTier if !facts.host_tier => Some(Support::Unsupported(
                "The Pod builds no cache tier in host memory, so SGLang's count of host hits stays at zero.",
            )),
            Provision::StorageTier if !facts.storage_tier => Some(Support::Unsupported(
                "The Pod builds no storage tier, so SGLang's count of storage hits stays at zero.",
            )),
            Provision::OrdinaryRouter if facts.paired => Some(Support::Unsupported(
                "In front of a prefill/decode pair this router exports no such gauge.",
            )),
            Provision::TracksLoad if facts.paired && facts.tracks_load == Some(TracksLoad::No) => Some(
                Support::IfThere("In front of a prefill/decode pair this router exports no such gauge."),
            ),
            Provision::TracksLoad if facts.tracks_load == Some(TracksLoad::No) => Some(Support::IfThere(
                "The router's policy keeps no gauge of running requests.",
            )),
            _ => None,
        }
    }

    /// The exact series name; two are joined with `+`: hits then queries, requests then errors (metrics contract, section 2).
    pub fn source(&self) -> Cow<'static, str> {
        match self.measure {
            Measure::Gauge(family) => family.into(),
            Measure::Mean { histogram, .. } => histogram.into(),
            Measure::Rate(pick) => pick.family.into(),
            Measure::Ratio { part, whole } if part.family == whole.family => part.family.into(),
            Measure::Ratio { part, whole } if self.list == List::CacheHits => {
                format!("{}+{}", part.family, whole.family).into()
            }
            Measure::Ratio { part, whole } => format!("{}+{}", whole.family, part.family).into(),
        }
    }

    /// The families that it needs.
    pub fn families(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        let (first, second) = match self.measure {
            Measure::Gauge(family) => (family, None),
            Measure::Mean { histogram, .. } => (histogram, None),
            Measure::Rate(pick) => (pick.family, None),
            Measure::Ratio { part, whole } => (part.family, (part.family != whole.family).then_some(whole.family)),
        };
        [Some(first), second].into_iter().flatten()
    }
}

impl Only {
    /// Whether a series with these labels counts.
    pub fn includes(self, labels: &Labels) -> bool {
        match self {
            Self::All => true,
            Self::ServerErrors => labels
                .get("status_code")
                .and_then(|code| code.parse::<u16>().ok())
                .is_some_and(|code| (500..=599).contains(&code)),
            Self::Modes(modes) => labels.get("mode").is_some_and(|mode| modes.contains(&mode)),
        }
    }
}
