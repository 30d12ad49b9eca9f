//! Readings of Pods become the answer: figures merged, everything else named, all in one total order.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use model_deployment_crds::metrics::{CacheHit, Gauge, Metadata, Missing, ModelDeploymentMetrics, Windowed};
use model_deployment_crds::role::RoleKind;
use model_deployment_crds::{AGGREGATED_API_VERSION, METRICS_KIND};

use super::fault::Fault;
use super::plan::Plan;
use super::refusal::Refusal;
use super::subject::{Figure, Subject, overflow};
use crate::fields::{self, Field, List};
use crate::index::{Deployment, IndexedPod};
use crate::pod::{Facts, Producer};
use crate::scrape::whole_microseconds;
use crate::window::Trail;

/// What came of the reads of a plan, by Pod UID.
pub(super) type Reads = HashMap<String, Result<Trail, Fault>>;

/// Puts the answer together. Pure: the same readings give the same lists.
pub(super) fn assemble(
    deployment: &Deployment,
    plan: &Plan<'_>,
    reads: &Reads,
    timestamp: Timestamp,
) -> Result<ModelDeploymentMetrics, Refusal> {
    let mut faults: Vec<(&IndexedPod, &Fault)> = plan.faults.iter().map(|(pod, fault)| (*pod, fault)).collect();
    let mut pods = Vec::new();
    for (pod, facts) in &plan.reads {
        match reads.get(&pod.uid) {
            Some(Ok(trail)) => pods.push((*pod, *facts, trail)),
            Some(Err(fault)) => faults.push((pod, fault)),
            None => {}
        }
    }
    refuse(deployment, plan, &pods, &faults)?;

    let mut answer = Answer::new(deployment, timestamp);
    answer.missing.extend(plan.roles.iter().cloned());
    for (pod, fault) in faults {
        answer.name_unread(pod, fault);
    }
    let decodes_stood_still = decodes_stood_still(&pods);
    for (pod, facts, trail) in pods {
        let subject = Subject {
            facts,
            trail,
            decodes_stood_still,
        };
        for (field, support) in fields::required_sources(facts) {
            match subject.judge(field, support) {
                Ok(figure) => answer.add(pod, facts, trail, field, figure),
                Err(Some(fault)) => answer.name(pod, facts, field, fault),
                Err(None) => {}
            }
        }
    }
    Ok(answer.finish())
}

fn refuse(
    deployment: &Deployment,
    plan: &Plan<'_>,
    pods: &[(&IndexedPod, &Facts, &Trail)],
    faults: &[(&IndexedPod, &Fault)],
) -> Result<(), Refusal> {
    if !pods.is_empty() {
        return Ok(());
    }
    let name = deployment.name.clone();
    if let Some((_, fault)) = faults.iter().min_by_key(|(pod, _)| &pod.name) {
        return Err(Refusal::AllUnreadable {
            name,
            pods: plan.pods,
            first: fault.code,
        });
    }
    // Then, and only then, each entry about a role says that its command owns the endpoint.
    let all_taken_over = deployment
        .expected
        .iter()
        .all(|role| role.take_over || role.producer == Producer::Coordinator);
    let is_answer = all_taken_over && !plan.roles.is_empty();
    is_answer.then_some(()).ok_or(Refusal::NoPods { name })
}

/// Whether every decode half that was read, and at least one, counted no first token in its window.
fn decodes_stood_still(pods: &[(&IndexedPod, &Facts, &Trail)]) -> bool {
    let mut decodes = pods
        .iter()
        .filter(|(_, facts, _)| facts.paired && facts.kind == Some(RoleKind::Decode))
        .peekable();
    decodes.peek().is_some()
        && decodes.all(|(_, facts, trail)| {
            let subject = Subject {
                facts,
                trail,
                decodes_stood_still: false,
            };
            subject.served() == Some(false)
        })
}

/// Figures of one name, scope, role and source. The members stand in the order of the list.
type GaugeKey = (&'static str, &'static str, Option<String>, String);

struct Answer<'a> {
    deployment: &'a Deployment,
    timestamp: Timestamp,
    gauges: BTreeMap<GaugeKey, (&'static Field, Gauge)>,
    cache_hits: Vec<CacheHit>,
    windows: Vec<(List, Windowed)>,
    missing: Vec<Missing>,
}

impl<'a> Answer<'a> {
    fn new(deployment: &'a Deployment, timestamp: Timestamp) -> Self {
        Self {
            deployment,
            timestamp,
            gauges: BTreeMap::new(),
            cache_hits: Vec::new(),
            windows: Vec::new(),
            missing: Vec::new(),
        }
    }

