//! Whole passes against an API server that notes every call and keeps what is applied.

use std::collections::BTreeMap;

use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt;
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
    /// Answered to every write of a path with that in it.
    refuses: Vec<(&'static str, Value)>,
}

impl Server {
    fn answer(&mut self, method: &Method, uri: &Uri, body: &[u8]) -> (u16, Value) {
        let path = uri.path();
        self.calls.push(format!("{method} {path}"));
        let refuse = |code: u16| (code, refusal(code, ""));
        let refused = self.refuses.iter().find(|(part, _)| path.contains(part));
        let trial = uri.query().is_some_and(|query| query.contains("dryRun=All"));
        let forced = uri.query().is_some_and(|query| query.contains("force=true"));
        let collides = |kept: &Value| !forced && kept["metadata"]["managedFields"][0]["manager"] != FIELD_MANAGER;
        match (method.as_str(), refused) {
            ("GET", _) => self
                .kept
                .get(path)
                .map_or_else(|| refuse(404), |kept| (200, kept.clone())),
            ("DELETE", _) => self.kept.remove(path).map_or_else(|| refuse(404), |kept| (200, kept)),
            ("PATCH", Some((_, status))) => (u16::try_from(status["code"].as_u64().unwrap()).unwrap(), status.clone()),
            ("PATCH", None) if self.kept.get(path).is_some_and(collides) => refuse(409),
            _ => {
                let mut object: Value = serde_json::from_slice(body).unwrap();
                if method == Method::PATCH && !path.ends_with("/status") {
                    let version = self.calls.len().to_string();
                    object["metadata"]["resourceVersion"] = version.into();
                    object["metadata"]["uid"] = path.into();
                    object["metadata"]["managedFields"] = json!([{
                        "manager": FIELD_MANAGER, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}},
                    }]);
                    if !trial {
                        self.kept.insert(path.into(), object.clone());
                    }
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

/// What an API server answers where it refuses.
fn refusal(code: u16, message: &str) -> Value {
    let reason = if code == 404 { "NotFound" } else { "" };
    json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": reason})
}

/// A controller whose cache the test fills from what the server keeps.
struct World {
    server: Arc<Mutex<Server>>,
    controller: Controller,
    deployments: Writer<ModelDeployment>,
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
                let (code, value) = server.lock().answer(&parts.method, &parts.uri, &body);
                let body = Body::from(serde_json::to_vec(&value).unwrap());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let memories = Arc::<Memories>::default();
        let (cache, deployments) = Cache::new(Arc::default(), memories.clone());
        let options = Options {
            defaults: Defaults::default(),
            max_unavailable: 1,
            pod_name: "operator-0".into(),
        };
        let controller = Controller {
            client: Client::new(service, "default"),
            cache: Arc::new(cache),
            memories,
            meters: Meters::default(),
            options,
        };
        Self {
            server,
            controller,
            deployments,
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
        let cache = self.controller.cache.clone();
        let resources: Vec<_> = cache::resources().collect();
        cache.observe_pod(&Event::Init);
        for resource in &resources {
            cache.observe_object(resource, &Event::Init);
        }
        for object in kept {
            match resources.iter().find(|resource| object["kind"] == resource.kind) {
                Some(resource) => {
                    cache.observe_object(resource, &Event::InitApply(serde_json::from_value(object).unwrap()));
                }
                None => cache.observe_pod(&Event::InitApply(serde_json::from_value(object).unwrap())),
            }
        }
        cache.observe_pod(&Event::InitDone);
        for resource in &resources {
            cache.observe_object(resource, &Event::InitDone);
        }
    }

    /// An object goes, and the watches see it.
    fn lose(&mut self, path: &str) {
        let object = self.server.lock().kept.remove(path).expect("it was there");
        let cache = &self.controller.cache;
        match cache::resources().find(|resource| object["kind"] == resource.kind) {
            Some(resource) => {
                cache.observe_object(&resource, &Event::Delete(serde_json::from_value(object).unwrap()));
            }
            None => cache.observe_pod(&Event::Delete(serde_json::from_value(object).unwrap())),
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
const STATUS: &str = "PATCH /apis/worker.gpustack.ai/v1alpha1/namespaces/prod/modeldeployments/chat/status";
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
    assert_eq!(world.pass(&object).await, [STATUS]);
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
    assert_eq!(calls, [STATUS, "POST /apis/events.k8s.io/v1/namespaces/prod/events"]);
    assert_eq!(world.pass(&refused).await, [""; 0]);
}

#[tokio::test]
async fn one_refused_creation_stops_the_others_of_its_role() {
    let mut world = World::new();
    let mut object = deployment(1000);
    object["spec"]["roles"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "small"}));
    let quota = refusal(403, "pods \"chat-server-0\" is forbidden: exceeded quota: pods");
    world.server.lock().refuses = vec![("/pods/chat-server-", quota)];
    let calls = world.pass(&object).await;
    let of = |role: &str| {
        calls
            .iter()
            .filter(|call| call.contains(&format!("/pods/chat-{role}-")))
            .count()
    };
    assert!(
        (1..=16).contains(&of("server")),
        "{} creations were tried",
        of("server")
    );
    assert_eq!(of("small"), 1);
}

/// Reason and message of a condition in the status that was written last.
fn condition(world: &World, type_: &str) -> (String, String) {
    let memory = world.controller.memories.of("u1");
    let memory = memory.lock();
    let (status, _) = memory.status.as_ref().expect("a status was written");
    let found = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == type_)
        .unwrap();
    (found.reason.clone(), found.message.clone())
}

#[tokio::test]
async fn a_refused_object_holds_up_nothing_but_what_refers_to_it() {
    let invalid = |what: &str| refusal(422, &format!("{what} is invalid: spec: Required value"));
    // (what is refused, what is therefore not made, what is made all the same)
    for (path, held, made) in [
        (
            "/services/chat",
            &[][..],
            &["/pods/chat-server-0", "/deployments/chat-router"][..],
        ),
        (
            "/serviceaccounts/chat-router",
            &["/deployments/chat-router"],
            &["/pods/chat-server-0", "/services/chat"],
        ),
        (
            "/deployments/chat-router",
            &[],
            &["/pods/chat-server-0", "/services/chat-router"],
        ),
    ] {
        let mut world = World::new();
        world.server.lock().refuses = vec![(path, invalid("it"))];
        let calls = world.pass(&deployment(2)).await;
        let patched = |path: &str| {
            calls
                .iter()
                .any(|call| call.starts_with("PATCH") && call.ends_with(path))
        };
        assert!(
            held.iter().all(|path| !patched(path)) && made.iter().all(|path| patched(path)),
            "{path}: {calls:?}"
        );
        assert_eq!(condition(&world, "Progressing").0, "ObjectRefused", "{path}");
    }
}

#[tokio::test]
async fn one_refusal_is_told_whole_and_the_others_by_name() {
    let mut world = World::new();
    world.server.lock().refuses = vec![("/services/", refusal(422, "no Service today"))];
    world.pass(&deployment(1)).await;
    assert_eq!(
        condition(&world, "Progressing").1,
        "cannot apply Service chat: no Service today; 2 more could not be kept up: Service chat-router, Service chat-server"
    );
}

#[tokio::test]
async fn what_is_refused_holds_up_neither_healing_nor_rollout() {
    let mut world = World::new();
    let mut object = deployment(2);
    world.settle(&object).await;
    world.server.lock().refuses = vec![("/services/", refusal(422, "no Service today"))];
    world.lose(SERVICE);
    world.lose(POD);
    let calls = world.pass(&object).await;
    assert!(calls.contains(&format!("PATCH {POD}")), "{calls:?}");
    let (reason, message) = condition(&world, "Progressing");
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("ObjectRefused", "cannot apply Service chat: no Service today")
    );
    world.catch_up();
    object["spec"]["engine"]["image"] = "j".into();
    let calls = world.pass(&object).await;
    assert!(
        calls
            .iter()
            .any(|call| call.starts_with("DELETE /api/v1/namespaces/prod/pods/")),
        "{calls:?}"
    );
}

#[tokio::test]
async fn a_revision_that_the_api_server_would_refuse_costs_no_pod() {
    let mut world = World::new();
    let mut object = deployment(2);
    world.settle(&object).await;
    object["spec"]["engine"]["image"] = "j".into();
    let deletes = |calls: &[String]| calls.iter().any(|call| call.starts_with("DELETE"));
    // The trial has a name of its own.
    world.server.lock().refuses = vec![("/pods/chat-server-0-", refusal(422, "spec: no such thing"))];
    let calls = world.pass(&object).await;
    assert!(!deletes(&calls), "{calls:?}");
    assert_eq!(
        condition(&world, "Progressing"),
        (
            "ObjectRefused".into(),
            "cannot apply Pod chat-server-0: spec: no such thing".into()
        )
    );
    // Another refusal says nothing of the Pod, as that of a quota in which the old one still counts.
    world.server.lock().refuses = vec![("/pods/chat-server-0-", refusal(403, "exceeded quota: pods"))];
    let calls = world.pass(&object).await;
    assert!(deletes(&calls), "{calls:?}");
}

#[tokio::test]
async fn a_server_that_answers_nobody_is_asked_no_further() {
    let mut world = World::new();
    world.server.lock().refuses = vec![("/api", refusal(503, "etcd has no leader"))];
    let calls = world.pass(&deployment(1000)).await;
    assert!(
        calls.iter().all(|call| !call.contains("/pods/")),
        "{} calls",
        calls.len()
    );
}

#[tokio::test]
async fn somebody_elses_pod_is_left_alone_and_said_so() {
    let mut world = World::new();
    let own = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "chat-server-0", "namespace": "prod", "uid": "x"}});
    world.server.lock().kept.insert(POD.into(), own.clone());
    let calls = world.pass(&deployment(3)).await;
    assert_eq!(world.kept(POD), own, "{calls:?}");
    for ordinal in [1, 2] {
        assert!(
            calls.contains(&format!("PATCH /api/v1/namespaces/prod/pods/chat-server-{ordinal}")),
            "{calls:?}"
        );
    }
    let (reason, message) = condition(&world, "Progressing");
    assert_eq!(
        (reason.as_str(), message.as_str()),
        (
            "NameTaken",
            "Pod chat-server-0 exists and does not belong to this ModelDeployment: rename or delete it, or create the ModelDeployment under another name"
        )
    );
}

