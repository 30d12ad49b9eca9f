//! The renderer from outside: manifests in; objects, facts and refusals out.

mod argparse;
mod decisions;
mod facts;
#[path = "../generator/mod.rs"]
mod generator;
mod golden;
mod manifest;
mod matrix;
mod refusals;
mod space;
