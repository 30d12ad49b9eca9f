//! Quantiles of a window's new observations: the figures of PromQL's `histogram_quantile` on the same bucket deltas.

use std::collections::BTreeMap;

use model_deployment_crds::metrics::Quantiles;

use crate::exposition::Bound;

/// Relative difference below which PromQL takes two neighbouring buckets for equal, since rates of floats are not exact.
const SMALL: f64 = 1e-12;

/// The quantiles of an answer. None where the buckets do not end at infinity, are fewer than two, hold nothing, or reach so far that a
/// quantile is no number.
pub fn quantiles(buckets: &BTreeMap<Bound, f64>) -> Option<Quantiles> {
    let buckets = monotonic(buckets);
    let (infinite, observations) = *buckets.last()?;
    if infinite != f64::INFINITY || buckets.len() < 2 || observations <= 0.0 {
        return None;
    }
    let quantiles = [0.5, 0.9, 0.95, 0.99].map(|q| quantile(q * observations, &buckets));
    let [p50, p90, p95, p99] = quantiles;
    let are_numbers = quantiles.iter().all(|value| value.is_finite());
    are_numbers.then_some(Quantiles { p50, p90, p95, p99 })
}

/// The value at a rank: linear within its bucket, the last finite bound where the rank falls behind it.
fn quantile(rank: f64, buckets: &[(f64, f64)]) -> f64 {
    let finite = &buckets[..buckets.len() - 1];
    let place = finite.partition_point(|(_, count)| *count < rank);
    let Some((end, count)) = finite.get(place).copied() else {
        return finite[finite.len() - 1].0;
    };
    let (start, below) = match place.checked_sub(1) {
        Some(previous) => finite[previous],
        None if end <= 0.0 => return end,
        None => (0.0, 0.0),
    };
    start + (end - start) * ((rank - below) / (count - below))
}

/// Counts that never fall from one bound to the next.
fn monotonic(buckets: &BTreeMap<Bound, f64>) -> Vec<(f64, f64)> {
    let mut previous: Option<f64> = None;
    buckets
        .iter()
        .map(|(bound, count)| {
            let count = match previous {
                Some(previous) if *count < previous || is_close(*count, previous) => previous,
                _ => *count,
            };
            previous = Some(count);
            (bound.value(), count)
        })
        .collect()
}

fn is_close(one: f64, two: f64) -> bool {
    let (difference, sum) = ((one - two).abs(), one.abs() + two.abs());
    one == two || (one != 0.0 && two != 0.0 && difference / sum.min(f64::MAX) < SMALL)
}