/// `a-b` with role `c`, and `a` with role `b-c`: both want the Pod `a-b-c-0`.
fn namesakes() -> [Value; 2] {
    [("a-b", "c", "u1"), ("a", "b-c", "u2")].map(|(name, role, uid)| {
        let mut object = deployment(1);
        object["metadata"]["name"] = name.into();
        object["metadata"]["uid"] = uid.into();
        object["spec"]["roles"][0]["name"] = role.into();
        object
    })
}

#[tokio::test]
async fn of_two_deployments_that_want_one_name_the_first_has_it() {
    const BOTH: &str = "/api/v1/namespaces/prod/pods/a-b-c-0";
    let [first, second] = namesakes();
    // Seen by the watches, or not yet.
    for seen in [true, false] {
        let mut world = World::new();
        world.pass(&first).await;
        let made = world.kept(BOTH);
        if seen {
            world.catch_up();
        }
        let calls = world.pass(&second).await;
        assert!(!calls.contains(&format!("PATCH {BOTH}")), "{calls:?}");
        assert_eq!(world.kept(BOTH), made);
    }
}

#[tokio::test]
async fn what_a_deleted_namesake_left_behind_is_waited_for() {
    let mut world = World::new();
    let mut object = deployment(1);
    world.settle(&object).await;
    object["metadata"]["uid"] = "u2".into();
    let calls = world.pass(&object).await;
    // Neither touched nor complained of.
    assert_eq!(calls, [STATUS]);
}

#[tokio::test]
async fn what_happens_to_two_roles_is_two_events() {
    let mut world = World::new();
    let mut object = deployment(1);
    object["spec"]["roles"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "second"}));
    let calls = world.pass(&object).await;
    let events: Vec<_> = calls.iter().filter(|call| call.contains("/events")).collect();
    // Pods of two roles, and the router.
    assert_eq!(events, ["POST /apis/events.k8s.io/v1/namespaces/prod/events"; 3]);
}

#[tokio::test]
async fn a_deployment_that_is_being_deleted_gets_no_object() {
    let mut world = World::new();
    let mut object = deployment(2);
    object["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z".into();
    object["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    let calls = world.pass(&object).await;
    assert_eq!(calls, [STATUS]);
}

/// One ModelDeployment on which a pass panics must not end the process: the next leader's would end too, and the API with them.
#[tokio::test]
async fn a_pass_that_panics_is_a_failure_and_no_end() {
    let panicked = held(async { panic!("no such role") }).await;
    assert!(matches!(panicked, Err(PassError::Panicked)), "{panicked:?}");
    let done = held(async { Ok(Action::await_change()) }).await;
    assert_eq!(done.unwrap(), Action::await_change());
}
