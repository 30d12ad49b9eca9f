//! How each program reads its command line: spellings of an option resolved to its first name, with its value.
//!
//! Python's `argparse` takes `--flag value`, `--flag=value` and any prefix that only one spelling begins with. vLLM's parser also takes
//! underscores for dashes and dotted keys (`--kv-transfer-config.kv_role x`). Go's `flag` takes no prefix, and one dash for two.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// One option as a user gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The option's first name, such as `--tensor-parallel-size`.
    pub flag: &'static str,
    /// As the user spelled it, without the value.
    pub spelled: String,
    /// Its value, if one was given.
    pub value: Option<String>,
}

/// The command line of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grammar {
    /// `vllm serve`.
    Vllm,
    /// `sglang.launch_server`.
    Sglang,
    /// `vllm-router`.
    VllmRouter,
    /// The SGLang gateway up to 0.3 (`sglang-router`).
    SglangRouter,
    /// The SGLang gateway from 1.0 on (`smg`).
    Smg,
    /// llm-d's endpoint picker and coordinator: Go programs.
    LlmD,
}

/// Every spelling of every option, to the option's first name.
type Spellings = BTreeMap<&'static str, &'static str>;

fn spellings(list: &'static str) -> Spellings {
    list.lines()
        .filter(|line| line.starts_with('-'))
        .flat_map(|line| {
            let first = line.split(' ').next().unwrap_or_default();
            line.split(' ').map(move |spelling| (spelling, first))
        })
        .collect()
}

static VLLM: LazyLock<Spellings> = LazyLock::new(|| spellings(include_str!("flags/vllm.txt")));
static SGLANG: LazyLock<Spellings> = LazyLock::new(|| spellings(include_str!("flags/sglang.txt")));
static VLLM_ROUTER: LazyLock<Spellings> = LazyLock::new(|| spellings(include_str!("flags/vllm-router.txt")));
static SGLANG_ROUTER: LazyLock<Spellings> = LazyLock::new(|| spellings(include_str!("flags/sglang-router.txt")));
static SMG: LazyLock<Spellings> = LazyLock::new(|| spellings(include_str!("flags/smg.txt")));
static LLM_D: LazyLock<Spellings> = LazyLock::new(|| spellings(include_str!("flags/llm-d.txt")));

impl Grammar {
    /// The known options among `arguments`, in order.
    pub fn read(self, arguments: &[String]) -> Vec<Given> {
        let mut given = Vec::new();
        let mut rest = arguments.iter().peekable();
        while let Some(argument) = rest.next() {
            if argument == "--" {
                break; // what follows is positional
            }
            if !argument.starts_with('-') {
                continue;
            }
            let (spelled, mut value) = match argument.split_once('=') {
                Some((spelled, value)) => (spelled, Some(value.to_owned())),
                None => (argument.as_str(), None),
            };
            let dotted = self == Self::Vllm && spelled.contains('.');
            if value.is_none() {
                value = rest.next_if(|next| dotted || !looks_like_an_option(next)).cloned();
            }
            if let Some(flag) = self.resolve(spelled) {
                given.push(Given {
                    flag,
                    spelled: spelled.to_owned(),
                    value,
                });
            }
        }
        given
    }

    /// The first name of the option that `spelled` means, if it means exactly one.
    fn resolve(self, spelled: &str) -> Option<&'static str> {
        let known = self.spellings();
        let name = match self {
            Self::Vllm => spelled.split('.').next().unwrap_or(spelled).replace('_', "-"),
            Self::LlmD => format!("--{}", spelled.trim_start_matches('-')),
            _ => spelled.to_owned(),
        };
        if let Some(first) = known.get(name.as_str()) {
            return Some(first);
        }
        if self == Self::LlmD || name.trim_start_matches('-').is_empty() {
            return None;
        }
        let mut beginning = known
            .range(name.as_str()..)
            .take_while(|(spelling, _)| spelling.starts_with(&name));
        match (beginning.next(), beginning.next()) {
            (Some((_, first)), None) => Some(first),
            _ => None,
        }
    }

    fn spellings(self) -> &'static Spellings {
        match self {
            Self::Vllm => &VLLM,
            Self::Sglang => &SGLANG,
            Self::VllmRouter => &VLLM_ROUTER,
            Self::SglangRouter => &SGLANG_ROUTER,
            Self::Smg => &SMG,
            Self::LlmD => &LLM_D,
        }
    }
}

/// Whether `argparse` takes `argument` for an option where a value is wanted: it begins with a dash, is not a negative number, and
/// has no space.
fn looks_like_an_option(argument: &str) -> bool {
    argument
        .strip_prefix('-')
        .is_some_and(|rest| !rest.is_empty() && rest.parse::<f64>().is_err() && !argument.contains(' '))
}
