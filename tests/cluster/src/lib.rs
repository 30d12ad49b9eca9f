//! A real Kubernetes control plane for the tests and the quick start.

pub mod engine;
pub mod kubelet;
mod sandbox;
mod scheduler;
