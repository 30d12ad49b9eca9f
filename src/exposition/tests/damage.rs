//! What makes a family give no figure.

use super::*;

fn not_usable(body: &str, damage: Damage) {
    assert_eq!(gauge(body), Err(Flaw::NotUsable(damage)), "{body:?}");
}

#[test]
fn a_line_that_does_not_parse_spoils_its_family_and_no_other() {
    for line in [
        "vllm:num_requests_running",
        "vllm:num_requests_running{engine=\"1\"}",
        "vllm:num_requests_running{engine=\"1\" 2",
        "vllm:num_requests_running{engine=\"1} 2",
        "vllm:num_requests_running{engine=1} 2",
        "vllm:num_requests_running{engine} 2",
        "vllm:num_requests_running{=\"1\"} 2",
        "vllm:num_requests_running{1a=\"1\"} 2",
        "vllm:num_requests_running{a=\"1\" b=\"2\"} 2",
        "vllm:num_requests_running{a=\"1\",,b=\"2\"} 2",
        "vllm:num_requests_running{a=\"1\",a=\"2\"} 2",
        "vllm:num_requests_running{{}} 2",
        "vllm:num_requests_running two",
        "vllm:num_requests_running 2 yesterday",
        "vllm:num_requests_running 2 3 4",
        "vllm:num_requests_running 0x10",
        "vllm:num_requests_running 1_000",
        "vllm:num_requests_running 1,5",
        "vllm:num_requests_running -",
        "vllm:num_requests_running .",
        "vllm:num_requests_running+2",
        "vllm:num_requests_running.2 2",
        "vllm:num_requests_running 2 # comment",
        "vllm:num_requests_running 2 # {a=\"b\"}",
        "vllm:num_requests_running 2 # {a=\"b\"} 1 2 3",
        "vllm:num_requests_running 2 # {a=\"b\"} 1 # {} 1",
        "vllm:num_requests_running 2\u{a0}",
        "{\"vllm:num_requests_running\" engine=\"1\"} 2",
        "{\"vllm:num_requests_running\"x} 2",
    ] {
        let body = format!("vllm:prefix_cache_hits_total 7\n{line}\nvllm:num_requests_running{{engine=\"0\"}} 1\n");
        not_usable(&body, Damage::Malformed);
        assert_eq!(series(&body, COUNTER), Ok(vec![written(&[], 7.0)]), "{line}");
    }
}

#[test]
fn bytes_that_are_no_utf8_in_its_own_line() {
    let body = b"vllm:num_requests_running{a=\"\xff\"} 1\n";
    assert_eq!(gauge(body), Err(Flaw::NotUsable(Damage::Malformed)));
}

#[test]
fn a_value_that_is_not_finite_or_below_zero() {
    not_usable(
        "vllm:num_requests_running{a=\"b\"} 1\nvllm:num_requests_running NaN\n",
        Damage::NotFinite,
    );
    not_usable("vllm:num_requests_running -1\n", Damage::Negative);
    not_usable("vllm:num_requests_running -1e-9\n", Damage::Negative);
    assert_eq!(gauge("vllm:num_requests_running -0\n"), Ok(vec![written(&[], 0.0)]));
}

#[test]
fn a_series_twice_with_two_values() {
    not_usable(
        "vllm:num_requests_running{a=\"1\",b=\"2\"} 1\nvllm:num_requests_running{b=\"2\",a=\"1\"} 2\n",
        Damage::Repeated,
    );
}

#[test]
fn a_series_twice_with_one_value_counts_once_and_label_order_does_not_matter() {
    let body = "vllm:num_requests_running{a=\"1\",b=\"2\"} 1\nvllm:num_requests_running{ b=\"2\", a=\"1\",} 1.0\n";
    assert_eq!(gauge(body), Ok(vec![written(&[("a", "1"), ("b", "2")], 1.0)]));
}

