//! The answer: gather, merge, name what is missing.
//!
//! Owns the journey from one deployment of the index to one `ModelDeploymentMetrics`, and the words for what did not contribute. Refuses
//! to know HTTP serving, authorization, and what a series is called. A failed read is data here, not an error; there is no answer only
//! where nothing contributed at all.

mod absence;
mod activity;
mod assemble;
mod fault;
mod gather;
mod plan;
mod refusal;
mod replay;
mod subject;

pub use fault::Fault;
pub use gather::{Query, Snapshots};
pub use plan::PODS;
pub use refusal::Refusal;
pub use replay::{Failure, Replayed, UnknownFailure, replay};