    fn add(&mut self, pod: &IndexedPod, facts: &Facts, trail: &Trail, field: &'static Field, figure: Figure) {
        let observed_at = MicroTime(trail.last().observed_at);
        let scope = fields::scope(field.producer);
        let role = facts.kind.map(|_| pod.role.clone());
        match figure {
            Figure::Gauge(value) => {
                let source = field.source().into_owned();
                let key = (field.name, scope, role.clone(), source.clone());
                let expected_pods = self.expected_pods(&pod.role);
                let (_, gauge) = self.gauges.entry(key).or_insert_with(|| {
                    let empty = Gauge {
                        name: field.name.to_owned(),
                        source,
                        scope: scope.to_owned(),
                        role,
                        role_kind: facts.kind,
                        unit: field.unit.to_owned(),
                        value: 0.0,
                        pod_count: 0,
                        expected_pods,
                        observed_at: observed_at.clone(),
                    };
                    (field, empty)
                });
                if (gauge.value + value).is_infinite() {
                    return self.name(pod, facts, field, overflow(field));
                }
                gauge.value += value;
                gauge.pod_count += 1;
                gauge.observed_at.0 = gauge.observed_at.0.min(observed_at.0);
            }
            Figure::Window {
                value,
                samples,
                seconds,
                quantiles,
            } => {
                let windowed = Windowed {
                    name: field.name.to_owned(),
                    pod: pod.name.clone(),
                    source: field.source().into_owned(),
                    scope: scope.to_owned(),
                    role,
                    role_kind: facts.kind,
                    unit: field.unit.to_owned(),
                    value,
                    samples,
                    window_seconds: seconds,
                    observed_at,
                    quantiles,
                };
                self.windows.push((field.list, windowed));
            }
            Figure::Hits { hits, queries, seconds } => self.cache_hits.push(CacheHit {
                pod: pod.name.clone(),
                source: field.source().into_owned(),
                scope: field.name.to_owned(),
                role: pod.role.clone(),
                role_kind: facts.kind.unwrap_or_default(),
                unit: field.unit.to_owned(),
                hits,
                queries,
                rate: hits / queries,
                window_seconds: seconds,
                pod_count: 1,
                observed_at,
            }),
        }
    }

    fn expected_pods(&self, role: &str) -> u32 {
        self.deployment
            .expected
            .iter()
            .find(|expected| expected.role == role)
            .map_or(0, |expected| expected.replicas)
    }

    /// Names a source of a Pod that was read.
    fn name(&mut self, pod: &IndexedPod, facts: &Facts, field: &Field, fault: Fault) {
        let (source, scope) = match field.list {
            List::CacheHits => (field.name.to_owned(), field.name),
            _ => (field.source().into_owned(), fields::scope(field.producer)),
        };
        self.push(pod, facts.kind, source, scope, &fault);
    }

    /// Names a Pod that was not read.
    fn name_unread(&mut self, pod: &IndexedPod, fault: &Fault) {
        let expected = self.deployment.expected.iter().find(|role| role.role == pod.role);
        let facts = pod.facts.as_ref();
        let kind = facts.map_or(expected.and_then(|role| role.kind), |facts| facts.kind);
        let producer = facts.map_or(expected.map(|role| role.producer), |facts| Some(facts.producer));
        let scope = producer.map_or("engine", fields::scope);
        self.push(pod, kind, "scrape".to_owned(), scope, fault);
    }

    fn push(&mut self, pod: &IndexedPod, role_kind: Option<RoleKind>, source: String, scope: &str, fault: &Fault) {
        self.missing.push(Missing {
            pod: pod.name.clone(),
            source,
            scope: Some(scope.to_owned()),
            role: role_kind.map(|_| pod.role.clone()),
            role_kind,
            code: fault.code.to_string(),
            reason: fault.reason.clone(),
            required: fault.required,
        });
    }

    fn finish(mut self) -> ModelDeploymentMetrics {
        self.cache_hits
            .sort_by(|a, b| (&a.pod, &a.scope).cmp(&(&b.pod, &b.scope)));
        self.windows
            .sort_by(|(_, a), (_, b)| (&a.pod, &a.name, &a.source).cmp(&(&b.pod, &b.name, &b.source)));
        // Entries of two roles may agree in the first three.
        self.missing.sort_by(|a, b| {
            (&a.pod, &a.source, &a.code, &a.role, &a.reason).cmp(&(&b.pod, &b.source, &b.code, &b.role, &b.reason))
        });
        let windows = |list| {
            let of_list = self.windows.iter().filter(move |(of, _)| *of == list);
            of_list.map(|(_, windowed)| windowed.clone()).collect()
        };
        let gauges = |list| {
            let of_list = self.gauges.values().filter(move |(field, _)| field.list == list);
            of_list.map(|(_, gauge)| gauge.clone()).collect()
        };
        ModelDeploymentMetrics {
            api_version: AGGREGATED_API_VERSION.to_owned(),
            kind: METRICS_KIND.to_owned(),
            metadata: Metadata {
                name: self.deployment.name.clone(),
                namespace: self.deployment.namespace.clone(),
            },
            timestamp: MicroTime(whole_microseconds(self.timestamp)),
            processing: gauges(List::Processing),
            queueing: gauges(List::Queueing),
            latency: windows(List::Latency),
            traffic: windows(List::Traffic),
            transfer: windows(List::Transfer),
            partial: self.missing.iter().any(|missing| missing.required),
            cache_hits: self.cache_hits,
            missing: self.missing,
        }
    }
}
