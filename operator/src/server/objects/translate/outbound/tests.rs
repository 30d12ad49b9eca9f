//! Bodies as the API server answers them. `@` marks where the version's name gives way.

use super::*;

/// `template` is known, and passes with `v1` for each `@` and with nothing else changed.
fn check(template: &str) {
    let translated = outbound(template.replace('@', "worker.gpustack.ai/v1alpha1").into());
    assert!(translated.known, "{template}");
    assert_eq!(translated.body, template.replace('@', "worker.gpustack.ai/v1"));
}

fn unknown(body: impl Into<Bytes>) {
    let body = body.into();
    let expected = Translated {
        body: body.clone(),
        known: false,
    };
    assert_eq!(outbound(body), expected);
}

const OBJECT: &str = r#"{"apiVersion":"@","kind":"ModelDeployment","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"worker.gpustack.ai/v1alpha1\",\"kind\":\"ModelDeployment\"}\n"},"creationTimestamp":"2026-11-30T20:00:00Z","generation":1,"managedFields":[{"apiVersion":"@","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{}}},"f:spec":{".":{},"f:roles":{"k:{\"name\":\"server\"}":{".":{},"f:name":{}}}}},"manager":"kubectl-client-side-apply","operation":"Update","time":"2026-11-30T20:00:00Z"},{"apiVersion":"autoscaling/v1","manager":"hpa","operation":"Update","subresource":"scale"},{"apiVersion":"@","manager":"model-deployment-operator","operation":"Apply","subresource":"status"},{"apiVersion":"worker.gpustack.ai/v1alpha2","manager":"a"}],"name":"chat","namespace":"default","ownerReferences":[{"apiVersion":"worker.gpustack.ai/v1alpha1","kind":"ModelDeployment","name":"parent","uid":"5e0"}],"resourceVersion":"1234","uid":"0d1"},"spec":{"apiVersion":"worker.gpustack.ai/v1alpha1","model":{"name":"worker.gpustack.ai/v1alpha1"},"roles":[{"name":"server","replicas":2}]},"status":{"conditions":[{"message":"worker.gpustack.ai/v1alpha1"}]}}"#;

/// Metadata as a Table and the metadata client have it.
const METADATA: &str = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"chat","namespace":"default","uid":"0d1","resourceVersion":"1234","annotations":{"a":"worker.gpustack.ai/v1alpha1"},"managedFields":[{"manager":"kubectl","operation":"Update","apiVersion":"@","time":"2026-11-30T20:00:00Z","fieldsType":"FieldsV1","fieldsV1":{}},{"manager":"hpa","apiVersion":"autoscaling/v1"}]}}"#;

fn table(version: &str, rows: &[&str]) -> String {
    format!(
        r#"{{"kind":"Table","apiVersion":"meta.k8s.io/{version}","metadata":{{"resourceVersion":"1234"}},"columnDefinitions":[{{"name":"Name","type":"string","format":"name","description":"worker.gpustack.ai/v1alpha1","priority":0}},{{"name":"Engine","type":"string","format":"","description":"","priority":0}}],"rows":[{}]}}
"#,
        rows.join(",")
    )
}

