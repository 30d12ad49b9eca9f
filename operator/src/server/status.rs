//! Refusals, as the `Status` objects that Kubernetes clients expect.
//!
//! Knows Kubernetes' codes, reasons and wording; nothing of how a refusal comes about.

use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, Status, StatusDetails};

use super::attributes::Attributes;
use super::{GROUP, RESOURCE};

/// A request that is answered with a `Status` object instead of what it asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// HTTP status code, and the object's `code`.
    pub code: StatusCode,
    reason: &'static str,
    message: String,
    details: Option<Box<StatusDetails>>,
    /// Value of the `Allow` header, of a 405 only.
    pub allow: Option<&'static str>,
    /// Value of the `Retry-After` header, in seconds. Clients repeat a request that was refused with it, so it is only for
    /// requests that have changed nothing.
    pub retry_after: Option<u32>,
}

impl Failure {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Failure {
            code,
            reason,
            message: message.into(),
            details: None,
            allow: None,
            retry_after: None,
        }
    }

    /// 400 with a sentence.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401: the caller is not known.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403 in the API server's own words; `reason` is the authoriser's, and may be empty.
    pub fn forbidden(user: &str, attributes: &Attributes, reason: &str) -> Self {
        let Attributes {
            verb,
            resource,
            subresource,
            namespace,
            name,
            ..
        } = attributes;
        let full = match subresource {
            Some(subresource) => format!("{resource}/{subresource}"),
            None => resource.clone(),
        };
        let place = match namespace {
            Some(namespace) => format!("in the namespace {namespace:?}"),
            None => "at the cluster scope".to_owned(),
        };
        let object = match name {
            Some(name) => format!("{resource}.{GROUP} {name:?}"),
            None => format!("{resource}.{GROUP}"),
        };
        let mut message = format!(
            "{object} is forbidden: User {user:?} cannot {verb} resource {full:?} in API group {GROUP:?} {place}"
        );
        if !reason.is_empty() {
            message = format!("{message}: {reason}");
        }
        Failure {
            details: Some(details(resource, name.as_deref())),
            ..Self::new(StatusCode::FORBIDDEN, "Forbidden", escape(&message))
        }
    }

    /// 404 of one ModelDeployment.
    ///
    /// The garbage collector deletes the dependents of an object that is "not found", so this is only for a name that is
    /// known not to exist.
    pub fn not_found(name: &str) -> Self {
        Failure {
            details: Some(details(RESOURCE, Some(name))),
            ..Self::new(
                StatusCode::NOT_FOUND,
                "NotFound",
                format!("{RESOURCE}.{GROUP} {name:?} not found"),
            )
        }
    }

    /// 404 of a path that is not served.
    pub fn not_served() -> Self {
        Failure {
            details: Some(Box::default()),
            ..Self::new(
                StatusCode::NOT_FOUND,
                "NotFound",
                "the server could not find the requested resource",
            )
        }
    }

    /// 405 of a resource; `allow` lists the methods that it has.
    pub fn method_not_supported(verb: &str, allow: &'static str) -> Self {
        Failure {
            details: Some(details(RESOURCE, None)),
            allow: Some(allow),
            ..Self::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "MethodNotAllowed",
                format!("{verb} is not supported on resources of kind \"{RESOURCE}.{GROUP}\""),
            )
        }
    }

    /// 405 of a document.
    pub fn method_not_allowed(allow: &'static str) -> Self {
        Failure {
            allow: Some(allow),
            ..Self::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            )
        }
    }

    /// 406, naming what could have been asked for.
    pub fn not_acceptable(accepted: &str) -> Self {
        Self::new(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            format!("only the following media types are accepted: {accepted}"),
        )
    }

    /// A request's body that cannot be taken: 400, 413 or 415, with a sentence.
    pub fn body(code: StatusCode, message: impl Into<String>) -> Self {
        let reason = match code {
            StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
            StatusCode::UNSUPPORTED_MEDIA_TYPE => "UnsupportedMediaType",
            _ => return Self::bad_request(message),
        };
        Self::new(code, reason, message)
    }

    /// 429: too much is being done at once.
    pub fn too_many_requests() -> Self {
        Self::retried(
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequests",
            "too many requests are being answered at once, please try again later",
        )
    }

    /// 500 that says nothing of its cause, which is in the log.
    pub fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            "Internal error occurred",
        )
    }

    /// 500 with a sentence.
    pub fn internal_error(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// 503 with a sentence and no `Retry-After`: for a write that may have been carried out, and for what does not pass by itself.
    pub fn unavailable_once(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// 503 with a sentence and `Retry-After: 1`, for requests that have changed nothing.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::retried(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// 504: the request's own or the server's deadline passed.
    pub fn timeout() -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            "Timeout: request did not complete within the allotted timeout",
        )
    }

    fn retried(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        let seconds = 1;
        Failure {
            details: Some(Box::new(StatusDetails {
                retry_after_seconds: Some(seconds as i32),
                ..StatusDetails::default()
            })),
            retry_after: Some(seconds),
            ..Self::new(code, reason, message)
        }
    }

    /// The object to send.
    pub fn status(&self) -> Status {
        Status {
            code: Some(i32::from(self.code.as_u16())),
            details: self.details.as_deref().cloned(),
            message: Some(self.message.clone()),
            metadata: ListMeta::default(),
            reason: Some(self.reason.to_owned()),
            status: Some("Failure".to_owned()),
        }
    }
}

