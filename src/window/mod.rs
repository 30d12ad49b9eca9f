//! Windows: the samples kept of each Pod, and what happened between two of them.
//!
//! Owns identity (Pod UID and container life), the ring, the choice of a baseline, deltas per series, resets, and the arithmetic on them:
//! totals of one Pod, means, quantiles. A read never consumes a baseline. Refuses to know which figure is wanted of whom, and why a
//! body could not be had. Pure but for the store; its clock is the monotonic one.

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
pub use sample::{Life, Sample, State};
pub use store::Store;
pub use trail::{Baseline, NoBaseline, Trail};
