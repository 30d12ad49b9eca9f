//! The operator's parts, as a library, so that tests can drive each without a process.

pub mod controller;
pub mod leader;
