//! A captured metrics body that can be advanced.
//!
//! Owns the text: which lines there are, which are visible yet, and what each sample says. Refuses to know which request moves
//! which family; that is [`super::accounting`].

use std::collections::{HashMap, HashSet};

/// Why a series could not be changed.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ExpositionError {
    /// The selector is not `name` or `name{label="value",…}`.
    #[error("{0:?} is not a series: write name or name{{label=\"value\"}}")]
    Selector(String),
    /// No series of the body has this name and these labels.
    #[error("the body has no series {0}")]
    Absent(String),
    /// Several series match; an amount must go to one.
    #[error("{count} series match {selector}; name more labels")]
    Ambiguous {
        /// What was asked for.
        selector: String,
        /// How many series have it.
        count: usize,
    },
}

/// One body: the lines of a capture in their order, with values that move.
#[derive(Debug, Clone)]
pub struct Exposition {
    lines: Vec<Line>,
    by_name: HashMap<String, Vec<usize>>,
    comments: HashMap<String, Vec<usize>>,
}

#[derive(Debug, Clone)]
struct Line {
    visible: bool,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Comment(String),
    Sample(Sample),
}

#[derive(Debug, Clone)]
struct Sample {
    family: String,
    series: String,
    labels: Vec<(String, String)>,
    value: f64,
    text: String,
}

impl Exposition {
    /// Starts with exactly what `idle` says. Series that only `after` has (the same program once it has served something) stay
    /// invisible, at zero, until they are first advanced.
    ///
    /// A series that only `idle` has is lost; the captures have none.
    #[must_use]
    pub fn new(idle: &str, after: &str) -> Self {
        let mut exposition = Self {
            lines: Vec::new(),
            by_name: HashMap::new(),
            comments: HashMap::new(),
        };
        exposition.append(idle, after);
        exposition
    }

    /// Adds the families of another capture that this body lacks, such as those of an optional connector.
    pub fn append(&mut self, idle: &str, after: &str) {
        let known: HashSet<String> = self.comments.keys().cloned().collect();
        let idle_comments: HashSet<&str> = idle.lines().filter(|l| l.starts_with('#')).collect();
        let idle_values: HashMap<&str, &str> = idle
            .lines()
            .filter(|l| !l.starts_with('#'))
            .filter_map(|l| l.rsplit_once(' '))
            .collect();
        let mut family = String::new();
        for line in after.lines() {
            if line.starts_with('#') {
                family = line.split(' ').nth(2).unwrap_or_default().to_owned();
                if known.contains(&family) {
                    continue;
                }
                let at = self.lines.len();
                self.comments.entry(family.clone()).or_default().push(at);
                self.lines.push(Line {
                    visible: idle_comments.contains(line),
                    content: Content::Comment(line.to_owned()),
                });
            } else if let Some((series, _)) = line.rsplit_once(' ') {
                if known.contains(&family) {
                    continue;
                }
                let idle_value = idle_values.get(series);
                let text = (*idle_value.unwrap_or(&"0.0")).to_owned();
                let (name, labels) = split(series).unwrap_or((series, Vec::new()));
                let at = self.lines.len();
                self.by_name.entry(name.to_owned()).or_default().push(at);
                self.lines.push(Line {
                    visible: idle_value.is_some(),
                    content: Content::Sample(Sample {
                        family: family.clone(),
                        series: series.to_owned(),
                        labels,
                        value: text.parse().unwrap_or(f64::NAN),
                        text,
                    }),
                });
            }
        }
    }

