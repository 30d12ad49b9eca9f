//! JSON patches.

use super::*;

/// What `kubectl apply --server-side` sends first where an object was applied by the client before.
#[test]
fn the_patch_that_moves_fields_to_server_side_apply_is_renamed() {
    check(
        JsonPatch,
        r#"[{"op":"replace","path":"/metadata/managedFields","value":[{"manager":"kubectl","operation":"Apply","apiVersion":"@","time":"2026-11-30T20:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}},{"manager":"hpa","operation":"Update","apiVersion":"autoscaling/v1","fieldsType":"FieldsV1","fieldsV1":{},"subresource":"scale"}]},{"op":"replace","path":"/metadata/resourceVersion","value":"12345"}]"#,
    );
}

#[test]
fn the_operations_of_a_json_patch_that_name_the_version_are_renamed() {
    for op in ["add", "replace", "test"] {
        for operation in [
            r#""path":"/apiVersion","value":"@""#,
            r#""value":"@","path":"/apiVersion""#,
            r#""path":"/metadata/managedFields","value":[{"apiVersion":"@"},{"apiVersion":"apps/v1"}]"#,
            r#""path":"/metadata/managedFields/0","value":{"apiVersion":"@"}"#,
            r#""path":"/metadata/managedFields/-","value":{"apiVersion":"@"}"#,
            r#""path":"/metadata/managedFields/12/apiVersion","value":"@""#,
            r#""path":"","value":{"apiVersion":"@","kind":"ModelDeployment","metadata":{"managedFields":[{"apiVersion":"@"}]},"spec":{"apiVersion":"worker.gpustack.ai/v1"}}"#,
            r#""path":"/metadata","value":{"apiVersion":"worker.gpustack.ai/v1","managedFields":[{"apiVersion":"@"}]}"#,
            // Spelled with JSON's escapes, and repeated.
            r#""path":"\/apiVersion","value":"@""#,
            r#""path":"/spec","path":"/apiVersion","value":"@","value":"@""#,
            // The API server reads a pointer from its first slash on.
            r#""path":"x/apiVersion","value":"@""#,
        ] {
            check(
                JsonPatch,
                &format!(r#"[ {{"op":"{op}",{operation}}}, {{"op":"remove","path":"/spec/router"}} ]"#),
            );
        }
    }
    check(
        JsonPatch,
        r#"[{"op":"test","path":"/apiVersion","value":"@"},{"\u006fp":"add","path":"/apiVersion","value":"@"}]"#,
    );
}

#[test]
fn operations_of_a_json_patch_on_anything_else_are_not_touched() {
    for operation in [
        r#"{"op":"replace","path":"/spec/model/name","value":"worker.gpustack.ai/v1"}"#,
        r#"{"op":"add","path":"/spec/apiVersion","value":"worker.gpustack.ai/v1"}"#,
        r#"{"op":"add","path":"/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration","value":"{\"apiVersion\":\"worker.gpustack.ai/v1\"}"}"#,
        r#"{"op":"add","path":"/metadata~1managedFields","value":[{"apiVersion":"worker.gpustack.ai/v1"}]}"#,
        r#"{"op":"add","path":"/~0apiVersion","value":"worker.gpustack.ai/v1"}"#,
        r#"{"op":"add","path":"/apiVersion/","value":"worker.gpustack.ai/v1"}"#,
        r#"{"op":"add","path":"//apiVersion","value":"worker.gpustack.ai/v1"}"#,
        r#"{"op":"add","path":"/metadata/ownerReferences/0/apiVersion","value":"worker.gpustack.ai/v1"}"#,
        r#"{"op":"add","path":"/metadata/managedFields/0/fieldsV1/apiVersion","value":"worker.gpustack.ai/v1"}"#,
        r#"{"op":"add","path":"/metadata/managedFields/0/apiVersion/x","value":"worker.gpustack.ai/v1"}"#,
        r#"{"op":"add","path":["/apiVersion"],"value":"worker.gpustack.ai/v1"}"#,
        r#"{"op":"add","value":"worker.gpustack.ai/v1"}"#,
        r#"{"op":"add","path":"/apiVersion","path":"/spec","value":"worker.gpustack.ai/v1"}"#,
        r#"{"op":"move","from":"/apiVersion","path":"/apiVersion","value":"worker.gpustack.ai/v1"}"#,
        r#"{"op":"copy","from":"/spec","path":"/metadata","value":{"managedFields":[{"apiVersion":"worker.gpustack.ai/v1"}]}}"#,
        r#"{"op":"remove","path":"/apiVersion","value":"worker.gpustack.ai/v1"}"#,
        r#"{"op":"ADD","path":"/apiVersion","value":"worker.gpustack.ai/v1"}"#,
        r#"{"path":"/apiVersion","value":"worker.gpustack.ai/v1"}"#,
        r#"{"op":"replace","path":"/apiVersion","value":"apps/v1"}"#,
    ] {
        let patch = format!("[{operation}]");
        assert_eq!(passed(JsonPatch, patch.clone()), patch);
    }
}
