//! What is read, and what came of it.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use tokio::time::Instant;

use super::unread::Unread;
use crate::pod::Listener;

/// A Pod to read, as the index knows it at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The Pod's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID. An address may have moved to another Pod while it was read: who holds the reading compares this UID with the index
    /// again.
    pub uid: String,
    /// Its address.
    pub address: IpAddr,
    /// Whether it shares its node's network, so that the address is the node's.
    pub host_network: bool,
    /// Where it serves metrics.
    pub listener: Listener,
}

impl Target {
    /// Address and port. An IPv4 address mapped into IPv6 is the IPv4 address.
    pub(super) fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.address.to_canonical(), self.listener.port)
    }
}

/// The result of one fetch.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The Pod that was asked.
    pub target: Target,
    /// When the request went out (or the attempt began, where none did), in whole microseconds: nothing in the body is older.
    pub observed_at: Timestamp,
    /// The same moment on the monotonic clock, for the length of windows.
    pub instant: Instant,
    /// The body of a status 200, at most [`super::limits::BODY_BYTES`], or why there is none.
    pub body: Result<Bytes, Unread>,
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) wall: Timestamp,
    pub(super) monotonic: Instant,
}

impl Moment {
    /// The last whole microsecond, on both clocks: windows are as long as the written times are apart.
    pub(super) fn now() -> Self {
        let (now, monotonic) = (Timestamp::now(), Instant::now());
        let wall = whole_microseconds(now);
        let begun = now.duration_since(wall).unsigned_abs();
        Self {
            wall,
            monotonic: monotonic.checked_sub(begun).unwrap_or(monotonic),
        }
    }
}

/// The last whole microsecond at or before a time. Answers are written in microseconds.
pub(crate) fn whole_microseconds(time: Timestamp) -> Timestamp {
    let microseconds = TimestampRound::new().smallest(Unit::Microsecond).mode(RoundMode::Floor);
    time.round(microseconds).unwrap_or(time)
}