    /// The body as it is served now.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.lines.len() * 80);
        for line in self.lines.iter().filter(|l| l.visible) {
            match &line.content {
                Content::Comment(comment) => text.push_str(comment),
                Content::Sample(sample) => {
                    text.push_str(&sample.series);
                    text.push(' ');
                    text.push_str(&sample.text);
                }
            }
            text.push('\n');
        }
        text
    }

    /// Gives every series the label value `to` where the capture has `from`, as the program would with another model name.
    pub fn relabel(&mut self, label: &str, from: &str, to: &str) {
        let quoted = |v: &str| {
            let v = v.replace('\\', "\\\\").replace('"', "\\\"");
            format!("{label}=\"{v}\"")
        };
        let (old, new) = (quoted(from), quoted(to));
        for sample in self.samples_mut() {
            sample.series = sample.series.replace(&old, &new);
            for (name, value) in &mut sample.labels {
                if name == label && value == from {
                    to.clone_into(value);
                }
            }
        }
    }

    /// Sets the moments of creation (`…_created`, `process_start_time_seconds`) to `seconds` since the epoch.
    pub fn born(&mut self, seconds: f64) {
        for sample in self.samples_mut() {
            let name = sample.series.split('{').next().unwrap_or_default();
            if name.ends_with("_created") || name == "process_start_time_seconds" {
                sample.store(seconds);
            }
        }
    }

    /// Adds `amount` to the one series that `selector` names.
    ///
    /// # Errors
    /// None or several series match.
    pub fn advance(&mut self, selector: &str, amount: f64) -> Result<(), ExpositionError> {
        let at = self.one(selector)?;
        self.store(at, |value| value + amount);
        Ok(())
    }

    /// Sets the one series that `selector` names.
    ///
    /// # Errors
    /// None or several series match.
    pub fn set(&mut self, selector: &str, to: f64) -> Result<(), ExpositionError> {
        let at = self.one(selector)?;
        self.store(at, |_| to);
        Ok(())
    }

    /// Observes `value` `times` times in the histogram that `selector` names (family name and labels without `le`): every bucket
    /// that holds it, the sum and the count move together.
    ///
    /// # Errors
    /// None or several histograms match.
    pub fn observe(&mut self, selector: &str, value: f64, times: u64) -> Result<(), ExpositionError> {
        let (family, labels) = split(selector).ok_or_else(|| ExpositionError::Selector(selector.to_owned()))?;
        let wanted: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let counts = self.matching(&format!("{family}_count"), &wanted).len();
        match counts {
            0 => Err(ExpositionError::Absent(selector.to_owned())),
            1 => {
                self.record(family, &wanted, value, times);
                Ok(())
            }
            count => Err(ExpositionError::Ambiguous {
                selector: selector.to_owned(),
                count,
            }),
        }
    }

    /// Like [`Self::advance`] for the engine itself: a family that this mode does not have is passed over.
    pub(super) fn add(&mut self, name: &str, labels: &[(&str, &str)], amount: f64) {
        for at in self.matching(name, labels) {
            self.store(at, |value| value + amount);
        }
    }

    /// Like [`Self::set`] for the engine itself.
    pub(super) fn put(&mut self, name: &str, labels: &[(&str, &str)], to: f64) {
        for at in self.matching(name, labels) {
            self.store(at, |_| to);
        }
    }

    /// Like [`Self::observe`] for the engine itself.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
    pub(super) fn record(&mut self, family: &str, labels: &[(&str, &str)], value: f64, times: u64) {
        let times = times as f64;
        for at in self.matching(&format!("{family}_bucket"), labels) {
            let Content::Sample(sample) = &self.lines[at].content else {
                continue;
            };
            let bound = sample.labels.iter().find(|(name, _)| name == "le");
            let holds = bound.is_some_and(|(_, le)| value <= bound_of(le));
            self.store(at, |count| if holds { count + times } else { count });
        }
        for at in self.matching(&format!("{family}_sum"), labels) {
            self.store(at, |sum| sum + value * times);
        }
        for at in self.matching(&format!("{family}_count"), labels) {
            self.store(at, |count| count + times);
        }
    }

    fn one(&self, selector: &str) -> Result<usize, ExpositionError> {
        let (name, labels) = split(selector).ok_or_else(|| ExpositionError::Selector(selector.to_owned()))?;
        let wanted: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        match self.matching(name, &wanted).as_slice() {
            [] => Err(ExpositionError::Absent(selector.to_owned())),
            [at] => Ok(*at),
            several => Err(ExpositionError::Ambiguous {
                selector: selector.to_owned(),
                count: several.len(),
            }),
        }
    }

    fn matching(&self, name: &str, labels: &[(&str, &str)]) -> Vec<usize> {
        let has = |at: &&usize| match &self.lines[**at].content {
            Content::Sample(sample) => labels
                .iter()
                .all(|(k, v)| sample.labels.iter().any(|(name, value)| name == k && value == v)),
            Content::Comment(_) => false,
        };
        let lines = self.by_name.get(name).map(Vec::as_slice).unwrap_or_default();
        lines.iter().filter(has).copied().collect()
    }

    fn store(&mut self, at: usize, change: impl Fn(f64) -> f64) {
        self.lines[at].visible = true;
        let Content::Sample(sample) = &mut self.lines[at].content else {
            return;
        };
        let value = change(sample.value);
        sample.store(value);
        for comment in self.comments.get(&sample.family).into_iter().flatten() {
            self.lines[*comment].visible = true;
        }
    }

    fn samples_mut(&mut self) -> impl Iterator<Item = &mut Sample> {
        self.lines.iter_mut().filter_map(|line| match &mut line.content {
            Content::Sample(sample) => Some(sample),
            Content::Comment(_) => None,
        })
    }
}

