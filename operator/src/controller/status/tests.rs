use super::*;

fn now() -> Time {
    Time("2026-11-30T12:00:00Z".parse().unwrap())
}

fn later() -> Time {
    Time("2026-11-30T13:00:00Z".parse().unwrap())
}

fn role(name: &str, kind: RoleKind, desired: u32, ready: u32) -> SeenRole {
    let counts = Counts {
        ready,
        updated: desired,
        ..Counts::default()
    };
    SeenRole {
        name: name.into(),
        kind,
        desired,
        counts,
        take_over: false,
        trouble: None,
    }
}

fn router(ready: i32) -> SeenRouter {
    SeenRouter {
        name: RouterName::Vllm,
        desired: 1,
        ready,
        coordinator: None,
        endpoint: "http://chat-router.prod.svc:8081".into(),
        metrics_port: 9090,
    }
}

/// A router that is scaled to zero.
fn off() -> SeenRouter {
    SeenRouter {
        desired: 0,
        ..router(0)
    }
}

fn seen(roles: Vec<SeenRole>, router: Option<SeenRouter>) -> Seen {
    Seen {
        generation: Some(3),
        deleting: false,
        refused: None,
        roles,
        router,
        endpoint: Some("http://chat.prod.svc:8000".into()),
        blocked: None,
    }
}

fn server(desired: u32, ready: u32) -> Vec<SeenRole> {
    vec![role("server", RoleKind::Server, desired, ready)]
}

/// `Available=True/MinimumReplicasReady` and so on.
fn told(seen: &Seen, previous: Option<&ModelDeploymentStatus>) -> Vec<String> {
    let status = status(seen, previous, &now());
    status
        .conditions
        .iter()
        .map(|c| format!("{}={}/{}", c.type_, c.status, c.reason))
        .collect()
}

fn condition(seen: &Seen, previous: Option<&ModelDeploymentStatus>, type_: &str) -> String {
    let prefix = format!("{type_}=");
    told(seen, previous)
        .into_iter()
        .find_map(|told| told.strip_prefix(&prefix).map(str::to_owned))
        .unwrap()
}

#[test]
fn the_phase_says_the_whole_in_one_word() {
    let deleting = Seen {
        deleting: true,
        ..seen(server(2, 2), None)
    };
    for (seen, phase) in [
        (seen(server(2, 0), None), Phase::Starting),
        (seen(server(2, 1), None), Phase::Degraded),
        (seen(server(2, 2), None), Phase::Ready),
        (seen(server(2, 2), Some(router(0))), Phase::Degraded),
        (seen(server(2, 2), Some(router(1))), Phase::Ready),
        (seen(server(0, 0), None), Phase::Ready),
        (seen(server(0, 0), Some(router(1))), Phase::Ready),
        (seen(server(0, 0), Some(router(0))), Phase::Starting),
        (seen(server(0, 0), Some(off())), Phase::Ready),
        (seen(server(2, 2), Some(off())), Phase::Degraded),
        (deleting, Phase::Deleting),
    ] {
        assert_eq!(status(&seen, None, &now()).phase, Some(phase), "{seen:?}");
    }
}

#[test]
fn the_summary_counts_ready_instances_by_kind() {
    let pair = vec![role("p", RoleKind::Prefill, 3, 3), role("d", RoleKind::Decode, 5, 4)];
    let two = vec![role("a", RoleKind::Server, 1, 1), role("b", RoleKind::Server, 2, 2)];
    for (seen, summary) in [
        (seen(server(2, 2), Some(router(1))), "1R2S"),
        (seen(pair, Some(router(1))), "1R3P4D"),
        (seen(server(2, 0), Some(router(0))), "0R0S"),
        (seen(two, None), "3S"),
    ] {
        assert_eq!(status(&seen, None, &now()).role_summary.as_deref(), Some(summary));
    }
}

#[test]
fn the_endpoint_is_the_routers_where_there_is_one_and_empty_until_it_is_ready() {
    let endpoint = |router| status(&seen(server(1, 1), router), None, &now()).endpoint;
    assert_eq!(endpoint(None).as_deref(), Some("http://chat.prod.svc:8000"));
    assert_eq!(endpoint(Some(router(0))), None);
    assert_eq!(
        endpoint(Some(router(1))).as_deref(),
        Some("http://chat-router.prod.svc:8081")
    );
}

#[test]
fn available_means_that_requests_are_answered() {
    let half = vec![role("p", RoleKind::Prefill, 1, 1), role("d", RoleKind::Decode, 1, 0)];
    for (seen, told) in [
        (seen(server(2, 1), None), "True/MinimumReplicasReady"),
        (seen(server(2, 0), None), "False/NoReadyReplicas"),
        (seen(half, None), "False/NoReadyReplicas"),
        (seen(server(2, 2), Some(router(0))), "False/RouterNotReady"),
        (seen(server(2, 2), Some(off())), "False/RouterNotReady"),
        // Nothing is asked for, as of a Deployment that is scaled to zero.
        (seen(server(0, 0), None), "True/NoReplicas"),
        (seen(server(0, 0), Some(off())), "True/NoReplicas"),
        (seen(server(0, 0), Some(router(1))), "True/NoReplicas"),
        (seen(server(0, 0), Some(router(0))), "False/RouterNotReady"),
    ] {
        assert_eq!(condition(&seen, None, "Available"), told);
    }
}

