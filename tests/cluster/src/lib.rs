//! A real Kubernetes control plane for the tests and the quick start.

pub mod engine;
mod sandbox;