impl Sample {
    fn store(&mut self, value: f64) {
        // An unchanged value keeps the program's own spelling.
        if value.to_bits() != self.value.to_bits() {
            self.value = value;
            self.text = format!("{value:?}");
        }
    }
}

fn bound_of(le: &str) -> f64 {
    le.parse().unwrap_or(f64::INFINITY)
}

/// `name{label="value",…}` in its parts; `None` when it is not of that form.
fn split(series: &str) -> Option<(&str, Vec<(String, String)>)> {
    let Some((name, rest)) = series.split_once('{') else {
        return (!series.is_empty() && !series.contains(['"', '}'])).then(|| (series, Vec::new()));
    };
    let mut rest = rest.strip_suffix('}')?;
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (label, value) = rest.split_once("=\"")?;
        let mut end = None;
        let mut escaped = false;
        for (at, byte) in value.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        let end = end?;
        let unescaped = value[..end].replace("\\\"", "\"").replace("\\\\", "\\");
        labels.push((label.to_owned(), unescaped));
        rest = value[end + 1..].trim_start_matches(',');
    }
    Some((name, labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: &str = "# HELP t Time.\n# TYPE t histogram\nt_bucket{le=\"0.1\"} 0.0\nt_bucket{le=\"1.0\"} 0.0\nt_bucket{le=\"+Inf\"} 0.0\n\
                        t_count 0.0\nt_sum 0.0\n# TYPE up gauge\nup 1.0\n";
    const AFTER: &str = "# HELP t Time.\n# TYPE t histogram\nt_bucket{le=\"0.1\"} 5.0\nt_bucket{le=\"1.0\"} 5.0\nt_bucket{le=\"+Inf\"} 5.0\n\
                         t_count 5.0\nt_sum 0.2\n# TYPE up gauge\nup 1.0\n# TYPE late counter\nlate{a=\"x\"} 7.0\nlate{a=\"y\"} 8.0\n";

    #[test]
    fn starts_as_the_idle_capture_byte_for_byte() {
        for (idle, after) in crate::engine::capture::ALL {
            assert_eq!(Exposition::new(idle, after).text(), *idle);
        }
    }

    #[test]
    fn an_observation_moves_buckets_sum_and_count_together() {
        let mut body = Exposition::new(IDLE, AFTER);
        body.observe("t", 0.5, 2).unwrap();
        body.observe("t", 3.0, 1).unwrap();
        assert!(body.text().starts_with(
            "# HELP t Time.\n# TYPE t histogram\nt_bucket{le=\"0.1\"} 0.0\nt_bucket{le=\"1.0\"} 2.0\nt_bucket{le=\"+Inf\"} 3.0\n\
             t_count 3.0\nt_sum 4.0\n"
        ));
    }

    #[test]
    fn a_family_that_appears_later_appears_with_its_first_event_from_zero() {
        let mut body = Exposition::new(IDLE, AFTER);
        assert!(!body.text().contains("late"));
        body.advance("late{a=\"y\"}", 2.0).unwrap();
        assert!(body.text().ends_with("# TYPE late counter\nlate{a=\"y\"} 2.0\n"));
    }

    #[test]
    fn a_selector_must_name_one_series() {
        let mut body = Exposition::new(IDLE, AFTER);
        assert_eq!(
            body.advance("late", 1.0),
            Err(ExpositionError::Ambiguous {
                selector: "late".into(),
                count: 2
            })
        );
        assert_eq!(body.set("gone", 1.0), Err(ExpositionError::Absent("gone".into())));
        assert_eq!(
            body.set("up{a=b}", 1.0),
            Err(ExpositionError::Selector("up{a=b}".into()))
        );
    }

    #[test]
    fn another_model_name_stands_in_every_label() {
        let mut body = Exposition::new(
            "# TYPE a gauge\na{m=\"tiny\",n=\"x\"} 1.0\n",
            "# TYPE a gauge\na{m=\"tiny\",n=\"x\"} 1.0\n",
        );
        body.relabel("m", "tiny", "org/\"big\"");
        body.set("a{n=\"x\"}", 4.0).unwrap();
        assert_eq!(body.text(), "# TYPE a gauge\na{m=\"org/\\\"big\\\"\",n=\"x\"} 4.0\n");
    }
}
