//! How an answer is written: for programs as JSON or YAML, for people as a table. Members stand in the order in which the type has them.

use serde::Serialize;

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Indented JSON.
    Json,
    /// YAML.
    Yaml,
    /// The table for people.
    Table,
}

/// Indented JSON.
///
/// # Panics
/// If the value has a form that JSON has not.
pub fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("an answer is JSON");
    text.push('\n');
    text
}

/// YAML.
///
/// # Panics
/// If the value has a form that YAML has not.
pub fn yaml(value: &impl Serialize) -> String {
    serde_yaml::to_string(value).expect("an answer is YAML")
}
