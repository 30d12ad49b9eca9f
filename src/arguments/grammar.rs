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
            if !self.takes_for_option(argument) {
                continue;
            }
            let (spelled, mut value) = match argument.split_once('=') {
                Some((spelled, value)) => (spelled, Some(value.to_owned())),
                None => (argument.as_str(), None),
            };
            let dotted = self.is_dotted(spelled);
            if value.is_none() {
                value = rest.next_if(|next| dotted || !self.takes_for_option(next)).cloned();
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

    /// Whether the program takes `argument` for an option, known or not, and not for a value: `argparse` asks first whether it is one,
    /// or begins one, and only then whether it is a negative number or has a space.
    fn takes_for_option(self, argument: &str) -> bool {
        if !argument.starts_with('-') || argument == "-" {
            return false;
        }
        let spelled = argument.split('=').next().unwrap_or_default();
        self.begins_option(&self.normal(spelled)) || !(is_negative_number(argument) || argument.contains(' '))
    }

    fn begins_option(self, name: &str) -> bool {
        let mut from = self.spellings().range(name..);
        from.next().is_some_and(|(spelling, _)| spelling.starts_with(name))
    }

    /// Whether it names a key within an option's value, which then follows as the next word whatever that is.
    fn is_dotted(self, spelled: &str) -> bool {
        self == Self::Vllm && spelled.starts_with("--") && spelled.contains('.')
    }

    /// An option's name as the program looks it up.
    fn normal(self, spelled: &str) -> String {
        match self {
            Self::Vllm if self.is_dotted(spelled) => spelled.split('.').next().unwrap_or(spelled).replace('_', "-"),
            Self::Vllm => spelled.replace('_', "-"),
            Self::LlmD => format!("--{}", spelled.trim_start_matches('-')),
            _ => spelled.to_owned(),
        }
    }

    /// The first name of the option that `spelled` means, if it means exactly one.
    fn resolve(self, spelled: &str) -> Option<&'static str> {
        let known = self.spellings();
        let name = self.normal(spelled);
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

/// A negative number as `argparse` knows one: `-1`, `-.5`, `-1.5`, and not `-1e5`.
fn is_negative_number(argument: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    argument
        .strip_prefix('-')
        .is_some_and(|rest| match rest.split_once('.') {
            Some((whole, fraction)) => (whole.is_empty() || digits(whole)) && digits(fraction),
            None => digits(rest),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(grammar: Grammar, line: &str) -> Vec<(String, Option<String>)> {
        let arguments: Vec<_> = line.split(' ').map(str::to_owned).collect();
        grammar
            .read(&arguments)
            .into_iter()
            .map(|given| (given.flag.to_owned(), given.value))
            .collect()
    }

    /// A line, and its first known option with its value; none where it decides nothing.
    type Row<'a> = (&'a str, Option<(&'a str, Option<&'a str>)>);

    /// The expectations are what the programs' own parsers said.
    fn each(grammar: Grammar, table: &[Row]) {
        for (line, expected) in table {
            let first = read(grammar, line).into_iter().next();
            let expected = expected.map(|(flag, value)| (flag.to_owned(), value.map(str::to_owned)));
            assert_eq!(first, expected, "{line}");
        }
    }

    #[test]
    fn vllm_takes_underscores_dots_prefixes_and_short_aliases() {
        each(
            Grammar::Vllm,
            &[
                ("--port 9000", Some(("--port", Some("9000")))),
                ("--port=9000", Some(("--port", Some("9000")))),
                ("--por 9000", Some(("--port", Some("9000")))),
                ("--po 9000", None), // --pooler-config too
                ("--tensor_parallel_size 2", Some(("--tensor-parallel-size", Some("2")))),
                ("--tensor_p=2", Some(("--tensor-parallel-size", Some("2")))),
                ("-tp 2", Some(("--tensor-parallel-size", Some("2")))),
                ("-tp=2", Some(("--tensor-parallel-size", Some("2")))),
                ("-pp 2", Some(("--pipeline-parallel-size", Some("2")))),
                ("-dp 2", Some(("--data-parallel-size", Some("2")))),
                ("-dpl 2", Some(("--data-parallel-size-local", Some("2")))),
                ("--data-parallel-size 2", Some(("--data-parallel-size", Some("2")))),
                ("-d 2", None),
                (
                    "--kv-transfer-config.kv_role kv_both",
                    Some(("--kv-transfer-config", Some("kv_both"))),
                ),
                (
                    "--kv_transfer_config.kv_connector_extra_config.a=b",
                    Some(("--kv-transfer-config", Some("b"))),
                ),
                ("--kv-tr {}", Some(("--kv-transfer-config", Some("{}")))),
                (
                    "--kv-events-config.topic --port",
                    Some(("--kv-events-config", Some("--port"))),
                ),
                ("--ssl-cert c", None), // --ssl-certfile, --ssl-cert-reqs
                ("--ssl-certf c", Some(("--ssl-certfile", Some("c")))),
                ("--ssl_keyfile=k", Some(("--ssl-keyfile", Some("k")))),
                ("--disable-log-stats", Some(("--disable-log-stats", None))),
                ("--disable-log-st", Some(("--disable-log-stats", None))),
                ("--grpc", Some(("--grpc", None))),
                ("--grp", None), // --grpc-port too
                ("--seed -1", Some(("--seed", Some("-1")))),
                ("--headless --port 1", Some(("--headless", None))),
                ("--unheard-of 5", None),
                ("-- --port 1", None),
                ("--port -- 1", Some(("--port", None))),
                ("port 9000", None),
            ],
        );
    }

    #[test]
    fn an_option_with_a_space_in_its_value_is_not_the_value_of_the_switch_before_it() {
        let line = [
            "--enable-prefix-caching",
            r#"--kv-transfer-config={"kv_connector": "X"}"#,
            "--seed",
            "-1 and more",
        ];
        let given: Vec<_> = Grammar::Vllm
            .read(&line.map(str::to_owned))
            .into_iter()
            .map(|given| (given.flag, given.value))
            .collect();
        assert_eq!(
            given,
            [
                ("--enable-prefix-caching", None),
                ("--kv-transfer-config", Some(r#"{"kv_connector": "X"}"#.into())),
                ("--seed", Some("-1 and more".into()))
            ]
        );
    }

    #[test]
    fn sglang_takes_prefixes_and_aliases_and_no_underscores() {
        each(
            Grammar::Sglang,
            &[
                ("--po 9000", Some(("--port", Some("9000")))),
                ("--tp 2", Some(("--tp-size", Some("2")))),
                ("--tensor-parallel-size=2", Some(("--tp-size", Some("2")))),
                ("--tp_size 2", None),
                ("--pipeline-parallel-size 2", Some(("--pp-size", Some("2")))),
                ("--dp 2", Some(("--dp-size", Some("2")))),
                ("--ssl_certfile c", None),
                ("--ssl-cert c", Some(("--ssl-certfile", Some("c")))),
                ("--ssl-keyf k", None), // --ssl-keyfile, --ssl-keyfile-password
                ("--ssl-keyfile k", Some(("--ssl-keyfile", Some("k")))),
                ("--enable-hicache", Some(("--enable-hierarchical-cache", None))),
                (
                    "--enable-hierarchical-cache",
                    Some(("--enable-hierarchical-cache", None)),
                ),
                (
                    "--hicache-storage-backend-e {}",
                    Some(("--hicache-storage-backend-extra-config", Some("{}"))),
                ),
                ("--port.x 1", None),
            ],
        );
    }

    #[test]
    fn routers_take_prefixes() {
        each(
            Grammar::VllmRouter,
            &[
                ("--sel a=b", Some(("--selector", Some("a=b")))),
                ("--prometheus-por=1", Some(("--prometheus-port", Some("1")))),
                ("--prometheus 1", None),
                ("--service-discovery", Some(("--service-discovery", None))),
                ("--service-disc", None),
                ("--service_discovery", None),
            ],
        );
        each(
            Grammar::SglangRouter,
            &[
                ("--pd", Some(("--pd-disaggregation", None))),
                ("--sel a=b", Some(("--selector", Some("a=b")))),
            ],
        );
        each(
            Grammar::Smg,
            &[("--pd", None), ("--pd-d", Some(("--pd-disaggregation", None)))],
        );
        each(
            Grammar::LlmD,
            &[
                ("--metrics-port 1", Some(("--metrics-port", Some("1")))),
                ("-metrics-port=1", Some(("--metrics-port", Some("1")))),
                ("--metrics-por 1", None),
            ],
        );
    }

    #[test]
    fn every_option_is_told_apart_by_its_first_name() {
        for grammar in [
            Grammar::Vllm,
            Grammar::Sglang,
            Grammar::VllmRouter,
            Grammar::SglangRouter,
            Grammar::Smg,
            Grammar::LlmD,
        ] {
            for (spelling, first) in grammar.spellings() {
                assert_eq!(grammar.resolve(spelling), Some(*first), "{grammar:?} {spelling}");
            }
        }
    }
}
