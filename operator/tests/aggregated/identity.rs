//! Who may speak for a user: the front proxy, and nobody else.

use http::Method;
use rcgen::{CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, date_time_ymd};
use serde_json::{Value, json};

use crate::issued::{Authority, Identity, params, self_signed};
use crate::log::Log;
use crate::stage::{ALICE, METRICS, Stage};

/// Expects 401 without a question to anybody.
async fn refused(stage: &Stage, what: &str, identity: Option<Identity>, headers: &[(&str, &str)]) {
    let (reviews, asked) = (stage.api.reviews().len(), stage.metrics.asked.lock().len());
    let caller = match identity {
        Some(identity) => stage.with(identity),
        None => stage.anyone(),
    };
    for answer in [
        caller.get(METRICS, headers).await,
        caller.send_http1(Method::GET, METRICS, headers).await,
        caller
            .get(
                "/apis/worker.gpustack.ai/v1/namespaces/ns/modeldeployments/chat",
                headers,
            )
            .await,
    ] {
        assert_eq!(answer.code, 401, "{what}");
        assert_eq!(answer.message(), "Unauthorized", "{what}");
    }
    assert_eq!(stage.api.reviews().len(), reviews, "{what}");
    assert_eq!(stage.metrics.asked.lock().len(), asked, "{what}");
}

#[tokio::test]
async fn headers_are_believed_from_the_front_proxy_alone() {
    let stage = Stage::bare().await;
    let users = Authority::new("users");
    stage.publish(json!({
        "client-ca-file": users.pem,
        "requestheader-allowed-names": r#"["front-proxy-client"]"#,
    }));
    stage.until_code(&stage.front(), 200).await;

    let bent = |bend: fn(&mut CertificateParams)| {
        let mut params = params("front-proxy-client");
        bend(&mut params);
        params
    };
    let admin: &[(&str, &str)] = &[("x-remote-user", "admin"), ("x-remote-group", "system:masters")];
    let other = Authority::new("front proxy");
    for (what, identity) in [
        ("no certificate", None),
        ("a user's certificate", Some(users.issue(params("admin")))),
        (
            "a user's certificate with the proxy's name",
            Some(users.issue(params("front-proxy-client"))),
        ),
        (
            "the right authority, the wrong name",
            Some(stage.proxy.issue(params("front-proxy-client2"))),
        ),
        (
            "the right name, an authority of the same name",
            Some(other.issue(params("front-proxy-client"))),
        ),
        (
            "expired",
            Some(
                stage
                    .proxy
                    .issue(bent(|params| params.not_after = date_time_ymd(2021, 1, 1))),
            ),
        ),
        (
            "not yet valid",
            Some(
                stage
                    .proxy
                    .issue(bent(|params| params.not_before = date_time_ymd(2119, 1, 1))),
            ),
        ),
        (
            "for servers only",
            Some(stage.proxy.issue(bent(|params| {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]
            }))),
        ),
        ("self-signed", Some(self_signed(params("front-proxy-client")))),
        (
            "no name",
            Some(
                stage
                    .proxy
                    .issue(bent(|params| params.distinguished_name = DistinguishedName::new())),
            ),
        ),
    ] {
        refused(&stage, what, identity, admin).await;
    }
    let front = stage.front().identity;
    for (what, headers) in [
        ("no user", &[("x-remote-group", "system:masters")][..]),
        ("an empty user", &[("x-remote-user", "")]),
        ("two users", &[("x-remote-user", "alice"), ("x-remote-user", "admin")]),
        ("a token", &[("authorization", "Bearer admin")]),
    ] {
        refused(&stage, what, front.clone(), headers).await;
    }
}

#[tokio::test]
async fn before_the_trust_is_known_nobody_is_identified_and_discovery_is_served() {
    let stage = Stage::bare().await;
    assert_eq!(stage.front().get(METRICS, ALICE).await.code, 401);
    assert_eq!(stage.anyone().get("/apis/worker.gpustack.ai/v1", &[]).await.code, 200);
}

/// A replica that has just started is not sent to while it would refuse what another one answers; but nothing that keeps it from
/// beginning takes the discovery documents away for longer than half a minute.
#[tokio::test(start_paused = true)]
async fn a_replica_is_ready_when_it_can_answer_or_has_waited_long_enough() {
    let stage = Stage::bare().await;
    let ready = async || stage.anyone().get("/readyz", &[]).await.code;
    *stage.metrics.listed.lock() = false;
    assert_eq!(ready().await, 500);
    stage.publish(json!({}));
    stage.until_code(&stage.front(), 200).await;
    assert_eq!(ready().await, 500);
    *stage.metrics.listed.lock() = true;
    assert_eq!(ready().await, 200);
    *stage.metrics.listed.lock() = false;
    tokio::time::sleep(std::time::Duration::from_secs(31)).await;
    assert_eq!(ready().await, 200);
}

/// kubevirt/kubevirt#2180, kubernetes/kubernetes#65724: some clusters have no client-ca-file.
#[tokio::test]
async fn a_cluster_without_client_ca_file_is_served() {
    let stage = Stage::bare().await;
    stage.publish(json!({"client-ca-file": null}));
    stage.until_code(&stage.front(), 200).await;
}

/// kubernetes/kubernetes#60713: the proxy's certificate may come from an intermediate authority.
#[tokio::test]
async fn the_proxy_may_show_an_intermediate_authority() {
    let stage = Stage::new().await;
    let intermediate = stage.proxy.intermediate("between");
    let mut identity = intermediate.issue(params("front-proxy-client"));
    assert_eq!(stage.with(identity.clone()).get(METRICS, ALICE).await.code, 401);
    identity.chain.push(intermediate.der.clone());
    assert_eq!(stage.with(identity).get(METRICS, ALICE).await.code, 200);
}

