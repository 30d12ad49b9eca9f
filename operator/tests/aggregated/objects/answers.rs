//! What upstream's answers are to the caller.

use http::Method;
use http::header::HeaderValue;
use serde_json::{Value, json};

use super::{COLLECTION, OBJECT, object, saying};
use crate::api::{Answer, bytes, reply, status};
use crate::stage::{ALICE, Stage};

const JSON: &[(&str, &str)] = &[("x-remote-user", "alice"), ("content-type", "application/json")];

fn with(mut answer: Answer, headers: &[(&'static str, &'static str)]) -> Answer {
    for (name, value) in headers {
        answer.headers_mut().append(*name, HeaderValue::from_static(value));
    }
    answer
}

#[tokio::test]
async fn listed_headers_come_back_and_no_others() {
    let stage = saying(|_| {
        with(
            reply(200, &object("v1alpha1")),
            &[
                ("warning", "299 - \"one\""),
                ("warning", "299 - \"two\""),
                ("x-kubernetes-pf-flowschema-uid", "f"),
                ("x-kubernetes-pf-prioritylevel-uid", "p"),
                ("audit-id", "upstream"),
                ("set-cookie", "a=b"),
                ("location", "/elsewhere"),
                ("x-remote-user", "root"),
                ("cache-control", "max-age=60"),
            ],
        )
    })
    .await;
    let answer = stage.front().get(OBJECT, ALICE).await;
    let warnings: Vec<_> = answer.headers.get_all("warning").iter().collect();
    assert_eq!(warnings, ["299 - \"one\"", "299 - \"two\""]);
    assert_eq!(answer.header("x-kubernetes-pf-flowschema-uid"), Some("f"));
    assert_eq!(answer.header("x-kubernetes-pf-prioritylevel-uid"), Some("p"));
    assert_eq!(answer.header("audit-id"), Some("upstream"));
    assert_eq!(answer.header("cache-control"), Some("no-cache, private"));
    for name in ["set-cookie", "location", "x-remote-user"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
}

/// kubernetes/kubernetes#92743, #102641: the garbage collector deletes what belongs to an object that is "not found", so only what
/// upstream says of that very object is.
#[tokio::test]
async fn not_found_is_said_only_of_the_object_itself() {
    let of = |kind: &str, name: &str| json!({"group": "worker.gpustack.ai", "kind": kind, "name": name});
    let generic = || json!({});
    let get = (Method::GET, OBJECT);
    let post = (Method::POST, COLLECTION);
    let cases: Vec<((Method, &str), Value, u16)> = vec![
        (get.clone(), of("modeldeployments", "chat"), 404),
        ((Method::DELETE, OBJECT), of("modeldeployments", "chat"), 404),
        ((Method::PATCH, OBJECT), of("modeldeployments", "chat"), 404),
        ((Method::PUT, OBJECT), of("modeldeployments", "chat"), 404),
        (get.clone(), of("modeldeployments", "other"), 503),
        (get.clone(), of("customresourcedefinitions", "chat"), 503),
        (get.clone(), of("namespaces", "ns"), 503),
        (get.clone(), generic(), 503),
        ((Method::GET, COLLECTION), generic(), 503),
        ((Method::DELETE, COLLECTION), generic(), 503),
        (post.clone(), of("namespaces", "ns"), 404),
        (post.clone(), of("namespaces", "other"), 503),
        ((Method::PATCH, OBJECT), of("namespaces", "ns"), 404),
        (post, generic(), 503),
    ];
    for ((method, path), details, expected) in cases {
        let what = format!("{method} {path} {details}");
        let stage = saying(move |_| status(404, "NotFound", "not found", details.clone())).await;
        let headers = [("x-remote-user", "alice"), ("content-type", content_type(&method))];
        let answer = stage.front().write(method, path, &headers, "{}").await;
        assert_eq!(answer.code, expected, "{what}");
    }
    for answer in [
        || bytes(404, "text/plain; charset=utf-8", "404 page not found\n"),
        || bytes(404, "application/json", "{}"),
        || bytes(404, "application/json", "not JSON"),
    ] {
        let stage = saying(move |_| answer()).await;
        let answer = stage.front().get(OBJECT, ALICE).await;
        assert_eq!(answer.code, 503);
        assert_eq!(answer.header("retry-after"), Some("1"));
        answer.message();
    }
}

fn content_type(method: &Method) -> &'static str {
    match *method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    }
}

