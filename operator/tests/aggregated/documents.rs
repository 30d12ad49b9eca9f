//! Discovery, OpenAPI, version and health: for everyone, whatever else is down.

use http::Method;
use serde_json::{Value, json};

use crate::stage::Stage;

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What the API server's discovery aggregator sends.
const AGGREGATOR: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// kubernetes/kubernetes#60807, #75788: a discovery document that fails blocks every namespace deletion.
#[tokio::test]
async fn documents_are_served_while_everything_else_is_down() {
    let stage = Stage::new().await;
    let reviews = stage.api.reviews().len();
    stage.api.set_down(true);
    for path in [
        "/apis",
        "/apis/worker.gpustack.ai",
        "/apis/worker.gpustack.ai/v1",
        "/openapi/v3",
        "/openapi/v3/apis/worker.gpustack.ai/v1",
        "/version",
        "/healthz",
        "/livez",
        "/readyz",
        "/readyz?verbose",
        "/readyz/ping",
    ] {
        let answer = stage.anyone().get(path, &[]).await;
        assert_eq!(answer.code, 200, "{path}");
        // Forged headers change nothing.
        let answer = stage.anyone().get(path, &[("x-remote-user", "admin")]).await;
        assert_eq!(answer.code, 200, "{path}");
    }
    assert_eq!(stage.api.reviews().len(), reviews);
}

#[tokio::test]
async fn aggregated_discovery_is_as_the_aggregator_wants_it() {
    let stage = Stage::bare().await;
    let answer = stage.anyone().get("/apis", &[("accept", AGGREGATOR)]).await;
    assert_eq!(answer.code, 200);
    assert_eq!(answer.header("content-type"), Some(V2));
    assert_eq!(answer.header("vary"), Some("Accept"));
    assert_eq!(answer.header("cache-control"), Some("public"));
    let list = answer.json();
    assert_eq!(list["kind"], "APIGroupDiscoveryList");
    assert_eq!(list["apiVersion"], "apidiscovery.k8s.io/v2");
    assert_eq!(list["items"][0]["metadata"]["name"], "worker.gpustack.ai");
    assert_eq!(list["items"].as_array().unwrap().len(), 1);

    let tag = answer.header("etag").unwrap();
    assert_eq!(tag.len(), 130, "a quoted SHA-512: {tag}");
    for held in [tag.to_owned(), format!("\"other\", {tag}"), format!("W/{tag}")] {
        let answer = stage
            .anyone()
            .get("/apis", &[("accept", AGGREGATOR), ("if-none-match", &held)])
            .await;
        assert_eq!(answer.code, 304, "{held}");
        assert!(answer.body.is_empty());
        assert_eq!(answer.header("etag"), Some(tag));
    }
    let answer = stage
        .anyone()
        .get("/apis", &[("accept", AGGREGATOR), ("if-none-match", "\"other\"")])
        .await;
    assert_eq!(answer.code, 200);
    // The tag of one form is not the tag of the other.
    let answer = stage.anyone().get("/apis", &[("if-none-match", tag)]).await;
    assert_eq!(answer.code, 200);
}

#[tokio::test]
async fn legacy_discovery_names_the_group_the_version_and_the_resources() {
    let stage = Stage::bare().await;
    let groups = stage.anyone().get("/apis", &[]).await.json();
    let version = json!({"groupVersion": "worker.gpustack.ai/v1", "version": "v1"});
    let group = json!({"name": "worker.gpustack.ai", "versions": [version], "preferredVersion": version});
    assert_eq!(
        groups,
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]})
    );

    let answer = stage.anyone().get("/apis/worker.gpustack.ai", &[]).await.json();
    assert_eq!(
        (&answer["kind"], &answer["name"]),
        (&json!("APIGroup"), &json!("worker.gpustack.ai"))
    );

    let resources = stage.anyone().get("/apis/worker.gpustack.ai/v1", &[]).await.json();
    assert_eq!(resources["kind"], "APIResourceList");
    assert_eq!(resources["groupVersion"], "worker.gpustack.ai/v1");
    let all = [
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "create",
        "update",
        "watch",
    ];
    assert_eq!(
        resources["resources"],
        json!([
            {
                "name": "modeldeployments", "singularName": "modeldeployment", "namespaced": true, "kind": "ModelDeployment",
                "verbs": all, "shortNames": ["md"], "categories": ["gpustack"],
            },
            {
                "name": "modeldeployments/status", "singularName": "", "namespaced": true, "kind": "ModelDeployment",
                "verbs": ["get", "patch", "update"],
            },
            {
                "name": "modeldeployments/metrics", "singularName": "", "namespaced": true, "kind": "ModelDeploymentMetrics",
                "verbs": ["get"],
            },
        ])
    );
}

