//! A deployment and the readings of its Pods, in the shortest words.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use model_deployment::index::{Deployment, ExpectedRole, IndexedPod, Phase};
use model_deployment::pod::{Endpoint, Facts, Life, Listener, Member, Producer, Scheme};
use model_deployment::snapshot::{Refusal, Replayed, replay};
use model_deployment_crds::metrics::{CacheHit, Gauge, Missing, ModelDeploymentMetrics, Windowed};
use model_deployment_crds::role::RoleKind;

/// A deployment and the readings of its Pods.
pub struct Scene {
    pub deployment: Deployment,
    pub readings: Vec<Replayed>,
    restarts: i32,
}

/// A body as one of the real programs served it.
pub fn capture(name: &str) -> String {
    let path = format!("{}/tests/fixtures/exposition/{name}.prom", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the capture is there")
}

impl Scene {
    /// A deployment `chat` without roles.
    pub fn new() -> Self {
        Self {
            deployment: Deployment {
                namespace: "ns".into(),
                name: "chat".into(),
                uid: "uid-of-chat".into(),
                expected: Vec::new(),
                pods: Vec::new(),
            },
            readings: Vec::new(),
            restarts: 0,
        }
    }

    /// One role `server` of this engine with one replica.
    pub fn server(producer: Producer) -> Self {
        Self::new().role("server", RoleKind::Server, producer, 1, |_| {})
    }

    /// A prefill/decode pair of this engine, one replica each.
    pub fn pair(producer: Producer) -> Self {
        Self::new()
            .role("prefill", RoleKind::Prefill, producer, 1, |_| {})
            .role("decode", RoleKind::Decode, producer, 1, |_| {})
    }

    /// A router alone, in front of a role that runs its own command.
    pub fn router_alone(producer: Producer, edit: impl Fn(&mut Facts)) -> Self {
        let mut scene = Self::new().router(producer, 1, edit);
        scene.deployment.expected.push(ExpectedRole {
            role: "own".into(),
            producer: Producer::Vllm,
            kind: Some(RoleKind::Server),
            replicas: 1,
            take_over: true,
        });
        scene
    }

    /// Adds a role and its Pods.
    pub fn role(
        mut self,
        role: &str,
        kind: RoleKind,
        producer: Producer,
        replicas: u32,
        edit: impl Fn(&mut Facts),
    ) -> Self {
        self.add(role, Some(kind), producer, replicas, edit);
        self
    }

    /// Adds a router and its Pods.
    pub fn router(mut self, producer: Producer, replicas: u32, edit: impl Fn(&mut Facts)) -> Self {
        self.add("router", None, producer, replicas, edit);
        self
    }

    fn add(
        &mut self,
        role: &str,
        kind: Option<RoleKind>,
        producer: Producer,
        replicas: u32,
        edit: impl Fn(&mut Facts),
    ) {
        self.deployment.expected.push(ExpectedRole {
            role: role.into(),
            producer,
            kind,
            replicas,
            take_over: false,
        });
        for ordinal in 0..replicas {
            let mut facts = Facts {
                version: 1,
                producer,
                role: role.into(),
                kind,
                paired: matches!(kind, Some(RoleKind::Prefill | RoleKind::Decode)),
                member: kind.map(|_| Member::Leader),
                endpoint: Endpoint::Listener(Listener {
                    scheme: Scheme::Http,
                    port: 8000,
                    path: "/metrics".into(),
                }),
                pool: false,
                connector: None,
                transfer_connector: None,
                host_tier: false,
                storage_tier: false,
                native_offload: false,
                tracks_load: None,
                ranks: kind.map(|_| 1),
                stats_enabled: true,
                take_over: false,
                revision: "r".into(),
            };
            edit(&mut facts);
            let place = self.deployment.pods.len() as u16;
            self.deployment.pods.push(IndexedPod {
                name: format!("chat-{role}-{ordinal}"),
                uid: format!("uid-{role}-{ordinal}"),
                role: role.into(),
                ordinal,
                phase: Phase::Running,
                terminating: false,
                address: Some(IpAddr::V4(Ipv4Addr::new(10, 1, (place >> 8) as u8, place as u8))),
                contested: false,
                host_network: false,
                life: None,
                facts: Some(facts),
            });
        }
    }

    /// The facts of all Pods of a role.
    pub fn with(mut self, role: &str, edit: impl Fn(&mut Facts)) -> Self {
        let pods = self.deployment.pods.iter_mut().filter(|pod| pod.role == role);
        pods.filter_map(|pod| pod.facts.as_mut()).for_each(edit);
        self
    }

    /// A read of a Pod (`role/ordinal`), so many seconds after the start.
    pub fn read(mut self, pod: &str, seconds: f64, body: impl Into<String>) -> Self {
        self.push(pod, seconds, Ok(Bytes::from(body.into())));
        self
    }

    /// The container of every Pod restarts: later reads are of a new life.
    pub fn restarted(mut self) -> Self {
        self.restarts += 1;
        self
    }

    /// A read of a Pod that fails with this code.
    pub fn fail(mut self, pod: &str, seconds: f64, code: &str) -> Self {
        self.push(pod, seconds, Err(code.parse().expect("a code of a Pod")));
        self
    }

    fn push(&mut self, pod: &str, seconds: f64, body: Result<Bytes, model_deployment::snapshot::Failure>) {
        let (role, ordinal) = pod.split_once('/').expect("role/ordinal");
        self.readings.push(Replayed {
            pod: format!("chat-{role}-{ordinal}"),
            at: Duration::from_secs_f64(seconds),
            life: Life {
                restart_count: self.restarts,
                started_at: None,
            },
            body,
        });
    }

    /// The answer.
    pub fn answer(self) -> ModelDeploymentMetrics {
        self.try_answer().expect("an answer")
    }

    /// The answer or the refusal. Every one of the suite is looked through for what must not be in it.
    pub fn try_answer(self) -> Result<ModelDeploymentMetrics, Refusal> {
        let answered = replay(
            &self.deployment,
            Timestamp::UNIX_EPOCH,
            self.readings,
            Timestamp::UNIX_EPOCH,
        );
        let text = match &answered {
            Ok(answer) => serde_json::to_string(answer).expect("an answer is JSON"),
            Err(refusal) => refusal.to_string(),
        };
        for forbidden in [
            "10.1.",
            "http:",
            "https:",
            ":8000",
            "/metrics",
            "User-Agent",
            "Content-",
        ] {
            assert!(!text.contains(forbidden), "{forbidden} in {text}");
        }
        if let Ok(answer) = &answered {
            check(answer);
        }
        answered
    }
}

/// What holds of every answer.
fn check(answer: &ModelDeploymentMetrics) {
    assert_eq!(answer.partial, answer.missing.iter().any(|missing| missing.required));
    for windowed in [&answer.latency, &answer.traffic, &answer.transfer]
        .into_iter()
        .flatten()
    {
        assert!(windowed.value.is_finite() && windowed.value >= 0.0, "{windowed:?}");
        assert!((1.0..=300.0).contains(&windowed.window_seconds), "{windowed:?}");
    }
    for hit in &answer.cache_hits {
        assert!((0.0..=1.0).contains(&hit.rate), "{hit:?}");
    }
    for missing in &answer.missing {
        assert!(missing.reason.ends_with('.'), "{missing:?}");
    }
}

/// The entry of a name and role, or of the router.
pub fn gauge<'a>(gauges: &'a [Gauge], name: &str, role: Option<&str>) -> &'a Gauge {
    find_gauge(gauges, name, role).unwrap_or_else(|| panic!("{name} of {role:?} in {gauges:?}"))
}

