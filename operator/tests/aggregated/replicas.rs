//! Two replicas and one ModelDeployment: one of them owns its windows, and the other says what that one says, or answers itself.

use std::net::SocketAddr;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::caller::{Answer, Caller};
use crate::issued::{Authority, Identity, params};
use crate::replica::{CLIENT, Given, Plays, Pod, Replica, Seen, TTFT, UID, client, code, played, server};
use crate::stage::{ALICE, METRICS, answer};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Two replicas that see both of them ready; the owner first.
async fn two(pod: &Pod, authority: &Authority) -> [Replica; 2] {
    let given = || Given::usual(pod, authority);
    let replicas = [
        Replica::start("op-a", given()).await,
        Replica::start("op-b", given()).await,
    ];
    let seen = [("op-a", replicas[0].address), ("op-b", replicas[1].address)];
    for replica in &replicas {
        replica.sees(&seen).await;
    }
    let [a, b] = replicas;
    assert_ne!(a.forwards(), b.forwards());
    if a.forwards() { [b, a] } else { [a, b] }
}

/// A replica that takes whoever listens at `owner` for the owner of everything.
async fn before(owner: SocketAddr, pod: &Pod, authority: &Authority) -> Replica {
    let replica = Replica::start("op-a", Given::usual(pod, authority)).await;
    replica.sees(&[("op-b", owner)]).await;
    replica
}

/// The answer's lists, without the times.
fn lists(answer: &Answer) -> Value {
    let mut answer = answer.json();
    answer.as_object_mut().unwrap().remove("timestamp");
    answer
}

/// Expects a read that the replica itself answered, from windows that it does not have yet, inside the time for one request.
async fn answered_here(replica: &Replica, outcome: &str) {
    let started = Instant::now();
    let answer = replica.read("").await;
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    assert_eq!(answer.code, 200, "{outcome}: {answer:?}");
    assert_eq!(code(&answer.json(), TTFT), "FirstSample", "{outcome}");
    assert_eq!(replica.forwarded(outcome), (1, 1), "{outcome}");
}

#[tokio::test]
async fn either_replica_answers_from_the_windows_of_one() {
    let (pod, authority) = (Pod::start().await, Authority::new("ours"));
    let [owner, other] = two(&pod, &authority).await;
    // A read at each at once is one read of the Pod.
    let (first, second) = tokio::join!(owner.read(""), other.read(""));
    assert_eq!((first.code.as_u16(), second.code.as_u16()), (200, 200), "{second:?}");
    assert_eq!(lists(&first), lists(&second));
    assert_eq!(code(&second.json(), TTFT), "FirstSample");
    assert_eq!(second.json()["queueing"][0]["value"], 0.1);
    assert_eq!(pod.reads(), 1);

    // From then on there is a baseline, whichever is asked. The Pod stood still, so its latency is idle.
    for replica in [&other, &owner, &other] {
        sleep(Duration::from_secs(1)).await;
        let answer = replica.read("").await.json();
        assert_eq!(code(&answer, TTFT), "Idle", "{}: {answer}", replica.name);
    }
    assert_eq!(other.forwarded("Answered"), (3, 3));
    assert_eq!(owner.forwarded("Answered"), (0, 0));
}

#[tokio::test]
async fn the_window_that_is_asked_for_is_the_owners() {
    let (pod, authority) = (Pod::start().await, Authority::new("ours"));
    let [_owner, other] = two(&pod, &authority).await;
    let answer = other.read("?window=1s").await.json();
    assert_eq!(code(&answer, TTFT), "Idle", "{answer}");
    assert_eq!(pod.reads(), 2);
    assert_eq!(other.forwarded("Answered"), (1, 1));
}

/// The caller is reviewed where they ask; the owner is asked nothing about them.
#[tokio::test]
async fn who_may_not_read_is_refused_before_anyone_is_asked() {
    let (pod, authority) = (Pod::start().await, Authority::new("ours"));
    let [owner, other] = two(&pod, &authority).await;
    other.api.review(|_| json!({"allowed": false, "reason": "no"}));
    assert_eq!(other.read("").await.code, 403);
    let stranger = [("x-remote-group", "system:masters")];
    assert_eq!(other.front.get(METRICS, &stranger).await.code, 401);
    assert_eq!((pod.reads(), other.forwarded("Answered")), (0, (0, 0)));

    other.api.review(|_| json!({"allowed": true}));
    let bob = [("x-remote-user", "bob")];
    assert_eq!(other.front.get(METRICS, &bob).await.code, 200);
    assert_eq!(other.forwarded("Answered"), (1, 1));
    let asked = |review: &Value| review["resourceAttributes"]["name"] == "chat";
    assert!(other.api.reviews().iter().any(asked));
    assert!(!owner.api.reviews().iter().any(asked));
}

