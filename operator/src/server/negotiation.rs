//! Which of our representations a request's `Accept` header asks for.
//!
//! Knows the header's grammar and Kubernetes' parameters `as`, `g` and `v`; nothing of what is being represented.

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};

/// One representation that can be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// `application/json`.
    Json,
    /// `application/json;g=<group>;v=<version>;as=<kind>`.
    JsonAs {
        /// API group of the transformed kind.
        group: &'static str,
        /// Version of the transformed kind.
        version: &'static str,
        /// The kind itself.
        kind: &'static str,
    },
}

/// The first of the client's clauses, best quality first, that one of `offers` satisfies.
///
/// No header at all, or an empty one, asks for plain JSON. `None` is 406.
pub fn choose(headers: &HeaderMap, offers: &[Offer]) -> Option<Offer> {
    if asks_nothing(headers) {
        return offers.iter().copied().find(|offer| *offer == Offer::Json);
    }
    let mut clauses: Vec<Clause> = clauses(headers).map(Clause::parse).collect();
    clauses.sort_by_key(|clause| std::cmp::Reverse(clause.quality));
    clauses
        .iter()
        .filter(|clause| clause.quality > 0)
        .find_map(|clause| offers.iter().copied().find(|offer| clause.admits(*offer)))
}

/// The client's clauses that some JSON satisfies, each saying so, to be passed on. `None` is 406.
pub fn json_alone(headers: &HeaderMap) -> Option<HeaderValue> {
    if asks_nothing(headers) {
        return Some(HeaderValue::from_static("application/json"));
    }
    let kept: Vec<String> = clauses(headers)
        .filter(|text| {
            let clause = Clause::parse(text);
            clause.quality > 0 && clause.is_json()
        })
        .map(|text| match text.split_once(';') {
            Some((_, parameters)) => format!("application/json;{parameters}"),
            None => "application/json".to_owned(),
        })
        .collect();
    HeaderValue::try_from(kept.join(","))
        .ok()
        .filter(|kept| !kept.is_empty())
}

fn asks_nothing(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().all(|value| value.is_empty())
}

fn clauses(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(ACCEPT).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|clause| !clause.is_empty())
}

/// One media range of an `Accept` header.
struct Clause<'a> {
    range: &'a str,
    /// `as`, where given and not empty.
    kind: Option<&'a str>,
    group: &'a str,
    version: &'a str,
    /// In thousandths.
    quality: u16,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let mut clause = Clause {
            range: parts.next().unwrap_or_default(),
            kind: None,
            group: "",
            version: "",
            quality: 1000,
        };
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim().trim_matches('"');
            match name.trim() {
                "as" => clause.kind = (!value.is_empty()).then_some(value),
                "g" => clause.group = value,
                "v" => clause.version = value,
                "q" => {
                    clause.quality = match value.parse::<f32>() {
                        Ok(quality) if (0.0..=1.0).contains(&quality) => (quality * 1000.0) as u16,
                        _ => 1000,
                    }
                }
                _ => {}
            }
        }
        clause
    }

    fn is_json(&self) -> bool {
        ["application/json", "application/*", "*/*"]
            .iter()
            .any(|range| self.range.eq_ignore_ascii_case(range))
    }

    fn admits(&self, offer: Offer) -> bool {
        self.is_json()
            && match (self.kind, offer) {
                (None, Offer::Json) => true,
                (Some(asked), Offer::JsonAs { group, version, kind }) => {
                    asked == kind && self.group == group && self.version == version
                }
                _ => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: Offer = Offer::JsonAs {
        group: "apidiscovery.k8s.io",
        version: "v2",
        kind: "APIGroupDiscoveryList",
    };

    fn asked(accept: &str) -> Option<Offer> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        choose(&headers, &[V2, Offer::Json])
    }

    #[test]
    fn no_header_and_wildcards_mean_json() {
        assert_eq!(choose(&HeaderMap::new(), &[V2, Offer::Json]), Some(Offer::Json));
        for accept in [
            "",
            "*/*",
            "application/*",
            "application/json, */*",
            "text/html, */*;q=0.1",
        ] {
            assert_eq!(asked(accept), Some(Offer::Json), "{accept}");
        }
    }

    /// The headers that client-go's clients send.
    #[test]
    fn client_go_gets_json() {
        for accept in [
            "application/vnd.kubernetes.protobuf,application/json",
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        ] {
            assert_eq!(asked(accept), Some(Offer::Json), "{accept}");
        }
    }

    #[test]
    fn only_other_types_are_not_acceptable() {
        for accept in [
            "application/vnd.kubernetes.protobuf",
            "application/cbor",
            "application/yaml",
            "text/plain",
            "application/json;q=0",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            ", ,",
            "json",
        ] {
            assert_eq!(asked(accept), None, "{accept}");
        }
    }

    #[test]
    fn what_is_passed_on_asks_for_json_alone() {
        let passed = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            json_alone(&headers).map(|value| value.to_str().unwrap().to_owned())
        };
        for (accept, kept) in [
            ("", "application/json"),
            ("application/json, */*", "application/json,application/json"),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            ),
            ("application/yaml, application/*;q=0.5", "application/json;q=0.5"),
            (
                "application/cbor;q=0.9,application/json;stream=watch",
                "application/json;stream=watch",
            ),
        ] {
            assert_eq!(passed(accept).as_deref(), Some(kept), "{accept}");
        }
        for accept in [
            "application/vnd.kubernetes.protobuf",
            "application/cbor",
            "application/yaml",
            "application/json;q=0",
            ", ,",
        ] {
            assert_eq!(passed(accept), None, "{accept}");
        }
        assert_eq!(json_alone(&HeaderMap::new()).unwrap(), "application/json");
    }

    proptest::proptest! {
        #[test]
        fn any_header_is_read(accept in "[ -~]{0,80}") {
            asked(&accept);
        }
    }

    #[test]
    fn parameters_come_in_any_order_and_quality_decides() {
        assert_eq!(
            asked("application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io"),
            Some(V2)
        );
        assert_eq!(
            asked("application/json; g=apidiscovery.k8s.io; v=v2; as=APIGroupDiscoveryList, application/json"),
            Some(V2)
        );
        assert_eq!(
            asked("application/json;q=0.9,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
            Some(V2)
        );
        assert_eq!(
            asked("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"),
            Some(Offer::Json)
        );
    }
}
