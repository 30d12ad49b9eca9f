//! Whole passes against an API server that notes every call and keeps what is applied.

use std::collections::BTreeMap;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use kube::client::Body;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;

#[derive(Default)]
struct Server {
    /// Method and path of each call, in order.
    calls: Vec<String>,
    /// What was applied, by path.
    kept: BTreeMap<String, Value>,
    /// Answered to every write of a Pod, if set.
    refuses_pods: Option<Value>,
}

impl Server {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        self.calls.push(format!("{method} {path}"));
        let refuse = |code: u16| {
            (
                code,
                json!({"kind": "Status", "status": "Failure", "code": code, "message": "", "reason": "NotFound"}),
            )
        };
        match (method.as_str(), &self.refuses_pods) {
            ("GET", _) => self
                .kept
                .get(path)
                .map_or_else(|| refuse(404), |kept| (200, kept.clone())),
            ("DELETE", _) => self.kept.remove(path).map_or_else(|| refuse(404), |kept| (200, kept)),
            ("PATCH", Some(status)) if path.contains("/pods/") => (403, status.clone()),
            _ => {
                let mut object: Value = serde_json::from_slice(body).unwrap();
                if method == Method::PATCH && !path.ends_with("/status") {
                    let version = self.calls.len().to_string();
                    object["metadata"]["resourceVersion"] = version.into();
                    object["metadata"]["uid"] = path.into();
                    object["metadata"]["managedFields"] = json!([{
                        "manager": FIELD_MANAGER, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}},
                    }]);
                    self.kept.insert(path.into(), object.clone());
                }
                if path.ends_with("/status") {
                    object["metadata"]["resourceVersion"] = "1000000".into();
                    object["spec"] = deployment(1)["spec"].clone();
                }
                (200, object)
            }
        }
    }
}

/// A controller whose cache the test fills from what the server keeps.
struct World {
    server: Arc<Mutex<Server>>,
    controller: Controller,
    deployments: Writer<ModelDeployment>,
    pods: Writer<Pod>,
    objects: Vec<Writer<DynamicObject>>,
}

fn deployment(replicas: i32) -> Value {
    json!({
        "apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment",
        "metadata": {"namespace": "prod", "name": "chat", "uid": "u1", "generation": 1, "resourceVersion": "1"},
        "spec": {
            "model": {"name": "m"}, "engine": {"name": "vLLM", "image": "i"},
            "router": {"name": "vllm-router"},
            "roles": [{"name": "server", "replicas": replicas}],
        },
    })
}

impl World {
    fn new() -> Self {
        let server = Arc::new(Mutex::new(Server::default()));
        let answering = server.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = answering.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let (code, value) = server.lock().answer(&parts.method, parts.uri.path(), &body);
                let body = Body::from(serde_json::to_vec(&value).unwrap());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let (deployments, pods) = (Writer::new(()), Writer::new(()));
        let resources = cache::resources();
        let objects: Vec<_> = resources.iter().map(|resource| Writer::new(resource.clone())).collect();
        let stores = resources
            .into_iter()
            .zip(objects.iter().map(Writer::as_reader))
            .collect();
        let cache = Cache::new(deployments.as_reader(), pods.as_reader(), stores);
        let options = Options {
            defaults: Defaults::default(),
            max_unavailable: 1,
            pod_name: "operator-0".into(),
        };
        let controller = Controller {
            client: Client::new(service, "default"),
            cache: Arc::new(cache),
            memories: Arc::default(),
            meters: Meters::default(),
            options,
        };
        Self {
            server,
            controller,
            deployments,
            pods,
            objects,
        }
    }

    /// One pass over `object`; the calls that it made.
    async fn pass(&mut self, object: &Value) -> Vec<String> {
        let object: ModelDeployment = serde_json::from_value(object.clone()).unwrap();
        self.deployments.apply_watcher_event(&Event::Apply(object.clone()));
        self.server.lock().calls.clear();
        let _ = self.controller.pass(&object).await;
        std::mem::take(&mut self.server.lock().calls)
    }

    /// The watches catch up with what the server keeps.
    fn catch_up(&mut self) {
        let kept: Vec<Value> = self.server.lock().kept.values().cloned().collect();
        self.pods.apply_watcher_event(&Event::Init);
        for writer in &mut self.objects {
            writer.apply_watcher_event(&Event::Init);
        }
        for object in kept {
            if object["kind"] == "Pod" {
                self.pods
                    .apply_watcher_event(&Event::InitApply(serde_json::from_value(object).unwrap()));
                continue;
            }
            let kinds = cache::resources().into_iter().map(|resource| resource.kind);
            let (_, writer) = kinds
                .zip(&mut self.objects)
                .find(|(kind, _)| object["kind"] == *kind)
                .unwrap();
            writer.apply_watcher_event(&Event::InitApply(serde_json::from_value(object).unwrap()));
        }
        self.pods.apply_watcher_event(&Event::InitDone);
        for writer in &mut self.objects {
            writer.apply_watcher_event(&Event::InitDone);
        }
    }

    /// Passes and catches up until there is nothing to do.
    async fn settle(&mut self, object: &Value) {
        for _ in 0..5 {
            if self.pass(object).await.is_empty() {
                return;
            }
            self.catch_up();
        }
        panic!("it does not settle");
    }

    fn kept(&self, path: &str) -> Value {
        self.server.lock().kept.get(path).cloned().unwrap_or_default()
    }
}

