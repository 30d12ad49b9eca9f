//! How the series of one Pod become one figure (metrics contract, section 5). Knows label names, and no family by name.

use std::collections::BTreeMap;

use crate::exposition::{Bound, Labels};
use crate::fields::Layout;

/// A total over priorities, beside one series a priority, is without this label.
const PRIORITY: &str = "priority";

/// Data-parallel schedulers do different work: their figures are added.
const DATA_PARALLEL: &str = "dp_rank";

/// What a histogram gained in a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramIncrease {
    /// Of the sum, in the family's unit.
    pub sum: f64,
    /// Of the number of observations.
    pub count: f64,
    /// Of the numbers at or below each bound; none where the bodies' buckets cannot be used or do not agree.
    pub buckets: Option<BTreeMap<Bound, f64>>,
}

/// The total of some series of one Pod.
pub fn total<'a>(layout: Layout, series: impl Iterator<Item = (&'a Labels, f64)>) -> f64 {
    match layout {
        Layout::Added => series.map(|(_, value)| value).sum(),
        Layout::Schedulers => schedulers(series, |sum, value| *sum += value, |value| *value)
            .into_iter()
            .sum(),
    }
}

impl HistogramIncrease {
    /// The total of the label sets of one Pod.
    pub fn total<'a>(layout: Layout, series: impl Iterator<Item = (&'a Labels, Self)>) -> Self {
        let parts: Vec<Self> = match layout {
            Layout::Added => series.map(|(_, increase)| increase).collect(),
            Layout::Schedulers => schedulers(series, |sum, part| *sum = sum.plus(&part), |increase| increase.count),
        };
        parts
            .into_iter()
            .reduce(|sum, part| sum.plus(&part))
            .unwrap_or_default()
    }

    /// Both together. Buckets with other bounds cannot be added.
    fn plus(&self, other: &Self) -> Self {
        let buckets = match (&self.buckets, &other.buckets) {
            (Some(one), Some(two)) if one.keys().eq(two.keys()) => Some(
                one.iter()
                    .zip(two.values())
                    .map(|((bound, one), two)| (*bound, one + two))
                    .collect(),
            ),
            _ => None,
        };
        Self {
            sum: self.sum + other.sum,
            count: self.count + other.count,
            buckets,
        }
    }
}

/// One figure for each scheduler and each label set apart from ranks, priorities and process numbers.
///
/// Where a series without a priority exists it is the total over priorities, and the others are dropped; else they are added. Tensor,
/// pipeline and expert ranks, and whatever else repeats a scheduler's figures, are one: the greatest, and of equals the first.
fn schedulers<'a, T>(
    series: impl Iterator<Item = (&'a Labels, T)>,
    add: impl Fn(&mut T, T),
    weight: impl Fn(&T) -> f64,
) -> Vec<T> {
    let series: Vec<_> = series.collect();
    let has_total = series.iter().any(|(labels, _)| is_total(labels));
    let mut figures: BTreeMap<_, BTreeMap<_, T>> = BTreeMap::new();
    for (labels, value) in series {
        if has_total && !is_total(labels) {
            continue;
        }
        let (replica, figure): (Vec<_>, Vec<_>) = labels
            .iter()
            .filter(|(name, _)| *name != PRIORITY)
            .partition(|(name, _)| repeats(name));
        match figures.entry(figure).or_default().entry(replica) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(value);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => add(entry.get_mut(), value),
        }
    }
    figures
        .into_values()
        .filter_map(|replicas| {
            replicas
                .into_values()
                .reduce(|best, other| if weight(&other) > weight(&best) { other } else { best })
        })
        .collect()
}

fn is_total(labels: &Labels) -> bool {
    labels.get(PRIORITY).is_none()
}

/// Whether series that differ in this label alone repeat one figure.
fn repeats(label: &str) -> bool {
    label == "pid" || (label.ends_with("_rank") && label != DATA_PARALLEL)
}
