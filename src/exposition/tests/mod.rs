//! The contract of the metrics text, sentence by sentence.

mod caps;
mod captures;
mod damage;
mod forms;
mod legal;
mod mutation;
mod near;

use super::{Bound, Damage, Exposition, Flaw, Histogram, Kind, Labels, NotExposition, Wanted, read};

const GAUGE: &str = "vllm:num_requests_running";
const COUNTER: &str = "vllm:prefix_cache_hits_total";
const HISTOGRAM: &str = "vllm:time_to_first_token_seconds";

/// One family of each kind, the histogram with its buckets.
fn wanted() -> Wanted {
    let mut wanted = Wanted::default();
    wanted.add(GAUGE, Kind::Gauge);
    wanted.add(COUNTER, Kind::Counter);
    wanted.add_with_buckets(HISTOGRAM);
    wanted.add_prefix("vllm:");
    wanted.add_prefix("sglang:");
    wanted
}

fn exposition(body: impl AsRef<[u8]>) -> Exposition {
    read(body.as_ref(), &wanted()).expect("metrics text")
}

/// A series as a test writes it down.
type Written = (Vec<(String, String)>, f64);

fn written(labels: &[(&str, &str)], value: f64) -> Written {
    (
        labels
            .iter()
            .map(|(name, value)| (String::from(*name), String::from(*value)))
            .collect(),
        value,
    )
}

fn series(body: impl AsRef<[u8]>, family: &str) -> Result<Vec<Written>, Flaw> {
    let exposition = exposition(body);
    let series = exposition.family(family).expect("wanted").series()?;
    Ok(series.iter().map(|(labels, value)| (pairs(labels), *value)).collect())
}

fn histograms(body: impl AsRef<[u8]>) -> Result<Vec<(Labels, Histogram)>, Flaw> {
    let exposition = exposition(body);
    let histograms = exposition.family(HISTOGRAM).expect("wanted").histograms()?;
    Ok(histograms
        .iter()
        .map(|(labels, histogram)| (labels.clone(), histogram.clone()))
        .collect())
}

fn pairs(labels: &Labels) -> Vec<(String, String)> {
    labels
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn buckets(histogram: &Histogram) -> Vec<(f64, f64)> {
    histogram
        .buckets
        .iter()
        .flatten()
        .map(|(bound, count): (&Bound, &f64)| (bound.value(), *count))
        .collect()
}

/// The gauge's series in a body.
fn gauge(body: impl AsRef<[u8]>) -> Result<Vec<Written>, Flaw> {
    series(body, GAUGE)
}
