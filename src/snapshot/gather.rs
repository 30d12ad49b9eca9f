//! The live answer: reads the Pods of a deployment under the limits of one request, and checks after each read that the Pod is still the
//! one that was asked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use model_deployment_crds::metrics::ModelDeploymentMetrics;
use tokio::sync::Semaphore;
use tokio::time::{Instant, interval, sleep_until, timeout_at};

use super::assemble::{Reads, assemble};
use super::fault::Fault;
use super::plan::{self, Plan};
use super::refusal::Refusal;
use crate::exposition;
use crate::fields::{self, Code};
use crate::index::{Deployment, IndexedPod};
use crate::pod::{Life, Listener, Producer};
use crate::scrape::{Fetch, Scraper, Target, Unread, limits};
use crate::window::{Sample, Store, Trail};

/// How often state that nobody asks for is looked for.
const FORGET: Duration = Duration::from_secs(60);

/// What the caller of the subresource asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Take two reads this far apart within the request, so that every window is answered at once.
    pub window: Option<Duration>,
}

/// The index's present answer about a namespace and name.
type Lookup = dyn Fn(&str, &str) -> Option<Deployment> + Send + Sync;

/// Answers the `metrics` subresource. One for the process: it holds the state of all windows.
pub struct Snapshots<S = Scraper> {
    scraper: S,
    store: Arc<Store<Fault>>,
    lookup: Box<Lookup>,
}

impl<S> fmt::Debug for Snapshots<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshots").finish_non_exhaustive()
    }
}

impl<S: Fetch> Snapshots<S> {
    /// Needs a Tokio runtime, on which it forgets state that is not asked for any more. `lookup` is the index's present answer; it is
    /// asked around each read.
    pub fn new(scraper: S, lookup: impl Fn(&str, &str) -> Option<Deployment> + Send + Sync + 'static) -> Self {
        let store = Arc::new(Store::default());
        let kept = Arc::downgrade(&store);
        tokio::spawn(async move {
            let mut ticks = interval(FORGET);
            loop {
                ticks.tick().await;
                match kept.upgrade() {
                    Some(store) => store.forget(),
                    None => break,
                }
            }
        });
        Self {
            scraper,
            store,
            lookup: Box::new(lookup),
        }
    }

    /// Reads the deployment's Pods and puts the answer together, inside [`limits::REQUEST`] whatever the Pods do.
    ///
    /// # Errors
    ///
    /// Where no Pod contributed: see [`Refusal`].
    pub async fn answer(&self, deployment: &Deployment, query: Query) -> Result<ModelDeploymentMetrics, Refusal> {
        self.answer_by(deployment, query, Instant::now() + limits::REQUEST)
            .await
    }

    /// As [`Snapshots::answer`], by `end`: of a request for which some of its time has passed already.
    ///
    /// # Errors
    ///
    /// Where no Pod contributed: see [`Refusal`].
    pub async fn answer_by(
        &self,
        deployment: &Deployment,
        query: Query,
        end: Instant,
    ) -> Result<ModelDeploymentMetrics, Refusal> {
        let reads = self.gather(deployment, query, end - limits::ASSEMBLY).await;
        let deployment = deployment.clone();
        let assembled = off_the_reactor(move || {
            let plan = Plan::new(&deployment);
            assemble(&deployment, &plan, &reads, Timestamp::now())
        });
        assembled.await
    }

    async fn gather(&self, deployment: &Deployment, query: Query, deadline: Instant) -> Reads {
        let permits = Semaphore::new(limits::FETCHES);
        let plan = Plan::new(deployment);
        let reads = plan.reads.iter().map(|(pod, facts)| {
            let read = Read {
                snapshots: self,
                permits: &permits,
                deployment,
                pod,
                producer: facts.producer,
            };
            async move {
                let trail = timeout_at(deadline, read.trail(query.window)).await;
                (
                    pod.uid.clone(),
                    trail.unwrap_or_else(|_| Err(Fault::unread(Unread::Timeout))),
                )
            }
        });
        join_all(reads).await.into_iter().collect()
    }
}

/// The reading of one Pod for one request.
struct Read<'a, S> {
    snapshots: &'a Snapshots<S>,
    permits: &'a Semaphore,
    deployment: &'a Deployment,
    pod: &'a IndexedPod,
    producer: Producer,
}

impl<S: Fetch> Read<'_, S> {
    async fn trail(&self, window: Option<Duration>) -> Result<Trail, Fault> {
        let first = self.once(life(self.pod), None).await?;
        let Some(window) = window else {
            return Ok(first);
        };
        let second = first.last().instant + window;
        sleep_until(second).await;
        let (_, life) = self.present()?;
        Ok(self.once(life, Some(second)).await?.from_first(&first))
    }

    async fn once(&self, life: Life, not_before: Option<Instant>) -> Result<Trail, Fault> {
        let store = &self.snapshots.store;
        store.read(&self.pod.uid, life, not_before, || self.fetch()).await
    }

    async fn fetch(&self) -> Result<Sample, Fault> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let (target, life) = self.present()?;
        let reading = self
            .snapshots
            .scraper
            .fetch(target.clone(), Instant::now() + limits::FETCH)
            .await;
        let body = reading.body.map_err(Fault::unread)?;
        let (owner, life_after) = self.present()?;
        if owner.address != target.address {
            return Err(Fault::new(
                Code::Unreadable,
                "The Pod's address changed while it was read.",
            ));
        }
        if !life.is_same(life_after) {
            return Err(Fault::new(
                Code::Unreadable,
                "The Pod's container restarted while it was read.",
            ));
        }
        let producer = self.producer;
        let exposition = off_the_reactor(move || exposition::read(&body, fields::wanted(producer))).await;
        let exposition = exposition.map_err(|_| Fault::not_exposition())?;
        Ok(Sample::new(
            life_after,
            producer,
            reading.observed_at,
            reading.instant,
            exposition,
        ))
    }

    /// The Pod as the index has it at this moment.
    fn present(&self) -> Result<(Target, Life), Fault> {
        let Deployment { namespace, name, .. } = self.deployment;
        let present = (self.snapshots.lookup)(namespace, name);
        let pods = present.as_ref().map_or(&[][..], |deployment| &deployment.pods);
        let Some(pod) = pods.iter().find(|pod| pod.uid == self.pod.uid) else {
            return Err(Fault::new(
                Code::Unreadable,
                "The Pod was deleted or replaced while it was read.",
            ));
        };
        let (address, listener) = plan::target(pod)?;
        Ok((target(namespace, pod, address, listener), life(pod)))
    }
}

fn target(namespace: &str, pod: &IndexedPod, address: std::net::IpAddr, listener: &Listener) -> Target {
    Target {
        namespace: namespace.to_owned(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        address,
        host_network: pod.host_network,
        listener: listener.clone(),
    }
}

fn life(pod: &IndexedPod) -> Life {
    pod.life.unwrap_or_default()
}

/// Runs what takes CPU time on a thread that holds no fetch's deadline.
async fn off_the_reactor<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