#[tokio::test]
async fn without_another_ready_replica_a_read_is_answered_here() {
    let (pod, authority) = (Pod::start().await, Authority::new("ours"));
    let alone = Replica::start("op-a", Given::usual(&pod, &authority)).await;
    assert_eq!(alone.read("").await.code, 200);
    alone.sees(&[("op-a", alone.address)]).await;
    assert_eq!(alone.read("").await.code, 200);
    assert_eq!(alone.forwarded("Answered"), (0, 0));
}

#[tokio::test]
async fn an_owner_that_is_gone_costs_one_first_sample() {
    let (pod, authority) = (Pod::start().await, Authority::new("ours"));
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let replica = before(gone, &pod, &authority).await;
    answered_here(&replica, "Unreachable").await;
    for reads in 2..4 {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(code(&replica.read("").await.json(), TTFT), "Idle");
        assert_eq!(replica.forwarded("Unreachable"), (reads, reads));
    }
    assert_eq!(pod.reads(), 3);
}

/// Its machine is there and takes the connection; nobody speaks.
#[tokio::test]
async fn an_owner_that_does_not_speak_is_not_waited_for() {
    let (pod, authority) = (Pod::start().await, Authority::new("ours"));
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let replica = before(silent.local_addr().unwrap(), &pod, &authority).await;
    answered_here(&replica, "Unreachable").await;
}

#[tokio::test]
async fn an_owner_that_stops_with_the_question_is_noticed_in_time_for_the_longest_window() {
    let (pod, authority) = (Pod::start().await, Authority::new("ours"));
    let owner = played(&authority, Plays::Stops).await;
    let replica = before(owner, &pod, &authority).await;
    let started = Instant::now();
    let answer = replica.read("?window=3s").await;
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    assert_eq!(answer.code, 200, "{answer:?}");
    assert_eq!(code(&answer.json(), TTFT), "Idle");
    assert_eq!(replica.forwarded("Broken"), (1, 1));
}

/// It lives and does not answer; nothing that is left of the time holds a window.
#[tokio::test]
async fn an_owner_that_never_answers_is_left_in_time() {
    let (pod, authority) = (Pod::start().await, Authority::new("ours"));
    let owner = played(&authority, Plays::Ponders).await;
    let replicas = [
        before(owner, &pod, &authority).await,
        before(owner, &pod, &authority).await,
    ];
    let window = async {
        let started = Instant::now();
        let answer = replicas[1].read("?window=1s").await;
        assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
        answer
    };
    let ((), answer) = tokio::join!(answered_here(&replicas[0], "Late"), window);
    assert_eq!(answer.code, 503);
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(
        answer.message(),
        "the operator's replica that keeps the windows of ModelDeployment chat did not answer in time"
    );
    assert_eq!(pod.reads(), 1);
}

/// Slow Pods are the owner's answer, and are not read a second time.
#[tokio::test]
async fn an_owner_whose_pods_hang_is_waited_for() {
    let (pod, authority) = (Pod::start().await, Authority::new("ours"));
    pod.hangs.store(true, std::sync::atomic::Ordering::Relaxed);
    let [_owner, other] = two(&pod, &authority).await;
    let started = Instant::now();
    let answer = other.read("").await;
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    assert_eq!(answer.code, 503);
    assert!(answer.message().contains("Timeout"), "{answer:?}");
    assert_eq!(other.forwarded("Answered"), (1, 1));
    assert_eq!(pod.reads(), 1);
}

