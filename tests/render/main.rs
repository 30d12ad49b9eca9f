//! The renderer from outside: manifests in; objects, facts and refusals out.

mod decisions;
mod facts;
mod golden;
mod manifest;
mod matrix;
mod refusals;
