//! The reader of Pods: what it may read and whom it trusts, and one fetch under its deadline.

use std::fmt;
use std::time::Duration;

use ipnet::IpNet;
use rustls::ClientConfig;
use tokio::time::{Instant, timeout_at};

use super::reading::{Moment, Reading, Target};
use super::trust::{self, TrustError};
use super::unread::Unread;
use super::{address, exchange, limits};

/// What the install decides about reading Pods.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Certificate authorities trusted besides the system's, as PEM.
    pub extra_ca: Option<Vec<u8>>,
    /// Ranges that are read although they are denied by themselves.
    pub allow: Vec<IpNet>,
    /// Whether Pods on their node's network are read.
    pub allow_host_network: bool,
}

/// Told of each read: why it failed, where it did, and how long it took.
type Observer = dyn Fn(Option<Unread>, Duration) + Send + Sync;

/// Reads Pods.
pub struct Scraper {
    allow: Vec<IpNet>,
    allow_host_network: bool,
    tls: ClientConfig,
    observer: Box<Observer>,
}

impl fmt::Debug for Scraper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scraper").finish_non_exhaustive()
    }
}

impl Scraper {
    /// Reads the system's certificate authorities and the configured ones.
    ///
    /// # Errors
    ///
    /// If the configured bundle is of no use.
    pub fn new(config: Config) -> Result<Self, TrustError> {
        let tls = trust::client(config.extra_ca.as_deref())?;
        Ok(Self {
            allow: config.allow,
            allow_host_network: config.allow_host_network,
            tls,
            observer: Box::new(|_, _| {}),
        })
    }

    /// Has `observer` told of each read that ended.
    pub fn observed(self, observer: impl Fn(Option<Unread>, Duration) + Send + Sync + 'static) -> Self {
        Self {
            observer: Box::new(observer),
            ..self
        }
    }

    /// Reads one Pod: one GET over a connection of its own, done within [`limits::FETCH`] and before `deadline`. Dropping the future
    /// closes the connection.
    pub async fn get(&self, target: Target, deadline: Instant) -> Reading {
        let mut sent = Moment::now();
        let begun = sent.monotonic;
        let end = deadline.min(sent.monotonic + limits::FETCH);
        let body = if self.is_denied(&target) {
            Err(Unread::AddressDenied)
        } else if end <= sent.monotonic {
            Err(Unread::Timeout)
        } else {
            timeout_at(end, exchange::get(&target, &self.tls, &mut sent))
                .await
                .unwrap_or(Err(Unread::Timeout))
        };
        (self.observer)(body.as_ref().err().copied(), begun.elapsed());
        Reading {
            target,
            observed_at: sent.wall,
            instant: sent.monotonic,
            body,
        }
    }

    fn is_denied(&self, target: &Target) -> bool {
        let by_network = target.host_network && !self.allow_host_network;
        (by_network || address::is_denied(target.address)) && !address::is_in(target.address, &self.allow)
    }
}