const SERVICE: &str = "/api/v1/namespaces/prod/services/chat";
const POD: &str = "/api/v1/namespaces/prod/pods/chat-server-0";

#[tokio::test]
async fn a_pass_that_finds_nothing_to_do_makes_no_api_call() {
    let mut world = World::new();
    let object = deployment(2);
    let first = world.pass(&object).await;
    assert!(
        first.contains(&format!("PATCH {POD}")) && first.contains(&format!("PATCH {SERVICE}")),
        "{first:?}"
    );
    // Neither while the watches lag behind our own writes, nor when they have caught up.
    assert_eq!(world.pass(&object).await, [""; 0]);
    world.catch_up();
    // The Pods are seen now, which the status counts.
    assert_eq!(
        world.pass(&object).await,
        ["PATCH /apis/worker.gpustack.ai/v1alpha1/namespaces/prod/modeldeployments/chat/status"]
    );
    assert_eq!(world.pass(&object).await, [""; 0]);
}

#[tokio::test]
async fn a_field_of_ours_that_somebody_took_over_is_put_back_by_one_call() {
    let mut world = World::new();
    let object = deployment(2);
    world.settle(&object).await;
    for path in [SERVICE, POD] {
        let fields = "/metadata/managedFields/0/fieldsV1";
        *world
            .server
            .lock()
            .kept
            .get_mut(path)
            .unwrap()
            .pointer_mut(fields)
            .unwrap() = json!({});
        world.catch_up();
        assert_eq!(world.pass(&object).await, [format!("PATCH {path}")]);
        world.catch_up();
        assert_eq!(world.pass(&object).await, [""; 0]);
    }
}

#[tokio::test]
async fn a_field_of_somebody_else_is_left_alone() {
    let mut world = World::new();
    let object = deployment(1);
    world.settle(&object).await;
    world.server.lock().kept.get_mut(SERVICE).unwrap()["metadata"]["labels"]["team"] = "own".into();
    world.catch_up();
    assert_eq!(world.pass(&object).await, [""; 0]);
}

#[tokio::test]
async fn somebody_elses_object_is_not_taken_over() {
    let mut world = World::new();
    let own =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "chat", "namespace": "prod", "uid": "x"}});
    world.server.lock().kept.insert(SERVICE.into(), own.clone());
    let calls = world.pass(&deployment(1)).await;
    assert!(
        calls.contains(&format!("GET {SERVICE}")) && !calls.contains(&format!("PATCH {SERVICE}")),
        "{calls:?}"
    );
    assert_eq!(world.kept(SERVICE), own);
}

#[tokio::test]
async fn removing_the_router_deletes_every_object_of_it() {
    let mut world = World::new();
    let mut object = deployment(1);
    world.settle(&object).await;
    object["spec"].as_object_mut().unwrap().remove("router");
    let mut deleted: Vec<_> = world
        .pass(&object)
        .await
        .into_iter()
        .filter_map(|call| call.strip_prefix("DELETE ").map(str::to_owned))
        .collect();
    deleted.sort();
    assert_eq!(
        deleted,
        [
            "/api/v1/namespaces/prod/serviceaccounts/chat-router",
            "/api/v1/namespaces/prod/services/chat-router",
            "/apis/apps/v1/namespaces/prod/deployments/chat-router",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/prod/rolebindings/chat-router",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/prod/roles/chat-router",
        ]
    );
}

#[tokio::test]
async fn a_refused_spec_writes_its_status_and_one_event_and_nothing_else() {
    let mut world = World::new();
    world.settle(&deployment(2)).await;
    let mut refused = deployment(0);
    refused["metadata"]["generation"] = 2.into();
    refused["spec"]["roles"][0]["extraArgs"] = json!(["--kv-transfer-config={}"]);
    let calls = world.pass(&refused).await;
    assert_eq!(
        calls,
        [
            "PATCH /apis/worker.gpustack.ai/v1alpha1/namespaces/prod/modeldeployments/chat/status",
            "POST /apis/events.k8s.io/v1/namespaces/prod/events",
        ]
    );
    assert_eq!(world.pass(&refused).await, [""; 0]);
}

#[tokio::test]
async fn one_refused_creation_stops_the_others() {
    let mut world = World::new();
    world.server.lock().refuses_pods = Some(json!({
        "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": "pods \"chat-server-0\" is forbidden: exceeded quota: pods",
    }));
    let calls = world.pass(&deployment(1000)).await;
    let pods = calls.iter().filter(|call| call.contains("/pods/")).count();
    assert!((1..=16).contains(&pods), "{pods} creations were tried");
}

#[tokio::test]
async fn a_deployment_that_is_being_deleted_gets_no_object() {
    let mut world = World::new();
    let mut object = deployment(2);
    object["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z".into();
    object["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    let calls = world.pass(&object).await;
    assert_eq!(
        calls,
        ["PATCH /apis/worker.gpustack.ai/v1alpha1/namespaces/prod/modeldeployments/chat/status"]
    );
}

/// One ModelDeployment on which a pass panics must not end the process: the next leader's would end too, and the API with them.
#[tokio::test]
async fn a_pass_that_panics_is_a_failure_and_no_end() {
    let panicked = held(async { panic!("no such role") }).await;
    assert!(matches!(panicked, Err(PassError::Panicked)), "{panicked:?}");
    let done = held(async { Ok(Action::await_change()) }).await;
    assert_eq!(done.unwrap(), Action::await_change());
}