/// As [`gauge`], where there may be none.
pub fn find_gauge<'a>(gauges: &'a [Gauge], name: &str, role: Option<&str>) -> Option<&'a Gauge> {
    gauges
        .iter()
        .find(|gauge| gauge.name == name && gauge.role.as_deref() == role)
}

/// The entry of a name, in an answer about one Pod that has it.
pub fn windowed<'a>(list: &'a [Windowed], name: &str) -> &'a Windowed {
    list.iter()
        .find(|entry| entry.name == name)
        .unwrap_or_else(|| panic!("{name} in {list:?}"))
}

/// The entry of a cache scope.
pub fn hits<'a>(answer: &'a ModelDeploymentMetrics, scope: &str) -> &'a CacheHit {
    answer
        .cache_hits
        .iter()
        .find(|entry| entry.scope == scope)
        .unwrap_or_else(|| panic!("{scope} in {answer:?}"))
}

/// The entry of a source, in an answer that names it once.
pub fn missing<'a>(answer: &'a ModelDeploymentMetrics, source: &str) -> &'a Missing {
    find_missing(answer, source).unwrap_or_else(|| panic!("{source} in {:?}", answer.missing))
}

/// As [`missing`], where there may be none.
pub fn find_missing<'a>(answer: &'a ModelDeploymentMetrics, source: &str) -> Option<&'a Missing> {
    let mut entries = answer.missing.iter().filter(|missing| missing.source == source);
    let entry = entries.next();
    assert!(
        entries.next().is_none(),
        "{source} is named twice: {:?}",
        answer.missing
    );
    entry
}

/// Code and `required` of a source.
pub fn code<'a>(answer: &'a ModelDeploymentMetrics, source: &str) -> (&'a str, bool) {
    let missing = missing(answer, source);
    (&missing.code, missing.required)
}
