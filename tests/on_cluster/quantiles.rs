//! Our quantiles against Prometheus itself: `promtool test rules` evaluates `histogram_quantile` on the same bucket deltas.

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;

use model_deployment::pod::Producer;
use model_deployment::{exposition, fields, window};

use crate::scenario::{Failure, Outcome, Scenario, Test, ensure, test};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    vec![test!(quantiles_are_those_of_prometheus)]
}

const FAMILY: &str = "vllm:time_to_first_token_seconds";

/// What the buckets held at the first read; both reads grow from here.
const BEFORE: u64 = 1000;

/// Bounds, and the observations that fell into each bucket between the two reads.
fn histograms() -> Vec<(Vec<&'static str>, Vec<u64>)> {
    let vllm = || {
        vec![
            "0.001", "0.005", "0.01", "0.02", "0.04", "0.06", "0.08", "0.1", "0.25", "0.5", "1.0", "2.5", "+Inf",
        ]
    };
    let mut histograms = vec![
        (vllm(), vec![1, 2, 3, 5, 8, 13, 21, 13, 8, 5, 3, 2, 1]),
        (vllm(), vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        (vllm(), vec![7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (vllm(), vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]),
        (vllm(), vec![50, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 50]),
        (vllm(), vec![0, 10, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0]),
        (vec!["1", "+Inf"], vec![3, 1]),
        (vec!["0", "1", "+Inf"], vec![4, 1, 0]),
        (vec!["-1", "0", "1", "+Inf"], vec![4, 4, 1, 1]),
        (vec!["1e-06", "1e+06", "+Inf"], vec![1, 98, 1]),
    ];
    // A few dozen of no particular shape.
    let mut state = 2_654_435_761_u64;
    for _ in 0..40 {
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % 97
        };
        histograms.push((vllm(), std::iter::repeat_with(&mut next).take(13).collect()));
    }
    histograms
}

/// Our figures, of a body that holds the deltas.
fn ours(bounds: &[&str], observations: &[u64]) -> Result<[f64; 4], Failure> {
    let mut body = String::new();
    let mut total = 0;
    for (bound, count) in bounds.iter().zip(observations) {
        total += count;
        writeln!(body, "{FAMILY}_bucket{{le=\"{bound}\"}} {total}")?;
    }
    writeln!(body, "{FAMILY}_sum 1\n{FAMILY}_count {total}")?;
    let read = exposition::read(body.as_bytes(), fields::wanted(Producer::Vllm))?;
    let histograms = read.family(FAMILY).ok_or("the family is not wanted")?.histograms();
    let histogram = histograms
        .map_err(|flaw| format!("{flaw:?}"))?
        .values()
        .next()
        .ok_or("no label set")?;
    let quantiles = histogram
        .buckets
        .as_ref()
        .and_then(window::quantiles)
        .ok_or("no quantiles")?;
    Ok([quantiles.p50, quantiles.p90, quantiles.p95, quantiles.p99])
}

/// A unit test file for promtool, which expects our figures, each as far from the truth as `error` says.
fn expectations(error: f64) -> Result<String, Failure> {
    let mut file = String::from("evaluation_interval: 1m\ntests:\n");
    for (bounds, observations) in histograms() {
        writeln!(file, "- interval: 1m\n  input_series:")?;
        let mut total = 0;
        for (place, (bound, count)) in bounds.iter().zip(&observations).enumerate() {
            total += count;
            let before = BEFORE * (place as u64 + 1);
            writeln!(
                file,
                "  - series: 'seen_bucket{{le=\"{bound}\"}}'\n    values: '{before} {}'",
                before + total
            )?;
        }
        writeln!(file, "  promql_expr_test:")?;
        for (quantile, ours) in ["0.5", "0.9", "0.95", "0.99"]
            .into_iter()
            .zip(ours(&bounds, &observations)?)
        {
            let value = ours + error;
            writeln!(
                file,
                "  - expr: histogram_quantile({quantile}, seen_bucket - seen_bucket offset 1m)\n    eval_time: 1m\n    exp_samples:\n    - labels: '{{}}'\n      value: {value:?}"
            )?;
        }
    }
    Ok(file)
}

async fn quantiles_are_those_of_prometheus(scenario: Arc<Scenario>) -> Outcome {
    for (error, holds) in [(0.0, true), (1e-3, false)] {
        let path = scenario.cluster.state_dir().join(format!("quantiles-{holds}.yaml"));
        fs::write(&path, expectations(error)?)?;
        let file = path.display().to_string();
        let output = scenario.cluster.promtool(&["test", "rules", &file], "").await;
        let output = output.ok_or("promtool was not built")??;
        ensure!(
            output.status.success() == holds,
            "off by {error}, promtool says: {}{}",
            output.stdout,
            output.stderr
        );
    }
    Ok(())
}
