//! The request that goes upstream, built from nothing: of what the caller sent it has what is listed here, and no more.
//!
//! Knows which headers and paths there are; nothing of bodies.

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request};
use kube::client::Body;

use super::super::attributes::{Attributes, is_dns_name};
use super::super::negotiation::json_alone;
use super::super::response::{AUDIT_ID, AUDIT_ID_MOST, JSON};
use super::super::status::Failure;
use super::super::{RESOURCE, STORED_GROUP_VERSION};

/// What is passed on as it is.
const KEPT: [HeaderName; 3] = [
    USER_AGENT,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];

/// Where one request goes, and what it asks for.
#[derive(Debug)]
pub(super) struct Upstream<'a> {
    method: Method,
    target: String,
    accept: HeaderValue,
    caller: &'a Parts,
}

impl<'a> Upstream<'a> {
    /// The same request in the stored version. Its path is made of what was understood, never of the caller's text; its query
    /// is the caller's, byte for byte.
    pub(super) fn of(caller: &'a Parts, attributes: &Attributes) -> Result<Self, Failure> {
        let Attributes {
            namespace,
            name,
            subresource,
            verb,
            ..
        } = attributes;
        let accept = json_alone(&caller.headers).ok_or_else(|| Failure::not_acceptable(JSON))?;
        // A list may be narrowed to a name that is not in its path.
        let name = name.as_ref().filter(|_| !matches!(*verb, "list" | "watch"));
        let is_of_one = name.is_some() || matches!(*verb, "create" | "deletecollection");
        if is_of_one && namespace.is_none() {
            // No 404, which the garbage collector would take for a deleted owner.
            return Err(Failure::bad_request(
                "a ModelDeployment is in a namespace, and the path names none",
            ));
        }
        let mut target = format!("/apis/{STORED_GROUP_VERSION}");
        if let Some(namespace) = namespace {
            if !is_dns_name(namespace, 63, false) {
                return Err(match name {
                    Some(name) => Failure::not_found(name),
                    None => Failure::bad_request(format!("{namespace:?} cannot be a namespace's name")),
                });
            }
            target.push_str("/namespaces/");
            target.push_str(namespace);
        }
        target.push('/');
        target.push_str(RESOURCE);
        if let Some(name) = name {
            // What cannot be a name is no object's name.
            if !is_dns_name(name, 253, true) {
                return Err(Failure::not_found(name));
            }
            target.push('/');
            target.push_str(name);
        }
        if subresource.is_some() {
            target.push_str("/status");
        }
        if let Some(query) = caller.uri.query() {
            target.push('?');
            target.push_str(query);
        }
        let method = match caller.method {
            Method::HEAD => Method::GET,
            ref method => method.clone(),
        };
        Ok(Upstream {
            method,
            target,
            accept,
            caller,
        })
    }

    /// With what the caller wrote, in the stored version and of the caller's content type.
    pub(super) fn with(self, body: Bytes) -> Result<Request<Body>, Failure> {
        let has_body = !body.is_empty();
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = self.method;
        *request.uri_mut() = self
            .target
            .parse()
            .map_err(|_| Failure::bad_request("the request's query cannot be passed on"))?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, self.accept);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(content_type) = self.caller.headers.get(CONTENT_TYPE).filter(|_| has_body) {
            headers.insert(CONTENT_TYPE, content_type.clone());
        }
        for name in KEPT {
            if let Some(value) = self.caller.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        if let Some(id) = self.caller.headers.get(AUDIT_ID).filter(|id| id.len() <= AUDIT_ID_MOST) {
            headers.insert(AUDIT_ID, id.clone());
        }
        Ok(request)
    }
}
