//! The limits of reading Pods (metrics contract, section 8).

use std::time::Duration;

/// Fetches at once of one request. Two rounds of hanging Pods then take half of [`REQUEST`], so that Pods queued behind them are
/// still read.
pub const FETCHES: usize = 32;

/// One fetch: connection, headers and body.
pub const FETCH: Duration = Duration::from_secs(2);

/// One whole request, which is always answered inside it.
pub const REQUEST: Duration = Duration::from_secs(8);

/// What of [`REQUEST`] is kept back from fetching: parsing the last bodies and putting the answer together.
pub const ASSEMBLY: Duration = Duration::from_millis(750);

/// Bytes of one body: twenty times that of a real engine with one rank.
pub const BODY_BYTES: usize = 1024 * 1024;

/// Bytes that the head of an answer may take while it is read. Real ones have some hundred.
pub(super) const HEAD_BYTES: usize = 64 * 1024;
