//! The OpenAPI v3 document of what this server serves, built once from the Rust types that are served.
//!
//! Names our own group and version only: a server that lists another's document may be given its traffic.

mod components;
mod paths;

use std::sync::LazyLock;

use http::header::EXPIRES;
use http::{HeaderMap, HeaderValue, Response};
use model_deployment_crds::metrics::ModelDeploymentMetrics;
use serde_json::{Value, json};

use super::GROUP_VERSION;
use super::discovery::plain;
use super::objects::Mode;
use super::query::Query;
use super::response::{Body, Document, JSON, NOT_CACHED};
use super::status::Failure;
use components::Components;

/// Index and document of every mode.
#[derive(Debug)]
pub struct OpenApi([(Mode, ByMode); 3]);

#[derive(Debug)]
struct ByMode {
    index: Document,
    document: Document,
}

impl OpenApi {
    /// The documents of this program: they follow from its types alone.
    pub fn served() -> &'static Self {
        static SERVED: LazyLock<OpenApi> = LazyLock::new(OpenApi::build);
        &SERVED
    }

    fn build() -> Self {
        OpenApi(Mode::ALL.map(|mode| {
            let document = Document::new(&document(mode), JSON);
            let path = format!("apis/{GROUP_VERSION}");
            let url = format!("/openapi/v3/{path}?hash={}", document.hash);
            let index = json!({"paths": {path: {"serverRelativeURL": url}}});
            let index = Document::new(&index, JSON);
            (mode, ByMode { index, document })
        }))
    }

    fn of_mode(&self, mode: Mode) -> &ByMode {
        let [(_, full), rest @ ..] = &self.0;
        rest.iter()
            .find(|(of, _)| *of == mode)
            .map_or(full, |(_, documents)| documents)
    }

    /// `/openapi/v3`.
    pub fn index(&self, mode: Mode, request: &HeaderMap) -> Result<Response<Body>, Failure> {
        plain(&self.of_mode(mode).index, request, NOT_CACHED)
    }

    /// `/openapi/v3/apis/<group>/<version>`. Under its own hash it never changes. A wrong hash is answered like none: a redirect
    /// does not survive the API aggregator.
    pub fn document(&self, mode: Mode, request: &HeaderMap, query: &Query) -> Result<Response<Body>, Failure> {
        let document = &self.of_mode(mode).document;
        if query.get("hash") != Some(document.hash.as_str()) {
            return plain(document, request, NOT_CACHED);
        }
        let mut response = plain(document, request, "public, immutable")?;
        let year = jiff::SignedDuration::from_hours(365 * 24);
        let expires = (jiff::Timestamp::now() + year)
            .strftime("%a, %d %b %Y %H:%M:%S GMT")
            .to_string();
        if let Ok(expires) = HeaderValue::try_from(expires) {
            response.headers_mut().insert(EXPIRES, expires);
        }
        Ok(response)
    }
}

fn document(mode: Mode) -> Value {
    let mut components = Components::default();
    let mut paths = paths::metrics::<ModelDeploymentMetrics>(&mut components);
    paths.extend(paths::objects(mode, &mut components));
    json!({
        "openapi": "3.0.0",
        "info": {"title": "model-deployment-operator", "version": concat!("v", env!("CARGO_PKG_VERSION"))},
        "paths": paths,
        "components": {"schemas": components.schemas()},
    })
}
