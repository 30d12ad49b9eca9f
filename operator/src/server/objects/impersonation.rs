//! A caller, as the headers by which the API server takes a request for theirs.
//!
//! Knows what Kubernetes allows to be impersonated; nothing of the request that the headers go with.

use std::collections::BTreeSet;
use std::fmt::Write;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::super::front_proxy::caller::Caller;
use super::super::status::Failure;

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const EXTRA: &str = "impersonate-extra-";

/// Users whose groups the API server knows by itself, and of whom it takes nothing but the name.
const KNOWN: [&str; 2] = ["system:serviceaccount:", "system:node:"];

/// Whom a request is made for. There is always a user, so a request that is meant to be somebody's is never the sender's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Impersonation {
    user: HeaderValue,
    more: Vec<(HeaderName, HeaderValue)>,
}

impl Impersonation {
    /// `caller`, with those of their extra facts whose keys are in `keys`: each needs a right of its own, and one too many would
    /// refuse the whole request.
    pub(super) fn of(caller: &Caller, keys: &BTreeSet<String>) -> Result<Self, Failure> {
        let mut impersonation = Impersonation {
            user: value(&caller.user)?,
            more: Vec::new(),
        };
        if KNOWN.iter().any(|prefix| caller.user.starts_with(prefix)) {
            return Ok(impersonation);
        }
        let more = &mut impersonation.more;
        for group in &caller.groups {
            more.push((GROUP, value(group)?));
        }
        if let Some(uid) = caller.uid.as_ref().filter(|uid| !uid.is_empty()) {
            more.push((UID, value(uid)?));
        }
        for (key, values) in caller.extra.iter().filter(|(key, _)| keys.contains(*key)) {
            let name = HeaderName::try_from(format!("{EXTRA}{}", escaped(key)))
                .map_err(|_| Failure::bad_request("a key of the caller's extra facts cannot be passed on"))?;
            // Of no value at all there would be no header; an empty one is refused by the API server.
            for text in values.iter().filter(|text| !text.is_empty()) {
                more.push((name.clone(), value(text)?));
            }
        }
        Ok(impersonation)
    }

    /// Writes the headers.
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        headers.insert(USER, self.user.clone());
        for (name, value) in &self.more {
            headers.append(name, value.clone());
        }
    }
}

fn value(text: &str) -> Result<HeaderValue, Failure> {
    match text {
        "" => Err(Failure::unauthorized()),
        text => HeaderValue::from_bytes(text.as_bytes())
            .map_err(|_| Failure::bad_request("the caller's name or a group of theirs cannot be passed on")),
    }
}

/// Lower case, every byte that a header's name cannot have percent-encoded.
fn escaped(key: &str) -> String {
    key.to_lowercase().bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(byte as char),
            byte => {
                let _ = write!(text, "%{byte:02x}");
            }
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn caller(user: &str) -> Caller {
        Caller {
            user: user.into(),
            uid: Some("42".into()),
            groups: vec!["dev,ops".into(), "system:authenticated".into()],
            extra: BTreeMap::from([
                (
                    "example.com/Scope".into(),
                    vec!["read".into(), "wr\u{ef}te".into(), String::new()],
                ),
                ("authentication.kubernetes.io/pod-name".into(), vec!["p".into()]),
            ]),
        }
    }

    fn headers(caller: &Caller, keys: &[&str]) -> Vec<(String, Vec<u8>)> {
        let mut headers = HeaderMap::new();
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        Impersonation::of(caller, &keys).unwrap().write(&mut headers);
        headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
            .collect()
    }

    fn pair(name: &str, value: &str) -> (String, Vec<u8>) {
        (name.to_owned(), value.as_bytes().to_vec())
    }

    #[test]
    fn an_ordinary_user_goes_with_groups_and_uid_and_without_extra_facts() {
        assert_eq!(
            headers(&caller("j\u{fc}rgen"), &[]),
            [
                pair("impersonate-user", "j\u{fc}rgen"),
                pair("impersonate-group", "dev,ops"),
                pair("impersonate-group", "system:authenticated"),
                pair("impersonate-uid", "42"),
            ]
        );
    }

    /// kmodules/client-go#645, rancher/rancher#46968, jetstack/kube-oidc-proxy#180: a key without a right refuses the request.
    #[test]
    fn extra_facts_go_along_only_where_their_key_is_listed() {
        let sent = headers(&caller("u"), &["example.com/Scope", "absent"]);
        let extra: Vec<_> = sent.into_iter().filter(|(name, _)| name.starts_with(EXTRA)).collect();
        assert_eq!(
            extra,
            [
                pair("impersonate-extra-example.com%2fscope", "read"),
                pair("impersonate-extra-example.com%2fscope", "wr\u{ef}te"),
            ]
        );
    }

    #[test]
    fn of_service_accounts_and_nodes_the_name_alone_is_sent() {
        for user in ["system:serviceaccount:ns:robot", "system:node:n1"] {
            assert_eq!(
                headers(&caller(user), &["example.com/Scope"]),
                [pair("impersonate-user", user)]
            );
        }
    }

    #[test]
    fn nobody_cannot_be_impersonated() {
        assert_eq!(
            Impersonation::of(&caller(""), &BTreeSet::new()),
            Err(Failure::unauthorized())
        );
        assert!(Impersonation::of(&caller("a\nb"), &BTreeSet::new()).is_err());
    }
}
