//! Any legal text gives the samples that were put into it.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

type LabelMap = BTreeMap<String, String>;

/// Sum, count and buckets.
type Figures = (f64, f64, Vec<(f64, f64)>);

/// What goes into a body.
#[derive(Clone, Debug)]
struct Put {
    gauge: BTreeMap<LabelMap, f64>,
    counter: BTreeMap<LabelMap, f64>,
    histogram: BTreeMap<LabelMap, (f64, f64, BTreeMap<u8, f64>)>,
    open_metrics: bool,
    typed: bool,
}

fn character() -> impl Strategy<Value = char> {
    prop_oneof![
        any::<char>(),
        select(vec![
            '"', '\\', '\n', '\r', '\t', '{', '}', ',', '#', '=', ' ', 'n', '\u{FFFE}'
        ])
    ]
}

fn labels() -> impl Strategy<Value = LabelMap> {
    let name = "[a-zA-Z_][a-zA-Z0-9_]{0,6}".prop_filter("the buckets' own", |name| name != "le");
    btree_map(name, vec(character(), 1..8).prop_map(String::from_iter), 0..5)
}

fn value() -> impl Strategy<Value = f64> {
    use proptest::num::f64::{NORMAL, POSITIVE, SUBNORMAL, ZERO};
    prop_oneof![
        (POSITIVE | NORMAL | SUBNORMAL | ZERO),
        (0_u32..1000).prop_map(f64::from)
    ]
}

fn put() -> impl Strategy<Value = Put> {
    let histogram = (value(), value(), btree_map(any::<u8>(), value(), 0..4));
    let families = (
        btree_map(labels(), value(), 0..4),
        btree_map(labels(), value(), 0..4),
        btree_map(labels(), histogram, 0..4),
    );
    (families, any::<bool>(), any::<bool>()).prop_map(|((gauge, counter, histogram), open_metrics, typed)| Put {
        gauge,
        counter,
        histogram,
        open_metrics,
        typed,
    })
}

/// An endless source of small decisions: how to write what the formats leave open.
struct Style(Vec<u8>, usize);

impl Style {
    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        self.1 += 1;
        choices[usize::from(self.0[self.1 % self.0.len()]) % choices.len()]
    }

    fn gap(&mut self) -> &'static str {
        self.pick(&["", "", " ", "\t", "  "])
    }

    fn blank(&mut self) -> &'static str {
        self.pick(&[" ", " ", "\t", " \t "])
    }

    fn number(&mut self, value: f64) -> String {
        match self.pick(&[0, 1, 2, 3]) {
            0 => format!("{value}"),
            1 => format!("{value:e}"),
            2 => format!("{value:E}"),
            _ => format!("+{value:?}"),
        }
    }

    fn labels<'a>(&mut self, labels: impl Iterator<Item = (&'a String, &'a String)>, more: Option<String>) -> String {
        let escape = |value: &str| value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        let mut written: Vec<String> = Vec::new();
        for (name, value) in labels {
            written.push(format!(
                "{}{name}{}={}\"{}\"{}",
                self.gap(),
                self.gap(),
                self.gap(),
                escape(value),
                self.gap()
            ));
        }
        written.extend(more);
        if self.pick(&[true, false]) {
            written.push("no_label=\"\"".to_owned());
        }
        if written.is_empty() && self.pick(&[true, false]) {
            return String::new();
        }
        if self.pick(&[true, false]) {
            written.reverse();
        }
        let end = if written.is_empty() { "" } else { self.pick(&["", ","]) };
        format!("{}{{{}{end}{}}}", self.gap(), written.join(","), self.gap())
    }

    fn sample(&mut self, name: &str, labels: &LabelMap, more: Option<String>, value: f64, exemplar: bool) -> String {
        let labels = self.labels(labels.iter(), more);
        let timestamp = self.pick(&["", "", " 1520879607789", " \t1520879607.789", " -1"]);
        let exemplar = if exemplar {
            self.pick(&["", "", " # {} 1", " # {id=\"a}#\\\"\"} 0.5 1520879607.789"])
        } else {
            ""
        };
        let (before, between, number, after) = (self.gap(), self.blank(), self.number(value), self.gap());
        format!("{before}{name}{labels}{between}{number}{timestamp}{exemplar}{after}")
    }
}

