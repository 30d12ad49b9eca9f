//! Windows: the samples kept of each Pod, and what happened between two of them.
//!
//! Owns identity (Pod UID and container life), the ring, the choice of a baseline, deltas per series, resets, and the arithmetic on them:
//! totals of one Pod, means, quantiles. A read never consumes a baseline. Refuses to know which figure is wanted of whom, and why a
//! body could not be had. Pure but for the store; its clock is the monotonic one.
//!
//! # Memory
//!
//! Kept of one Pod, until ten minutes after the last request for it: at most nine samples, each of at most 4,096 series and 256 KiB of
//! lines (the caps on one body), and the names of at most 8,192 series. A real engine's body keeps some 50 KiB of a sample, so half a
//! megabyte a Pod; a body made to be costly, at its caps in every sample, keeps some 10 MiB.

mod delta;
mod history;
mod layout;
mod quantile;
mod sample;
mod seen;
mod store;
mod trail;

pub use delta::{Increase, Restarted};
pub use history::History;
pub use layout::{HistogramIncrease, total};
pub use quantile::quantiles;
pub use sample::{Sample, State};
pub use store::{KEPT, Store};
pub use trail::{Baseline, NoBaseline, Trail};
