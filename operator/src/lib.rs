//! The operator's parts, as a library, so that tests can drive each without a process.

pub mod certificates;
pub mod console;
pub mod controller;
mod crowd;
pub mod format;
pub mod leader;
pub mod manifest;
pub mod namespace;
pub mod render_command;
pub mod replicas;
mod schema;
pub mod scrapes;
pub mod server;
pub mod snapshot_command;
pub mod table;
pub mod telemetry;