#[test]
fn an_object_is_renamed_at_its_own_api_version_and_its_managed_fields() {
    check(OBJECT);
    // `kind` before `apiVersion`, as typed clients write it, and after everything.
    check(r#"{"kind":"ModelDeployment","apiVersion":"@"}"#);
    check(r#"{"metadata":{"managedFields":[{"apiVersion":"@"}]},"apiVersion":"@","spec":{},"kind":"ModelDeployment"}"#);
}

#[test]
fn an_indented_object_stays_indented() {
    check(
        "{\n  \"apiVersion\": \"@\",\n  \"kind\": \"ModelDeployment\",\n  \"metadata\": {\n    \"managedFields\": [\n      {\n        \"apiVersion\": \"@\"\n      }\n    ]\n  },\n  \"spec\": {\n    \"a\": 1.0,\n    \"b\": 9223372036854775808,\n    \"c\": 1e400\n  }\n}",
    );
}

#[test]
fn a_list_is_renamed_with_its_items_and_its_metadata_is_not() {
    for items in [format!("[{OBJECT},{OBJECT}]"), "[]".into(), "null".into()] {
        check(&format!(
            r#"{{"apiVersion":"@","items":{items},"kind":"ModelDeploymentList","metadata":{{"continue":"eyJ2IjoibWV0YS5rOHMuaW8vdjEi","remainingItemCount":3,"resourceVersion":"1234","managedFields":[{{"apiVersion":"worker.gpustack.ai/v1alpha1"}}]}}}}
"#
        ));
    }
}

#[test]
fn a_list_of_2_mib_is_renamed_whole() {
    let count = 2 * 1024 * 1024 / OBJECT.len() + 1;
    let template = format!(
        r#"{{"apiVersion":"@","items":[{}],"kind":"ModelDeploymentList","metadata":{{"resourceVersion":"1"}}}}"#,
        vec![OBJECT; count].join(",")
    );
    assert!(template.len() > 2 * 1024 * 1024);
    check(&template);
}

#[test]
fn a_table_is_renamed_in_the_objects_of_its_rows() {
    let metadata = format!(r#"{{"cells":["chat","vLLM","worker.gpustack.ai/v1alpha1"],"object":{METADATA}}}"#);
    let whole = format!(r#"{{"cells":["chat"],"object":{OBJECT}}}"#);
    let none = r#"{"cells":["chat"],"object":null}"#;
    for version in ["v1", "v1beta1"] {
        check(&table(version, &[]));
        check(&table(version, &[&metadata, &metadata]));
        check(&table(version, &[&whole, none, r#"{"cells":[]}"#, &metadata]));
    }
    let other = r#"{"cells":[],"object":{"kind":"Pod","apiVersion":"v1"}}"#;
    let translated = outbound(
        table("v1", &[&metadata, other])
            .replace('@', "worker.gpustack.ai/v1alpha1")
            .into(),
    );
    assert!(!translated.known);
    assert_eq!(
        translated.body,
        table("v1", &[&metadata, other]).replace('@', "worker.gpustack.ai/v1")
    );
}

#[test]
fn of_metadata_alone_only_the_managed_fields_are_renamed() {
    check(METADATA);
    check(&format!(
        r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"1"}},"items":[{METADATA},{METADATA}]}}"#
    ));
    check(&METADATA.replace("meta.k8s.io/v1", "meta.k8s.io/v1beta1"));
}

#[test]
fn a_status_is_known_and_not_touched() {
    check(
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using worker.gpustack.ai/v1alpha1: .spec.roles","reason":"Conflict","details":{"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"kubectl-client-side-apply\" using worker.gpustack.ai/v1alpha1","field":".spec.roles"}]},"code":409}
"#,
    );
    check(
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"chat","group":"worker.gpustack.ai","kind":"modeldeployments","uid":"0d1"}}"#,
    );
}

#[test]
fn a_scale_is_known_and_not_touched() {
    check(
        r#"{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"managedFields":[{"apiVersion":"worker.gpustack.ai/v1alpha1"}]},"spec":{"replicas":1}}"#,
    );
}

#[test]
fn what_is_not_known_to_come_is_told_and_not_touched() {
    for body in [
        "",
        "404 page not found\n",
        "null",
        "[]",
        "{}",
        r#"{"apiVersion":"worker.gpustack.ai/v1alpha1"}"#,
        r#"{"kind":"ModelDeployment"}"#,
        r#"{"apiVersion":"worker.gpustack.ai/v1alpha1","kind":"Other","metadata":{"managedFields":[{"apiVersion":"worker.gpustack.ai/v1alpha1"}]}}"#,
        r#"{"apiVersion":"worker.gpustack.ai/v1","kind":"ModelDeployment","metadata":{"managedFields":[{"apiVersion":"worker.gpustack.ai/v1alpha1"}]}}"#,
        r#"{"apiVersion":"apps/v1","kind":"ModelDeployment"}"#,
        r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"worker.gpustack.ai/v1alpha1","kind":"ModelDeployment"}]}"#,
        r#"{"apiVersion":"worker.gpustack.ai/v1alpha1","kind":"ModelDeployment""#,
        r#"{"apiVersion":"worker.gpustack.ai/v1alpha1","kind":"ModelDeployment"}{}"#,
    ] {
        unknown(body);
    }
    unknown(&b"{\"apiVersion\":\"worker.gpustack.ai/v1alpha1\",\"kind\":\"ModelDeployment\",\"a\":\"\xff\"}"[..]);
}

#[test]
fn depth_costs_no_stack() {
    let nested = format!("{}{}", "[{\"a\":".repeat(100_000) + "1", "}]".repeat(100_000));
    check(&format!(
        r#"{{"apiVersion":"@","kind":"ModelDeployment","metadata":{{"managedFields":[{nested}]}},"spec":{nested}}}"#
    ));
    unknown("[".repeat(100_000));
}
