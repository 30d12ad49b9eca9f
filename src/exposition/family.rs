//! What a body says about one wanted family. Knows no line and no parser.

use std::collections::BTreeMap;

use super::bound::{self, Bound};
use super::labels::Labels;
use super::part::{Added, Damage, Part};
use super::wanted::{Kind, Place};

/// The values of a gauge or a counter, by label set: finite and not below zero.
pub type Series = BTreeMap<Labels, f64>;

/// One label set of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// The sum of all observations, in the family's unit.
    pub sum: f64,
    /// How many observations there were.
    pub count: f64,
    /// How many observations are at or below each bound, as the body says: nothing checks that they rise. Empty where the body holds no
    /// bucket of this label set and where buckets were not asked for; none in the whole family where a bucket line is damaged.
    pub buckets: Option<BTreeMap<Bound, f64>>,
}

/// Why a family gives no figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A cap cut lines of it; code `TooLarge`.
    TooLarge,
    /// A line or a value of it is bad; code `NotUsable`.
    NotUsable(Damage),
    /// The family is declared with another type (this word); code `Absent`.
    OtherType(&'static str),
    /// No line of it is in the body, though it may be declared there; code `Absent`.
    Absent {
        /// A `# HELP` or `# TYPE` line names it.
        declared: bool,
    },
}

/// One wanted family.
#[derive(Clone, Debug)]
pub struct Family {
    kind: Kind,
    samples: Result<Samples, Flaw>,
    near: Option<String>,
}

#[derive(Clone, Debug)]
enum Samples {
    Values(Series),
    Histograms(BTreeMap<Labels, Histogram>),
}

impl Family {
    /// The type that was asked for.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The values of a gauge or counter.
    ///
    /// # Errors
    ///
    /// The reason why there is no figure. Of the reasons that fit, the first in the order of [`Flaw`].
    ///
    /// # Panics
    ///
    /// If the family was wanted as a histogram.
    pub fn series(&self) -> Result<&Series, Flaw> {
        match &self.samples {
            Ok(Samples::Values(series)) => Ok(series),
            Ok(Samples::Histograms(_)) => panic!("a histogram has no single value"),
            Err(flaw) => Err(*flaw),
        }
    }

    /// The label sets of a histogram.
    ///
    /// # Errors
    ///
    /// The reason why there is no figure. Of the reasons that fit, the first in the order of [`Flaw`].
    ///
    /// # Panics
    ///
    /// If the family was wanted as a gauge or counter.
    pub fn histograms(&self) -> Result<&BTreeMap<Labels, Histogram>, Flaw> {
        match &self.samples {
            Ok(Samples::Histograms(histograms)) => Ok(histograms),
            Ok(Samples::Values(_)) => panic!("a {} has no sum and count", self.kind.as_str()),
            Err(flaw) => Err(*flaw),
        }
    }

    /// For an absent family, the name of a sample in the body that nearly is one of it: the bare name of a counter, another prefix, a
    /// `_` for the `:`.
    pub fn near(&self) -> Option<&str> {
        self.near.as_deref()
    }

    /// Whether a near match would explain anything.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self.samples, Err(Flaw::Absent { .. }))
    }

    pub(super) fn set_near(&mut self, name: &str) {
        self.near.get_or_insert_with(|| name.to_owned());
    }
}

/// A family while its body is read.
#[derive(Clone, Debug)]
pub(super) struct Collected {
    kind: Kind,
    pub(super) declared: bool,
    pub(super) other_type: Option<&'static str>,
    pub(super) value: Part<Labels>,
    pub(super) sum: Part<Labels>,
    pub(super) count: Part<Labels>,
    pub(super) buckets: Part<(Labels, Bound)>,
    /// A bucket line stands in the body, wanted or not.
    pub(super) has_buckets: bool,
    /// A cap left out a line.
    pub(super) cut: bool,
}

impl Collected {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            declared: false,
            other_type: None,
            value: Part::default(),
            sum: Part::default(),
            count: Part::default(),
            buckets: Part::default(),
            has_buckets: false,
            cut: false,
        }
    }

    /// Adds one sample and says whether its series is a new one. Without `room` for a new one the family is cut.
    pub(super) fn add(&mut self, place: Place, labels: Labels, value: f64, room: bool) -> bool {
        let added = match place {
            Place::Value => self.value.add(labels, value, room),
            Place::Sum => self.sum.add(labels, value, room),
            Place::Count => self.count.add(labels, value, room),
            Place::Bucket => match labels.get(bound::LABEL).and_then(Bound::parse) {
                Some(bound) => self.buckets.add((labels.without(bound::LABEL), bound), value, room),
                None => {
                    self.buckets.spoil(Damage::Malformed);
                    Added::Known
                }
            },
        };
        self.cut |= added == Added::NoRoom;
        added == Added::New
    }

    /// Remembers that a line could not be used.
    pub(super) fn spoil(&mut self, place: Place, damage: Damage) {
        match place {
            Place::Value => self.value.spoil(damage),
            Place::Sum => self.sum.spoil(damage),
            Place::Count => self.count.spoil(damage),
            Place::Bucket => self.buckets.spoil(damage),
        }
    }

    /// Judges what was read.
    pub(super) fn finish(self) -> Family {
        Family {
            kind: self.kind,
            samples: self.judge(),
            near: None,
        }
    }

    /// The order of the flaws is the order of their codes (metrics contract, end of section 6).
    fn judge(self) -> Result<Samples, Flaw> {
        if self.cut {
            return Err(Flaw::TooLarge);
        }
        let parts = [&self.value, &self.sum, &self.count];
        if let Some(damage) = parts.iter().find_map(|part| part.damage) {
            return Err(Flaw::NotUsable(damage));
        }
        let (declared, other_type) = (self.declared, self.other_type);
        let is_absent = parts.iter().all(|part| part.is_absent()) && !self.has_buckets;
        let samples = match self.kind {
            _ if is_absent => Err(Flaw::Absent { declared }),
            Kind::Gauge | Kind::Counter => Ok(Samples::Values(self.value.series)),
            Kind::Histogram => self.join().map(Samples::Histograms).map_err(Flaw::NotUsable),
        };
        match (samples, other_type) {
            (Ok(_) | Err(Flaw::Absent { .. }), Some(other)) => Err(Flaw::OtherType(other)),
            (samples, _) => samples,
        }
    }

    /// Puts sum, count and buckets of one label set together. Where sum or count lacks, a figure over the family would understate.
    fn join(self) -> Result<BTreeMap<Labels, Histogram>, Damage> {
        if self.sum.series.is_empty() || self.sum.series.len() != self.count.series.len() {
            return Err(Damage::Lacking);
        }
        let buckets = self.buckets.damage.is_none().then(BTreeMap::new);
        let mut histograms = BTreeMap::new();
        for ((labels, sum), (other, count)) in self.sum.series.into_iter().zip(self.count.series) {
            if labels != other {
                return Err(Damage::Lacking);
            }
            histograms.insert(
                labels,
                Histogram {
                    sum,
                    count,
                    buckets: buckets.clone(),
                },
            );
        }
        for ((labels, bound), count) in self.buckets.series {
            let histogram = histograms.get_mut(&labels).ok_or(Damage::Lacking)?;
            if let Some(buckets) = &mut histogram.buckets {
                buckets.insert(bound, count);
            }
        }
        Ok(histograms)
    }
}
