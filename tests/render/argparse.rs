//! How a user's arguments are read, against Python's own `argparse` with the options of each program: the same options with the same
//! values, in every spelling that it takes.

use std::io::Write;
use std::process::{Command, Stdio};

use model_deployment::arguments::Grammar;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

const SCRIPT: &str = include_str!("argparse.py");
const VLLM: &str = include_str!("../../src/arguments/flags/vllm.txt");
const SGLANG: &str = include_str!("../../src/arguments/flags/sglang.txt");
const VLLM_ROUTER: &str = include_str!("../../src/arguments/flags/vllm-router.txt");
const SGLANG_ROUTER: &str = include_str!("../../src/arguments/flags/sglang-router.txt");
const SMG: &str = include_str!("../../src/arguments/flags/smg.txt");

/// Lines a program.
const LINES: usize = 2000;

/// Words that are no option, or only look like one.
const WORDS: [&str; 26] = [
    "",
    "-",
    "--",
    "0",
    "9000",
    "-1",
    "-1.5",
    "-.5",
    "-1e5",
    "-1.2.3",
    "-.",
    "-x",
    "-1 and more",
    "two words",
    "--unheard-of",
    "--unheard-of=1",
    "--no-such",
    "{\"a\": -1}",
    "--port",
    "--port=",
    "--tp-size",
    "--model-path",
    "größe",
    "--größe",
    "模型",
    "a=b",
];

fn options(list: &str) -> Vec<Vec<&str>> {
    let lines = list.lines().filter(|line| line.starts_with('-'));
    lines.map(|line| line.split(' ').collect()).collect()
}

/// A word of a command line: an option or a beginning of one, with or without a value, or something else.
fn words(spellings: Vec<String>, underscores: bool) -> impl Strategy<Value = Vec<String>> {
    let value = prop::sample::select(WORDS.to_vec());
    let spelled =
        (prop::sample::select(spellings), 0..24_usize, any::<bool>()).prop_map(move |(spelling, cut, bend)| {
            // Half of them whole.
            let end = if cut < 12 {
                spelling.len()
            } else {
                spelling.len().saturating_sub(cut - 11).max(3)
            };
            let name = spelling[..end.min(spelling.len())].to_owned();
            match name.strip_prefix("--") {
                Some(rest) if underscores && bend => format!("--{}", rest.replace('-', "_")),
                _ => name,
            }
        });
    prop_oneof![
        3 => (spelled.clone(), value.clone()).prop_map(|(name, value)| vec![name, value.to_owned()]),
        // Of `--flag=--` argparse makes nothing.
        2 => (spelled.clone(), value.clone().prop_filter("a value", |value| *value != "--"))
            .prop_map(|(name, value)| vec![format!("{name}={value}")]),
        2 => spelled.prop_map(|name| vec![name]),
        1 => value.prop_map(|value| vec![value.to_owned()]),
    ]
}

fn lines(spellings: Vec<String>, underscores: bool) -> Vec<Vec<String>> {
    let strategy = prop::collection::vec(words(spellings, underscores), 1..5).prop_map(|words| words.concat());
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    (0..LINES)
        .map(|_| strategy.new_tree(&mut runner).expect("nothing is rejected").current())
        .collect()
}

fn ask_python(options: &[Vec<&str>], underscores: bool, lines: &[Vec<String>]) -> Vec<Value> {
    let mut python = Command::new("python3")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is there");
    let question = json!({"options": options, "underscores": underscores, "lines": lines}).to_string();
    let mut input = python.stdin.take().expect("its input is ours");
    input.write_all(question.as_bytes()).expect("it reads");
    drop(input);
    let output = python.wait_with_output().expect("it ends");
    assert!(output.status.success(), "python3: {}", output.status);
    serde_json::from_slice(&output.stdout).expect("it answers in JSON")
}

#[test]
fn arguments_are_read_as_argparse_reads_them() {
    for (grammar, list) in [
        (Grammar::Vllm, VLLM),
        (Grammar::Sglang, SGLANG),
        (Grammar::VllmRouter, VLLM_ROUTER),
        (Grammar::SglangRouter, SGLANG_ROUTER),
        (Grammar::Smg, SMG),
    ] {
        let underscores = grammar == Grammar::Vllm;
        let options = options(list);
        let spellings = options
            .iter()
            .flatten()
            .map(|spelling| (*spelling).to_owned())
            .collect();
        let lines = lines(spellings, underscores);
        let answers = ask_python(&options, underscores, &lines);
        let mut compared = 0;
        for (line, expected) in lines.iter().zip(answers) {
            // An ambiguous beginning: the program does not start at all.
            if expected.is_null() {
                continue;
            }
            let read: Vec<Value> = grammar
                .read(line)
                .into_iter()
                .map(|given| json!([given.flag, given.value]))
                .collect();
            assert_eq!(Value::from(read), expected, "{grammar:?} {line:?}");
            compared += 1;
        }
        assert!(compared > LINES / 2, "{grammar:?}: {compared} lines were taken");
    }
}
