//! The controller: keeps the cluster as each ModelDeployment says.
//!
//! ```text
//! dereference   what lives for it               from the cache, no client
//! validate      the spec becomes a plan         pure; or one sentence that says why not
//! apply         the cluster becomes the plan    client, for what differs
//! report        status and Events               client, for what changed
//! ```
//!
//! Every replica of the operator runs the watches ([`watch`]); only the leader reconciles ([`Controller::run`]). A pass that finds
//! nothing to do makes no API call.

mod apply;
mod cache;
mod dereference;
mod drift;
mod events;
mod memory;
mod meters;
mod refused;
mod report;
mod rollout;
mod status;
mod trouble;
mod unreadable;
mod validate;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::{Action, Config, applier};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource, ResourceExt};
use model_deployment::index::Index;
use model_deployment::pod::labels;
use model_deployment::render::Defaults;
use model_deployment_crds::ModelDeployment;
use prometheus_client::registry::Registry;
use thiserror::Error;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use self::apply::{Applier, Outcome};
use self::cache::{Cache, Signal};
use self::memory::Memories;
use self::meters::Meters;
use self::refused::Blocked;

/// The field manager of every write.
pub const FIELD_MANAGER: &str = labels::OPERATOR;
/// ModelDeployments that are reconciled at once: their calls are bounded each, and together stay polite to the API server.
const RECONCILES_AT_ONCE: u16 = 8;
/// The longest pause after a failure that may pass by itself: an API server that is back should find the Pods healed soon, and one that
/// is away is asked by one call a pass.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause after a refusal that lasts until somebody does something: a quota, a right, a foreign object. Nobody should have to
/// wait long for what they did to show.
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// What an installation decides.
#[derive(Clone, Debug)]
pub struct Options {
    /// Images that a spec leaves to the operator.
    pub defaults: Defaults,
    /// Replicas of one role that a rollout may take away at a time; at least 1.
    pub max_unavailable: u32,
    /// Name of this Pod, for Events.
    pub pod_name: String,
}

/// Keeps the cluster as each ModelDeployment says.
pub struct Controller {
    client: Client,
    cache: Arc<Cache>,
    memories: Arc<Memories>,
    meters: Meters,
    options: Options,
}

/// Why a pass is repeated later.
#[derive(Debug, Error)]
enum PassError {
    /// The plan was not carried out whole.
    #[error("{}", refused::told(.0).map(|(_, sentence)| sentence).unwrap_or_default())]
    Blocked(Vec<Blocked>),
    /// The status could not be written.
    #[error("cannot write the status: {}", refused::sentence(.0))]
    Status(kube::Error),
    /// The pass panicked. The others go on: one ModelDeployment must not take the replicas down, one after the other.
    #[error("the pass panicked")]
    Panicked,
}

/// A controller, and the future that keeps it and `index` current: to be polled by every replica, for as long as it runs.
pub fn watch(
    client: Client,
    index: Arc<Index>,
    options: Options,
) -> (Arc<Controller>, impl Future<Output = ()> + Send) {
    let memories = Arc::new(Memories::default());
    let (cache, watches) = cache::watch(client.clone(), index, memories.clone());
    (
        Arc::new(Controller {
            client,
            cache,
            memories,
            meters: Meters::default(),
            options,
        }),
        watches,
    )
}

impl Controller {
    /// Reconciles until dropped. At most one replica may do so at a time.
    pub async fn run(self: Arc<Self>) {
        // Whoever led before may have written since.
        self.memories.clear();
        self.cache.listed().await;
        let config = Config::default().concurrency(RECONCILES_AT_ONCE);
        let store = self.cache.model_deployments.clone();
        let model_deployments = self.cache.model_deployments.clone();
        let all = move || {
            let objects = model_deployments.state();
            objects
                .iter()
                .map(|object| ObjectRef::from_obj(object.as_ref()))
                .collect()
        };
        let passes = applier(
            |object, controller: Arc<Self>| Box::pin(async move { controller.measured(&object).await }),
            |object, error: &PassError, controller: Arc<Self>| controller.retry(&object, error),
            self.clone(),
            store,
            self.signals(all).map(Ok::<_, Infallible>),
            config,
        );
        tokio::join!(passes.for_each(|_| async {}), self.tell_unreadable());
    }

