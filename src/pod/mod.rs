//! What a Pod is to us: its facts, its metrics listener, its annotations. Knows neither metrics text nor Kubernetes clients.

pub mod facts;

pub use facts::{Endpoint, Facts, Listener, Member, NoEndpoint, Producer, Scheme, TracksLoad};
