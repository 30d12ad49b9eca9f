//! The state between requests: clients side by side, reuse, forgetting, clocks that step. Time is paused.

use std::cell::Cell;
use std::time::Duration;

use futures::future::join;
use jiff::{SignedDuration, Timestamp};
use model_deployment::exposition;
use model_deployment::fields::wanted;
use model_deployment::pod::{Life, Producer};
use model_deployment::window::{History, Increase, NoBaseline, Sample, Store, Trail};
use tokio::time::{Instant, advance, sleep};

const REQUESTS: &str = "vllm_router_requests_total";

const LIFE: Life = Life {
    restart_count: 0,
    started_at: None,
};

/// A router that counts a thousand requests a second, and the times at which it was asked.
struct Router {
    store: Store<&'static str>,
    start: Instant,
    asked: Cell<Vec<Duration>>,
    /// Added to the wall clock.
    step: Cell<SignedDuration>,
}

impl Router {
    fn new() -> Self {
        Self {
            store: Store::default(),
            start: Instant::now(),
            asked: Cell::default(),
            step: Cell::default(),
        }
    }

    async fn read(&self) -> Trail {
        self.read_of("uid", LIFE, None).await
    }

    async fn read_of(&self, uid: &str, life: Life, not_before: Option<Instant>) -> Trail {
        let fetch = || async {
            let (instant, elapsed) = (Instant::now(), self.start.elapsed());
            let mut asked = self.asked.take();
            asked.push(elapsed);
            self.asked.set(asked);
            sleep(Duration::from_millis(10)).await;
            let body = format!("{REQUESTS} {}\n", elapsed.as_millis());
            let exposition = exposition::read(body.as_bytes(), wanted(Producer::VllmRouter)).unwrap();
            let wall = Timestamp::UNIX_EPOCH + elapsed + self.step.get();
            Ok(Sample::new(life, Producer::VllmRouter, wall, instant, exposition))
        };
        self.store.read(uid, life, not_before, fetch).await.unwrap()
    }

    fn asked(&self) -> Vec<Duration> {
        let asked = self.asked.take();
        self.asked.set(asked.clone());
        asked
    }
}

/// Seconds of the window and requests in it.
fn window(trail: &Trail) -> Result<(f64, f64), NoBaseline> {
    let baseline = trail.baseline(std::iter::once(REQUESTS))?;
    let Ok(Some(Increase::Counter(series))) = trail.increase(baseline, REQUESTS) else {
        panic!("a counter that only rises");
    };
    Ok((
        baseline.window.as_secs_f64(),
        series.iter().map(|(_, gained)| gained).sum(),
    ))
}

async fn poll(router: &Router, every: u64, times: u64) -> Vec<(f64, f64)> {
    let mut windows = Vec::new();
    for _ in 0..times {
        windows.extend(window(&router.read().await));
        sleep(Duration::from_secs(every)).await;
    }
    windows
}

