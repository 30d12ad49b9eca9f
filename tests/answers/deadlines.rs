//! The deadlines of one request over many Pods (metrics contract, section 8). Time is paused, and the Pods are played: what a fetch
//! does on a socket is in `tests/scrape`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use model_deployment::fields::Code;
use model_deployment::pod::Producer;
use model_deployment::scrape::{Fetch, Reading, Target, Unread, limits};
use model_deployment::snapshot::{Query, Refusal, Snapshots};
use model_deployment_crds::metrics::ModelDeploymentMetrics;
use model_deployment_crds::role::RoleKind;
use tokio::time::{Instant, sleep, timeout_at};

use crate::scene::{Scene, gauge};

/// As many as one request reads.
const PODS: u32 = 64;

#[derive(Clone, Copy)]
enum Does {
    AnswersAfter(Duration),
    Hangs,
}

const ANSWERS: Does = Does::AnswersAfter(Duration::ZERO);

/// Pods that do as they are told at their first read, and at later ones.
struct Played {
    script: fn(u32) -> [Does; 2],
    asked: [AtomicUsize; PODS as usize],
    at_once: AtomicUsize,
    most_at_once: Arc<AtomicUsize>,
}

impl Fetch for Played {
    async fn fetch(&self, target: Target, deadline: Instant) -> Reading {
        let (_, ordinal) = target.name.rsplit_once('-').expect("chat-server-<ordinal>");
        let ordinal: u32 = ordinal.parse().expect("a number");
        let asked = self.asked[ordinal as usize].fetch_add(1, Ordering::Relaxed);
        let at_once = self.at_once.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_at_once.fetch_max(at_once, Ordering::Relaxed);
        let (observed_at, instant) = (Timestamp::now(), Instant::now());
        let pause = match (self.script)(ordinal)[asked.min(1)] {
            Does::AnswersAfter(pause) => pause,
            Does::Hangs => Duration::MAX,
        };
        let answered = timeout_at(deadline, sleep(pause)).await;
        self.at_once.fetch_sub(1, Ordering::Relaxed);
        Reading {
            target,
            observed_at,
            instant,
            body: answered
                .map(|()| "vllm:num_requests_running 1\n".into())
                .map_err(|_| Unread::Timeout),
        }
    }
}

struct Asked {
    answer: Result<ModelDeploymentMetrics, Refusal>,
    took: Duration,
    most_at_once: usize,
}

impl Asked {
    /// Pods that were read, and Pods that were too slow.
    fn pods(&self) -> (u32, usize) {
        let answer = self.answer.as_ref().expect("an answer");
        let timeouts = answer.missing.iter().filter(|missing| missing.code == "Timeout");
        let running = gauge(&answer.processing, "running", Some("server"));
        (running.pod_count, timeouts.count())
    }
}

async fn ask(window: Option<u64>, script: fn(u32) -> [Does; 2]) -> Asked {
    let deployment = Scene::new()
        .role("server", RoleKind::Server, Producer::Vllm, PODS, |_| {})
        .deployment;
    let most_at_once = Arc::new(AtomicUsize::new(0));
    let played = Played {
        script,
        asked: [const { AtomicUsize::new(0) }; PODS as usize],
        at_once: AtomicUsize::new(0),
        most_at_once: most_at_once.clone(),
    };
    let index = deployment.clone();
    let snapshots = Snapshots::new(played, move |_, _| Some(index.clone()));
    let started = Instant::now();
    let window = window.map(Duration::from_secs);
    let answer = snapshots.answer(&deployment, Query { window }).await;
    Asked {
        answer,
        took: started.elapsed(),
        most_at_once: most_at_once.load(Ordering::Relaxed),
    }
}

/// Tokio's timers wait up to a millisecond longer than they are told, each.
const TICKS: Duration = Duration::from_millis(20);

#[tokio::test(start_paused = true)]
async fn hanging_pods_alone_take_half_of_the_request_and_at_most_32_are_asked_at_once() {
    let asked = ask(None, |_| [Does::Hangs; 2]).await;
    let Err(Refusal::AllUnreadable { pods, first, .. }) = asked.answer else {
        panic!("{:?}", asked.answer)
    };
    assert_eq!((pods, first), (64, Code::Timeout));
    assert!(asked.took <= limits::REQUEST / 2 + TICKS, "{:?}", asked.took);
    assert_eq!(asked.most_at_once, 32);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_pod_keeps_no_more_than_its_own_place() {
    let asked = ask(None, |pod| [if pod == 0 { Does::Hangs } else { ANSWERS }; 2]).await;
    assert_eq!(asked.pods(), (63, 1));
    assert!(asked.took <= limits::FETCH + TICKS, "{:?}", asked.took);
}

#[tokio::test(start_paused = true)]
async fn a_pod_queued_behind_hanging_ones_is_read_and_the_answer_comes_in_time() {
    for (window, longest) in [(None, 4), (Some(3), 7)] {
        let asked = ask(window, |pod| [if pod < 63 { Does::Hangs } else { ANSWERS }; 2]).await;
        assert_eq!(asked.pods(), (1, 63));
        assert!(asked.took <= Duration::from_secs(longest) + TICKS, "{:?}", asked.took);
    }
}

/// Two rounds of second reads: 3 s to the second read, twice 2 s.
#[tokio::test(start_paused = true)]
async fn pods_that_hang_at_the_second_of_two_reads_leave_the_answer_in_time() {
    let asked = ask(Some(3), |pod| [ANSWERS, if pod < 40 { Does::Hangs } else { ANSWERS }]).await;
    assert_eq!(asked.pods(), (24, 40));
    assert!(asked.took <= Duration::from_secs(7) + TICKS, "{:?}", asked.took);
}

/// Four rounds of reads that each take nearly as long as they may do not fit: the last ones are timeouts, and the answer is in time.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_twice_in_time_is_a_timeout() {
    let asked = ask(Some(3), |_| [Does::AnswersAfter(Duration::from_millis(1900)); 2]).await;
    assert_eq!(asked.pods(), (32, 32));
    assert!(asked.took < limits::REQUEST, "{:?}", asked.took);
}
