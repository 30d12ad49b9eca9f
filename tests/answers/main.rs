//! What the `metrics` subresource answers, from readings with chosen times: the sentences of the metrics contract.

mod captures;
mod codes;
mod deadlines;
mod gauges;
mod idle;
mod magnitude;
mod polling;
mod ranks;
mod refusals;
mod reports;
mod rows;
mod scene;
mod windows;