#[tokio::test(start_paused = true)]
async fn clients_that_poll_at_1_s_and_20_s_side_by_side_do_not_disturb_each_other() {
    let router = Router::new();
    let (quick, slow) = join(poll(&router, 1, 120), poll(&router, 20, 6)).await;
    for (seconds, gained) in quick.iter().chain(&slow) {
        assert!(*seconds >= 1.0, "{seconds}");
        assert!((gained - seconds * 1000.0).abs() < 0.5, "{gained} in {seconds} s");
    }
    assert!(
        quick.len() >= 119 && slow.len() >= 5,
        "only the first read has no window"
    );
    let asked = router.asked();
    for pair in asked.windows(2) {
        assert!(
            pair[1] - pair[0] >= Duration::from_secs(1),
            "the Pod sees at most one GET a second: {pair:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_alone_gets_its_own_windows() {
    let router = Router::new();
    let windows = poll(&router, 20, 4).await;
    for (seconds, _) in windows {
        assert!((20.0..20.1).contains(&seconds), "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_never_consumes_a_baseline() {
    let router = Router::new();
    router.read().await;
    advance(Duration::from_secs(10)).await;
    let one = window(&router.read().await).unwrap();
    let two = window(&router.read().await).unwrap();
    assert_eq!(one, two, "the same fresh sample, the same baseline");
    assert_eq!(router.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_second_read_of_one_request_waits_for_its_moment() {
    let router = Router::new();
    let first = router.read().await;
    let second = first.last().instant + Duration::from_secs(2);
    advance(Duration::from_millis(1500)).await;
    router.read().await;
    advance(Duration::from_millis(500)).await;
    let trail = router.read_of("uid", LIFE, Some(second)).await;
    assert!(trail.last().instant >= second);
    let asked = router.asked();
    assert!(
        asked.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(1)),
        "{asked:?}"
    );
    let (seconds, _) = window(&trail.from_first(&first)).unwrap();
    assert!(
        (2.0..=3.1).contains(&seconds),
        "from the request's own first read: {seconds}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_recreated_pod_starts_fresh() {
    let router = Router::new();
    router.read().await;
    advance(Duration::from_secs(10)).await;
    let trail = router.read_of("another", LIFE, None).await;
    assert_eq!(window(&trail), Err(NoBaseline::FirstSample));
}

#[tokio::test(start_paused = true)]
async fn a_restarted_container_is_read_again_and_is_a_reset() {
    let router = Router::new();
    router.read().await;
    let next = Life {
        restart_count: 1,
        ..LIFE
    };
    advance(Duration::from_millis(500)).await;
    router.read_of("uid", next, None).await;
    assert_eq!(router.asked().len(), 2, "a sample of another life is not reused");
    advance(Duration::from_secs(1)).await;
    advance(Duration::from_secs(301)).await;
    assert_eq!(
        window(&router.read_of("uid", next, None).await),
        Err(NoBaseline::FirstSample)
    );
}

#[tokio::test(start_paused = true)]
async fn a_start_that_was_not_known_yet_is_no_other_life() {
    let router = Router::new();
    router.read().await;
    advance(Duration::from_secs(10)).await;
    let known = Life {
        started_at: Some(Timestamp::UNIX_EPOCH),
        ..LIFE
    };
    assert!(window(&router.read_of("uid", known, None).await).is_ok());
}

#[tokio::test(start_paused = true)]
async fn nothing_older_than_five_minutes_is_measured_from() {
    let router = Router::new();
    router.read().await;
    advance(Duration::from_secs(301)).await;
    assert_eq!(window(&router.read().await), Err(NoBaseline::FirstSample));
}

#[tokio::test(start_paused = true)]
async fn state_is_dropped_ten_minutes_after_the_last_read() {
    let router = Router::new();
    let had = |trail: &Trail| trail.had(REQUESTS);
    router.read().await;
    advance(Duration::from_secs(599)).await;
    router.store.forget();
    assert!(had(&router.read().await), "what the container exported is remembered");
    advance(Duration::from_secs(601)).await;
    router.store.forget();
    assert!(!had(&router.read().await));
}

/// The wall clock is for people; windows run on the monotonic one.
#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_changes_no_window() {
    for step in [-3600, 3600] {
        let router = Router::new();
        router.read().await;
        advance(Duration::from_secs(10)).await;
        router.step.set(SignedDuration::from_secs(step));
        let (seconds, gained) = window(&router.read().await).unwrap();
        assert!(
            (10.0..10.1).contains(&seconds) && (gained - seconds * 1000.0).abs() < 0.5,
            "{seconds} {gained}"
        );
    }
}

/// The two clocks of a read are not looked at in one instant.
#[tokio::test(start_paused = true)]
async fn windows_are_whole_microseconds_whatever_lies_between_the_clocks() {
    for (nanoseconds, window) in [
        (999_999_700, Some(1_000_000)),
        (999_999_400, None),
        (2_000_000_499, Some(2_000_000)),
    ] {
        let mut history = History::default();
        let first = Instant::now();
        let add = |history: &mut History, instant| {
            let exposition =
                exposition::read(format!("{REQUESTS} 1\n").as_bytes(), wanted(Producer::VllmRouter)).unwrap();
            history.add(Sample::new(
                LIFE,
                Producer::VllmRouter,
                Timestamp::UNIX_EPOCH,
                instant,
                exposition,
            ))
        };
        add(&mut history, first);
        let trail = add(&mut history, first + Duration::from_nanos(nanoseconds));
        let baseline = trail.baseline(std::iter::once(REQUESTS)).ok();
        assert_eq!(
            baseline.map(|baseline| baseline.window),
            window.map(Duration::from_micros)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_is_shared_and_not_repeated_within_a_second() {
    let store = Store::<&str>::default();
    let asked = Cell::new(0);
    let fetch = || async {
        asked.set(asked.get() + 1);
        sleep(Duration::from_secs(2)).await;
        Err("no answer")
    };
    let read = || store.read("uid", LIFE, None, fetch);
    let started = Instant::now();
    let ((one, two), three) = join(join(read(), read()), read()).await;
    assert!([one, two, three].iter().all(|read| matches!(read, Err("no answer"))));
    assert_eq!((asked.get(), started.elapsed()), (1, Duration::from_secs(2)));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_does_not_block_the_next() {
    let router = Router::new();
    let left = tokio::time::timeout(Duration::from_millis(5), router.read()).await;
    assert!(left.is_err());
    router.read().await;
    assert_eq!(router.asked().len(), 2);
}

/// However often a Pod is read, samples minutes back remain: a source that is unusable for long keeps a baseline.
#[tokio::test(start_paused = true)]
async fn the_ring_reaches_back_however_often_the_pod_is_read() {
    for usable_until in [0, 60, 120] {
        let store = Store::<&str>::default();
        for second in 0..=240_u32 {
            let usable = second <= usable_until || second == 240;
            let value = if usable { second.to_string() } else { "NaN".to_owned() };
            let fetch = || async {
                let body = format!("{REQUESTS} {value}\n");
                let exposition = exposition::read(body.as_bytes(), wanted(Producer::VllmRouter)).unwrap();
                let (wall, now) = (Timestamp::UNIX_EPOCH, Instant::now());
                Ok(Sample::new(LIFE, Producer::VllmRouter, wall, now, exposition))
            };
            let trail = store.read("uid", LIFE, None, fetch).await.unwrap();
            if second == 240 {
                let (seconds, gained) = window(&trail).unwrap();
                assert_eq!(seconds, gained, "one a second");
                assert!(seconds >= f64::from(240 - usable_until), "{seconds}");
            }
            advance(Duration::from_secs(1)).await;
        }
    }
}
