//! One body, kept. Knows no other sample.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::exposition::{Exposition, Flaw, Histogram, Labels, Series};
use crate::fields;
use crate::pod::{Life, Producer};

/// One body that was read.
#[derive(Debug)]
pub struct Sample {
    /// The container that served it.
    pub life: Life,
    /// The program that wrote it.
    pub producer: Producer,
    /// When it was read, for people.
    pub observed_at: Timestamp,
    /// The same moment on the monotonic clock, for the length of windows.
    pub instant: Instant,
    /// What it holds.
    pub exposition: Exposition,
    /// Its place among the samples of its Pod.
    pub(super) order: u64,
}

/// What a sample says of one family.
#[derive(Clone, Copy, Debug)]
pub enum State<'a> {
    /// Values of a gauge or counter.
    Values(&'a Series),
    /// Label sets of a histogram.
    Histograms(&'a BTreeMap<Labels, Histogram>),
    /// It is not there, though it may be declared.
    Absent {
        /// A `# HELP` or `# TYPE` line names it.
        declared: bool,
        /// A name in the body that nearly is it.
        near: Option<&'a str>,
    },
    /// It is there and cannot be used.
    Flawed(Flaw),
}

impl Sample {
    /// A body of this Pod, not yet among its others.
    pub fn new(
        life: Life,
        producer: Producer,
        observed_at: Timestamp,
        instant: Instant,
        exposition: Exposition,
    ) -> Self {
        Self {
            life,
            producer,
            observed_at,
            instant,
            exposition,
            order: 0,
        }
    }

    /// What it says of a family.
    ///
    /// # Panics
    ///
    /// If the family is not in the field table for the sample's producer.
    pub fn state(&self, family: &str) -> State<'_> {
        let family = self
            .exposition
            .family(family)
            .expect("every family of the field table is wanted");
        let flaw = match family.kind() {
            crate::exposition::Kind::Histogram => match family.histograms() {
                Ok(histograms) => return State::Histograms(histograms),
                Err(flaw) => flaw,
            },
            _ => match family.series() {
                Ok(series) => return State::Values(series),
                Err(flaw) => flaw,
            },
        };
        match flaw {
            Flaw::Absent { declared } => State::Absent {
                declared,
                near: family.near(),
            },
            flaw => State::Flawed(flaw),
        }
    }

    /// Whether the body holds any sample of its producer's prefix.
    pub fn holds_prefix(&self) -> bool {
        self.exposition.holds(fields::prefix(self.producer))
    }
}

impl State<'_> {
    /// Whether the family is there with at least one sample, usable or not.
    pub fn is_present(&self) -> bool {
        match self {
            Self::Values(_) | Self::Histograms(_) => true,
            Self::Absent { .. } => false,
            // Of another type, it is not the family that is meant.
            Self::Flawed(flaw) => !matches!(flaw, Flaw::OtherType(_)),
        }
    }

    /// Whether it can be measured from: values, or the certainty that there were none.
    pub fn is_usable(&self) -> bool {
        !matches!(self, Self::Flawed(_))
    }
}
