//! Bodies as kubectl, client-go and the API server's own controllers send them. `@` marks where the version's name gives way.

mod json_patch;
mod yaml;

use super::*;
use Inbound::*;

fn passed(kind: Inbound, body: impl Into<Bytes>) -> String {
    let body = body.into();
    let passed = inbound(kind, body.clone()).unwrap_or_else(|refused| panic!("{refused}: {body:?}"));
    String::from_utf8(passed.to_vec()).unwrap()
}

/// `template` passes with `v1alpha1` for each `@`, and with nothing else changed.
fn check(kind: Inbound, template: &str) {
    let body = template.replace('@', "worker.gpustack.ai/v1");
    assert_eq!(passed(kind, body), template.replace('@', "worker.gpustack.ai/v1alpha1"));
}

fn refused(kind: Inbound, body: impl Into<Bytes>) -> (u16, String) {
    let refused = inbound(kind, body.into()).expect_err("refused");
    (refused.code().as_u16(), refused.to_string())
}

/// What `kubectl apply` posts.
const APPLIED: &str = r#"{"apiVersion":"@","kind":"ModelDeployment","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"worker.gpustack.ai/v1\",\"kind\":\"ModelDeployment\",\"metadata\":{\"annotations\":{},\"name\":\"chat\",\"namespace\":\"default\"}}\n"},"name":"chat","namespace":"default","ownerReferences":[{"apiVersion":"worker.gpustack.ai/v1","kind":"ModelDeployment","name":"parent","uid":"5e0"}]},"spec":{"apiVersion":"worker.gpustack.ai/v1","engine":{"image":"vllm/vllm-openai:v0.11.0","name":"vLLM"},"model":{"name":"worker.gpustack.ai/v1"},"roles":[{"extraArgs":["worker.gpustack.ai/v1"],"name":"server"}]}}
"#;

#[test]
fn an_object_is_renamed_at_its_own_api_version_and_nowhere_else() {
    check(Object, APPLIED);
    check(YamlObject, APPLIED);
    check(ApplyPatch, APPLIED);
}

#[test]
fn managed_fields_of_this_version_are_renamed_and_others_are_not() {
    let template = r#"{"apiVersion":"@","kind":"ModelDeployment","metadata":{"managedFields":[{"apiVersion":"@","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:apiVersion":{},"apiVersion":"worker.gpustack.ai/v1"}},"manager":"kubectl-client-side-apply","operation":"Update","time":"2026-11-30T20:00:00Z"},{"apiVersion":"autoscaling/v1","manager":"hpa","operation":"Update","subresource":"scale"},{"apiVersion":"worker.gpustack.ai/v1alpha1","manager":"model-deployment-operator","operation":"Apply","subresource":"status"},{"manager":"apiVersion"},null,7],"name":"chat","resourceVersion":"7"},"managedFields":[{"apiVersion":"worker.gpustack.ai/v1"}]}"#;
    check(Object, template);
    check(YamlObject, template);
    check(MergePatch, template);
    // Upstream refuses an apply patch that has any.
    let apply = template.replace('@', "worker.gpustack.ai/v1");
    assert_eq!(
        passed(ApplyPatch, apply.clone()),
        apply.replacen("worker.gpustack.ai/v1\"", "worker.gpustack.ai/v1alpha1\"", 1)
    );
}

