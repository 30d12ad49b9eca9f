//! The Pod-role index: the Pods of each ModelDeployment with their facts, and what is expected of it.
//!
//! The reconciler puts in what it rendered, the watches keep it current, and the metrics service asks one question: the
//! [`Deployment`] of a name. Owner chains are verified by UID here; live labels and annotations alone are never believed.

pub mod deployment;

pub use deployment::{Container, Deployment, ExpectedRole, IndexedPod, Phase};
