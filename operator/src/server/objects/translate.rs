//! A ModelDeployment's two names: `v1`, which callers write and read here, and `v1alpha1`, which is stored.
//!
//! Owns which strings of a body name the version: `apiVersion` of an object and of its `managedFields`' entries. The two versions
//! have one schema, so nothing else differs. No body is parsed and written again: the strings are found and replaced where they
//! stand, and order, repeated keys, numbers, spelling and blanks stay for the API server to judge as the caller wrote them.
//!
//! Which value is meant is told by its own `apiVersion` and `kind`; the same text in an annotation or an argument is not touched.
//! Nothing here recurses, knows a connection, or knows who asks.

mod frames;
mod inbound;
mod json;
mod outbound;
mod patch;
mod splices;
mod versioned;
mod yaml;

#[cfg(test)]
mod properties;

pub use frames::{Frames, TooLong};
pub use inbound::{Inbound, Refused, inbound};
pub use outbound::{Translated, outbound};

/// Most bytes of a request's body: the API server's own limit.
pub const BODY_MOST: usize = 3 * 1024 * 1024;

/// `apiVersion` as callers know it.
const SERVED: &str = "worker.gpustack.ai/v1";
/// `apiVersion` as it is stored.
const STORED: &str = "worker.gpustack.ai/v1alpha1";
