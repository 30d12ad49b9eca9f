//! What a request wants to do to which resource, as the API server's request information has it.
//!
//! Knows paths, methods and verbs. Whether a resource exists, or a caller may touch it, is not known here.

use http::Method;
use k8s_openapi::api::authorization::v1::{FieldSelectorAttributes, LabelSelectorAttributes, ResourceAttributes};

use super::GROUP;
use super::query::Query;

/// One request for a resource of our group and version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// Kubernetes verb.
    pub verb: &'static str,
    /// Namespace, where the path has one.
    pub namespace: Option<String>,
    /// Plural resource.
    pub resource: String,
    /// Subresource, where the path has one.
    pub subresource: Option<String>,
    /// Object's name, where the path has one, or where a list or watch is narrowed to one.
    pub name: Option<String>,
    /// What a collection is narrowed to, as the request has it.
    pub field_selector: Option<String>,
    /// The same by labels.
    pub label_selector: Option<String>,
}

/// The part of a path behind `/apis/<group>/<version>/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourcePath<'a> {
    /// Namespace, where the path has one.
    pub namespace: Option<&'a str>,
    /// Plural resource.
    pub resource: &'a str,
    /// Object's name, where the path has one.
    pub name: Option<&'a str>,
    /// Subresource, where the path has one.
    pub subresource: Option<&'a str>,
}

impl<'a> ResourcePath<'a> {
    /// Splits `path`, or gives `None` where it is no resource path: an empty, dotted or percent-encoded segment (which no
    /// name of Kubernetes needs, and which two programs may read differently), or too many of them.
    pub fn parse(path: &'a str) -> Option<Self> {
        let segments: Vec<&str> = path.split('/').collect();
        if segments.iter().any(|segment| !is_plain(segment)) {
            return None;
        }
        let (namespace, rest) = match segments.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (resource, name, subresource) = match *rest {
            [resource] => (resource, None, None),
            [resource, name] => (resource, Some(name), None),
            [resource, name, subresource] => (resource, Some(name), Some(subresource)),
            _ => return None,
        };
        Some(ResourcePath {
            namespace,
            resource,
            name,
            subresource,
        })
    }

    /// The attributes of a request with `method` and `query`; `None` for a method that Kubernetes has no verb for.
    pub fn attributes(&self, method: &Method, query: &Query) -> Option<Attributes> {
        let single = self.name.is_some();
        let verb = match *method {
            Method::GET | Method::HEAD if single => "get",
            Method::GET | Method::HEAD if query.watches() => "watch",
            Method::GET | Method::HEAD => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if single => "delete",
            Method::DELETE => "deletecollection",
            _ => return None,
        };
        let mut attributes = Attributes {
            verb,
            namespace: self.namespace.map(str::to_owned),
            resource: self.resource.to_owned(),
            subresource: self.subresource.map(str::to_owned),
            name: self.name.map(str::to_owned),
            ..Attributes::default()
        };
        // What narrows a request may allow it. So it counts only where everyone reads it alike.
        if matches!(verb, "list" | "watch" | "deletecollection") && !query.is_odd() {
            let given = |name| query.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
            attributes.field_selector = given("fieldSelector");
            attributes.label_selector = given("labelSelector");
            if verb != "deletecollection" {
                attributes.name = attributes.field_selector.as_deref().and_then(only_name);
            }
        }
        Some(attributes)
    }
}

impl Attributes {
    /// Length of what the caller chose, in bytes.
    pub fn size(&self) -> usize {
        let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let members = [
            &self.namespace,
            &self.subresource,
            &self.name,
            &self.field_selector,
            &self.label_selector,
        ];
        self.resource.len() + members.into_iter().map(optional).sum::<usize>()
    }

    /// As the review of the caller's rights takes them.
    pub fn to_review(&self) -> ResourceAttributes {
        // Raw: the API server reads a selector itself, and one that it cannot read narrows nothing.
        ResourceAttributes {
            group: Some(GROUP.to_owned()),
            version: Some(super::VERSION.to_owned()),
            resource: Some(self.resource.clone()),
            subresource: self.subresource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            verb: Some(self.verb.to_owned()),
            field_selector: self.field_selector.clone().map(|raw| FieldSelectorAttributes {
                raw_selector: Some(raw),
                requirements: None,
            }),
            label_selector: self.label_selector.clone().map(|raw| LabelSelectorAttributes {
                raw_selector: Some(raw),
                requirements: None,
            }),
        }
    }
}

/// The one name that a field selector admits. With an escape in it, or two names, it is not narrowed.
fn only_name(selector: &str) -> Option<String> {
    if selector.contains('\\') {
        return None;
    }
    let mut names = selector.split(',').filter_map(|term| {
        let value = term.strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value))
    });
    let name = names.next().filter(|name| is_dns_name(name, 253, true))?;
    names.next().is_none().then(|| name.to_owned())
}

fn is_plain(segment: &str) -> bool {
    !matches!(segment, "" | "." | "..") && !segment.contains('%')
}