#[test]
fn an_object_of_another_version_is_refused_in_the_api_server_s_words() {
    for (version, shown) in [
        ("worker.gpustack.ai/v1alpha1", "worker.gpustack.ai/v1alpha1"),
        ("worker.gpustack.ai/v2", "worker.gpustack.ai/v2"),
        ("apps/v1", "apps/v1"),
        (" worker.gpustack.ai/v1", " worker.gpustack.ai/v1"),
        (r"worker.gpustack.ai\/v\u0032", "worker.gpustack.ai/v2"),
    ] {
        let json = format!(r#"{{"kind":"ModelDeployment","apiVersion":"{version}"}}"#);
        let yaml = format!("kind: ModelDeployment\napiVersion: '{shown}'\n");
        let expected = format!(
            "the API version in the data ({shown}) does not match the expected API version (worker.gpustack.ai/v1)"
        );
        assert_eq!(refused(Object, json.clone()), (400, expected.clone()));
        assert_eq!(refused(YamlObject, json.clone()), (400, expected.clone()));
        assert_eq!(refused(YamlObject, yaml.clone()), (400, expected));
        let expected = format!(
            "Incorrect version specified in apply patch. Specified patch version: {shown}, expected: worker.gpustack.ai/v1"
        );
        assert_eq!(refused(ApplyPatch, json), (400, expected.clone()));
        assert_eq!(refused(ApplyPatch, yaml), (400, expected));
    }
}

#[test]
fn an_api_version_that_is_none_is_left_for_upstream() {
    for body in [
        r#"{"kind":"ModelDeployment"}"#,
        r#"{"apiVersion":"","kind":"ModelDeployment"}"#,
        r#"{"apiVersion":null}"#,
        r#"{"apiVersion":1}"#,
        r#"{"apiVersion":{"apiVersion":"worker.gpustack.ai/v1"}}"#,
        "{}",
    ] {
        for kind in [Object, YamlObject, ApplyPatch, MergePatch] {
            assert_eq!(passed(kind, body), body);
        }
    }
    for body in [
        "",
        "kind: ModelDeployment\n",
        "apiVersion:\nkind: ModelDeployment\n",
        "apiVersion: ~\n",
        "apiVersion: ''\n",
    ] {
        for kind in [YamlObject, ApplyPatch] {
            assert_eq!(passed(kind, body), body);
        }
    }
}

#[test]
fn a_body_that_is_no_object_is_left_for_upstream() {
    for body in [
        "[]",
        "null",
        "7",
        "\"worker.gpustack.ai/v1\"",
        r#"[{"apiVersion":"worker.gpustack.ai/v1"}]"#,
    ] {
        for kind in [Object, YamlObject, ApplyPatch, MergePatch] {
            assert_eq!(passed(kind, body), body);
        }
    }
    assert_eq!(passed(JsonPatch, r#"{"op":"test"}"#), r#"{"op":"test"}"#);
    assert_eq!(passed(JsonPatch, r#"["op",1,null]"#), r#"["op",1,null]"#);
}

#[test]
fn each_of_repeated_keys_is_renamed_and_none_is_dropped() {
    check(
        Object,
        r#"{"apiVersion":"@","apiVersion":"@","a":1,"a":2,"metadata":{"managedFields":[{"apiVersion":"@","apiVersion":"@"}],"managedFields":[{"apiVersion":"@"}]},"metadata":{"managedFields":[{"apiVersion":"@"}]}}"#,
    );
    check(
        YamlObject,
        "apiVersion: @\na: 1\na: 2\napiVersion: \"@\"\nmetadata: {}\nmetadata:\n  managedFields: [{apiVersion: @, apiVersion: @}]\n",
    );
    let (code, _) = refused(Object, r#"{"apiVersion":"v1","apiVersion":"worker.gpustack.ai/v1"}"#);
    assert_eq!(code, 400);
}

#[test]
fn keys_and_values_spelled_with_escapes_are_read() {
    let body = r#"{"\u0061piVersion":"worker.gpustack.ai\/v1","m\u0065tadata":{"managed\u0046ields":[{"apiVersio\u006e":"\u0077orker.gpustack.ai/v1"}]},"\ud800":"\ud800"}"#;
    let renamed = r#"{"\u0061piVersion":"worker.gpustack.ai/v1alpha1","m\u0065tadata":{"managed\u0046ields":[{"apiVersio\u006e":"worker.gpustack.ai/v1alpha1"}]},"\ud800":"\ud800"}"#;
    assert_eq!(passed(Object, body), renamed);
    assert_eq!(passed(MergePatch, body), renamed);
}

#[test]
fn order_blanks_and_the_text_of_numbers_stay() {
    check(
        Object,
        " {\r\n\t\"spec\" : { \"z\":1.0, \"a\" : 9223372036854775808,\"b\":1e400,\"c\":-0.0,\"d\":1E+2 },\n \"apiVersion\" :\t\"@\" ,\"é🙂\":\"\\u00e9\"\n} \n",
    );
}

#[test]
fn a_body_that_is_not_what_it_says_is_refused() {
    for body in [
        "",
        "{",
        "{\"apiVersion\":\"worker.gpustack.ai/v1\"",
        "{\"apiVersion\":\"worker.gpustack.ai/v1\"}}",
        "apiVersion: worker.gpustack.ai/v1",
    ] {
        for kind in [Object, MergePatch, JsonPatch] {
            let (code, sentence) = refused(kind, body);
            assert_eq!(code, 400);
            assert!(sentence.starts_with("the body is not JSON: "), "{sentence}");
        }
    }
    for body in ["{", "a: [", "a: b: c", "apiVersion: \"", "*a", "\t- a: {"] {
        for kind in [YamlObject, ApplyPatch] {
            let (code, sentence) = refused(kind, body);
            assert_eq!(code, 400);
            assert!(sentence.starts_with("the body is not YAML: "), "{sentence}");
        }
    }
    for kind in [Object, YamlObject, MergePatch, JsonPatch, ApplyPatch] {
        assert_eq!(
            refused(kind, &b"{\"a\":\"\xff\"}"[..]),
            (400, "the body is not UTF-8".to_owned())
        );
    }
}

#[test]
fn more_than_3_mib_are_refused_before_they_are_read() {
    let most = format!("{{}}{}", " ".repeat(3 * 1024 * 1024 - 2));
    for kind in [Object, YamlObject, MergePatch, ApplyPatch, Untouched] {
        assert_eq!(passed(kind, most.clone()), most);
        let expected = (413, "Request entity too large: limit is 3145728".to_owned());
        assert_eq!(refused(kind, vec![b'{'; 3 * 1024 * 1024 + 1]), expected);
    }
}

#[test]
fn depth_is_bounded_and_costs_no_stack() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let object = |depth: usize| format!("{{\"a\":{}}}", nested(depth - 1));
    for kind in [Object, YamlObject, MergePatch, ApplyPatch] {
        assert_eq!(passed(kind, object(128)), object(128));
    }
    assert_eq!(passed(JsonPatch, nested(128)), nested(128));
    let expected = (400, "the body is nested more than 128 deep".to_owned());
    for kind in [Object, YamlObject, MergePatch, JsonPatch, ApplyPatch] {
        assert_eq!(refused(kind, object(129)), expected);
        assert_eq!(refused(kind, object(100_000)), expected);
        assert_eq!(refused(kind, format!("{{\"a\":{}", "[".repeat(100_000))).0, 400);
    }
    for body in [
        "[".repeat(100_000),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
        "a: {".repeat(100_000),
    ] {
        assert_eq!(refused(ApplyPatch, body).0, 400);
    }
}

#[test]
fn the_content_type_says_what_an_object_is() {
    for (content_type, kind) in [
        ("", Object),
        ("application/json", Object),
        ("application/json; charset=utf-8", Object),
        ("Application/JSON", Object),
        ("application/yaml", YamlObject),
    ] {
        assert_eq!(Inbound::object(content_type).unwrap(), kind, "{content_type}");
    }
    for content_type in [
        "application/cbor",
        "application/vnd.kubernetes.protobuf",
        "application/x-www-form-urlencoded",
        "application/merge-patch+json",
        "text/plain",
    ] {
        let refused = Inbound::object(content_type).unwrap_err();
        assert_eq!(refused.code(), 415);
        assert_eq!(
            refused.to_string(),
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml"
        );
    }
}

#[test]
fn the_content_type_says_what_a_patch_is() {
    for (content_type, kind) in [
        ("application/json-patch+json", JsonPatch),
        ("application/merge-patch+json", MergePatch),
        ("application/merge-patch+json; charset=UTF-8", MergePatch),
        ("application/apply-patch+yaml", ApplyPatch),
        ("application/strategic-merge-patch+json", Untouched),
    ] {
        assert_eq!(Inbound::patch(content_type).unwrap(), kind, "{content_type}");
    }
    for content_type in [
        "",
        "application/json",
        "application/apply-patch+cbor",
        "application/cbor",
        "application/yaml",
    ] {
        let refused = Inbound::patch(content_type).unwrap_err();
        assert_eq!(refused.code(), 415);
        assert_eq!(
            refused.to_string(),
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        );
    }
}

#[test]
fn a_merge_patch_may_have_any_version() {
    check(
        MergePatch,
        r#"{"apiVersion":"@","metadata":{"managedFields":[{"apiVersion":"@"}]},"spec":{"apiVersion":"worker.gpustack.ai/v1"}}"#,
    );
    for body in [
        r#"{"apiVersion":"worker.gpustack.ai/v2"}"#,
        r#"{"apiVersion":"worker.gpustack.ai/v1alpha1","metadata":null}"#,
        r#"{"metadata":{"managedFields":null}}"#,
        r#"{"metadata":{"managedFields":[{}],"annotations":{"apiVersion":"worker.gpustack.ai/v1"}}}"#,
    ] {
        assert_eq!(passed(MergePatch, body), body);
    }
}

#[test]
fn what_names_no_version_is_passed_on_untouched() {
    for body in [
        // The garbage collector's, the dynamic client's, and kubectl's.
        &br#"{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"0d1"},"propagationPolicy":"Background"}
"#[..],
        br#"{"kind":"DeleteOptions","apiVersion":"worker.gpustack.ai/v1","gracePeriodSeconds":0,"dryRun":["All"]}"#,
        br#"{"propagationPolicy":"Foreground"}"#,
        br#"{"kind":"Scale","apiVersion":"autoscaling/v1","spec":{"replicas":2}}"#,
        b"k8s\x00\n\x0c\n\x02v1\x12\x06Status\xff",
        b"",
    ] {
        let body = Bytes::from_static(body);
        assert_eq!(inbound(Untouched, body.clone()).unwrap(), body);
    }
}
