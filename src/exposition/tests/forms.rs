//! Forms that must be accepted.

use super::*;

/// The body's gauge is one series without labels and with this value.
fn is_plain(body: &str, value: f64) {
    assert_eq!(gauge(body), Ok(vec![written(&[], value)]), "{body:?}");
}

/// The body's gauge is one series with `engine="0"` and this value.
fn is_engine(body: &str, value: f64) {
    assert_eq!(gauge(body), Ok(vec![written(&[("engine", "0")], value)]), "{body:?}");
}

/// The text between the quotes of a label is read as this value.
fn is_label(text: &str, value: &str) {
    let body = format!("{GAUGE}{{model_name=\"{text}\",engine=\"0\"}} 3\n");
    assert_eq!(
        gauge(&body),
        Ok(vec![written(&[("engine", "0"), ("model_name", value)], 3.0)]),
        "{text:?}"
    );
}

#[test]
fn lines_that_end_in_crlf() {
    is_engine(
        "# TYPE vllm:num_requests_running gauge\r\nvllm:num_requests_running{engine=\"0\"} 3\r\n",
        3.0,
    );
}

/// At the start of the body, and where bodies were joined.
#[test]
fn a_byte_order_mark() {
    let body =
        "\u{FEFF}vllm:num_requests_running{engine=\"1\"} 5\r\n\u{FEFF}vllm:num_requests_running{engine=\"0\"} 1\n";
    assert_eq!(
        gauge(body),
        Ok(vec![written(&[("engine", "0")], 1.0), written(&[("engine", "1")], 5.0)])
    );
    is_plain("\u{FEFF}vllm:num_requests_running 3", 3.0);
    assert_eq!(
        gauge("\u{FEFF}# TYPE vllm:num_requests_running counter\nvllm:num_requests_running 3\n"),
        Err(Flaw::OtherType("counter"))
    );
    assert_eq!(gauge("\u{FEFF}\n"), Err(Flaw::Absent { declared: false }));
}

#[test]
fn a_missing_last_newline() {
    is_engine("vllm:num_requests_running{engine=\"0\"} 12", 12.0);
}

#[test]
fn blank_lines() {
    is_plain("\n\n  \n\t\nvllm:num_requests_running 3\n\n\n", 3.0);
}

#[test]
fn help_and_type_absent() {
    is_plain("vllm:num_requests_running 3\n", 3.0);
}

#[test]
fn help_and_type_of_another_name() {
    is_plain(
        "# HELP vllm:other x\n# TYPE vllm:other histogram\nvllm:num_requests_running 3\n",
        3.0,
    );
}

#[test]
fn help_and_type_repeated() {
    let header = "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n";
    is_plain(&format!("{header}{header}vllm:num_requests_running 3\n{header}"), 3.0);
}

#[test]
fn type_after_its_samples() {
    is_plain(
        "vllm:num_requests_running 3\n# TYPE vllm:num_requests_running gauge\n",
        3.0,
    );
}

#[test]
fn families_interleaved() {
    let body = "vllm:num_requests_running{engine=\"0\"} 1\nvllm:prefix_cache_hits_total 7\nvllm:num_requests_running{engine=\"1\"} 2\n";
    assert_eq!(
        gauge(body),
        Ok(vec![written(&[("engine", "0")], 1.0), written(&[("engine", "1")], 2.0)])
    );
    assert_eq!(series(body, COUNTER), Ok(vec![written(&[], 7.0)]));
}

#[test]
fn a_family_without_samples_is_absent_and_declared() {
    let body = "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\nvllm:other 1\n";
    assert_eq!(gauge(body), Err(Flaw::Absent { declared: true }));
    assert_eq!(
        gauge("# HELP vllm:num_requests_running x\n"),
        Err(Flaw::Absent { declared: true })
    );
    assert_eq!(gauge("vllm:other 1\n"), Err(Flaw::Absent { declared: false }));
}

#[test]
fn label_sets_that_differ_within_a_family() {
    let body = "vllm:num_requests_running 1\nvllm:num_requests_running{a=\"x\"} 2\nvllm:num_requests_running{a=\"x\",b=\"y\"} 4\n";
    let expected = vec![
        written(&[], 1.0),
        written(&[("a", "x")], 2.0),
        written(&[("a", "x"), ("b", "y")], 4.0),
    ];
    assert_eq!(gauge(body), Ok(expected));
}

#[test]
fn a_label_with_an_empty_value_is_none() {
    is_plain(
        "vllm:num_requests_running{engine=\"\"} 3\nvllm:num_requests_running 3\n",
        3.0,
    );
    is_engine("vllm:num_requests_running{engine=\"0\",model_name=\"\"} 3\n", 3.0);
    assert_eq!(
        gauge("vllm:num_requests_running{engine=\"\"} 3\nvllm:num_requests_running 4\n"),
        Err(Flaw::NotUsable(Damage::Repeated))
    );
}

