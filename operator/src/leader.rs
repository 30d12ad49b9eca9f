//! Leader election by a Lease: at most one replica reconciles at a time.
//!
//! A holder that could not renew for [`RENEW_DEADLINE`] stops working; another may only take over [`LEASE_DURATION`] after it last saw
//! the Lease change. The difference is what a holder has for stopping. The times written into the Lease are for people: each replica
//! measures on its own clock how long the Lease has not changed, so clocks may differ as they like.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// How long a Lease that does not change is respected: client-go's default for controllers.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// How long a holder works on without having renewed: client-go's default.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Pause between two attempts to acquire or renew: client-go's default.
pub const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// Why an attempt failed.
#[derive(Debug, Error)]
enum AttemptError {
    /// The API server said no, or could not be reached.
    #[error("cannot read or write the Lease")]
    Call(#[source] kube::Error),
    /// It did not answer in time.
    #[error("the API server did not answer in time")]
    Timeout,
}

/// A candidate for one Lease.
pub struct Election {
    leases: Api<Lease>,
    name: String,
    identity: String,
    seen: Option<Sighting>,
}

/// The Lease as this candidate last saw it change.
struct Sighting {
    version: Option<String>,
    at: Instant,
}

/// What an attempt came to.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    /// The Lease is ours.
    Held,
    /// Somebody else has it.
    Respected,
    /// It was written between our reading and our writing: by another candidate, or by an earlier attempt of ours of which we never had
    /// the answer. The next attempt shows which.
    Contended,
}

impl Election {
    /// A candidate called `identity`, which is the Pod's name: a container that restarts in its Pod leads on at once.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.into(),
            identity: identity.into(),
            seen: None,
        }
    }

    /// Runs `work` whenever this candidate leads, and drops it as soon as it does not; `leading` tells others. Ends at `shutdown`, after
    /// `work` was dropped and the Lease was given up, so that the next leader need not wait.
    pub async fn run<Work: Future<Output = ()>>(
        mut self,
        leading: watch::Sender<bool>,
        work: impl Fn() -> Work,
        shutdown: impl Future<Output = ()>,
    ) {
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let held = tokio::select! {
                () = &mut shutdown => return,
                since = self.acquire() => since,
            };
            tracing::info!(lease = self.name, identity = self.identity, "leading");
            leading.send_replace(true);
            let ended = tokio::select! {
                () = &mut shutdown => true,
                () = self.hold(held) => false,
                () = work() => false,
            };
            // `work` is dropped here: nothing of it runs when the Lease is given up or expires.
            leading.send_replace(false);
            if ended {
                self.release().await;
                return;
            }
            tracing::warn!(lease = self.name, "not leading any more");
        }
    }

    /// Tries until the Lease is ours; the instant before which nobody else can have seen it change.
    async fn acquire(&mut self) -> Instant {
        loop {
            let asked = Instant::now();
            match self.attempt(RENEW_DEADLINE).await {
                Ok(Attempt::Held) => return asked,
                Ok(Attempt::Respected | Attempt::Contended) => {}
                Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "cannot acquire the Lease"),
            }
            sleep(RETRY_PERIOD).await;
        }
    }

    /// Renews until that has not worked for [`RENEW_DEADLINE`], or somebody else holds the Lease.
    async fn hold(&mut self, mut renewed: Instant) {
        loop {
            sleep(RETRY_PERIOD.min(left(renewed))).await;
            let asked = Instant::now();
            let left = left(renewed);
            if left.is_zero() {
                return;
            }
            match self.attempt(left).await {
                Ok(Attempt::Held) => renewed = asked,
                Ok(Attempt::Respected) => return,
                Ok(Attempt::Contended) => {}
                Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "cannot renew the Lease"),
            }
        }
    }

    /// Reads the Lease and writes it if it is ours or free.
    async fn attempt(&mut self, within: Duration) -> Result<Attempt, AttemptError> {
        timeout(within, self.read_and_write())
            .await
            .map_err(|_| AttemptError::Timeout)?
    }

    async fn read_and_write(&mut self) -> Result<Attempt, AttemptError> {
        let written = match self.leases.get_opt(&self.name).await.map_err(AttemptError::Call)? {
            None => {
                let metadata = ObjectMeta {
                    name: Some(self.name.clone()),
                    ..Default::default()
                };
                let lease = Lease {
                    metadata,
                    spec: Some(self.claim(None)),
                };
                self.leases.create(&PostParams::default(), &lease).await
            }
            Some(lease) if self.may_take(&lease, Instant::now()) => {
                let spec = Some(self.claim(lease.spec.as_ref()));
                self.leases
                    .replace(&self.name, &PostParams::default(), &Lease { spec, ..lease })
                    .await
            }
            Some(_) => return Ok(Attempt::Respected),
        };
        match written {
            Ok(_) => Ok(Attempt::Held),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Attempt::Contended),
            Err(error) => Err(AttemptError::Call(error)),
        }
    }

    /// Whether the Lease is ours, free, or unchanged for longer than it is respected.
    fn may_take(&mut self, lease: &Lease, now: Instant) -> bool {
        let version = lease.resource_version();
        let unchanged_since = match &self.seen {
            Some(seen) if seen.version == version => seen.at,
            _ => {
                self.seen = Some(Sighting { version, at: now });
                now
            }
        };
        let spec = lease.spec.as_ref();
        let holder = spec
            .and_then(|spec| spec.holder_identity.as_deref())
            .unwrap_or_default();
        let seconds = spec
            .and_then(|spec| spec.lease_duration_seconds)
            .and_then(|seconds| u64::try_from(seconds).ok());
        let respected = seconds.map_or(LEASE_DURATION, Duration::from_secs);
        holder.is_empty() || holder == self.identity || now.duration_since(unchanged_since) > respected
    }

    fn claim(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let renewed = before.filter(|spec| spec.holder_identity.as_deref() == Some(&self.identity));
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(LEASE_DURATION.as_secs() as i32),
            acquire_time: renewed
                .and_then(|spec| spec.acquire_time.clone())
                .or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if renewed.is_some() {
                transitions
            } else {
                transitions + 1
            }),
            ..Default::default()
        }
    }

    /// Gives the Lease up, if it is still ours.
    async fn release(&self) {
        let released = timeout(RETRY_PERIOD, async {
            let Some(lease) = self.leases.get_opt(&self.name).await? else {
                return Ok(());
            };
            let Some(spec) = lease.spec.clone() else { return Ok(()) };
            if spec.holder_identity.as_deref() != Some(&self.identity) {
                return Ok(());
            }
            let spec = Some(LeaseSpec {
                holder_identity: None,
                ..spec
            });
            self.leases
                .replace(&self.name, &PostParams::default(), &Lease { spec, ..lease })
                .await
                .map(drop)
        });
        match released.await {
            Ok(Ok(())) => tracing::info!(lease = self.name, "gave the Lease up"),
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot give the Lease up; the next leader waits until it expires")
            }
            Err(_) => tracing::warn!("cannot give the Lease up in time; the next leader waits until it expires"),
        }
    }
}

/// How long a holder that renewed at `renewed` may work on.
fn left(renewed: Instant) -> Duration {
    RENEW_DEADLINE.saturating_sub(renewed.elapsed())
}

#[cfg(test)]
mod tests;
