//! Any body: no panic, every figure finite and not below zero, and the same figures without the lines of other families.

#![no_main]

use libfuzzer_sys::fuzz_target;
use model_deployment::exposition::{Exposition, Histogram, Kind, Wanted, read};

const GAUGE: &str = "vllm:num_requests_running";
const COUNTER: &str = "vllm:prefix_cache_hits_total";
const HISTOGRAM: &str = "vllm:time_to_first_token_seconds";

fuzz_target!(|body: &[u8]| {
    let mut wanted = Wanted::default();
    wanted.add(GAUGE, Kind::Gauge);
    wanted.add(COUNTER, Kind::Counter);
    wanted.add_with_buckets(HISTOGRAM);
    wanted.add_prefix("vllm:");
    let Ok(exposition) = read(body, &wanted) else { return };
    assert!(figures(&exposition).iter().flatten().all(|figure| figure.is_finite() && *figure >= 0.0));

    let names = ["num_requests_running", "prefix_cache_hits", "time_to_first_token_seconds"];
    let speaks = |line: &&[u8]| names.iter().any(|name| line.windows(name.len()).any(|part| part == name.as_bytes()));
    let mut own = body.split(|byte| *byte == b'\n').filter(speaks).collect::<Vec<_>>().join(&b'\n');
    // A body of nothing but blanks and broken lines of others is no metrics text; a comment makes it one.
    own.extend_from_slice(b"\n# EOF\n");
    let alone = read(&own, &wanted).expect("a comment makes it metrics text");
    assert_eq!(figures(&exposition), figures(&alone));
});

/// The figures of the three families; none where a family gives none.
fn figures(exposition: &Exposition) -> [Option<f64>; 3] {
    let values = |name| exposition.family(name).expect("wanted").series().ok().map(|series| series.values().sum());
    let histograms = exposition.family(HISTOGRAM).expect("wanted").histograms().ok();
    let sum = histograms.map(|histograms| {
        let buckets = |histogram: &Histogram| histogram.buckets.iter().flatten().map(|(_, count)| *count).sum::<f64>();
        histograms.values().map(|histogram| histogram.sum + histogram.count + buckets(histogram)).sum()
    });
    [values(GAUGE), values(COUNTER), sum]
}