#[test]
fn empty_braces() {
    is_plain("vllm:num_requests_running{} 3\n", 3.0);
    is_plain("vllm:num_requests_running { } 3\n", 3.0);
}

#[test]
fn a_trailing_comma() {
    is_engine("vllm:num_requests_running{engine=\"0\",} 3\n", 3.0);
    is_engine("vllm:num_requests_running{engine=\"0\" , } 3\n", 3.0);
}

#[test]
fn several_blanks_or_tabs_between_tokens() {
    is_engine(
        " \tvllm:num_requests_running \t{ \tengine \t= \t\"0\" \t}  \t 3 \t \n",
        3.0,
    );
    is_plain("vllm:num_requests_running\t3\t1700000000000\n", 3.0);
}

#[test]
fn blanks_after_commas() {
    let body = "vllm:num_requests_running{engine=\"0\", model_name=\"m\",\tx=\"y\"} 3\n";
    assert_eq!(
        gauge(body),
        Ok(vec![written(&[("engine", "0"), ("model_name", "m"), ("x", "y")], 3.0)])
    );
}

#[test]
fn no_blank_after_the_closing_brace() {
    is_engine("vllm:num_requests_running{engine=\"0\"}3\n", 3.0);
}

#[test]
fn timestamps() {
    is_plain("vllm:num_requests_running 3 1395066363000\n", 3.0);
    is_plain("vllm:num_requests_running 3 -3982045\n", 3.0);
    is_plain("vllm:num_requests_running 3 1395066363.123\n", 3.0);
}

#[test]
fn exemplars() {
    let exemplar = "# {trace_id=\"a} # b\\\"\"} 0.67 1520879607.789";
    let body = format!("{HISTOGRAM}_bucket{{le=\"1\"}} 8 {exemplar}\n{HISTOGRAM}_sum 3\n{HISTOGRAM}_count 8\n");
    let histograms = histograms(body).expect("a histogram");
    assert_eq!(buckets(&histograms[0].1), [(1.0, 8.0)]);
    assert_eq!(
        series(format!("{COUNTER} 7 1520879607 {exemplar}\n"), COUNTER),
        Ok(vec![written(&[], 7.0)])
    );
    assert_eq!(
        series(format!("{COUNTER} 7 # {{}} 1\n"), COUNTER),
        Ok(vec![written(&[], 7.0)])
    );
}

#[test]
fn the_end_mark_of_openmetrics() {
    is_plain("vllm:num_requests_running 3\n# EOF\n", 3.0);
    is_plain("vllm:num_requests_running 3\n# EOF", 3.0);
}

#[test]
fn signs_of_the_format_inside_label_values() {
    is_label("a}b", "a}b");
    is_label("a} 7", "a} 7");
    is_label("a,b=", "a,b=");
    is_label("a # b", "a # b");
    is_label("{a=", "{a=");
    is_label(" ", " ");
    is_label("räksmörgås 大", "räksmörgås 大");
}