#[tokio::test]
async fn upstreams_refusals_of_the_caller_are_passed_on() {
    for (code, reason) in [
        (400, "BadRequest"),
        (403, "Forbidden"),
        (405, "MethodNotAllowed"),
        (406, "NotAcceptable"),
        (409, "Conflict"),
        (410, "Expired"),
        (415, "UnsupportedMediaType"),
        (422, "Invalid"),
        (500, "InternalError"),
    ] {
        let stage = saying(move |_| status(code, reason, "said of worker.gpustack.ai/v1alpha1", json!({}))).await;
        for method in [Method::GET, Method::DELETE] {
            // A read is the operator's own, after the caller's rights were reviewed.
            if (code, &method) == (403, &Method::GET) {
                assert_eq!(stage.front().send(method, OBJECT, ALICE).await.code, 503);
                continue;
            }
            let answer = stage.front().send(method, OBJECT, ALICE).await;
            assert_eq!(answer.code, code);
            assert_eq!(answer.json()["reason"], reason);
            assert_eq!(answer.message(), "said of worker.gpustack.ai/v1alpha1");
        }
    }
    let busy = "Too many requests, please try again later.\n";
    let stage = saying(move |_| with(bytes(429, "text/plain", busy), &[("retry-after", "7")])).await;
    for method in [Method::GET, Method::DELETE] {
        let answer = stage.front().send(method, OBJECT, ALICE).await;
        assert_eq!((answer.code.as_u16(), answer.header("retry-after")), (429, Some("7")));
        assert_eq!(&answer.body[..], busy.as_bytes());
    }
}

/// Clients repeat any request that fails with `Retry-After`.
#[tokio::test]
async fn no_retry_after_where_a_write_may_have_happened() {
    for code in [500, 503, 504] {
        let stage = saying(move |_| with(status(code, "x", "later", json!({})), &[("retry-after", "1")])).await;
        assert_eq!(stage.front().get(OBJECT, ALICE).await.header("retry-after"), Some("1"));
        for (method, path) in [(Method::DELETE, OBJECT), (Method::POST, COLLECTION)] {
            let answer = stage.front().write(method, path, JSON, "{}").await;
            assert_eq!((answer.code.as_u16(), answer.header("retry-after")), (code, None));
        }
    }
    let stage = saying(|_| reply(200, &object("v1alpha1"))).await;
    stage.api.set_down(true);
    stage.api.script(|_| None);
    // Reviews are down as well, but for whom none is needed.
    let master = [("x-remote-user", "root"), ("x-remote-group", "system:masters")];
    let read = stage.front().get(OBJECT, &master).await;
    assert_eq!((read.code.as_u16(), read.header("retry-after")), (503, Some("1")));
    let write = stage.front().send(Method::DELETE, OBJECT, &master).await;
    assert_eq!((write.code.as_u16(), write.header("retry-after")), (503, None));
    assert!(write.message().contains("may have been done"));
}

#[tokio::test]
async fn the_operators_own_401_is_503() {
    let stage = saying(|_| status(401, "Unauthorized", "Unauthorized", Value::Null)).await;
    for method in [Method::GET, Method::DELETE] {
        let answer = stage.front().send(method, OBJECT, ALICE).await;
        assert_eq!(answer.code, 503);
        assert!(answer.message().contains("the operator's credentials"));
    }
    // The token that was not taken is replaced.
    let tokens = |stage: &Stage| {
        stage
            .api
            .asked()
            .iter()
            .filter(|asked| asked.path.ends_with("/token"))
            .count()
    };
    stage
        .api
        .until("another token is asked for", |_| tokens(&stage) >= 2)
        .await;
}

/// A 403 about the operator is not the caller's: they may do what they ask.
#[tokio::test]
async fn lacking_impersonation_rights_are_503_that_says_so() {
    let message = "users.authentication.k8s.io \"alice\" is forbidden: User \"system:serviceaccount:system:impersonator\" cannot \
                   impersonate:user-info resource \"users\" in API group \"authentication.k8s.io\" at the cluster scope";
    let stage = saying(move |_| status(403, "Forbidden", message, json!({}))).await;
    let answer = stage.front().send(Method::DELETE, OBJECT, ALICE).await;
    assert_eq!(answer.code, 503);
    assert_eq!(answer.header("retry-after"), None);
    assert!(answer.message().contains("impersonation rights"));
    let own = "modeldeployments is forbidden: User \"alice\" cannot delete resource";
    let stage = saying(move |_| status(403, "Forbidden", own, json!({}))).await;
    let answer = stage.front().send(Method::DELETE, OBJECT, ALICE).await;
    assert_eq!((answer.code.as_u16(), answer.message().as_str()), (403, own));
}

/// kubernetes/kubernetes#112513 (CVE-2022-3172): a redirect is never passed on.
#[tokio::test]
async fn no_redirect_is_passed_on() {
    for code in [301, 302, 303, 304, 307, 308] {
        let stage = saying(move |_| with(bytes(code, "text/html", ""), &[("location", "https://192.0.2.1/")])).await;
        for method in [Method::GET, Method::DELETE] {
            let answer = stage.front().send(method, OBJECT, ALICE).await;
            assert_eq!(answer.code, 503, "{code}");
            assert_eq!(answer.header("location"), None);
        }
    }
}
