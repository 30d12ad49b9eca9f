//! Which series a container ever exported, and since which sample. Knows no value.

use std::collections::HashMap;

use super::sample::{Sample, State};
use crate::exposition::Labels;
use crate::fields::FIELDS;

/// Series remembered of one container: two bodies at their cap with nothing in common. Real ones export under a thousand.
const SERIES: usize = 8192;

/// The series that one life of a container exported while its state was held.
#[derive(Debug, Default)]
pub(super) struct Seen {
    families: HashMap<&'static str, Family>,
    series: usize,
}

#[derive(Debug, Default)]
struct Family {
    since: Option<u64>,
    /// The first sample in which it could not be used: which series that one held is not known.
    flawed: Option<u64>,
    series: HashMap<Labels, u64>,
}

impl Seen {
    /// Remembers what a sample holds.
    pub(super) fn add(&mut self, sample: &Sample) {
        let fields = FIELDS.iter().filter(|field| field.producer == sample.producer);
        for name in fields.flat_map(|field| field.families()) {
            let state = sample.state(name);
            let family = self.families.entry(name).or_default();
            if state.is_present() {
                family.since.get_or_insert(sample.order);
            }
            let mut remember = |labels: &Labels| {
                if self.series < SERIES && !family.series.contains_key(labels) {
                    family.series.insert(labels.clone(), sample.order);
                    self.series += 1;
                }
            };
            match state {
                State::Values(series) => series.keys().for_each(&mut remember),
                State::Histograms(histograms) => histograms.keys().for_each(&mut remember),
                State::Flawed(_) => {
                    family.flawed.get_or_insert(sample.order);
                }
                State::Absent { .. } => {}
            }
        }
    }

    /// Whether a sample before this one held the family.
    pub(super) fn family_before(&self, family: &str, order: u64) -> bool {
        let since = self.families.get(family).and_then(|family| family.since);
        since.is_some_and(|since| since < order)
    }

    /// Whether a sample before this one held the series. What could not be remembered or read counts as held: a window is then a reset
    /// and never an invented figure.
    pub(super) fn series_before(&self, family: &str, labels: &Labels, order: u64) -> bool {
        let family = self.families.get(family);
        let flawed = family.and_then(|family| family.flawed);
        let since = family.and_then(|family| family.series.get(labels));
        flawed.is_some_and(|flawed| flawed < order) || since.map_or(self.series >= SERIES, |since| *since < order)
    }
}