    /// Tells each ModelDeployment that cannot be read that it cannot.
    async fn tell_unreadable(&self) {
        let cache = self.cache.clone();
        let mut signals = pin!(self.signals(move || cache.unreadable().into()));
        while let Some(signal) = signals.next().await {
            let Some(unreadable) = self.cache.unreadable_of(&signal) else {
                continue;
            };
            if let Err(error) = unreadable.tell(&self.client, &self.options.pod_name).await {
                let sentence = refused::sentence(&error);
                tracing::warn!(%signal, error = sentence, "a ModelDeployment that cannot be read was not told so");
            }
        }
    }

    /// `all` of some ModelDeployments once, then each that something happens to; all again where too much happened to say to which.
    fn signals(&self, all: impl Fn() -> VecDeque<Signal>) -> impl futures::Stream<Item = Signal> {
        let signals = self.cache.subscribe();
        stream::unfold((all(), signals, all), |(mut pending, mut signals, all)| async move {
            loop {
                if let Some(next) = pending.pop_front() {
                    return Some((next, (pending, signals, all)));
                }
                match signals.recv().await {
                    Ok(signal) => pending.push_back(signal),
                    Err(RecvError::Lagged(_)) => pending = all(),
                    Err(RecvError::Closed) => return None,
                }
            }
        })
    }

    /// Registers what the controller counts of itself.
    pub fn register(&self, registry: &mut Registry) {
        self.meters.register(registry);
    }

    /// One pass, counted.
    async fn measured(&self, object: &ModelDeployment) -> Result<Action, PassError> {
        let begun = Instant::now();
        let passed = held(self.pass(object)).await;
        self.meters.passed(&passed, begun.elapsed());
        passed
    }

    /// One pass over one ModelDeployment.
    async fn pass(&self, object: &ModelDeployment) -> Result<Action, PassError> {
        let memory = self.memories.of(&object.uid().unwrap_or_default());
        let now = Timestamp::now();
        let live = dereference::dereference(&self.cache, object);
        let sorted = dereference::sort(object, &live, &memory.lock());
        let wanted = validate::validate(object, &self.options.defaults).map_err(|refusal| refusal.to_string());
        let outcome = match &wanted {
            Ok(wanted) if object.meta().deletion_timestamp.is_none() => {
                let applier = Applier::new(&self.client, &self.cache, object, &self.memories, &memory);
                applier
                    .apply(wanted, &live, &sorted, self.options.max_unavailable)
                    .await
            }
            _ => Outcome::default(),
        };

        let previous = report::last_written(object, &memory.lock());
        let seen = report::seen(object, &wanted, &live, &sorted, &outcome, now);
        let status = status::status(&seen, previous.as_ref(), &report::whole_seconds(now));
        let happenings = report::happenings(object, &outcome, previous.as_ref(), &status);
        let written = if previous.as_ref() == Some(&status) {
            Ok(())
        } else {
            report::write(&self.client, object, &status, &memory).await
        };
        events::publish(
            &self.client,
            &self.options.pod_name,
            &object.object_ref(&()),
            happenings,
        )
        .await;

        if !outcome.blocked.is_empty() {
            return Err(PassError::Blocked(outcome.blocked));
        }
        written.map_err(PassError::Status)?;
        memory.lock().succeeded();
        let deadline = report::next_deadline(live.pods.values().map(Arc::as_ref), now);
        Ok(match outcome.again.into_iter().chain(deadline).min() {
            Some(after) => Action::requeue(after),
            None => Action::await_change(),
        })
    }

    /// When a pass that failed is repeated.
    fn retry(&self, object: &ModelDeployment, error: &PassError) -> Action {
        let memory = self.memories.of(&object.uid().unwrap_or_default());
        let mut memory = memory.lock();
        let longest = match error {
            PassError::Blocked(blocked) if !blocked.iter().any(Blocked::is_transient) => LONGEST_REFUSED_PAUSE,
            _ => LONGEST_PAUSE,
        };
        let pause = memory.retry(longest);
        tracing::warn!(
            namespace = object.namespace(),
            name = object.name_any(),
            %error,
            retry_seconds = pause.as_secs(),
            "a ModelDeployment could not be brought to its spec"
        );
        Action::requeue(pause)
    }
}

/// A pass whose panic is a failure of its own.
async fn held(pass: impl Future<Output = Result<Action, PassError>>) -> Result<Action, PassError> {
    let passed = AssertUnwindSafe(pass).catch_unwind().await;
    passed.unwrap_or(Err(PassError::Panicked))
}

#[cfg(test)]
mod tests;
