//! Reading a Pod: one GET under its limits.
//!
//! Owns the transport: addresses that are never read, trust, the one request, the caps and the deadlines. Refuses to look inside a
//! body, to know what a Pod is for, and to resolve names. A fetch that fails is data, not an error: a [`Reading`] says when it was made
//! and either holds the body or the code of the metrics contract, section 6.

mod address;
mod exchange;
mod fetch;
pub mod limits;
mod reading;
mod scraper;
mod trust;
mod unread;

pub use fetch::Fetch;
pub(crate) use reading::whole_microseconds;
pub use reading::{Reading, Target};
pub use scraper::{Config, Scraper};
pub use trust::TrustError;
pub use unread::{Unread, Unreadable};
