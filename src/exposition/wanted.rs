//! Which families the caller wants. Knows no body.

use std::collections::HashMap;

/// The type a family is expected to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Goes up and down; read under its own name.
    Gauge,
    /// Only goes up; read under its own name, which is the exact one with its `_total`.
    Counter,
    /// Read as `_sum` and `_count`, and `_bucket` where asked for.
    Histogram,
}

impl Kind {
    /// The word of a `# TYPE` line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }
}

/// The families, by exact name, and the prefixes to read in a body.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    families: Vec<WantedFamily>,
    names: HashMap<String, usize>,
    bare_counters: HashMap<String, usize>,
    samples: HashMap<String, (usize, Place)>,
    prefixes: Vec<String>,
}

/// One wanted family.
#[derive(Clone, Debug)]
pub(super) struct WantedFamily {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) buckets: bool,
}

/// Which figure of its family a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Value,
    Sum,
    Count,
    Bucket,
}

impl Wanted {
    /// Wants the family `name`; of a histogram the sum and the count only.
    ///
    /// # Panics
    ///
    /// If a sample name of it belongs to another wanted family or is wanted as another kind: a fault of the table that the names come
    /// from.
    pub fn add(&mut self, name: &str, kind: Kind) {
        self.insert(name, kind);
    }

    /// Wants the histogram `name` with its buckets.
    ///
    /// # Panics
    ///
    /// As [`Wanted::add`].
    pub fn add_with_buckets(&mut self, name: &str) {
        let family = self.insert(name, Kind::Histogram);
        self.families[family].buckets = true;
    }

    /// Wants to know whether any sample's name starts with `prefix`.
    pub fn add_prefix(&mut self, prefix: &str) {
        if !self.prefixes.iter().any(|known| known == prefix) {
            self.prefixes.push(prefix.to_owned());
        }
    }

    fn insert(&mut self, name: &str, kind: Kind) -> usize {
        if let Some(known) = self.named(name) {
            assert_eq!(self.families[known].kind, kind, "{name} is wanted as two kinds");
            return known;
        }
        let family = self.families.len();
        let places: &[(&str, Place)] = match kind {
            Kind::Gauge | Kind::Counter => &[("", Place::Value)],
            Kind::Histogram => &[
                ("_sum", Place::Sum),
                ("_count", Place::Count),
                ("_bucket", Place::Bucket),
            ],
        };
        for (suffix, place) in places {
            let taken = self.samples.insert(format!("{name}{suffix}"), (family, *place));
            assert!(taken.is_none(), "{name}{suffix} belongs to two wanted families");
        }
        self.names.insert(name.to_owned(), family);
        if kind == Kind::Counter
            && let Some(bare) = name.strip_suffix("_total")
        {
            self.bare_counters.insert(bare.to_owned(), family);
        }
        self.families.push(WantedFamily {
            name: name.to_owned(),
            kind,
            buckets: false,
        });
        family
    }

    /// The families, in the order in which they were added.
    pub(super) fn families(&self) -> impl ExactSizeIterator<Item = &WantedFamily> {
        self.families.iter()
    }

    /// One of them, by its place in that order.
    pub(super) fn family(&self, family: usize) -> &WantedFamily {
        &self.families[family]
    }

    /// The family of this name.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// The counter whose name is this one with `_total`.
    pub(super) fn counter_with_bare_name(&self, name: &str) -> Option<usize> {
        self.bare_counters.get(name).copied()
    }

    /// The prefixes.
    pub(super) fn prefixes(&self) -> &[String] {
        &self.prefixes
    }

    /// The family, and the place in it, that a sample of this name belongs to.
    pub(super) fn sample(&self, name: &str) -> Option<(usize, Place)> {
        self.samples.get(name).copied()
    }
}
