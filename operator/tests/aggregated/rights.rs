//! May they: the API server's review decides, before anything is looked up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use http::Method;
use serde_json::json;

use crate::api::REVIEWS;
use crate::stage::{ALICE, METRICS, Stage};

#[tokio::test]
async fn forbidden_comes_before_not_found_and_before_any_look_up() {
    let stage = Stage::new().await;
    stage.api.review(|spec| json!({"allowed": spec["user"] == "alice"}));
    stage.metrics.asked.lock().clear();
    let absent = METRICS.replace("chat", "absent");
    let answer = stage.front().get(&absent, &[("x-remote-user", "mallory")]).await;
    assert_eq!(answer.code, 403);
    assert_eq!(
        answer.message(),
        "modeldeployments.worker.gpustack.ai \"absent\" is forbidden: User \"mallory\" cannot get resource \
         \"modeldeployments/metrics\" in API group \"worker.gpustack.ai\" in the namespace \"ns\""
    );
    assert!(stage.metrics.asked.lock().is_empty());
    let answer = stage.front().get(&absent, ALICE).await;
    assert_eq!(answer.code, 404);
    assert_eq!(
        answer.message(),
        "modeldeployments.worker.gpustack.ai \"absent\" not found"
    );
    // Nor does a wrong parameter or type say anything to who may not ask.
    for (path, accept) in [
        (format!("{METRICS}?window=9s"), "*/*"),
        (METRICS.to_owned(), "application/yaml"),
    ] {
        let answer = stage
            .front()
            .get(&path, &[("x-remote-user", "mallory"), ("accept", accept)])
            .await;
        assert_eq!(answer.code, 403, "{path}");
    }
}

#[tokio::test]
async fn the_reason_of_the_authorizer_is_passed_on() {
    let stage = Stage::new().await;
    stage
        .api
        .review(|_| json!({"allowed": false, "denied": true, "reason": "RBAC: <none>"}));
    let answer = stage.front().get(METRICS, &[("x-remote-user", "eve")]).await;
    assert!(
        answer
            .message()
            .ends_with("in the namespace \"ns\": RBAC: &lt;none&gt;"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn without_a_review_nobody_may() {
    let stage = Stage::new().await;
    stage.api.refuse(Method::POST, REVIEWS, &[403]);
    let answer = stage.front().get(METRICS, &[("x-remote-user", "bob")]).await;
    assert_eq!(answer.code, 503);
    assert_eq!(answer.header("retry-after"), Some("1"));
    answer.message();
    // A failure is not remembered.
    assert_eq!(stage.front().get(METRICS, &[("x-remote-user", "bob")]).await.code, 200);
}

#[tokio::test]
async fn a_passing_failure_is_tried_again() {
    let stage = Stage::new().await;
    stage.api.refuse(Method::POST, REVIEWS, &[500, 503]);
    assert_eq!(stage.front().get(METRICS, &[("x-remote-user", "bob")]).await.code, 200);
}

#[tokio::test]
async fn system_masters_are_not_reviewed_and_only_they() {
    let stage = Stage::new().await;
    stage.api.review(|_| json!({"allowed": false}));
    let reviews = stage.api.reviews().len();
    let master = [("x-remote-user", "root"), ("x-remote-group", "system:masters")];
    assert_eq!(stage.front().get(METRICS, &master).await.code, 200);
    assert_eq!(stage.api.reviews().len(), reviews);
    for user in ["system:admin", "system:kube-controller-manager", "system:masters"] {
        assert_eq!(
            stage.front().get(METRICS, &[("x-remote-user", user)]).await.code,
            403,
            "{user}"
        );
    }
}

#[tokio::test]
async fn equal_questions_are_asked_once_and_unequal_ones_each() {
    let stage = Stage::new().await;
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    stage.api.review(move |spec| {
        counted.fetch_add(1, Ordering::SeqCst);
        json!({"allowed": spec["user"] != "eve"})
    });
    let front = stage.front();
    let codes = |user: &'static str| {
        let front = front.clone();
        async move {
            let calls = (0..8).map(|_| {
                let front = front.clone();
                async move { front.get(METRICS, &[("x-remote-user", user)]).await.code.as_u16() }
            });
            join_all(calls).await
        }
    };
    assert_eq!(codes("bob").await, [200; 8]);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert_eq!(codes("eve").await, [403; 8]);
    assert_eq!(count.load(Ordering::SeqCst), 2);
    for headers in [
        [("x-remote-user", "bob"), ("x-remote-group", "more")],
        [("x-remote-user", "bob"), ("x-remote-extra-more", "x")],
        [("x-remote-user", "bob"), ("x-remote-uid", "7")],
    ] {
        front.get(METRICS, &headers).await;
    }
    front
        .get(&METRICS.replace("chat", "other"), &[("x-remote-user", "bob")])
        .await;
    assert_eq!(count.load(Ordering::SeqCst), 6);
}

#[tokio::test]
async fn a_question_with_much_text_is_not_remembered() {
    let stage = Stage::new().await;
    let long = "g".repeat(10_001);
    let headers = [("x-remote-user", "bob"), ("x-remote-group", long.as_str())];
    let reviews = stage.api.reviews().len();
    for _ in 0..2 {
        assert_eq!(stage.front().get(METRICS, &headers).await.code, 200);
    }
    assert_eq!(stage.api.reviews().len(), reviews + 2);
}

/// A user in very many groups, one header line each.
#[tokio::test]
async fn two_thousand_groups_are_read() {
    let stage = Stage::new().await;
    let groups: Vec<String> = (0..2000).map(|number| format!("group-{number}")).collect();
    let mut headers = vec![("x-remote-user", "bob")];
    headers.extend(groups.iter().map(|group| ("x-remote-group", group.as_str())));
    assert_eq!(stage.front().get(METRICS, &headers).await.code, 200);
    assert_eq!(stage.front().send_http1(Method::GET, METRICS, &headers).await.code, 200);
    assert_eq!(
        stage.api.reviews().last().unwrap()["groups"].as_array().unwrap().len(),
        2001
    );
}

#[tokio::test]
async fn every_verb_is_reviewed_as_itself() {
    let stage = Stage::new().await;
    stage
        .api
        .review(|spec| json!({"allowed": spec["resourceAttributes"]["verb"] == "get"}));
    for (method, verb) in [
        (Method::POST, "create"),
        (Method::PUT, "update"),
        (Method::PATCH, "patch"),
        (Method::DELETE, "delete"),
    ] {
        let answer = stage.front().send(method, METRICS, ALICE).await;
        assert_eq!(answer.code, 403, "{verb}");
        assert!(answer.message().contains(&format!("cannot {verb} resource")));
    }
}