fn write(put: &Put, style: &mut Style) -> Vec<u8> {
    let mut lines = Vec::new();
    if put.typed {
        let counter = if put.open_metrics {
            COUNTER.trim_end_matches("_total")
        } else {
            COUNTER
        };
        for (name, kind) in [
            (GAUGE, "gauge"),
            (counter, "counter"),
            (HISTOGRAM, "histogram"),
            ("other", "summary"),
        ] {
            lines.push(format!("# HELP {name} text with {GAUGE} 5 and \\n{GAUGE} 6"));
            lines.push(format!(
                "#{}TYPE{}{name}{}{kind}",
                style.gap(),
                style.blank(),
                style.blank()
            ));
        }
    }
    for (labels, value) in &put.gauge {
        lines.push(style.sample(GAUGE, labels, None, *value, false));
        lines.push(style.sample("other", labels, None, *value, false));
    }
    for (labels, value) in &put.counter {
        lines.push(style.sample(COUNTER, labels, None, *value, put.open_metrics));
        lines.push(style.sample(&COUNTER.replace("total", "created"), labels, None, 1.796e9, false));
    }
    for (labels, (sum, count, buckets)) in &put.histogram {
        lines.push(style.sample(&format!("{HISTOGRAM}_sum"), labels, None, *sum, false));
        lines.push(style.sample(&format!("{HISTOGRAM}_count"), labels, None, *count, false));
        for (bound, count) in buckets {
            let bound = Some(format!("le=\"{bound}{}\"", style.pick(&["", ".0", "e0"])));
            lines.push(style.sample(&format!("{HISTOGRAM}_bucket"), labels, bound, *count, put.open_metrics));
        }
    }
    if style.pick(&[true, false]) {
        lines.reverse();
    }
    if put.open_metrics {
        lines.push("# EOF".to_owned());
    }
    let mut body = String::new();
    for line in &lines {
        body += style.pick(&["", "", "\n", " \r\n"]);
        body += line;
        body += style.pick(&["\n", "\n", "\r\n"]);
    }
    if style.pick(&[true, false]) {
        body.truncate(body.trim_end_matches(['\r', '\n']).len());
    }
    body.into_bytes()
}

fn same_values(body: &[u8], family: &str, put: &BTreeMap<LabelMap, f64>) -> Result<(), TestCaseError> {
    match series(body, family) {
        Ok(read) => {
            let read: BTreeMap<LabelMap, f64> = read
                .into_iter()
                .map(|(labels, value)| (labels.into_iter().collect(), value))
                .collect();
            prop_assert_eq!(&read, put);
        }
        Err(flaw) => {
            prop_assert!(matches!(flaw, Flaw::Absent { .. }), "{:?}", flaw);
            prop_assert!(put.is_empty());
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn legal_text_gives_what_was_put_into_it(put in put(), style in vec(any::<u8>(), 97)) {
        let body = write(&put, &mut Style(style, 0));
        same_values(&body, GAUGE, &put.gauge)?;
        same_values(&body, COUNTER, &put.counter)?;
        let read: BTreeMap<LabelMap, Figures> = match histograms(&body) {
            Ok(read) => read.iter().map(|(labels, read)| (pairs(labels).into_iter().collect(), (read.sum, read.count, buckets(read)))).collect(),
            Err(flaw) => {
                prop_assert!(matches!(flaw, Flaw::Absent { .. }), "{:?}", flaw);
                BTreeMap::new()
            }
        };
        let put: BTreeMap<_, _> = put.histogram.into_iter().map(|(labels, (sum, count, buckets))| {
            (labels, (sum, count, buckets.into_iter().map(|(bound, count)| (f64::from(bound), count)).collect::<Vec<_>>()))
        }).collect();
        prop_assert_eq!(read, put);
    }
}
