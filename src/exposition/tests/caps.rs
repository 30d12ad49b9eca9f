//! The caps: a line, the labels of a sample, kept lines, kept series.

use super::*;

/// A gauge's line of exactly this many bytes.
fn line_of(bytes: usize) -> String {
    let frame = format!("{GAUGE}{{a=\"\"}} 3").len();
    format!("{GAUGE}{{a=\"{}\"}} 3", "x".repeat(bytes - frame))
}

#[test]
fn a_line_of_4_kib_is_read_and_a_longer_one_cuts_its_family_alone() {
    assert!(gauge(line_of(4096)).is_ok());
    assert!(gauge(format!("{}\r\n", line_of(4096))).is_ok());
    let body = format!(
        "vllm:num_requests_running 1\n{}\nvllm:prefix_cache_hits_total 7\n",
        line_of(4097)
    );
    assert_eq!(gauge(&body), Err(Flaw::TooLarge));
    assert_eq!(series(&body, COUNTER), Ok(vec![written(&[], 7.0)]));
}

#[test]
fn a_long_line_of_another_family_changes_nothing() {
    assert!(
        gauge(format!(
            "vllm:other{{a=\"{}\"}} 1\nvllm:num_requests_running 1\n",
            "x".repeat(100_000)
        ))
        .is_ok()
    );
}

#[test]
fn a_sample_of_64_labels_is_read_and_one_of_65_is_not() {
    let body = |labels: usize| {
        let labels: Vec<_> = (0..labels).map(|label| format!("l{label}=\"=\"")).collect();
        format!("{GAUGE}{{{}}} 3\n", labels.join(","))
    };
    assert_eq!(gauge(body(64)).expect("read")[0].0.len(), 64);
    assert_eq!(gauge(body(65)), Err(Flaw::TooLarge));
}

#[test]
fn kept_lines_of_256_kib_are_read_and_more_cut_the_families_they_belong_to() {
    let line = line_of(4096);
    let full = format!("{line}\n").repeat(64);
    assert!(gauge(&full).is_ok());
    let body = format!("{full}vllm:prefix_cache_hits_total 7\n");
    assert!(gauge(&body).is_ok());
    assert_eq!(series(&body, COUNTER), Err(Flaw::TooLarge));
    assert_eq!(
        exposition(&body).family(HISTOGRAM).expect("wanted").histograms(),
        Err(Flaw::Absent { declared: false })
    );
}

#[test]
fn kept_series_are_4096() {
    let body = |series: usize| -> String {
        (0..series)
            .map(|series| format!("{GAUGE}{{a=\"{series}\"}} 1\n"))
            .collect()
    };
    assert_eq!(gauge(body(4096)).expect("read").len(), 4096);
    assert_eq!(gauge(body(4097)), Err(Flaw::TooLarge));
    let repeated = format!("{}{GAUGE}{{a=\"0\"}} 1\n", body(4096));
    assert_eq!(gauge(repeated).expect("read").len(), 4096);
}

#[test]
fn buckets_are_kept_after_everything_else() {
    let buckets: String = (0..5000)
        .map(|bound| format!("{HISTOGRAM}_bucket{{le=\"{bound}\"}} 1\n"))
        .collect();
    let body = format!("{buckets}{HISTOGRAM}_sum 3\n{HISTOGRAM}_count 8\nvllm:num_requests_running 1\n");
    assert_eq!(gauge(&body), Ok(vec![written(&[], 1.0)]));
    assert_eq!(histograms(&body), Err(Flaw::TooLarge));
}

#[test]
fn a_cap_comes_before_damage() {
    assert_eq!(
        gauge(format!("vllm:num_requests_running NaN\n{}\n", line_of(5000))),
        Err(Flaw::TooLarge)
    );
}
