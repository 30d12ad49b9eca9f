//! The end of the operator's namespace, against a played API server.

use http::Method;
use model_deployment_operator::namespace::{self, Config};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::api::Api;

const NAMESPACE: &str = "/api/v1/namespaces/sys";
const API_SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1.worker.gpustack.ai";

struct Guard(JoinHandle<()>);

impl Guard {
    fn start(api: &Api) -> Self {
        let config = Config {
            namespace: "sys".into(),
            service: "op".into(),
            api_service: "v1.worker.gpustack.ai".into(),
        };
        Guard(tokio::spawn(namespace::guard(api.client(), config)))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn live() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"uid": "namespace"}})
}

fn ending() -> Value {
    let mut namespace = live();
    namespace["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
    namespace
}

fn leading_to(namespace: &str, service: &str) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {},
        "spec": {
            "group": "worker.gpustack.ai", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
            "service": {"namespace": namespace, "name": service},
        },
    })
}

/// A cluster with the operator installed in a live namespace, which the guard has seen.
async fn installed() -> (Api, Guard) {
    let api = Api::new();
    api.put(NAMESPACE, live());
    api.put(API_SERVICE, leading_to("sys", "op"));
    let guard = Guard::start(&api);
    // A list and a watch.
    api.until("the namespace is watched", |api| {
        api.asked()
            .iter()
            .filter(|asked| asked.path == "/api/v1/namespaces")
            .count()
            >= 2
    })
    .await;
    (api, guard)
}

fn deletions(api: &Api) -> Vec<Value> {
    let asked = api.asked().into_iter();
    asked
        .filter(|asked| asked.method == Method::DELETE)
        .map(|asked| asked.body)
        .collect()
}

/// agones-dev/agones#4381: an APIService that nobody stands behind any more keeps every namespace from ending.
#[tokio::test]
async fn the_api_service_goes_when_the_namespace_begins_to() {
    let (api, _guard) = installed().await;
    // Another change of the namespace is no end of it.
    let mut labelled = live();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    api.put(NAMESPACE, labelled);
    assert_eq!(deletions(&api), Vec::<Value>::new());
    let found = api.get(API_SERVICE).unwrap();
    api.put(NAMESPACE, ending());
    api.until("the APIService is gone", |api| api.get(API_SERVICE).is_none())
        .await;
    let expected = json!({"uid": found["metadata"]["uid"], "resourceVersion": found["metadata"]["resourceVersion"]});
    assert_eq!(
        deletions(&api)
            .iter()
            .map(|body| &body["preconditions"])
            .collect::<Vec<_>>(),
        [&expected]
    );
}

#[tokio::test]
async fn a_replica_that_starts_into_the_end_deletes_it_too() {
    let api = Api::new();
    api.put(NAMESPACE, ending());
    api.put(API_SERVICE, leading_to("sys", "op"));
    let _guard = Guard::start(&api);
    api.until("the APIService is gone", |api| api.get(API_SERVICE).is_none())
        .await;
}

#[tokio::test]
async fn a_deletion_is_tried_until_it_is_done() {
    let (api, _guard) = installed().await;
    api.refuse(Method::GET, API_SERVICE, &[500, 401]);
    api.refuse(Method::DELETE, API_SERVICE, &[409, 500]);
    api.put(NAMESPACE, ending());
    api.until("the APIService is gone", |api| api.get(API_SERVICE).is_none())
        .await;
    assert_eq!(deletions(&api).len(), 3);
}

#[tokio::test]
async fn an_api_service_that_leads_elsewhere_stays() {
    for elsewhere in [leading_to("other", "op"), leading_to("sys", "other")] {
        let (api, _guard) = installed().await;
        api.put(API_SERVICE, elsewhere);
        api.put(NAMESPACE, ending());
        api.until("the APIService was looked at", |api| {
            api.asked().iter().any(|asked| asked.path == API_SERVICE)
        })
        .await;
        // What comes after is seen, so the decision was made.
        api.put(NAMESPACE, ending());
        api.until("it was looked at again", |api| {
            api.asked().iter().filter(|asked| asked.path == API_SERVICE).count() >= 2
        })
        .await;
        assert_eq!(deletions(&api), Vec::<Value>::new());
        assert!(api.get(API_SERVICE).is_some());
    }
}
