//! A played API server: enough of one for what the operator's server and certificates ask it.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

pub const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
pub const PUBLISHED: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;
type Review = dyn Fn(&Value) -> Value + Send + Sync;

/// One request that was made.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: Method,
    pub path: String,
    pub body: Value,
}

#[derive(Clone)]
pub struct Api(Arc<Inner>);

struct Inner {
    world: Mutex<World>,
    changed: watch::Sender<usize>,
}

struct World {
    /// By path.
    objects: BTreeMap<String, Value>,
    /// What happened, for watches: collection, name, event.
    log: Vec<(String, String, Value)>,
    asked: Vec<Asked>,
    review: Arc<Review>,
    /// Codes to answer with, by method and path, each used once.
    refusals: HashMap<(Method, String), Vec<u16>>,
    /// Nothing is answered at all.
    down: bool,
}

impl Api {
    pub fn new() -> Self {
        let world = World {
            objects: BTreeMap::new(),
            log: Vec::new(),
            asked: Vec::new(),
            review: Arc::new(|_| json!({"allowed": true})),
            refusals: HashMap::new(),
            down: false,
        };
        Api(Arc::new(Inner {
            world: Mutex::new(world),
            changed: watch::channel(0).0,
        }))
    }

    pub fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let api = api.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                api.answer(parts, body)
            }
            .boxed()
        });
        kube::Client::new(service, "default")
    }

    /// Answers reviews with the status that `review` makes of their spec.
    pub fn review(&self, review: impl Fn(&Value) -> Value + Send + Sync + 'static) {
        self.0.world.lock().review = Arc::new(review);
    }

    pub fn set_down(&self, down: bool) {
        self.0.world.lock().down = down;
    }

    /// Refuses the next requests of `method` for `path` with `codes`, one each.
    pub fn refuse(&self, method: Method, path: &str, codes: &[u16]) {
        self.0
            .world
            .lock()
            .refusals
            .insert((method, path.to_owned()), codes.to_vec());
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.0.world.lock().asked.clone()
    }

    pub fn reviews(&self) -> Vec<Value> {
        self.asked()
            .into_iter()
            .filter(|asked| asked.path == REVIEWS)
            .map(|asked| asked.body["spec"].clone())
            .collect()
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.0.world.lock().objects.get(path).cloned()
    }

    /// Stores `object`, as somebody else would.
    pub fn put(&self, path: &str, object: Value) {
        self.store(path, object);
    }

    pub fn delete(&self, path: &str) {
        let mut world = self.0.world.lock();
        if let Some(object) = world.objects.remove(path) {
            let (collection, name) = split(path);
            world
                .log
                .push((collection, name, json!({"type": "DELETED", "object": object})));
            self.0.changed.send_replace(world.log.len());
        }
    }

    /// Every object as it was stored or deleted, in order, by path.
    pub fn history(&self) -> Vec<(String, Value)> {
        let world = self.0.world.lock();
        let entry = |(collection, name, event): &(String, String, Value)| {
            (format!("{collection}/{name}"), event["object"].clone())
        };
        world.log.iter().map(entry).collect()
    }

    /// Waits until `seen` holds of this API server.
    pub async fn until(&self, what: &str, seen: impl Fn(&Api) -> bool) {
        let mut changed = self.0.changed.subscribe();
        let waiting = async {
            while !seen(self) {
                changed.changed().await.unwrap();
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(300), waiting)
            .await
            .unwrap_or_else(|_| {
                panic!(
                    "{what}: {:#?}",
                    self.asked()
                        .iter()
                        .map(|asked| format!("{} {}", asked.method, asked.path))
                        .collect::<Vec<_>>()
                )
            });
    }

    fn store(&self, path: &str, mut object: Value) -> Value {
        let mut world = self.0.world.lock();
        let (collection, name) = split(path);
        let version = world.log.len() + 1;
        object["metadata"]["name"] = name.clone().into();
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let kind = if world.objects.contains_key(path) {
            "MODIFIED"
        } else {
            "ADDED"
        };
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = format!("uid-{version}").into();
        }
        world.objects.insert(path.to_owned(), object.clone());
        world
            .log
            .push((collection, name, json!({"type": kind, "object": object})));
        self.0.changed.send_replace(version);
        object
    }

    fn answer(&self, request: http::request::Parts, body: Value) -> Result<Answer, tower::BoxError> {
        let path = request.uri.path().to_owned();
        let query = request.uri.query().unwrap_or_default().to_owned();
        let refused = {
            let mut world = self.0.world.lock();
            world.asked.push(Asked {
                method: request.method.clone(),
                path: path.clone(),
                body: body.clone(),
            });
            let version = world.log.len();
            self.0.changed.send_replace(version);
            if world.down {
                return Err("connection refused".into());
            }
            let codes = world.refusals.get_mut(&(request.method.clone(), path.clone()));
            codes.filter(|codes| !codes.is_empty()).map(|codes| codes.remove(0))
        };
        if let Some(code) = refused {
            return Ok(refusal(code));
        }
        let selected = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("fieldSelector=metadata.name%3D"));
        let held = self.get(&path);
        Ok(match (request.method, selected) {
            (Method::POST, _) if path == REVIEWS => {
                let review = self.0.world.lock().review.clone();
                let mut answer = body.clone();
                answer["status"] = review(&body["spec"]);
                reply(201, &answer)
            }
            (Method::GET, _) if query.contains("watch=true") => self.watch(&path, selected, &query),
            (Method::GET, _) if selected.is_some() || query.contains("labelSelector=") => {
                let items = self.list(&path, selected);
                let version = self.0.world.lock().log.len().to_string();
                reply(
                    200,
                    &json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}),
                )
            }
            (Method::GET, None) => held.map_or_else(|| refusal(404), |held| reply(200, &held)),
            (Method::POST, _) => {
                let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
                match self.get(&path) {
                    Some(_) => refusal(409),
                    None => reply(201, &self.store(&path, body)),
                }
            }
            (Method::PUT, _) => match held {
                None => refusal(404),
                Some(held) if held["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] => {
                    refusal(409)
                }
                Some(_) => reply(200, &self.store(&path, body)),
            },
            (Method::PATCH, _) => match held {
                // As the real one does: an apply creates what is not there, unless it names a UID.
                None if body["metadata"]["uid"].is_null() => reply(201, &self.store(&path, body)),
                Some(mut held) if body["metadata"]["uid"] == held["metadata"]["uid"] => {
                    held["spec"]["caBundle"] = body["spec"]["caBundle"].clone();
                    reply(200, &self.store(&path, held))
                }
                _ => refusal(409),
            },
            (Method::DELETE, _) => match held {
                None => refusal(404),
                Some(held) if !holds(&body["preconditions"], &held["metadata"]) => refusal(409),
                Some(held) => {
                    self.delete(&path);
                    reply(200, &held)
                }
            },
            _ => refusal(405),
        })
    }

    /// The objects of a collection, or the one that is called `name`. Every label selector selects all: tests put nothing else there.
    fn list(&self, collection: &str, name: Option<&str>) -> Vec<Value> {
        let world = self.0.world.lock();
        let of = |(path, object): (&String, &Value)| {
            let (found, called) = split(path);
            (found == collection && name.is_none_or(|name| called == name)).then(|| object.clone())
        };
        world.objects.iter().filter_map(of).collect()
    }

    fn watch(&self, collection: &str, name: Option<&str>, query: &str) -> Answer {
        let from: usize = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("resourceVersion="))
            .unwrap()
            .parse()
            .unwrap();
        let (inner, collection, name) = (self.0.clone(), collection.to_owned(), name.map(str::to_owned));
        let state = (inner.changed.subscribe(), from);
        let events = stream::unfold(state, move |(mut changed, mut next)| {
            let (inner, collection, name) = (inner.clone(), collection.clone(), name.clone());
            async move {
                loop {
                    let event = inner.world.lock().log.get(next).cloned();
                    match event {
                        Some((of, named, event)) => {
                            next += 1;
                            if of == collection && name.as_ref().is_none_or(|name| named == *name) {
                                let mut line = serde_json::to_vec(&event).unwrap();
                                line.push(b'\n');
                                return Some((Ok(Frame::data(Bytes::from(line))), (changed, next)));
                            }
                        }
                        None => changed.changed().await.ok()?,
                    }
                }
            }
        });
        Response::new(StreamBody::new(events.boxed()).boxed_unsync())
    }
}

/// Whether an object's metadata are as the preconditions of a deletion want them.
fn holds(preconditions: &Value, metadata: &Value) -> bool {
    let mut wanted = preconditions.as_object().into_iter().flatten();
    wanted.all(|(name, value)| metadata[name] == *value)
}

fn split(path: &str) -> (String, String) {
    let (collection, name) = path.rsplit_once('/').unwrap();
    (collection.to_owned(), name.to_owned())
}

fn reply(code: u16, value: &Value) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(serde_json::to_vec(value).unwrap())).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
        .headers_mut()
        .insert("content-type", "application/json".parse().unwrap());
    response
}

fn refusal(code: u16) -> Answer {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        _ => "InternalError",
    };
    reply(
        code,
        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code}),
    )
}