#[test]
fn another_declared_type_is_named() {
    assert_eq!(
        gauge("# TYPE vllm:num_requests_running histogram\n"),
        Err(Flaw::OtherType("histogram"))
    );
    let body = "# TYPE vllm:num_requests_running counter\nvllm:num_requests_running 3\n";
    assert_eq!(gauge(body), Err(Flaw::OtherType("counter")));
    let body = format!("# TYPE {HISTOGRAM} gauge\n{HISTOGRAM} 3\n");
    assert_eq!(histograms(body), Err(Flaw::OtherType("gauge")));
    let body = format!("# TYPE {HISTOGRAM} summary\n{HISTOGRAM}_sum 3\n{HISTOGRAM}_count 3\n");
    assert_eq!(histograms(body), Err(Flaw::OtherType("summary")));
}

/// As their codes are ordered: too large, not usable, absent.
#[test]
fn another_type_comes_after_a_cut_and_after_damage() {
    let declared = "# TYPE vllm:num_requests_running counter\n";
    not_usable(&format!("{declared}vllm:num_requests_running NaN\n"), Damage::NotFinite);
    let long = "x".repeat(5000);
    let body = format!("{declared}vllm:num_requests_running{{a=\"{long}\"}} 1\n");
    assert_eq!(gauge(body), Err(Flaw::TooLarge));
    let body = format!("# TYPE {HISTOGRAM} summary\n{HISTOGRAM}_sum 3\n");
    assert_eq!(histograms(body), Err(Flaw::NotUsable(Damage::Lacking)));
}

#[test]
fn of_several_declared_types_the_other_one_is_named() {
    let (gauge_type, counter_type) = (
        "# TYPE vllm:num_requests_running gauge\n",
        "# TYPE vllm:num_requests_running counter\n",
    );
    for header in [[gauge_type, counter_type].concat(), [counter_type, gauge_type].concat()] {
        assert_eq!(
            gauge(format!("{header}vllm:num_requests_running 3\n")),
            Err(Flaw::OtherType("counter"))
        );
    }
}

#[test]
fn the_type_of_a_bare_name_is_another_familys_unless_it_says_counter() {
    let body = "# TYPE vllm:prefix_cache_hits gauge\nvllm:prefix_cache_hits 1\nvllm:prefix_cache_hits_total 7\n";
    assert_eq!(series(body, COUNTER), Ok(vec![written(&[], 7.0)]));
}

#[test]
fn a_histogram_that_lacks_its_sum_or_its_count() {
    for lines in [
        "_sum 3\n",
        "_count 3\n",
        "_bucket{le=\"1\"} 3\n",
        "_sum{engine=\"0\"} 3\n_count{engine=\"0\"} 3\n_sum{engine=\"1\"} 3\n",
        "_sum{engine=\"0\"} 3\n_count{engine=\"1\"} 3\n",
        "_sum{engine=\"0\"} 3\n_count{engine=\"0\"} 3\n_bucket{engine=\"1\",le=\"1\"} 3\n",
        "_sum{engine=\"0\"} 3\n_count{engine=\"0\"} 3\n_bucket{engine=\"1\",le=\"1\"} 3\n_bucket{engine=\"0\"} NaN\n",
    ] {
        let body: String = lines.lines().map(|line| format!("{HISTOGRAM}{line}\n")).collect();
        assert_eq!(histograms(&body), Err(Flaw::NotUsable(Damage::Lacking)), "{body}");
    }
}

#[test]
fn a_damaged_sum_or_count_spoils_the_histogram() {
    for (lines, damage) in [
        ("_sum NaN\n_count 3\n", Damage::NotFinite),
        ("_sum -1\n_count 3\n", Damage::Negative),
        ("_sum 1\n_count three\n", Damage::Malformed),
        ("_sum 1\n_count 3\n_count 4\n", Damage::Repeated),
    ] {
        let body: String = lines.lines().map(|line| format!("{HISTOGRAM}{line}\n")).collect();
        assert_eq!(histograms(&body), Err(Flaw::NotUsable(damage)), "{body}");
    }
}

