//! The aggregated API server, driven over real sockets, with a played API server behind it.
#![allow(missing_docs)]

mod api;
mod caller;
mod certificates;
mod documents;
mod identity;
mod issued;
mod leaving;
mod limits;
mod log;
mod metrics;
mod namespace;
mod objects;
mod odd;
mod replica;
mod replicas;
mod rights;
mod stage;