/// Whether `name` can be the name of an object or a namespace: dot-separated DNS labels (one only for a namespace).
pub fn is_dns_name(name: &str, most: usize, dots: bool) -> bool {
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        edge(bytes.first())
            && edge(bytes.last())
            && bytes
                .iter()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
    };
    name.len() <= most && if dots { name.split('.').all(label) } else { label(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_split_as_the_api_server_splits_them() {
        assert_eq!(
            ResourcePath::parse("namespaces/ns/modeldeployments/chat/metrics"),
            Some(ResourcePath {
                namespace: Some("ns"),
                resource: "modeldeployments",
                name: Some("chat"),
                subresource: Some("metrics")
            })
        );
        assert_eq!(
            ResourcePath::parse("modeldeployments"),
            Some(ResourcePath {
                namespace: None,
                resource: "modeldeployments",
                name: None,
                subresource: None
            })
        );
    }

    #[test]
    fn odd_paths_are_no_resource() {
        for path in [
            "",
            "modeldeployments/",
            "namespaces/ns/modeldeployments/chat/metrics/",
            "namespaces//modeldeployments/chat/metrics",
            "namespaces/ns/modeldeployments/../metrics",
            "namespaces/ns/modeldeployments/./metrics",
            "namespaces/ns/modeldeployments/a%2Fb/metrics",
            "namespaces/ns/modeldeployments/a%2e%2e/metrics",
            "namespaces/ns/modeldeployments/chat/metrics/more",
        ] {
            assert_eq!(ResourcePath::parse(path), None, "{path}");
        }
    }

    #[test]
    fn verbs_are_kubernetes_verbs() {
        let object = ResourcePath::parse("namespaces/ns/modeldeployments/chat").unwrap();
        let collection = ResourcePath::parse("namespaces/ns/modeldeployments").unwrap();
        for (path, method, query, verb) in [
            (object, Method::GET, "", Some("get")),
            (object, Method::HEAD, "", Some("get")),
            (object, Method::GET, "watch=true", Some("get")),
            (object, Method::PUT, "", Some("update")),
            (object, Method::PATCH, "", Some("patch")),
            (object, Method::DELETE, "", Some("delete")),
            (object, Method::OPTIONS, "", None),
            (object, Method::CONNECT, "", None),
            (collection, Method::GET, "", Some("list")),
            (collection, Method::GET, "watch=true", Some("watch")),
            (collection, Method::GET, "watch", Some("watch")),
            (collection, Method::GET, "watch=0", Some("list")),
            (collection, Method::POST, "", Some("create")),
            (collection, Method::DELETE, "", Some("deletecollection")),
        ] {
            let attributes = path.attributes(&method, &Query::parse(query));
            assert_eq!(attributes.map(|attributes| attributes.verb), verb, "{method} {query}");
        }
    }

    /// What narrows a request may allow it, so what two programs may read differently narrows nothing.
    #[test]
    fn a_collection_is_narrowed_by_what_everyone_reads_alike() {
        let collection = ResourcePath::parse("namespaces/ns/modeldeployments").unwrap();
        let narrowed = |method: Method, query: &str| {
            let attributes = collection.attributes(&method, &Query::parse(query)).unwrap();
            (attributes.name, attributes.field_selector, attributes.label_selector)
        };
        let text = |text: &str| Some(text.to_owned());
        for (query, name, fields) in [
            (
                "fieldSelector=metadata.name%3Dchat",
                text("chat"),
                text("metadata.name=chat"),
            ),
            (
                "fieldSelector=metadata.name==chat&watch=1",
                text("chat"),
                text("metadata.name==chat"),
            ),
            ("fieldSelector=metadata.name!=chat", None, text("metadata.name!=chat")),
            (
                "fieldSelector=metadata.name=a,metadata.name=b",
                None,
                text("metadata.name=a,metadata.name=b"),
            ),
            ("fieldSelector=metadata.name=a\\,b", None, text("metadata.name=a\\,b")),
            ("fieldSelector=metadata.name=%2E%2E", None, text("metadata.name=..")),
            ("fieldSelector=&fieldSelector=metadata.name=chat", None, None),
            (
                "fieldSelector=metadata.namespace!=%ff&fieldSelector=metadata.name=chat",
                None,
                None,
            ),
            ("a=%zz&fieldSelector=metadata.name=chat", None, None),
            ("fieldSelector=metadata.name=chat;", None, None),
        ] {
            assert_eq!(narrowed(Method::GET, query), (name, fields, None), "{query}");
        }
        assert_eq!(
            narrowed(Method::DELETE, "fieldSelector=metadata.name=chat&labelSelector=a%3Db"),
            (None, text("metadata.name=chat"), text("a=b"))
        );
        let object = ResourcePath::parse("namespaces/ns/modeldeployments/chat").unwrap();
        let attributes = object.attributes(&Method::GET, &Query::parse("fieldSelector=metadata.name=b"));
        assert_eq!(attributes.unwrap().field_selector, None);
    }

    #[test]
    fn names_are_dns_names() {
        assert!(is_dns_name("chat.v2-1", 253, true));
        assert!(!is_dns_name("chat.v2", 63, false));
        for name in ["", "Chat", "-a", "a-", "a..b", ".a", "a_b", "ä"] {
            assert!(!is_dns_name(name, 253, true), "{name}");
        }
        assert!(!is_dns_name(&"a".repeat(254), 253, true));
    }
}
