use super::*;

const OLD: &str = "r1";
const NEW: &str = "r2";

fn wanted(replicas: u32, size: u32) -> WantedRole {
    WantedRole {
        replicas,
        size,
        revision: Some(NEW.into()),
    }
}

fn pod(ordinal: u32, revision: &str, state: PodState) -> LivePod {
    let name = format!("chat-server-{ordinal}");
    LivePod {
        uid: format!("uid-{name}"),
        name,
        ordinal,
        member: 0,
        alone: true,
        revision: Some(revision.into()),
        state,
    }
}

fn member(ordinal: u32, member: u32, revision: &str, state: PodState) -> LivePod {
    let name = format!("chat-server-{ordinal}-{member}");
    LivePod {
        uid: format!("uid-{name}"),
        name,
        ordinal,
        member,
        alone: false,
        revision: Some(revision.into()),
        state,
    }
}

/// `+0` creates ordinal 0, `+0.1` its member 1; `-name(why)` deletes.
fn told(wanted: &WantedRole, live: &[LivePod], max_unavailable: u32) -> Vec<String> {
    steps(wanted, live, max_unavailable)
        .into_iter()
        .map(|step| match step {
            Step::Create { ordinal, member } if wanted.size > 1 => format!("+{ordinal}.{member}"),
            Step::Create { ordinal, .. } => format!("+{ordinal}"),
            Step::Delete { name, why, .. } => format!("-{}({why:?})", name.trim_start_matches("chat-server-")),
        })
        .collect()
}

#[test]
fn a_role_is_created_whole_and_in_order() {
    assert_eq!(told(&wanted(3, 1), &[], 1), ["+0", "+1", "+2"]);
    assert_eq!(told(&wanted(2, 2), &[], 1), ["+0.0", "+0.1", "+1.0", "+1.1"]);
}

#[test]
fn nothing_is_done_where_everything_is_as_wanted() {
    let live = [pod(0, NEW, PodState::Ready), pod(1, NEW, PodState::Starting)];
    assert_eq!(told(&wanted(2, 1), &live, 1), [""; 0]);
}

#[test]
fn scaling_up_touches_no_other_pod() {
    let live = [pod(0, NEW, PodState::Ready), pod(1, NEW, PodState::Starting)];
    assert_eq!(told(&wanted(4, 1), &live, 1), ["+2", "+3"]);
}

#[test]
fn scaling_down_removes_the_highest_ordinals() {
    let live: Vec<_> = (0..5).map(|ordinal| pod(ordinal, NEW, PodState::Ready)).collect();
    assert_eq!(
        told(&wanted(2, 1), &live, 1),
        ["-4(ScaledDown)", "-3(ScaledDown)", "-2(ScaledDown)"]
    );
    assert_eq!(told(&wanted(0, 1), &live[..1], 1), ["-0(ScaledDown)"]);
}

#[test]
fn a_failed_pod_is_deleted_and_then_created_under_the_same_ordinal() {
    let live = [pod(0, NEW, PodState::Finished), pod(1, NEW, PodState::Ready)];
    assert_eq!(told(&wanted(2, 1), &live, 1), ["-0(Finished)"]);
    assert_eq!(told(&wanted(2, 1), &live[1..], 1), ["+0"]);
}

#[test]
fn a_pod_that_is_ending_is_waited_for() {
    let live = [pod(0, NEW, PodState::Terminating), pod(1, NEW, PodState::Ready)];
    assert_eq!(told(&wanted(2, 1), &live, 1), [""; 0]);
}

#[test]
fn a_rollout_gives_one_replica_up_at_a_time_and_waits_for_it() {
    let wanted = wanted(3, 1);
    let ready = |revisions: [&str; 3]| -> Vec<_> {
        (0..)
            .zip(revisions)
            .map(|(ordinal, revision)| pod(ordinal, revision, PodState::Ready))
            .collect()
    };
    let mut live = ready([OLD, OLD, OLD]);
    assert_eq!(told(&wanted, &live, 1), ["-2(Outdated)"]);
    live[2].state = PodState::Terminating;
    assert_eq!(told(&wanted, &live, 1), [""; 0]);
    assert_eq!(told(&wanted, &live[..2], 1), ["+2"]);
    live[2] = pod(2, NEW, PodState::Starting);
    assert_eq!(told(&wanted, &live, 1), [""; 0]);
    assert_eq!(told(&wanted, &ready([OLD, OLD, NEW]), 1), ["-1(Outdated)"]);
    assert_eq!(
        told(&wanted, &ready([OLD, OLD, OLD]), 2),
        ["-2(Outdated)", "-1(Outdated)"]
    );
}

#[test]
fn a_rollout_stops_while_any_replica_is_not_ready() {
    // The new revision does not come up: nothing more of the old one is given up.
    let live = [
        pod(0, OLD, PodState::Ready),
        pod(1, OLD, PodState::Ready),
        pod(2, NEW, PodState::Starting),
    ];
    assert_eq!(told(&wanted(3, 1), &live, 1), [""; 0]);
    // Mended: the Pod that never came up makes way at once, the ready ones still wait.
    let mended = WantedRole {
        revision: Some("r3".into()),
        ..wanted(3, 1)
    };
    assert_eq!(told(&mended, &live, 1), ["-2(Outdated)"]);
}