#[tokio::test]
async fn what_is_no_answer_to_the_question_is_not_passed_on() {
    let (pod, authority) = (Pod::start().await, Authority::new("ours"));
    let mut other = serde_json::to_value(answer()).unwrap();
    other["metadata"]["name"] = "other".into();
    let other = json!({ "metrics": other }).to_string();
    let huge = format!("{{\"noAnswer\": \"{}\"}}", "x".repeat(4 << 20));
    for (outcome, status, body) in [
        ("Unreadable", 200, ""),
        ("Unreadable", 200, "{\"metrics\": {\"kind\": \"Status\"}}"),
        ("Unreadable", 200, "\"yes\""),
        ("Unreadable", 200, &other),
        ("Unreadable", 200, &huge),
        ("Refused", 301, "\"unknown\""),
        ("Refused", 404, "\"unknown\""),
        ("Refused", 429, ""),
        ("Refused", 500, "\"unknown\""),
        ("Unknown", 200, "\"unknown\""),
    ] {
        let owner = played(&authority, Plays::Says(status, body.to_owned().into())).await;
        answered_here(&before(owner, &pod, &authority).await, outcome).await;
    }
    // And what is one is.
    let good = json!({ "metrics": answer() }).to_string();
    let owner = played(&authority, Plays::Says(200, good.into())).await;
    let replica = before(owner, &pod, &authority).await;
    let reads = pod.reads();
    assert_eq!(
        replica.read("").await.json()["timestamp"],
        "2026-01-02T03:04:05.000006Z"
    );
    assert_eq!((pod.reads(), replica.forwarded("Answered")), (reads, (1, 1)));
}

/// An owner that has not seen the object yet, or still sees an older one of that name, does not make it a 404. One that is asked first
/// decides by what it sees itself.
#[tokio::test]
async fn what_one_replica_does_not_know_is_not_absent() {
    let (pod, authority) = (Pod::start().await, Authority::new("ours"));
    for seen in [Seen::NotYet, Seen::Nothing, Seen::Uid("md-0")] {
        let given = Given {
            seen,
            ..Given::usual(&pod, &authority)
        };
        let ignorant = Replica::start("op-b", given).await;
        answered_here(&before(ignorant.address, &pod, &authority).await, "Unknown").await;
        let knowing = Replica::start("op-a", Given::usual(&pod, &authority)).await;
        ignorant.sees(&[("op-a", knowing.address)]).await;
        let answer = ignorant.read("").await;
        match seen {
            Seen::Nothing => assert_eq!(answer.code, 404),
            Seen::Uid(_) => assert_eq!(ignorant.forwarded("Unknown"), (1, 1)),
            Seen::NotYet => assert_eq!((answer.code.as_u16(), ignorant.forwarded("Answered").0), (200, 1)),
        }
    }
}

/// A replica that has just started is ready before it has listed what there is. Another answers for it, if it can.
#[tokio::test]
async fn a_replica_that_has_seen_nothing_yet_has_another_answer() {
    let (pod, authority) = (Pod::start().await, Authority::new("ours"));
    let started = async |seen| {
        let given = Given {
            seen,
            ..Given::usual(&pod, &authority)
        };
        Replica::start("op-a", given).await
    };
    let (fresh, fellow) = (started(Seen::NotYet).await, started(Seen::NotYet).await);
    let knowing = Replica::start("op-b", Given::usual(&pod, &authority)).await;
    let alone = fresh.read("").await;
    assert_eq!(alone.code, 503);
    assert!(alone.message().contains("has just started"), "{alone:?}");
    // Both are ready, and whichever owns the windows.
    fresh.sees(&[("op-a", fresh.address), ("op-b", knowing.address)]).await;
    assert_eq!(fresh.read("").await.code, 200);
    assert_eq!(fresh.forwarded("Answered").0, 1);
    // One that knows no more is no help, and what it does not know is not absent.
    fellow.sees(&[("op-b", fresh.address)]).await;
    assert_eq!(fellow.read("").await.code, 503);
    assert_eq!(fellow.forwarded("Unknown"), (1, 1));
}

#[tokio::test]
async fn a_replica_of_another_authority_is_neither_asked_nor_answered() {
    let (pod, ours, foreign) = (Pod::start().await, Authority::new("ours"), Authority::new("ours"));
    let stranger = Replica::start("op-b", Given::usual(&pod, &foreign)).await;
    answered_here(&before(stranger.address, &pod, &ours).await, "Unreachable").await;
    // One that trusts us, and that we do not trust.
    let given = Given {
        trusts: vec![&ours, &foreign],
        ..Given::usual(&pod, &foreign)
    };
    let asking = Replica::start("op-a", given).await;
    let owner = Replica::start("op-b", Given::usual(&pod, &ours)).await;
    asking.sees(&[("op-b", owner.address)]).await;
    answered_here(&asking, "Refused").await;
}

