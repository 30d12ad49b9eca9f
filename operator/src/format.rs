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

/// YAML, of version 1.1 too, which kubectl reads: a string that either version takes for something else is quoted.
///
/// # Panics
/// If the value has a form that YAML has not.
pub fn yaml(value: &impl Serialize) -> String {
    // Older readers take no tab, for one, at the beginning of a block.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(value, options).expect("an answer is YAML")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_string_that_kubectl_would_read_as_another_value_is_quoted() {
        let texts = "on Off YES no y N true False null ~ 12 -3 0644 0o17 0x1F 1_000 0b1_1 1.5 .5 1e3 1_0.5 .inf -.INF .nan \
                     1:30 190:20:30 1:30.5 2001-01-01 2001-12-14T21:59:43Z << =";
        for text in texts.split(' ').chain([""]) {
            let written = yaml(&json!({ "value": text }));
            assert_eq!(written, format!("value: \"{text}\"\n"));
            let written = yaml(&json!({ text: [text] }));
            assert_eq!(written, format!("\"{text}\":\n- \"{text}\"\n"));
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let long = "word ".repeat(100);
        let texts = [
            "plain",
            "a: b",
            "a #b",
            "- a",
            "{a",
            "[a",
            "*a",
            "&a",
            "!a",
            "%a",
            "@a",
            "`a",
            "a:",
            "?",
            "'",
            "\"",
            "\\",
            " a ",
            "\n",
            "a\n",
            "\n\n  a\n b\n\n",
            "set -e\nexec \"$@\"",
            "\ta\n",
            "a \nb",
            "a\r\nb",
            "\u{85}\u{2028}\u{feff}",
            "---",
            "--- a\nb",
            "模型-🙂",
            &long,
        ];
        for text in texts {
            let value = json!({ "value": text, "list": [text, { "value": text }], "map": { text: 1 } });
            let written = yaml(&value);
            assert_eq!(serde_yaml::from_str::<Value>(&written).unwrap(), value, "{written}");
        }
        let value = json!([null, true, 0, -1, 1.5, 1e-7, 1e300, u64::MAX, {}, []]);
        assert_eq!(serde_yaml::from_str::<Value>(&yaml(&value)).unwrap(), value);
    }
}
