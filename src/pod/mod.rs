//! What a Pod is to us: its facts, its metrics listener, its labels and annotations in both directions. Knows neither metrics text nor
//! Kubernetes clients.

pub mod annotations;
pub mod facts;
pub mod labels;
mod life;

pub use facts::{Endpoint, Facts, Listener, Member, NoEndpoint, Producer, Scheme, TracksLoad};
pub use life::Life;