#[test]
fn escapes_inside_label_values() {
    is_label(r#"a\"b"#, "a\"b");
    is_label(r#"a\"} 7"#, "a\"} 7");
    is_label(r"a\\", r"a\");
    is_label(r#"a\\\""#, "a\\\"");
    is_label(r"a\nb", "a\nb");
    is_label(r"\\n", r"\n");
}

#[test]
fn a_backslash_that_escapes_nothing_stands_for_itself() {
    is_label(r"C:\dir", r"C:\dir");
    is_label(r"\d\\\d", r"\d\\d");
}

#[test]
fn a_carriage_return_inside_a_label_value() {
    is_label("a\rb", "a\rb");
    is_label("\\\r", "\\\r");
}

#[test]
fn exponent_forms() {
    is_plain("vllm:num_requests_running 1.5e-06\n", 0.000_001_5);
    is_plain("vllm:num_requests_running 1E4\n", 10_000.0);
    is_plain("vllm:num_requests_running 4.83469312e+09\n", 4_834_693_120.0);
}

#[test]
fn numbers_without_a_digit_on_one_side_of_the_point() {
    is_plain("vllm:num_requests_running .5\n", 0.5);
    is_plain("vllm:num_requests_running +.5\n", 0.5);
    is_plain("vllm:num_requests_running 5.\n", 5.0);
}

#[test]
fn infinities_and_nan_are_numbers_though_no_figures() {
    for number in ["+Inf", "Inf", "-Inf", "inf", "Infinity", "NaN", "nan", "1e400"] {
        let flaw = gauge(format!("vllm:num_requests_running {number}\n")).expect_err(number);
        assert_eq!(flaw, Flaw::NotUsable(Damage::NotFinite), "{number}");
    }
}

#[test]
fn infinity_as_a_bound() {
    let body = format!(
        "{HISTOGRAM}_sum 3\n{HISTOGRAM}_count 8\n{HISTOGRAM}_bucket{{le=\"+Inf\"}} 8\n{HISTOGRAM}_bucket{{le=\"1e0\"}} 2\n"
    );
    assert_eq!(
        buckets(&histograms(body).expect("a histogram")[0].1),
        [(1.0, 2.0), (f64::INFINITY, 8.0)]
    );
}

#[test]
fn integers_past_two_to_the_53rd() {
    // 2^53 + 1 lies between two numbers of 64 bits; the even one is 2^53. The last one is past 64-bit integers.
    is_plain("vllm:num_requests_running 9007199254740993\n", 9_007_199_254_740_992.0);
    is_plain(
        "vllm:num_requests_running 9223372036854775807\n",
        9.223_372_036_854_776e18,
    );
    is_plain(
        "vllm:num_requests_running 18446744073709551616\n",
        18_446_744_073_709_551_616.0,
    );
}

#[test]
fn created_lines() {
    let body = "# TYPE vllm:prefix_cache_hits counter\nvllm:prefix_cache_hits_total 7\nvllm:prefix_cache_hits_created 1.796e+09\n";
    assert_eq!(series(body, COUNTER), Ok(vec![written(&[], 7.0)]));
    let body = format!("{HISTOGRAM}_count 8\n{HISTOGRAM}_sum 3\n{HISTOGRAM}_created nonsense\n");
    assert_eq!(histograms(body).expect("a histogram").len(), 1);
}

#[test]
fn a_histogram_without_buckets_and_its_count_before_its_sum() {
    let body = format!(
        "# TYPE {HISTOGRAM} histogram\n{HISTOGRAM}_count{{engine=\"0\"}} 8\n{HISTOGRAM}_sum{{engine=\"0\"}} 2.5\n"
    );
    let histograms = histograms(body).expect("a histogram");
    assert_eq!(
        histograms,
        [(
            [("engine", "0")].into_iter().collect(),
            Histogram {
                sum: 2.5,
                count: 8.0,
                buckets: Some([].into())
            }
        )]
    );
}

#[test]
fn the_counter_of_openmetrics_is_declared_without_its_total() {
    let body = "# TYPE vllm:prefix_cache_hits counter\n# UNIT vllm:prefix_cache_hits tokens\nvllm:prefix_cache_hits_total 7.0\n# EOF\n";
    assert_eq!(series(body, COUNTER), Ok(vec![written(&[], 7.0)]));
    assert_eq!(
        series("# TYPE vllm:prefix_cache_hits counter\n", COUNTER),
        Err(Flaw::Absent { declared: true })
    );
}

#[test]
fn names_in_quotes() {
    is_engine(
        "# TYPE \"vllm:num_requests_running\" gauge\n{\"vllm:num_requests_running\",engine=\"0\"} 3\n",
        3.0,
    );
    is_engine("{ \"vllm:num_requests_running\" , \"engine\"=\"0\" } 3\n", 3.0);
    is_plain("{\"vllm:num_requests_running\"} 3\n", 3.0);
}

#[test]
fn exact_names_only() {
    let body = "vllm:num_requests_running_by_reason 1\nvllm:external_prefix_cache_hits_total 2\nray_vllm:num_requests_running 3\n\
                vllm_num_requests_running 4\nvllm:num_requests_running_created 5\nvllm:prefix_cache_hits 6\nVLLM:num_requests_running 7\n";
    assert_eq!(gauge(body), Err(Flaw::Absent { declared: false }));
    assert_eq!(series(body, COUNTER), Err(Flaw::Absent { declared: false }));
}

#[test]
fn bytes_that_are_no_utf8_in_another_line() {
    let mut body = b"vllm:other{a=\"\xff\xfe\"} 1\n# HELP \xc3\x28 x\n\xff\n".to_vec();
    body.extend_from_slice(b"vllm:num_requests_running 3\n");
    assert_eq!(gauge(body), Ok(vec![written(&[], 3.0)]));
}

#[test]
fn broken_lines_of_others() {
    is_plain(
        "vllm:other{a=\"b 1\nvllm:other} 2 3 4 5\n}{\n= 3\nvllm:num_requests_running 3\n<html>\n",
        3.0,
    );
}

#[test]
fn types_that_neither_format_has() {
    is_plain(
        "# TYPE vllm:other foo\nvllm:other 1\n# TYPE vllm:info info\nvllm:num_requests_running 3\n",
        3.0,
    );
    is_plain(
        "# TYPE vllm:num_requests_running unknown\nvllm:num_requests_running 3\n",
        3.0,
    );
    is_plain(
        "# TYPE vllm:num_requests_running untyped\nvllm:num_requests_running 3\n",
        3.0,
    );
}

#[test]
fn comments_of_any_form() {
    is_plain(
        "#\n#x\n# HELPER vllm:num_requests_running\n# TYPE\n# HELP\n#TYPE vllm:other gauge\nvllm:num_requests_running 3\n",
        3.0,
    );
    is_plain(
        "# HELP vllm:other says:\\nvllm:num_requests_running 4\nvllm:num_requests_running 3\n",
        3.0,
    );
}
