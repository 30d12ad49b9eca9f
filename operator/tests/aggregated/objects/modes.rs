//! What each mode serves.

use http::Method;
use model_deployment_operator::server::objects::Mode;
use serde_json::{Value, json};

use super::{COLLECTION, OBJECT, is_passed, object};
use crate::api::{Answer, Asked, reply};
use crate::stage::{METRICS, Stage};

fn answer(asked: &Asked) -> Option<Answer> {
    is_passed(asked).then(|| reply(200, &object("v1alpha1")))
}

#[tokio::test]
async fn a_mode_serves_what_it_says() {
    for (mode, reads, writes) in [
        (Mode::Full, 200, 200),
        (Mode::ReadOnly, 200, 405),
        (Mode::Off, 405, 405),
    ] {
        let stage = Stage::of_mode(mode).await;
        stage.api.script(answer);
        if mode == Mode::Full {
            stage.until_writing().await;
        }
        let status = format!("{OBJECT}/status");
        for (method, path, code) in [
            (Method::GET, OBJECT, reads),
            (Method::HEAD, OBJECT, reads),
            (Method::GET, COLLECTION, reads),
            (Method::GET, &status, reads),
            (Method::DELETE, OBJECT, writes),
            (Method::DELETE, COLLECTION, writes),
            (Method::POST, COLLECTION, writes),
            (Method::PUT, OBJECT, writes),
            (Method::PUT, &status, writes),
            // In no mode.
            (Method::POST, &status, 405),
            (Method::DELETE, &status, 405),
            (Method::OPTIONS, OBJECT, 405),
            (Method::GET, METRICS, 200),
        ] {
            let headers = [("x-remote-user", "alice"), ("content-type", "application/json")];
            let answer = stage.front().write(method.clone(), path, &headers, "{}").await;
            assert_eq!(answer.code, code, "{mode:?} {method} {path}");
        }
        // Nothing is asked of the API server that is not needed: no token, no probe.
        let asked = stage.api.asked().iter().any(|asked| asked.path.ends_with("/token"));
        assert_eq!(asked, mode == Mode::Full);
    }
}

#[tokio::test]
async fn the_documents_say_what_the_mode_serves() {
    let paths = |document: &Value| -> Vec<(String, Vec<String>)> {
        let methods = |item: &Value| {
            item.as_object()
                .unwrap()
                .keys()
                .filter(|key| *key != "parameters")
                .cloned()
                .collect()
        };
        let items = document["paths"].as_object().unwrap();
        let prefix = "/apis/worker.gpustack.ai/v1";
        items
            .iter()
            .map(|(path, item)| (path.strip_prefix(prefix).unwrap().to_owned(), methods(item)))
            .collect()
    };
    let named = "/namespaces/{namespace}/modeldeployments";
    let full = json!([
        ["/modeldeployments", ["get"]],
        [named, ["delete", "get", "post"]],
        [format!("{named}/{{name}}"), ["delete", "get", "patch", "put"]],
        [format!("{named}/{{name}}/metrics"), ["get"]],
        [format!("{named}/{{name}}/status"), ["get", "patch", "put"]],
    ]);
    let read_only = json!([
        ["/modeldeployments", ["get"]],
        [named, ["get"]],
        [format!("{named}/{{name}}"), ["get"]],
        [format!("{named}/{{name}}/metrics"), ["get"]],
        [format!("{named}/{{name}}/status"), ["get"]],
    ]);
    let off = json!([[format!("{named}/{{name}}/metrics"), ["get"]]]);
    for (mode, expected) in [(Mode::Full, full), (Mode::ReadOnly, read_only), (Mode::Off, off)] {
        let stage = Stage::of_mode(mode).await;
        let index = stage.anyone().get("/openapi/v3", &[]).await.json();
        let url = index["paths"]["apis/worker.gpustack.ai/v1"]["serverRelativeURL"]
            .as_str()
            .unwrap()
            .to_owned();
        let document = stage.anyone().get(&url, &[]).await.json();
        let mut found = paths(&document);
        found.iter_mut().for_each(|(_, methods)| methods.sort());
        assert_eq!(json!(found), expected, "{mode:?}");
        let schemas = document["components"]["schemas"].as_object().unwrap();
        assert_eq!(
            schemas.contains_key("ai.gpustack.worker.v1.ModelDeployment"),
            mode != Mode::Off
        );
    }
}

/// kubectl looks in the OpenAPI document for a PATCH of the kind that takes `fieldValidation` and `dryRun`.
#[tokio::test]
async fn openapi_has_what_kubectl_looks_for() {
    let stage = Stage::bare().await;
    let document = stage
        .anyone()
        .get("/openapi/v3/apis/worker.gpustack.ai/v1", &[])
        .await
        .json();
    let gvk = json!({"group": "worker.gpustack.ai", "version": "v1", "kind": "ModelDeployment"});
    let patch =
        &document["paths"]["/apis/worker.gpustack.ai/v1/namespaces/{namespace}/modeldeployments/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"], gvk);
    let mut names: Vec<_> = patch["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|parameter| parameter["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let schema = &document["components"]["schemas"]["ai.gpustack.worker.v1.ModelDeployment"];
    assert_eq!(schema["x-kubernetes-group-version-kind"], json!([gvk]));
    // The definition's own schema.
    let definition = serde_json::to_value(model_deployment_crds::definition::definition()).unwrap();
    let declared = &definition["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"];
    let engine = |schema: &Value| schema["spec"]["properties"]["engine"].clone();
    assert_eq!(engine(&schema["properties"]), engine(declared));
    assert_eq!(schema["properties"]["status"], declared["status"]);
}

#[tokio::test]
async fn a_long_document_is_compressed_where_that_is_asked_for() {
    let stage = Stage::bare().await;
    let path = "/openapi/v3/apis/worker.gpustack.ai/v1";
    let plain = stage.anyone().get(path, &[]).await;
    assert_eq!(plain.header("content-encoding"), None);
    let asked = stage.anyone().get(path, &[("accept-encoding", "br;q=1, gzip")]).await;
    assert_eq!(asked.header("content-encoding"), Some("gzip"));
    assert_eq!(asked.header("etag"), plain.header("etag"));
    assert!(asked.body.len() * 2 < plain.body.len());
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&asked.body[..]), &mut text).unwrap();
    assert_eq!(text, plain.body);
    for refused in ["identity", "gzip;q=0"] {
        let answer = stage.anyone().get(path, &[("accept-encoding", refused)]).await;
        assert_eq!(answer.header("content-encoding"), None, "{refused}");
    }
    // Short ones are not worth it.
    let index = stage.anyone().get("/openapi/v3", &[("accept-encoding", "gzip")]).await;
    assert_eq!(index.header("content-encoding"), None);
}