#[tokio::test]
async fn openapi_lists_our_version_alone_and_keeps_under_its_hash() {
    let stage = Stage::bare().await;
    let index = stage.anyone().get("/openapi/v3", &[]).await.json();
    let paths = index["paths"].as_object().unwrap();
    assert_eq!(paths.keys().collect::<Vec<_>>(), ["apis/worker.gpustack.ai/v1"]);
    let url = paths["apis/worker.gpustack.ai/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    let (path, hash) = url.split_once("?hash=").unwrap();
    assert_eq!(path, "/openapi/v3/apis/worker.gpustack.ai/v1");
    assert_eq!(hash.len(), 128);

    let answer = stage.anyone().get(url, &[]).await;
    assert_eq!(answer.code, 200);
    assert_eq!(answer.header("cache-control"), Some("public, immutable"));
    assert!(answer.header("expires").unwrap().ends_with(" GMT"));
    assert_eq!(answer.header("etag"), Some(format!("\"{hash}\"").as_str()));
    // A redirect, which upstream answers a wrong hash with, does not survive the aggregator.
    for wrong in [path.to_owned(), format!("{path}?hash=00")] {
        let answer = stage.anyone().get(&wrong, &[]).await;
        assert_eq!(answer.code, 200, "{wrong}");
        assert_eq!(answer.header("cache-control"), Some("no-cache, private"), "{wrong}");
        assert_eq!(answer.header("expires"), None, "{wrong}");
    }
    let answer = stage
        .anyone()
        .get(url, &[("if-none-match", &format!("\"{hash}\""))])
        .await;
    assert_eq!(answer.code, 304);
    let protobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
    assert_eq!(stage.anyone().get(url, &[("accept", protobuf)]).await.code, 406);
}

#[tokio::test]
async fn every_reference_of_the_openapi_document_leads_somewhere() {
    let stage = Stage::bare().await;
    let document = stage
        .anyone()
        .get("/openapi/v3/apis/worker.gpustack.ai/v1", &[])
        .await
        .json();
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    match value {
                        Value::String(target) if key == "$ref" => found.push(target.clone()),
                        value => references(value, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    fn nulls(value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Object(members) => {
                members.get("nullable").is_some_and(|nullable| nullable == true) || members.values().any(nulls)
            }
            Value::Array(items) => items.iter().any(nulls),
            _ => false,
        }
    }
    assert!(!nulls(&document), "nothing is ever written as null");
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(!found.is_empty());
    for target in found {
        assert!(
            document.pointer(target.strip_prefix('#').unwrap()).is_some(),
            "{target}"
        );
    }
    let path = "/apis/worker.gpustack.ai/v1/namespaces/{namespace}/modeldeployments/{name}/metrics";
    assert_eq!(document["openapi"], "3.0.0");
    assert_eq!(
        document["paths"][path]["get"]["x-kubernetes-group-version-kind"],
        json!({"group": "worker.gpustack.ai", "version": "v1", "kind": "ModelDeploymentMetrics"})
    );
}

#[tokio::test]
async fn what_is_not_served_is_a_status_and_never_a_redirect() {
    let stage = Stage::bare().await;
    for path in [
        "/",
        "/api",
        "/apis/",
        "/openapi/v2",
        "/metrics",
        "/apis/worker.gpustack.ai/v1/",
        "/apis/worker.gpustack.ai/v1alpha1",
        "/healthz/etcd",
    ] {
        let answer = stage.anyone().get(path, &[]).await;
        assert_eq!(answer.code, 404, "{path}");
        answer.message();
    }
    for (method, path) in [
        (Method::POST, "/apis"),
        (Method::OPTIONS, "/version"),
        (Method::DELETE, "/healthz"),
    ] {
        let answer = stage.anyone().send(method.clone(), path, &[]).await;
        assert_eq!(answer.code, 405, "{method} {path}");
        assert_eq!(answer.header("allow"), Some("GET, HEAD"));
        answer.message();
    }
    for accept in ["application/vnd.kubernetes.protobuf", "application/yaml"] {
        assert_eq!(
            stage.anyone().get("/apis", &[("accept", accept)]).await.code,
            406,
            "{accept}"
        );
    }
}

#[tokio::test]
async fn version_names_this_program() {
    let stage = Stage::bare().await;
    let version = stage.anyone().get("/version", &[]).await.json();
    assert_eq!(version["gitVersion"], format!("v{}", env!("CARGO_PKG_VERSION")));
    assert_eq!(version["major"], "0");
}
