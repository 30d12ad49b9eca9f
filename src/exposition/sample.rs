//! One selected line: its labels and its value. The only user of `openmetrics-parser`.
//!
//! The crate owns the grammar of labels, escapes and numbers. It refuses some ways of writing that both formats or their best-known
//! readers allow; a line is brought into the form that it takes, and nothing else about it is touched. Knows no family.

use openmetrics_parser::PrometheusValue;
use openmetrics_parser::prometheus::parse_prometheus;

use super::labels::Labels;
use super::limits;
use super::line::Start;

/// A line that was read.
#[derive(Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) labels: Labels,
    pub(super) value: f64,
}

/// A line that was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Malformed,
    TooManyLabels,
}

/// The crate takes a carriage return for a line end wherever it stands; inside a label's value it is a character like any other. There,
/// this one (no character of any text) and an `r` stand for it, and this one twice for itself.
const STAND_IN: char = '\u{FFFE}';

/// Reads a line.
pub(super) fn parse(start: Start<'_>) -> Result<Sample, Refused> {
    let fields = split(start).ok_or(Refused::Malformed)?;
    if fields.label_count() > limits::LABELS {
        return Err(Refused::TooManyLabels);
    }
    fields.parse()
}

/// Whether a line has the shape of a sample and a number for its value.
pub(super) fn is_sample(start: Start<'_>) -> bool {
    split(start).is_some_and(|fields| fields.value.parse::<f64>().is_ok())
}

/// The fields of a sample, or of its exemplar: they have the same form.
struct Fields<'a> {
    /// Between the braces.
    labels: &'a str,
    value: &'a str,
    timestamp: Option<&'a str>,
    /// Behind the `#`.
    exemplar: Option<&'a str>,
}

fn split(start: Start<'_>) -> Option<Fields<'_>> {
    let rest = std::str::from_utf8(start.rest).ok()?;
    if !start.quoted {
        return split_fields(rest);
    }
    let rest = rest.trim_start_matches(BLANKS);
    match rest.strip_prefix(',') {
        Some(labels) => split_labelled(labels),
        None => rest.starts_with('}').then(|| split_labelled(rest))?,
    }
}

fn split_fields(rest: &str) -> Option<Fields<'_>> {
    match rest.trim_start_matches(BLANKS).strip_prefix('{') {
        Some(labelled) => split_labelled(labelled),
        // Without labels, a blank has to end the name.
        None => rest.starts_with(BLANKS).then(|| split_values("", rest))?,
    }
}

/// Splits what follows an opening brace.
fn split_labelled(labelled: &str) -> Option<Fields<'_>> {
    let end = unquoted(labelled).find(|(_, byte)| *byte == b'}')?.0;
    split_values(&labelled[..end], &labelled[end + 1..])
}

fn split_values<'a>(labels: &'a str, values: &'a str) -> Option<Fields<'a>> {
    let (values, exemplar) = match values.split_once('#') {
        Some((values, exemplar)) => (values, Some(exemplar)),
        None => (values, None),
    };
    let mut tokens = values.split(BLANKS).filter(|token| !token.is_empty());
    let fields = Fields {
        labels,
        value: tokens.next()?,
        timestamp: tokens.next(),
        exemplar,
    };
    tokens.next().is_none().then_some(fields)
}

impl Fields<'_> {
    fn label_count(&self) -> usize {
        unquoted(self.labels).filter(|(_, byte)| *byte == b'=').count()
    }

    fn parse(&self) -> Result<Sample, Refused> {
        if let Some(exemplar) = self.exemplar {
            // No one reads it, but a line is read whole or not at all.
            let exemplar = exemplar
                .trim_start_matches(BLANKS)
                .strip_prefix('{')
                .and_then(split_labelled)
                .ok_or(Refused::Malformed)?;
            if exemplar.exemplar.is_some() || exemplar.label_count() > limits::LABELS {
                return Err(Refused::Malformed);
            }
            exemplar.parse()?;
        }
        read_untyped(&self.line()).ok_or(Refused::Malformed)
    }

    /// The line as the crate takes it. The name was read already, and any will do.
    fn line(&self) -> String {
        let mut line = String::with_capacity(self.labels.len() + self.value.len() + 64);
        line.push_str("sample{");
        push_labels(&mut line, self.labels);
        line.push_str("} ");
        push_number(&mut line, self.value);
        if let Some(timestamp) = self.timestamp {
            line.push(' ');
            push_number(&mut line, timestamp);
        }
        line.push('\n');
        line
    }
}

/// Hands one untyped sample to the crate.
fn read_untyped(line: &str) -> Option<Sample> {
    let exposition = parse_prometheus(line).ok()?;
    let mut families = exposition.families.into_values();
    let (family, None) = (families.next()?, families.next()) else {
        return None;
    };
    let mut samples = family.iter_samples();
    let (sample, None) = (samples.next()?, samples.next()) else {
        return None;
    };
    let PrometheusValue::Unknown(value) = sample.value else {
        return None;
    };
    let labels = sample.get_labelset().ok()?;
    Some(Sample {
        labels: labels
            .iter()
            .map(|(name, value)| (name.as_str(), restore(value)))
            .collect(),
        value: value.as_f64(),
    })
}

/// A backslash before anything but `\`, `"` and `n` stands for itself (OpenMetrics says so, Prometheus does so); the crate wants it
/// doubled.
fn push_labels(line: &mut String, labels: &str) {
    let mut characters = labels.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\r' => line.extend([STAND_IN, 'r']),
            STAND_IN => line.extend([STAND_IN, STAND_IN]),
            '\\' => match characters.peek() {
                Some('\\' | '"' | 'n') => line.extend([character, characters.next().unwrap_or_default()]),
                _ => line.push_str(r"\\"),
            },
            _ => line.push(character),
        }
    }
}

/// Undoes the stand-in of [`push_labels`].
fn restore(value: &str) -> String {
    let mut restored = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        restored.push(match character {
            STAND_IN if characters.next() == Some('r') => '\r',
            other => other,
        });
    }
    restored
}

/// The crate wants a sign before infinity, which it knows by its short name alone, and a digit before the point.
fn push_number(line: &mut String, number: &str) {
    let unsigned = number.strip_prefix(['+', '-']).unwrap_or(number);
    let sign = &number[..number.len() - unsigned.len()];
    if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
        line.extend([if sign.is_empty() { "+" } else { sign }, "Inf"]);
        return;
    }
    line.push_str(sign);
    if unsigned
        .strip_prefix('.')
        .is_some_and(|decimals| decimals.starts_with(|digit: char| digit.is_ascii_digit()))
    {
        line.push('0');
    }
    line.push_str(unsigned);
}

/// The bytes outside quotes, with their places.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, u8)> {
    let (mut quoted, mut escaped) = (false, false);
    text.bytes().enumerate().filter(move |(_, byte)| {
        if !quoted {
            quoted = *byte == b'"';
            return !quoted;
        }
        if escaped {
            escaped = false;
        } else {
            escaped = *byte == b'\\';
            quoted = *byte != b'"';
        }
        false
    })
}

const BLANKS: [char; 2] = [' ', '\t'];
