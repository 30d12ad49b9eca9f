//! What holds of every answer of the subresource, whatever the Pods serve: nothing of the transport is told, every figure is one, and
//! the order is total. Checks each answer of the suite; knows no test.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;
use test_cluster::Output;

use crate::scenario::{Failure, Outcome, ensure};

/// Parts of URLs, headers, and what libraries say when a connection fails.
const FORBIDDEN: [&str; 10] = [
    "://",
    "X-Remote",
    "HTTP/1",
    "Content-",
    "User-Agent",
    "os error",
    "errno",
    "hyper",
    "rustls",
    "localhost",
];

/// So begins what the API server says itself where it cannot reach the operator.
const UNREACHED: &str = "error trying to reach service";

/// The codes whose entries never set `partial` (metrics contract, section 6).
const NEVER_REQUIRED: [&str; 4] = ["Terminating", "Unsupported", "Idle", "TakeOver"];

/// One code has entries of both kinds.
const EITHER: &str = "NotExportedYet";

/// The oldest baseline, in seconds (metrics contract, section 4).
const OLDEST: f64 = 300.0;

/// Fails unless the answer, a failure too, is as every answer has to be.
pub fn check(output: &Output) -> Outcome {
    if output.status.success() {
        check_discretion(&output.stdout)?;
        return check_figures(&serde_json::from_str(&output.stdout)?);
    }
    match output.stderr.contains(UNREACHED) {
        true => Ok(()),
        false => check_discretion(&output.stderr),
    }
}

fn check_discretion(answer: &str) -> Outcome {
    for forbidden in FORBIDDEN {
        ensure!(
            !answer.contains(forbidden),
            "an answer contains {forbidden:?}: {answer}"
        );
    }
    let words = |inside: fn(char) -> bool| answer.split(move |letter: char| !inside(letter));
    let old = words(|letter| letter.is_ascii_digit() || letter == '.');
    let new = words(|letter| letter.is_ascii_hexdigit() || letter == ':');
    let addresses = old.filter(|word| word.parse::<Ipv4Addr>().is_ok());
    let mut addresses = addresses.chain(new.filter(|word| word.parse::<Ipv6Addr>().is_ok()));
    if let Some(address) = addresses.next() {
        return Err(format!("an answer contains the address {address}: {answer}").into());
    }
    Ok(())
}

fn check_figures(answer: &Value) -> Outcome {
    check_numbers(answer, "")?;
    let entries = |list: &str| answer[list].as_array().cloned().unwrap_or_default();
    let missing = entries("missing");
    for entry in &missing {
        let (code, required) = (entry["code"].as_str().unwrap_or_default(), &entry["required"]);
        ensure!(
            code == EITHER || *required == !NEVER_REQUIRED.contains(&code),
            "{code} with required {required}: {entry}"
        );
        let reason = entry["reason"].as_str().unwrap_or_default();
        ensure!(
            reason.ends_with('.') && !reason.contains('\n'),
            "the reason is no sentence: {entry}"
        );
        ensure!(entry["pod"].is_string(), "an entry names no Pod: {entry}");
    }
    let partial = missing.iter().any(|entry| entry["required"] == true);
    ensure!(
        answer["partial"] == partial,
        "partial is {}: {answer}",
        answer["partial"]
    );

    for entry in entries("cacheHits") {
        let rate = entry["rate"].as_f64().ok_or("a rate is no number")?;
        ensure!((0.0..=1.0).contains(&rate), "the rate of {entry}");
        ensure!(
            entry["queries"] != 0 && entry["queries"] != 0.0,
            "a rate of nothing: {entry}"
        );
    }
    let lists = ["latency", "traffic", "transfer"].map(entries).concat();
    for entry in lists.iter().filter(|entry| entry.get("quantiles").is_some()) {
        let quantiles: Vec<f64> = ["p50", "p90", "p95", "p99"]
            .iter()
            .filter_map(|name| entry["quantiles"][name].as_f64())
            .collect();
        ensure!(
            quantiles.len() == 4 && quantiles.is_sorted(),
            "the quantiles of {entry}"
        );
    }

    let orders: [(&str, &[&str]); 7] = [
        ("processing", &["name", "scope", "role"]),
        ("queueing", &["name", "scope", "role"]),
        ("cacheHits", &["pod", "scope"]),
        ("latency", &["pod", "name", "source"]),
        ("traffic", &["pod", "name", "source"]),
        ("transfer", &["pod", "name", "source"]),
        ("missing", &["pod", "source", "code"]),
    ];
    for (list, members) in orders {
        let keys: Vec<Vec<String>> = entries(list)
            .iter()
            .map(|entry| {
                let texts = members.iter().map(|member| entry[member].as_str().unwrap_or_default());
                texts.map(str::to_owned).collect()
            })
            .collect();
        ensure!(keys.is_sorted(), "the order of {list} is {keys:?}");
        ensure!(
            answer.get(list).is_none_or(|list| list != &Value::Array(vec![])),
            "{list} is written empty"
        );
    }
    Ok(())
}

/// JSON has no word for what is no number but `null`, and an answer has no member that may be null.
fn check_numbers(value: &Value, member: &str) -> Result<(), Failure> {
    match value {
        Value::Null => Err(format!("{member} is null").into()),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            let least = if member == "windowSeconds" { 1.0 } else { 0.0 };
            let most = if member == "windowSeconds" { OLDEST } else { f64::MAX };
            ensure!((least..=most).contains(&number), "{member} is {number}");
            Ok(())
        }
        Value::Array(values) => values.iter().try_for_each(|value| check_numbers(value, member)),
        Value::Object(members) => members.iter().try_for_each(|(name, value)| check_numbers(value, name)),
        Value::Bool(_) | Value::String(_) => Ok(()),
    }
}
