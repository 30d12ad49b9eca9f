//! Command lines: typed options out, and one small grammar that reads a user's extra arguments in, once.
//!
//! Knows the programs' options by name (`flags/`, taken from their own argument definitions) and knows no Kubernetes object. An
//! unknown or ambiguous spelling is passed on to the program and decides nothing.

mod choices;
mod engine;
mod grammar;
mod line;
mod llm_d;
mod owned;
mod router;

pub use choices::{Choices, HostTier, MalformedValue};
pub use engine::{KvEvents, Part, Sglang, Transfer, Vllm, VllmConnector};
pub use grammar::{Given, Grammar};
pub use line::Line;
pub use llm_d::{CoordinatorLine, EndpointPicker, coordinator_owned};
pub use owned::{Owned, OwnedFlag};
pub use router::{Discovery, RouterLine, router_grammars, router_owned};
