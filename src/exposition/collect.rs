//! The pass over a body: selects the lines of the wanted families, under the caps. Knows no grammar within a line.

use std::collections::HashSet;

use super::family::Collected;
use super::line::{self, Line, Start};
use super::part::Damage;
use super::sample::{self, Refused};
use super::wanted::{Kind, Place, Wanted};
use super::{NotExposition, limits};

/// What one body holds of the wanted families.
pub(super) struct Collection {
    /// In the order of the wanted ones.
    pub(super) families: Vec<Collected>,
    pub(super) prefixes: HashSet<String>,
}

/// Reads a body.
pub(super) fn collect(body: &[u8], wanted: &Wanted) -> Result<Collection, NotExposition> {
    let mut pass = Pass {
        wanted,
        families: wanted.families().map(|want| Collected::new(want.kind)).collect(),
        prefixes: HashSet::new(),
        is_exposition: line::split(body).all(|line| line.trim_ascii().is_empty()),
        kept_bytes: 0,
        kept_series: 0,
    };
    for line in line::split(body) {
        pass.read(line);
    }
    if !pass.is_exposition {
        return Err(NotExposition);
    }
    // Buckets last: where the caps do not hold everything, they are what an answer can do without.
    if pass
        .families
        .iter()
        .zip(wanted.families())
        .any(|(family, want)| want.buckets && family.has_buckets)
    {
        for line in line::split(body) {
            pass.read_bucket(line);
        }
    }
    Ok(Collection {
        families: pass.families,
        prefixes: pass.prefixes,
    })
}

struct Pass<'w> {
    wanted: &'w Wanted,
    families: Vec<Collected>,
    prefixes: HashSet<String>,
    is_exposition: bool,
    kept_bytes: usize,
    kept_series: usize,
}

impl Pass<'_> {
    fn read(&mut self, line: &[u8]) {
        match line::classify(line) {
            Line::Blank | Line::Other => {}
            Line::Comment => self.is_exposition = true,
            Line::Declaration { name, kind } => {
                self.is_exposition = true;
                self.declare(name, kind);
            }
            Line::Sample(start) => self.read_sample(line, start),
        }
    }

    fn read_sample(&mut self, line: &[u8], start: Start<'_>) {
        let wanted = self.wanted.sample(start.name);
        self.is_exposition = self.is_exposition || wanted.is_some() || sample::is_sample(start);
        for prefix in self.wanted.prefixes() {
            if start.name.starts_with(prefix) && !self.prefixes.contains(prefix) && sample::is_sample(start) {
                self.prefixes.insert(prefix.clone());
            }
        }
        match wanted {
            Some((family, Place::Bucket)) => self.families[family].has_buckets = true,
            Some((family, place)) => self.keep(line, start, family, place),
            None => {}
        }
    }

    fn read_bucket(&mut self, line: &[u8]) {
        let Line::Sample(start) = line::classify(line) else {
            return;
        };
        let Some((family, Place::Bucket)) = self.wanted.sample(start.name) else {
            return;
        };
        if self.wanted.family(family).buckets {
            self.keep(line, start, family, Place::Bucket);
        }
    }

    /// Remembers what a `# HELP` or `# TYPE` line says. OpenMetrics declares a counter without the `_total` of its samples.
    fn declare(&mut self, name: &str, word: Option<&str>) {
        let declared = word.and_then(known_type);
        if let Some(family) = self.wanted.named(name) {
            let expected = self.wanted.family(family).kind.as_str();
            let family = &mut self.families[family];
            family.declared = true;
            family.other_type = family.other_type.or(declared.filter(|word| *word != expected));
        }
        if let Some(counter) = self.wanted.counter_with_bare_name(name)
            && declared == Some(Kind::Counter.as_str())
        {
            self.families[counter].declared = true;
        }
    }

    fn keep(&mut self, line: &[u8], start: Start<'_>, family: usize, place: Place) {
        let family = &mut self.families[family];
        let fits = line.len() <= limits::LINE_BYTES && self.kept_bytes + line.len() <= limits::KEPT_BYTES;
        if !fits {
            return family.cut = true;
        }
        self.kept_bytes += line.len();
        let sample = match sample::parse(start) {
            Ok(sample) => sample,
            Err(Refused::TooManyLabels) => return family.cut = true,
            Err(Refused::Malformed) => return family.spoil(place, Damage::Malformed),
        };
        let added = family.add(
            place,
            sample.labels,
            sample.value,
            self.kept_series < limits::KEPT_SERIES,
        );
        self.kept_series += usize::from(added);
    }
}

/// The types of both formats that say something. `untyped`, `unknown` and words that neither format has count as no type.
fn known_type(word: &str) -> Option<&'static str> {
    const TYPES: [&str; 7] = [
        "counter",
        "gauge",
        "gaugehistogram",
        "histogram",
        "info",
        "stateset",
        "summary",
    ];
    TYPES.into_iter().find(|known| known.eq_ignore_ascii_case(word))
}