/// While an authority is renewed both are trusted, and some replicas have certificates of the one and some of the other.
#[tokio::test]
async fn replicas_of_the_old_and_of_the_new_authority_ask_each_other() {
    let (pod, old, new) = (Pod::start().await, Authority::new("old"), Authority::new("new"));
    for (issuer, other) in [(&old, &new), (&new, &old)] {
        let given = |issuer| Given {
            issuer,
            trusts: vec![&old, &new],
            ..Given::usual(&pod, issuer)
        };
        let owner = Replica::start("op-b", given(other)).await;
        let asking = Replica::start("op-a", given(issuer)).await;
        asking.sees(&[("op-b", owner.address)]).await;
        assert_eq!(asking.read("").await.code, 200);
        assert_eq!(asking.forwarded("Answered"), (1, 1));
    }
}

/// Each takes the other for the owner, as it may be for a moment when one of them becomes ready.
#[tokio::test]
async fn a_read_is_handed_on_once() {
    let (pod, authority) = (Pod::start().await, Authority::new("ours"));
    let [one, other] = two(&pod, &authority).await;
    let each = [
        before(one.address, &pod, &authority).await,
        Replica::start("op-b", Given::usual(&pod, &authority)).await,
    ];
    each[0].sees(&[("op-b", each[1].address)]).await;
    each[1].sees(&[("op-a", each[0].address)]).await;
    drop((one, other));
    let [a, b] = each;
    assert!(a.forwards() && b.forwards());
    assert_eq!(a.read("").await.code, 200);
    assert_eq!((a.forwarded("Answered"), b.forwarded("Answered")), ((1, 1), (0, 0)));
    assert_eq!(pod.reads(), 1);
}

/// The way of replicas is theirs alone: no header, no user and no other certificate of whatever authority opens it.
#[tokio::test]
async fn nobody_but_a_replica_is_answered_as_one() {
    let (pod, authority) = (Pod::start().await, Authority::new("ours"));
    let [owner, other] = two(&pod, &authority).await;
    let path = |version: &str, rest: &str| format!("/replicas/{version}/namespaces/ns/modeldeployments/chat/{rest}");
    let right = path(VERSION, &format!("metrics?uid={UID}&timeout=5s"));
    let with = |identity: Identity| Caller {
        identity: Some(identity),
        ..owner.anyone.clone()
    };
    let foreign = Authority::new("ours");
    let mut nameless = params(CLIENT);
    nameless.subject_alt_names.clear();
    let headers: &[(&str, &str)] = &[
        ("x-remote-user", "system:admin"),
        ("x-remote-group", "system:masters"),
        ("authorization", "Bearer token"),
    ];
    for (what, caller) in [
        ("no certificate", owner.anyone.clone()),
        ("the API server", owner.front.clone()),
        ("a replica's name, another authority", with(client(&foreign))),
        ("the serving certificate", with(server(&authority))),
        ("the authority, another name", with(authority.issue(params("admin")))),
        ("the name where no name is looked for", with(authority.issue(nameless))),
    ] {
        for headers in [ALICE, headers] {
            let answer = caller.get(&right, headers).await;
            assert_eq!(answer.code, 401, "{what}");
            assert_eq!(answer.message(), "Unauthorized", "{what}");
        }
        assert_eq!(
            caller.send_http1(Method::GET, &right, headers).await.code,
            401,
            "{what}"
        );
        assert_eq!(caller.get(&path("0.0.1", "metrics"), headers).await.code, 401, "{what}");
    }
    assert_eq!(pod.reads(), 0);

    let replica = with(client(&authority));
    let answer = replica.get(&right, &[]).await;
    assert_eq!(answer.code, 200);
    assert_eq!(answer.json()["metrics"]["metadata"]["name"], "chat");
    for (code, path) in [
        (404, path("0.0.1", "metrics")),
        (404, path(VERSION, "status")),
        (404, path(VERSION, "")),
        (404, "/replicas/".to_owned()),
        (404, "/replicas".to_owned()),
        (400, format!("{right}&window=9s")),
    ] {
        assert_eq!(replica.get(&path, &[]).await.code, code, "{path}");
    }
    assert_eq!(replica.send(Method::POST, &right, &[]).await.code, 405);
    // A replica is nobody at the API itself.
    assert_eq!(replica.get(METRICS, headers).await.code, 401);
    assert_eq!(other.read("").await.code, 200);
}
