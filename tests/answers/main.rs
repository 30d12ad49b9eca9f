//! What the `metrics` subresource answers, from readings with chosen times: the sentences of the metrics contract.

mod gauges;
mod scene;