#[test]
fn scaling_and_rollout_go_together() {
    let live = [pod(0, OLD, PodState::Ready), pod(1, OLD, PodState::Ready)];
    // A new replica is created of the new revision, and counts as unavailable until it is ready.
    assert_eq!(told(&wanted(3, 1), &live, 1), ["+2"]);
    assert_eq!(told(&wanted(1, 1), &live, 1), ["-1(ScaledDown)", "-0(Outdated)"]);
}

#[test]
fn a_replica_of_several_pods_is_replaced_whole() {
    let wanted = wanted(2, 2);
    let ready: Vec<_> = [(0, 0), (0, 1), (1, 0), (1, 1)]
        .map(|(o, m)| member(o, m, OLD, PodState::Ready))
        .into();
    assert_eq!(told(&wanted, &ready, 1), ["-1-0(Outdated)", "-1-1(Outdated)"]);
    // One of its Pods lingers: it is created only when both are gone.
    let lingering = [&ready[..2], &[member(1, 1, OLD, PodState::Terminating)]].concat();
    assert_eq!(told(&wanted, &lingering, 1), [""; 0]);
    assert_eq!(told(&wanted, &ready[..2], 1), ["+1.0", "+1.1"]);
    // One Pod of an outdated replica is lost: the replica serves nothing any more and is replaced before the other.
    assert_eq!(told(&wanted, &ready[..3], 1), ["-1-0(Outdated)"]);
}

#[test]
fn a_lost_member_is_created_again_beside_the_others() {
    let live = [member(0, 0, NEW, PodState::Ready)];
    assert_eq!(told(&wanted(1, 2), &live, 1), ["+0.1"]);
}

#[test]
fn another_size_replaces_replica_by_replica() {
    let live = [pod(0, OLD, PodState::Ready), pod(1, OLD, PodState::Ready)];
    assert_eq!(told(&wanted(2, 2), &live, 1), ["-1(Outdated)"]);
    assert_eq!(told(&wanted(2, 2), &live[..1], 1), ["+1.0", "+1.1"]);
}

#[test]
fn a_refused_spec_touches_nothing() {
    let refused = WantedRole {
        replicas: 1,
        size: 1,
        revision: None,
    };
    let live = [pod(1, OLD, PodState::Ready), pod(2, OLD, PodState::Finished)];
    assert_eq!(told(&refused, &live, 1), [""; 0]);
}

#[test]
fn counts_are_of_replicas() {
    let live = [
        member(0, 0, NEW, PodState::Ready),
        member(0, 1, NEW, PodState::Ready),
        member(1, 0, NEW, PodState::Ready),
        member(1, 1, NEW, PodState::Starting),
        member(2, 0, OLD, PodState::Ready),
        member(2, 1, OLD, PodState::Ready),
        member(3, 0, NEW, PodState::Terminating),
    ];
    assert_eq!(
        count(&wanted(3, 2), &live),
        Counts {
            ready: 2,
            updated: 2,
            outdated: 1,
            surplus: 1
        }
    );
}

/// Whatever the order of deletions and readiness, a rollout never has more than `max_unavailable` replicas away, and ends.
#[test]
fn a_simulated_rollout_keeps_its_promise() {
    for (replicas, size, max_unavailable) in [(1, 1, 1), (4, 1, 1), (4, 1, 2), (3, 2, 1)] {
        let wanted = wanted(replicas, size);
        let all = (0..replicas).flat_map(|ordinal| (0..size).map(move |index| (ordinal, index)));
        let named = |ordinal, index, revision, state| match size {
            1 => pod(ordinal, revision, state),
            _ => member(ordinal, index, revision, state),
        };
        let mut live: Vec<_> = all
            .map(|(ordinal, index)| named(ordinal, index, OLD, PodState::Ready))
            .collect();
        for round in 0.. {
            assert!(round < 100, "the rollout of {replicas} × {size} does not end");
            assert!(
                replicas - count(&wanted, &live).ready <= max_unavailable,
                "round {round} of {replicas} × {size}"
            );
            let steps = steps(&wanted, &live, max_unavailable);
            if steps.is_empty() && live.iter().all(|pod| pod.state == PodState::Ready) {
                break;
            }
            // One thing happens a round: a Pod goes, or a Pod becomes ready.
            if let Some(gone) = live.iter().position(|pod| pod.state == PodState::Terminating) {
                live.remove(gone);
            } else if let Some(starting) = live.iter_mut().find(|pod| pod.state == PodState::Starting) {
                starting.state = PodState::Ready;
            }
            for step in steps {
                match step {
                    Step::Create { ordinal, member } => live.push(named(ordinal, member, NEW, PodState::Starting)),
                    Step::Delete { uid, .. } => {
                        let pod = live.iter_mut().find(|pod| pod.uid == uid);
                        pod.into_iter().for_each(|pod| pod.state = PodState::Terminating);
                    }
                }
            }
        }
        assert!(
            live.iter().all(|pod| pod.revision.as_deref() == Some(NEW)) && live.len() == (replicas * size) as usize
        );
    }
}