#[test]
fn nothing_is_on_its_way_where_nothing_is_wanted() {
    let coordinated = |coordinator| SeenRouter {
        coordinator: Some(coordinator),
        ..router(1)
    };
    for (seen, told) in [
        (seen(server(0, 0), None), "False/UpToDate"),
        (seen(server(2, 2), Some(off())), "False/UpToDate"),
        (seen(server(2, 2), Some(router(0))), "True/RouterStarting"),
        (seen(server(2, 2), Some(coordinated((1, 0)))), "True/RouterStarting"),
        (seen(server(2, 2), Some(coordinated((0, 0)))), "False/UpToDate"),
    ] {
        assert_eq!(condition(&seen, None, "Progressing"), told);
    }
}

#[test]
fn a_deployment_that_cannot_be_read_is_told_so_and_keeps_what_was_told_before() {
    let before = status(&seen(server(2, 2), None), None, &now());
    let told = unreadable(Some(4), "no", Some(before.clone()), &later());
    let reasons: Vec<_> = told
        .conditions
        .iter()
        .map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_str()))
        .collect();
    assert_eq!(
        reasons,
        [
            ("Available", "True", "MinimumReplicasReady"),
            ("RouterReady", "True", "NoRouter"),
            ("RolesReady", "True", "AllReplicasReady"),
            ("Progressing", "False", "SpecRefused"),
            ("SpecAccepted", "False", "Refused"),
        ]
    );
    assert_eq!((told.observed_generation, told.phase), (Some(4), before.phase));
    assert_eq!((&told.endpoint, &told.roles), (&before.endpoint, &before.roles));
    assert_eq!(unreadable(Some(4), "no", Some(told.clone()), &later()), told);
    assert_eq!(unreadable(Some(1), "no", None, &now()).phase, Some(Phase::Starting));
}

#[test]
fn a_rollout_is_told_from_its_first_replaced_pod_to_the_last_ready_one() {
    let mut first = seen(server(2, 2), None);
    first.roles[0].counts.outdated = 2;
    assert_eq!(condition(&first, None, "Progressing"), "True/RolloutInProgress");
    let rolling = status(&first, None, &now());
    // The last Pod is of the new revision but not ready yet.
    assert_eq!(
        condition(&seen(server(2, 1), None), Some(&rolling), "Progressing"),
        "True/RolloutInProgress"
    );
    assert_eq!(
        condition(&seen(server(2, 2), None), Some(&rolling), "Progressing"),
        "False/UpToDate"
    );
    // Without a rollout before, the same is a start.
    assert_eq!(
        condition(&seen(server(2, 1), None), None, "Progressing"),
        "True/ReplicasStarting"
    );
}

#[test]
fn a_pod_that_cannot_become_ready_stops_the_rollout_in_words() {
    let mut stalled = seen(server(2, 1), None);
    stalled.roles[0].counts.outdated = 1;
    stalled.roles[0].trouble = Some("Pod chat-server-1: ImagePullBackOff: Back-off pulling image".into());
    let told = status(&stalled, None, &now());
    let progressing = told
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Progressing")
        .unwrap();
    assert_eq!(
        (progressing.status.as_str(), progressing.reason.as_str()),
        ("False", "RolloutStalled")
    );
    assert_eq!(
        progressing.message,
        "the rollout of role server has stopped: Pod chat-server-1: ImagePullBackOff: Back-off pulling image"
    );
    stalled.roles[0].counts.outdated = 0;
    assert_eq!(condition(&stalled, None, "Progressing"), "False/ReplicasFailing");
}

#[test]
fn a_refused_spec_is_told_and_leaves_the_rest_as_it_is() {
    let accepted = status(&seen(server(2, 2), None), None, &now());
    let refused = Seen {
        refused: Some("spec.x: no".into()),
        endpoint: None,
        ..seen(server(2, 2), None)
    };
    let told = status(&refused, Some(&accepted), &now());
    let condition = told
        .conditions
        .iter()
        .find(|condition| condition.type_ == "SpecAccepted")
        .unwrap();
    assert_eq!(
        (condition.status.as_str(), condition.message.as_str()),
        ("False", "spec.x: no")
    );
    assert_eq!(told.endpoint, accepted.endpoint);
    assert_eq!((told.phase, told.observed_generation), (Some(Phase::Ready), Some(3)));
}

#[test]
fn what_the_api_server_refuses_is_told() {
    let blocked = Seen {
        blocked: Some(("QuotaExceeded", "exceeded quota".into())),
        ..seen(server(2, 1), None)
    };
    assert_eq!(condition(&blocked, None, "Progressing"), "False/QuotaExceeded");
}

#[test]
fn a_condition_keeps_its_transition_time_while_its_status_stays() {
    let before = status(&seen(server(2, 0), None), None, &now());
    let after = status(&seen(server(2, 1), None), Some(&before), &later());
    let times: Vec<_> = after
        .conditions
        .iter()
        .map(|c| (c.type_.as_str(), c.last_transition_time == later()))
        .collect();
    assert_eq!(
        times,
        [
            ("Available", true),
            ("Progressing", false),
            ("RouterReady", false),
            ("RolesReady", false),
            ("SpecAccepted", false)
        ]
    );
    assert_eq!(status(&seen(server(2, 1), None), Some(&after), &later()), after);
}

#[test]
fn every_reason_is_documented() {
    const DOCUMENT: &str = include_str!("../../../../docs/conditions.md");
    for source in [include_str!("../status.rs"), include_str!("../refused.rs")] {
        let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        let quoted = code.flat_map(|line| line.split('"').skip(1).step_by(2));
        let reasons = quoted.filter(|word| {
            word.starts_with(char::is_uppercase) && word.len() > 4 && word.chars().all(char::is_alphanumeric)
        });
        for reason in reasons {
            assert!(DOCUMENT.contains(&format!("`{reason}`")), "{reason}");
        }
    }
}
