//! Follows the Secrets and the APIService, and takes the steps that `plan` decides.
//!
//! Knows how to see and act; decides nothing itself. A step that fails is tried again, later and later, and what is served goes on.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use tokio::time::Instant;

use super::pair::{Authority, Damage, Leaf};
use super::plan::{Held, State, Step};
use super::replica::{self, Own, ReplicaIdentity};
use super::{Config, Provider, ServingCertificate, bundle, issue, plan, secret};

/// Before a failed step is tried again: at first, and at most.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(60);
/// A timer is set no further than this, so that a clock that was set is noticed.
const LOOK: Duration = Duration::from_secs(60 * 60);
/// With less than this left, a certificate that should long have been renewed is complained of.
const LAST: SignedDuration = SignedDuration::from_hours(7 * 24);

/// What was seen.
enum Seen {
    Authority(Option<Secret>),
    Leaf(Option<Secret>),
    Service(Option<APIService>),
    Failed(&'static str, watcher::Error),
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("the API server refused")]
    Api(#[from] kube::Error),
    #[error("the certificate could not be made")]
    Issue(#[from] rcgen::Error),
    #[error("the authority that was made cannot be used")]
    Made(#[from] Damage),
    #[error("there is no Service that a certificate could be for")]
    NoService,
}

impl Failed {
    /// Someone else was faster; what they wrote is about to be seen.
    fn is_race(&self) -> bool {
        matches!(self, Failed::Api(kube::Error::Api(status)) if status.code == 409)
    }
}

pub(super) struct Keeper {
    config: Config,
    names: [String; 4],
    leading: watch::Receiver<bool>,
    serving: ServingCertificate,
    identity: ReplicaIdentity,
    /// What this replica shows to others.
    own: Option<Own>,
    /// The authority that was seen last, and since when.
    seen: Option<(CertificateDer<'static>, Instant)>,
    secrets: Api<Secret>,
    services: Api<Service>,
    api_services: Api<APIService>,
    /// `None` until first seen.
    authority: Option<(Option<Secret>, Held<Authority>)>,
    leaf: Option<(Option<Secret>, Held<Leaf>)>,
    service: Option<APIService>,
    /// The authority that the API server has been seen to trust, and since when.
    published: Option<(CertificateDer<'static>, Instant)>,
}

impl Keeper {
    pub(super) fn new(
        client: Client,
        config: Config,
        leading: watch::Receiver<bool>,
        serving: ServingCertificate,
        identity: ReplicaIdentity,
    ) -> Self {
        Keeper {
            names: config.names(),
            secrets: Api::namespaced(client.clone(), &config.namespace),
            services: Api::namespaced(client.clone(), &config.namespace),
            api_services: Api::all(client),
            config,
            leading,
            serving,
            identity,
            own: None,
            seen: None,
            authority: None,
            leaf: None,
            service: None,
            published: None,
        }
    }

    pub(super) async fn run(mut self) {
        let mut seen = self.watch();
        let mut retry = RETRY;
        loop {
            let early = self.serve().into_iter().chain(self.introduce()).min();
            let wake = match self.act().await {
                Ok(wake) => {
                    retry = RETRY;
                    wake
                }
                Err(failed) => {
                    if !failed.is_race() {
                        tracing::warn!(
                            error = &failed as &dyn std::error::Error,
                            "the serving certificate cannot be kept up, trying again"
                        );
                    }
                    let wake = retry;
                    retry = (retry * 2).min(RETRY_MOST);
                    wake
                }
            };
            tokio::select! {
                Some(seen) = seen.next() => self.take(seen),
                Ok(()) = self.leading.changed() => {}
                () = tokio::time::sleep(early.map_or(wake, |early| early.min(wake))) => {}
            }
        }
    }

    fn watch(&self) -> BoxStream<'static, Seen> {
        let secret = |name: &str| watcher::watch_object(self.secrets.clone(), name).default_backoff();
        let authority = secret(&self.config.authority_secret).map_ok(Seen::Authority);
        let leaf = secret(&self.config.secret).map_ok(Seen::Leaf);
        let mut watches = vec![
            told("the authority's Secret", authority),
            told("the leaf's Secret", leaf),
        ];
        if self.config.provider == Provider::Operator {
            let service = watcher::watch_object(self.api_services.clone(), &self.config.api_service);
            watches.push(told("the APIService", service.default_backoff().map_ok(Seen::Service)));
        }
        stream::select_all(watches).boxed()
    }

    fn take(&mut self, seen: Seen) {
        match seen {
            Seen::Authority(secret) => self.take_authority(secret),
            Seen::Leaf(secret) => self.take_leaf(secret),
            Seen::Service(service) => self.service = service,
            Seen::Failed(what, error) => tracing::warn!(%error, "{what} cannot be watched"),
        }
    }

    fn take_authority(&mut self, secret: Option<Secret>) {
        let held = secret::held(secret.as_ref(), secret::authority);
        self.authority = Some((secret, held));
    }

    fn take_leaf(&mut self, secret: Option<Secret>) {
        let held = secret::held(secret.as_ref(), secret::leaf);
        if self.config.provider == Provider::Secret && matches!(held, Held::Absent) {
            tracing::warn!(
                secret = self.config.secret,
                "the Secret of the serving certificate is not there; whoever keeps it has yet to make it"
            );
        }
        self.leaf = Some((secret, held));
        self.serve();
    }

    /// Serves the leaf, unless it is damaged or out of its time: then the last good one stays. A leaf from a clock ahead of ours comes
    /// into its time later; says when.
    fn serve(&self) -> Option<Duration> {
        let Some((_, Held::Good(leaf))) = &self.leaf else {
            return None;
        };
        let (now, until) = (Timestamp::now(), leaf.validity.until);
        if !leaf.validity.holds(now) {
            tracing::error!(from = %leaf.validity.from, %until, "the serving certificate in its Secret is out of its time and is not taken");
            return Duration::try_from(leaf.validity.from.duration_since(now)).ok();
        }
        if until.duration_since(now) < LAST {
            tracing::warn!(%until, "the serving certificate ends soon, and has not been renewed");
        }
        if self
            .serving
            .current()
            .is_some_and(|served| Arc::ptr_eq(&served, &leaf.key))
        {
            return None;
        }
        let name = &self.names[0];
        if !leaf.is_for(name) {
            tracing::error!("the serving certificate is not for {name}, the name that the API server checks");
        }
        self.serving.swap(leaf.key.clone());
        tracing::info!(%until, "a serving certificate was taken up");
        None
    }

    /// Shows other replicas a certificate of this one's own, and believes them theirs. Where another is due later, says when.
    fn introduce(&mut self) -> Option<Duration> {
        let (Some((secret, _)), Some((kept, Held::Good(authority)))) = (&self.leaf, &self.authority) else {
            return None;
        };
        let servers = secret::trusted(secret.as_ref());
        // A Secret that is lost or damaged is about to be repaired: until then all goes on as it was.
        if servers.is_empty() {
            return None;
        }
        let mut believed = secret::trusted(kept.as_ref());
        believed.push(authority.certificate.clone());
        if self.config.provider == Provider::Operator {
            believed.extend(servers.iter().cloned());
        }
        let seen = match self.seen.take() {
            Some((certificate, since)) if certificate == authority.certificate => (certificate, since),
            _ => (authority.certificate.clone(), Instant::now()),
        };
        let age = seen.1.elapsed();
        self.seen = Some(seen);
        let (own, now) = (self.own.as_ref(), Timestamp::now());
        let wake = match replica::due(own, &authority.certificate, age, &believed, now) {
            Some(Duration::ZERO) => {
                match Own::issue(authority, &self.identity.client(), now) {
                    Ok(own) => self.own = Some(own),
                    Err(failed) => tracing::error!(
                        error = &failed as &dyn std::error::Error,
                        "this replica has nothing to show to others"
                    ),
                }
                None
            }
            later => later,
        };
        let key = self.own.as_ref().map(|own| own.leaf.key.clone());
        self.identity.swap(key, &believed, &servers);
        wake
    }

    /// Takes every step that is due, and says when to look again.
    async fn act(&mut self) -> Result<Duration, Failed> {
        // Three steps renew everything; more would be going round in a circle.
        for _ in 0..3 {
            let Some(step) = self.next() else { return Ok(LOOK) };
            match step {
                Step::Wait(until) => {
                    self.publish().await?;
                    let rest = until.and_then(|until| Duration::try_from(until.duration_since(Timestamp::now())).ok());
                    return Ok(rest.unwrap_or(LOOK).clamp(RETRY, LOOK));
                }
                Step::MakeAuthority => self.make_authority().await?,
                Step::MakeLeaf => self.make_leaf().await?,
                Step::Trust => self.trust().await?,
            }
        }
        Ok(RETRY)
    }

    fn next(&mut self) -> Option<Step> {
        let (_, authority) = self.authority.as_ref()?;
        let (leading, now) = (*self.leading.borrow(), Timestamp::now());
        if self.config.provider == Provider::Secret {
            return Some(plan::authority_alone(authority, leading, now));
        }
        let (leaf_secret, leaf) = self.leaf.as_ref()?;
        let published = authority.good().and_then(|authority| {
            let own = &authority.certificate;
            if !self
                .service
                .as_ref()
                .is_some_and(|service| bundle::published(service).contains(own))
            {
                self.published = None;
                return None;
            }
            match &self.published {
                Some((seen, since)) if seen == own => Some(since.elapsed()),
                _ => {
                    self.published = Some((own.clone(), Instant::now()));
                    Some(Duration::ZERO)
                }
            }
        });
        let trusted = secret::trusted(leaf_secret.as_ref());
        let state = State {
            authority,
            leaf,
            trusted: &trusted,
            published,
            leading,
            names: &self.names,
        };
        Some(state.next(now))
    }

    async fn make_authority(&mut self) -> Result<(), Failed> {
        let now = Timestamp::now();
        let issued = issue::authority(&self.config.service, now)?;
        let own = Authority::read(&issued.certificate, &issued.key)?.certificate;
        let before = self.authority.as_ref().and_then(|(secret, _)| secret.clone());
        let mut trusted = secret::trusted(before.as_ref());
        if let Some((_, Held::Good(old))) = &self.authority
            && !trusted.contains(&old.certificate)
        {
            trusted.push(old.certificate.clone());
        }
        let trusted = plan::to_trust(&trusted, &own, now);
        let data = secret::content(before.as_ref(), Some(issued), Some(&trusted));
        let stored = self.store(&self.config.authority_secret, before.as_ref(), data).await?;
        tracing::info!("an authority for the serving certificate was made");
        self.take_authority(Some(stored));
        Ok(())
    }

    async fn make_leaf(&mut self) -> Result<(), Failed> {
        let now = Timestamp::now();
        let Some((_, Held::Good(authority))) = &self.authority else {
            return Ok(());
        };
        let issued = issue::leaf(authority, &self.names, now)?;
        self.store_leaf(Some(issued), now).await?;
        tracing::info!("a serving certificate was issued");
        Ok(())
    }

    async fn trust(&mut self) -> Result<(), Failed> {
        self.store_leaf(None, Timestamp::now()).await
    }

    async fn store_leaf(&mut self, issued: Option<issue::Issued>, now: Timestamp) -> Result<(), Failed> {
        let Some((_, Held::Good(authority))) = &self.authority else {
            return Ok(());
        };
        let before = self.leaf.as_ref().and_then(|(secret, _)| secret.clone());
        let trusted = plan::to_trust(&secret::trusted(before.as_ref()), &authority.certificate, now);
        let data = secret::content(before.as_ref(), issued, Some(&trusted));
        let stored = self.store(&self.config.secret, before.as_ref(), data).await?;
        self.take_leaf(Some(stored));
        Ok(())
    }

    async fn store(
        &self,
        name: &str,
        before: Option<&Secret>,
        data: std::collections::BTreeMap<String, k8s_openapi::ByteString>,
    ) -> Result<Secret, Failed> {
        let owner = match before {
            Some(_) => None,
            None => Some(self.owner().await?),
        };
        Ok(secret::store(&self.secrets, name, before, data, owner).await?)
    }

    /// The Service that the certificates are for, so that they go when it goes. Without one none is made: what would own it is being
    /// uninstalled.
    async fn owner(&self) -> Result<OwnerReference, Failed> {
        let service = self
            .services
            .get_opt(&self.config.service)
            .await?
            .ok_or(Failed::NoService)?;
        Ok(OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Service".to_owned(),
            name: service.metadata.name.unwrap_or_default(),
            uid: service.metadata.uid.unwrap_or_default(),
            ..OwnerReference::default()
        })
    }

    /// Has the API server trust what the leaf's Secret says, where it does not yet.
    async fn publish(&mut self) -> Result<(), Failed> {
        let Some((Some(leaf), Held::Good(_))) = &self.leaf else {
            return Ok(());
        };
        let Some(service) = &self.service else { return Ok(()) };
        let trusted = secret::trusted(Some(leaf));
        if !*self.leading.borrow() || bundle::published(service) == trusted {
            return Ok(());
        }
        let service = bundle::publish(&self.api_services, service, &trusted).await?;
        tracing::info!(
            authorities = trusted.len(),
            "the API server was told which authorities to trust for the APIService"
        );
        self.service = Some(service);
        Ok(())
    }
}

/// What is seen, and that `what` cannot be.
fn told(
    what: &'static str,
    seen: impl Stream<Item = Result<Seen, watcher::Error>> + Send + 'static,
) -> BoxStream<'static, Seen> {
    seen.map(move |seen| seen.unwrap_or_else(|error| Seen::Failed(what, error)))
        .boxed()
}
