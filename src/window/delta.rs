//! What each series of a family gained in a window. Deltas are taken per series and never over a sum (metrics contract, section 4).

use super::layout::HistogramIncrease;
use super::sample::{Sample, State};
use super::seen::Seen;
use super::trail::{Baseline, Trail};
use crate::exposition::{Histogram, Labels};

/// What each series gained.
#[derive(Clone, Debug)]
pub enum Increase<'a> {
    /// Of a counter.
    Counter(Vec<(&'a Labels, f64)>),
    /// Of a histogram.
    Histogram(Vec<(&'a Labels, HistogramIncrease)>),
}

/// A series fell, vanished, or came back after it had vanished: nothing can be said of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restarted;

impl Trail {
    /// What the series of a family gained since the baseline. None where the last sample does not hold the family in a usable form.
    ///
    /// # Errors
    ///
    /// [`Restarted`], judged over the whole family and over every usable sample between the two.
    pub fn increase(&self, baseline: Baseline, family: &str) -> Result<Option<Increase<'_>>, Restarted> {
        let usable: Vec<_> = self.usable(baseline, family).collect();
        let seen = self.seen();
        for pair in usable.windows(2) {
            let [later, earlier] = pair else { continue };
            check(earlier, later, family, &seen)?;
        }
        let first = self.samples()[baseline.place].state(family);
        Ok(match self.last().state(family) {
            State::Values(last) => Some(Increase::Counter(
                last.iter()
                    .map(|(labels, value)| (labels, value - value_before(first, labels)))
                    .collect(),
            )),
            State::Histograms(last) => Some(Increase::Histogram(
                last.iter()
                    .map(|(labels, histogram)| (labels, histogram_increase(histogram, before(first, labels))))
                    .collect(),
            )),
            State::Absent { .. } | State::Flawed(_) => None,
        })
    }

    /// Whether a sample of a window held such a series of a counter.
    pub fn held(&self, since: Baseline, family: &str, such: impl Fn(&Labels) -> bool) -> bool {
        self.usable(since, family)
            .any(|sample| matches!(sample.state(family), State::Values(series) if series.keys().any(&such)))
    }

    /// The samples of a window in which the family is usable, newest first.
    fn usable(&self, since: Baseline, family: &str) -> impl Iterator<Item = &Sample> {
        let samples = self.samples()[..=since.place].iter().map(|sample| &**sample);
        samples.filter(move |sample| sample.life.is_same(self.last().life) && sample.state(family).is_usable())
    }
}

/// Whether nothing fell, vanished or came back from one sample to the next.
fn check(earlier: &Sample, later: &Sample, family: &str, seen: &Seen) -> Result<(), Restarted> {
    let (before, after) = (earlier.state(family), later.state(family));
    let holds = match (before, after) {
        (State::Values(before), State::Values(after)) => before
            .iter()
            .all(|(labels, value)| after.get(labels).is_some_and(|later| later >= value)),
        (State::Histograms(before), State::Histograms(after)) => before
            .iter()
            .all(|(labels, histogram)| after.get(labels).is_some_and(|later| !has_fallen(histogram, later))),
        (State::Absent { .. }, _) => true,
        _ => false,
    };
    if !holds {
        return Err(Restarted);
    }
    let is_new = |labels: &&Labels| match before {
        State::Values(before) => !before.contains_key(labels),
        State::Histograms(before) => !before.contains_key(labels),
        State::Absent { .. } | State::Flawed(_) => true,
    };
    let may_appear = |labels: &Labels| earlier.holds_prefix() && !seen.series_before(family, labels, earlier.order + 1);
    let appears = match after {
        State::Values(after) => after.keys().filter(is_new).all(may_appear),
        State::Histograms(after) => after.keys().filter(is_new).all(may_appear),
        State::Absent { .. } | State::Flawed(_) => true,
    };
    appears.then_some(()).ok_or(Restarted)
}

/// Whether any series of one label set of a histogram fell or vanished. A body whose buckets are damaged says nothing of them.
fn has_fallen(before: &Histogram, after: &Histogram) -> bool {
    let bucket_fell = match (&before.buckets, &after.buckets) {
        (Some(before), Some(after)) => before
            .iter()
            .any(|(bound, count)| after.get(bound).is_none_or(|later| later < count)),
        _ => false,
    };
    after.sum < before.sum || after.count < before.count || bucket_fell
}

fn value_before(state: State<'_>, labels: &Labels) -> f64 {
    match state {
        State::Values(series) => series.get(labels).copied().unwrap_or(0.0),
        _ => 0.0,
    }
}

fn before<'a>(state: State<'a>, labels: &Labels) -> Option<&'a Histogram> {
    match state {
        State::Histograms(histograms) => histograms.get(labels),
        _ => None,
    }
}

fn histogram_increase(last: &Histogram, first: Option<&Histogram>) -> HistogramIncrease {
    let Some(first) = first else {
        return HistogramIncrease {
            sum: last.sum,
            count: last.count,
            buckets: last.buckets.clone(),
        };
    };
    let buckets = match (&last.buckets, &first.buckets) {
        (Some(last), Some(first)) if last.keys().eq(first.keys()) => Some(
            last.iter()
                .zip(first.values())
                .map(|((bound, last), first)| (*bound, last - first))
                .collect(),
        ),
        _ => None,
    };
    HistogramIncrease {
        sum: last.sum - first.sum,
        count: last.count - first.count,
        buckets,
    }
}