/// kubernetes-sigs/metrics-server#314, kubernetes-sigs/prometheus-adapter#205, kubevirt/kubevirt#2234: the authority is renewed
/// under open connections.
#[tokio::test]
async fn a_renewed_authority_counts_on_open_connections() {
    let stage = Stage::new().await;
    let renewed = Authority::new("front proxy");
    let mut old = stage.front().open().await.unwrap();
    let fresh = stage.with(renewed.issue(params("front-proxy-client")));
    let mut new = fresh.open().await.unwrap();
    assert_eq!(old.send(Method::GET, METRICS, ALICE).await.unwrap().code, 200);
    assert_eq!(new.send(Method::GET, METRICS, ALICE).await.unwrap().code, 401);

    stage.publish(json!({"requestheader-client-ca-file": format!("{}{}", stage.proxy.pem, renewed.pem)}));
    stage.until_code(&fresh, 200).await;
    assert_eq!(old.send(Method::GET, METRICS, ALICE).await.unwrap().code, 200);
    assert_eq!(new.send(Method::GET, METRICS, ALICE).await.unwrap().code, 200);

    stage.publish(json!({"requestheader-client-ca-file": renewed.pem}));
    stage.until_code(&stage.front(), 401).await;
    assert_eq!(old.send(Method::GET, METRICS, ALICE).await.unwrap().code, 401);
    assert_eq!(new.send(Method::GET, METRICS, ALICE).await.unwrap().code, 200);
}

#[tokio::test]
async fn the_last_good_trust_stays_when_the_published_one_breaks_or_goes() {
    let stage = Stage::new().await;
    let other = Authority::new("front proxy");
    let next = stage.with(other.issue(params("front-proxy-client")));
    stage.publish(json!({"requestheader-client-ca-file": "broken"}));
    stage.api.delete(crate::api::PUBLISHED);
    assert_eq!(stage.front().get(METRICS, ALICE).await.code, 200);
    // What comes after them is taken, so both have been seen.
    stage.publish(json!({"requestheader-client-ca-file": format!("{}{}", stage.proxy.pem, other.pem)}));
    stage.until_code(&next, 200).await;
    assert_eq!(stage.front().get(METRICS, ALICE).await.code, 200);
}

/// One authority for users and the proxy, and no names: every user could speak for every other.
#[tokio::test]
async fn a_shared_authority_without_names_identifies_nobody_and_is_said() {
    let log = Log::default();
    let _guard = log.take();
    let stage = Stage::new().await;
    let shared = Stage::bare().await;
    shared.publish(json!({"client-ca-file": shared.proxy.pem, "requestheader-client-ca-file": shared.proxy.pem}));
    shared
        .api
        .until("the published trust is read", |api| {
            api.asked()
                .iter()
                .filter(|asked| asked.path.contains("configmaps"))
                .count()
                > 2
        })
        .await;
    assert_eq!(shared.front().get(METRICS, ALICE).await.code, 401);
    assert_eq!(stage.front().get(METRICS, ALICE).await.code, 200);
    let text = log.text();
    let warning = "requestheader-allowed-names is empty: every user could speak for any other";
    assert!(text.contains("WARN") && text.contains(warning), "{text}");
}

#[tokio::test]
async fn the_review_names_the_caller_as_the_headers_do() {
    let stage = Stage::new().await;
    let answer = stage
        .front()
        .get(
            METRICS,
            &[
                ("X-Remote-User", "bob"),
                ("X-Remote-Uid", "42"),
                ("X-Remote-Group", "dev,ops"),
                ("X-Remote-Group", "system:authenticated"),
                ("X-Remote-Extra-Example.com%2Fscope", "read"),
                ("Impersonate-User", "admin"),
            ],
        )
        .await;
    assert_eq!(answer.code, 200);
    let expected = json!({
        "user": "bob",
        "uid": "42",
        "groups": ["dev,ops", "system:authenticated"],
        "extra": {"example.com/scope": ["read"]},
        "resourceAttributes": {
            "group": "worker.gpustack.ai", "version": "v1", "resource": "modeldeployments", "subresource": "metrics",
            "namespace": "ns", "name": "chat", "verb": "get",
        },
    });
    assert_eq!(stage.api.reviews().last(), Some::<&Value>(&expected));
}

/// A reverse connection or web socket has no place here (CVE-2018-1002105).
#[tokio::test]
async fn upgrades_are_refused() {
    let stage = Stage::new().await;
    for path in [METRICS, "/apis", "/version"] {
        let headers = [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("x-remote-user", "alice"),
        ];
        let answer = stage.front().send_http1(Method::GET, path, &headers).await;
        assert_eq!(answer.code, 400, "{path}");
        answer.message();
    }
}

/// kubernetes-sigs/prometheus-adapter#688, vmware/pinniped#2605: without the right to read the published trust, one clear message.
#[tokio::test]
async fn a_missing_role_binding_is_named_once_and_discovery_is_served() {
    let log = Log::default();
    let _guard = log.take();
    let stage = Stage::forbidden().await;
    stage
        .api
        .until("the ConfigMap was asked for again", |api| {
            api.asked()
                .iter()
                .filter(|asked| asked.path.contains("configmaps"))
                .count()
                >= 4
        })
        .await;
    assert_eq!(stage.anyone().get("/apis/worker.gpustack.ai/v1", &[]).await.code, 200);
    assert_eq!(stage.front().get(METRICS, ALICE).await.code, 401);
    let text = log.text();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("RoleBinding")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0].contains("extension-apiserver-authentication-reader"), "{text}");
    assert!(lines[0].contains("kube-system"), "{text}");
}