/// Names the plural resource where the field says `kind`, as Kubernetes itself does.
fn details(resource: &str, name: Option<&str>) -> Box<StatusDetails> {
    Box::new(StatusDetails {
        group: Some(GROUP.to_owned()),
        kind: Some(resource.to_owned()),
        name: name.map(str::to_owned),
        ..StatusDetails::default()
    })
}

/// As the API server escapes a refusal, so that no caller's string turns into markup where the text is shown.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, to_value};

    fn metrics(name: &str) -> Attributes {
        Attributes {
            verb: "get",
            namespace: Some("ns".into()),
            resource: "modeldeployments".into(),
            subresource: Some("metrics".into()),
            name: Some(name.into()),
            ..Attributes::default()
        }
    }

    #[test]
    fn forbidden_is_worded_as_upstream_words_it() {
        let failure = Failure::forbidden("u", &metrics("n"), "");
        assert_eq!(
            to_value(failure.status()).unwrap(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403, "reason": "Forbidden",
                "message": "modeldeployments.worker.gpustack.ai \"n\" is forbidden: User \"u\" cannot get resource \
                            \"modeldeployments/metrics\" in API group \"worker.gpustack.ai\" in the namespace \"ns\"",
                "details": {"name": "n", "group": "worker.gpustack.ai", "kind": "modeldeployments"},
            })
        );
    }

    #[test]
    fn forbidden_escapes_markup() {
        let failure = Failure::forbidden("<b>&", &metrics("n"), "no <rule>");
        let message = failure.status().message.unwrap();
        assert!(message.contains("User \"&lt;b&gt;&amp;\" cannot"), "{message}");
        assert!(message.ends_with(": no &lt;rule&gt;"), "{message}");
    }

    #[test]
    fn not_found_names_the_plural_resource() {
        assert_eq!(
            to_value(Failure::not_found("chat").status()).unwrap(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404, "reason": "NotFound",
                "message": "modeldeployments.worker.gpustack.ai \"chat\" not found",
                "details": {"name": "chat", "group": "worker.gpustack.ai", "kind": "modeldeployments"},
            })
        );
    }

    #[test]
    fn only_refusals_worth_repeating_carry_retry_after() {
        assert_eq!(Failure::unavailable("x").retry_after, Some(1));
        assert_eq!(Failure::too_many_requests().retry_after, Some(1));
        for failure in [
            Failure::timeout(),
            Failure::unavailable_once("x"),
            Failure::internal(),
            Failure::unauthorized(),
            Failure::not_found("x"),
        ] {
            assert_eq!(failure.retry_after, None, "{failure:?}");
        }
    }
}
