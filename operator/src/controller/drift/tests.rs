use serde_json::json;

use super::*;

/// A Service as it is rendered, as it lives, and what an API server (1.37) noted as ours after it was applied.
fn service() -> (Value, Value, Value) {
    let rendered = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "chat", "namespace": "default", "labels": {"app.kubernetes.io/name": "model-deployment"},
            "ownerReferences": [{"apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment", "name": "chat", "uid": "u1", "controller": true}],
        },
        "spec": {"type": "ClusterIP", "selector": {"a": "b"}, "ports": [{"name": "http", "port": 8000, "targetPort": 8000}]},
    });
    let live = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "chat", "namespace": "default", "uid": "u2", "resourceVersion": "7",
            "labels": {"app.kubernetes.io/name": "model-deployment", "team": "own"},
            "ownerReferences": [{"apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment", "name": "chat", "uid": "u1", "controller": true}],
        },
        "spec": {
            "type": "ClusterIP", "selector": {"a": "b"}, "clusterIP": "10.96.0.9",
            "ports": [{"name": "http", "port": 8000, "targetPort": 8000, "protocol": "TCP"}],
        },
        "status": {"loadBalancer": {}},
    });
    let claims = json!({
        "f:metadata": {
            "f:labels": {"f:app.kubernetes.io/name": {}},
            "f:ownerReferences": {"k:{\"uid\":\"u1\"}": {}},
        },
        "f:spec": {
            "f:ports": {"k:{\"port\":8000,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}, "f:targetPort": {}}},
            "f:selector": {},
            "f:type": {},
        },
    });
    (rendered, live, claims)
}

#[test]
fn defaults_status_and_fields_of_others_are_no_drift() {
    let (rendered, live, claims) = service();
    assert!(holds(&rendered, &live, &claims));
}

#[test]
fn a_field_that_somebody_took_over_is_drift() {
    let (rendered, live, mut claims) = service();
    let port = claims
        .pointer_mut("/f:spec/f:ports/k:{\"port\":8000,\"protocol\":\"TCP\"}")
        .unwrap();
    port.as_object_mut().unwrap().remove("f:targetPort");
    assert!(!holds(&rendered, &live, &claims));
    assert!(!holds(&rendered, &live, &json!({})));
}

#[test]
fn a_value_that_is_not_the_rendered_one_is_drift() {
    for (path, value) in [
        ("/spec/selector/a", json!("c")),
        ("/spec/ports/0/targetPort", json!(9)),
        ("/metadata/labels", json!({})),
    ] {
        let (rendered, mut live, claims) = service();
        *live.pointer_mut(path).unwrap() = value;
        assert!(!holds(&rendered, &live, &claims), "{path}");
    }
}

#[test]
fn a_field_or_an_item_that_is_not_rendered_any_more_is_drift() {
    let (mut rendered, live, claims) = service();
    rendered["spec"].as_object_mut().unwrap().remove("type");
    assert!(!holds(&rendered, &live, &claims));
    let (mut rendered, live, claims) = service();
    rendered["spec"]["ports"] = json!([]);
    assert!(!holds(&rendered, &live, &claims));
    let (mut rendered, live, claims) = service();
    rendered["spec"]["ports"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "more", "port": 9}));
    assert!(!holds(&rendered, &live, &claims));
}

#[test]
fn only_what_we_applied_to_the_object_itself_is_ours() {
    let entry = |manager: &str, operation: &str, subresource: Option<&str>, fields: Value| json!({"manager": manager, "operation": operation, "subresource": subresource, "fieldsType": "FieldsV1", "fieldsV1": fields});
    let mut metadata: ObjectMeta = serde_json::from_value(json!({"managedFields": [
        entry("kubectl", "Update", None, json!({"f:spec": {}})),
        entry("ours", "Update", None, json!({"f:metadata": {}})),
        entry("ours", "Apply", Some("status"), json!({"f:status": {}})),
        entry("ours", "Apply", None, json!({"f:data": {}})),
    ]}))
    .unwrap();
    assert_eq!(claims(&metadata, "ours"), Some(&json!({"f:data": {}})));
    assert_eq!(claims(&metadata, "theirs"), None);
    keep_claims(&mut metadata, "ours");
    assert_eq!(metadata.managed_fields.unwrap().len(), 3);
}
