//! Which replica of the operator answers a read of metrics.
//!
//! Every replica can answer every read. One of those that are ready owns the windows of a ModelDeployment, and the others hand a read of
//! it to that one: so no window is kept twice, and no Pod is read once for each replica. Where the owner does not answer, the replica
//! that was asked answers itself, from windows of its own.
//!
//! Owns the choice of the owner and the way to it: one hop, never two, over mutual TLS between replicas alone. The caller was
//! authenticated and authorised by the replica that was asked; nothing here reads a caller's name. What the answer is made of is not
//! known here.

mod counts;
mod forward;
mod members;
mod ownership;
mod question;
mod reader;

pub use counts::Counts;
pub use members::{Member, Members};
pub use reader::Reader;