#[test]
fn a_damaged_bucket_only_drops_the_buckets() {
    for bucket in [
        "{le=\"2\"} NaN",
        "{le=\"2\"} -1",
        "{le=\"2\"} x",
        "{le=\"2\"",
        "{le=\"two\"} 3",
        "{le=\"NaN\"} 3",
        " 3",
        "{le=\"1.0\"} 9",
    ] {
        let body = format!(
            "{HISTOGRAM}_sum 3\n{HISTOGRAM}_count 8\n{HISTOGRAM}_bucket{{le=\"1\"}} 2\n{HISTOGRAM}_bucket{bucket}\n"
        );
        assert_eq!(
            histograms(&body),
            Ok(vec![(
                Labels::default(),
                Histogram {
                    sum: 3.0,
                    count: 8.0,
                    buckets: None
                }
            )]),
            "{body}"
        );
    }
}

#[test]
fn a_bucket_twice_with_one_value_counts_once() {
    let body = format!(
        "{HISTOGRAM}_sum 3\n{HISTOGRAM}_count 8\n{HISTOGRAM}_bucket{{le=\"1\"}} 2\n{HISTOGRAM}_bucket{{le=\"1.0\"}} 2\n"
    );
    assert_eq!(buckets(&histograms(body).expect("a histogram")[0].1), [(1.0, 2.0)]);
}

#[test]
fn buckets_that_were_not_asked_for_are_not_read() {
    let mut wanted = Wanted::default();
    wanted.add(HISTOGRAM, Kind::Histogram);
    let body = format!("{HISTOGRAM}_sum 3\n{HISTOGRAM}_count 8\n{HISTOGRAM}_bucket{{le=\"1\"}} 2\n");
    let exposition = read(body.as_bytes(), &wanted).expect("metrics text");
    let histograms = exposition
        .family(HISTOGRAM)
        .expect("wanted")
        .histograms()
        .expect("a histogram");
    assert_eq!(histograms[&Labels::default()].buckets, Some([].into()));
    let exposition = read(format!("{HISTOGRAM}_bucket{{le=\"1\"}} 2\n").as_bytes(), &wanted).expect("metrics text");
    assert_eq!(
        exposition.family(HISTOGRAM).expect("wanted").histograms(),
        Err(Flaw::NotUsable(Damage::Lacking))
    );
}

#[test]
fn a_body_that_is_no_metrics_text() {
    for body in [
        "<!DOCTYPE html>\n<html><body>It works!</body></html>\n",
        "{\"error\":{\"code\":404,\"message\":\"not found\"}}",
        "{\n  \"error\": 1\n}\n",
        "{\"vllm:num_requests_running\": 1}\n",
        "[]",
        "Not Found",
        "404 page not found\n",
        "ok",
        "\u{1f}\u{8b}\u{8}",
    ] {
        assert_eq!(read(body.as_bytes(), &wanted()).err(), Some(NotExposition), "{body:?}");
    }
}

#[test]
fn a_blank_body_or_one_of_comments_is_read_and_everything_is_absent() {
    for body in ["", "\n", " \r\n\t\n", "# EOF\n", "# just started\n"] {
        let exposition = exposition(body);
        assert_eq!(
            exposition.family(GAUGE).expect("wanted").series(),
            Err(Flaw::Absent { declared: false }),
            "{body:?}"
        );
        assert_eq!(
            exposition.family(HISTOGRAM).expect("wanted").histograms(),
            Err(Flaw::Absent { declared: false }),
            "{body:?}"
        );
        assert!(!exposition.holds("vllm:"), "{body:?}");
    }
}

#[test]
fn a_body_of_one_damaged_wanted_line_is_metrics_text() {
    not_usable("vllm:num_requests_running{engine=\"0\" 3\n", Damage::Malformed);
}
