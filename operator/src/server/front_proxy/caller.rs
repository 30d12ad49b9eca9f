//! Who a request is made for, as the front proxy's headers say.
//!
//! Reads headers only. Whether they may be believed was decided before, by the connection's certificate.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};

use super::FrontProxy;
use crate::server::query::percent_decode;

/// A user, as the API server authenticated them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    /// User name, never empty.
    pub user: String,
    /// UID, where the API server knows one.
    pub uid: Option<String>,
    /// Groups, `system:authenticated` included.
    pub groups: Vec<String>,
    /// Further facts by lower-case key.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// A group that may do everything, whatever the rules say.
const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";

impl Caller {
    /// Whether no rule is asked for this caller.
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }

    /// Length of what a caller can choose, in bytes.
    pub fn size(&self) -> usize {
        let extra: usize = self
            .extra
            .iter()
            .map(|(key, values)| key.len() + values.iter().map(String::len).sum::<usize>())
            .sum();
        self.user.len()
            + self.uid.as_ref().map_or(0, String::len)
            + self.groups.iter().map(String::len).sum::<usize>()
            + extra
    }
}

impl FrontProxy {
    /// The caller that `headers` name; `None` where no user, or more than one, is named, or a value is not text.
    pub fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let user = only(headers, &self.username_headers)?.filter(|user| !user.is_empty())?;
        let uid = only(headers, &self.uid_headers)?;
        let mut groups = Vec::new();
        for name in &self.group_headers {
            for value in headers.get_all(name) {
                let group = text(value.as_bytes())?;
                if !group.is_empty() {
                    groups.push(group);
                }
            }
        }
        let settled = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if user != ANONYMOUS && !groups.iter().any(settled) {
            groups.push(AUTHENTICATED.to_owned());
        }
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in headers {
            let Some(key) = self
                .extra_prefixes
                .iter()
                .find_map(|prefix| name.as_str().strip_prefix(prefix.as_str()))
            else {
                continue;
            };
            let key = percent_decode(key).unwrap_or_else(|| key.to_owned());
            extra.entry(key).or_default().push(text(value.as_bytes())?);
        }
        Some(Caller {
            user,
            uid,
            groups,
            extra,
        })
    }
}

/// The value of the first of `names` that has one; `None` where that header stands there twice or is not text.
fn only(headers: &HeaderMap, names: &[HeaderName]) -> Option<Option<String>> {
    let Some(name) = names
        .iter()
        .find(|name| headers.get(*name).is_some_and(|value| !value.is_empty()))
    else {
        return Some(None);
    };
    let mut values = headers.get_all(name).iter();
    let value = text(values.next()?.as_bytes())?;
    match values.next() {
        None => Some(Some(value)),
        Some(_) => None,
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn proxy(uid: bool) -> FrontProxy {
        FrontProxy {
            roots: Vec::new(),
            allowed_names: Vec::new(),
            username_headers: vec![
                HeaderName::from_static("x-remote-user"),
                HeaderName::from_static("x-user"),
            ],
            group_headers: vec![HeaderName::from_static("x-remote-group")],
            extra_prefixes: vec!["x-remote-extra-".into()],
            uid_headers: if uid {
                vec![HeaderName::from_static("x-remote-uid")]
            } else {
                Vec::new()
            },
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn groups_come_one_a_line_and_are_never_split() {
        let caller = proxy(true)
            .caller(&headers(&[
                ("x-remote-user", "jürgen"),
                ("x-remote-group", "a,b"),
                ("x-remote-group", "c"),
                ("x-remote-uid", "42"),
                ("x-remote-extra-example.com%2fscopes", "Read"),
                ("x-remote-extra-example.com%2fscopes", "Write"),
            ]))
            .unwrap();
        assert_eq!(
            caller,
            Caller {
                user: "jürgen".into(),
                uid: Some("42".into()),
                groups: vec!["a,b".into(), "c".into(), "system:authenticated".into()],
                extra: BTreeMap::from([("example.com/scopes".into(), vec!["Read".into(), "Write".into()])]),
            }
        );
    }

    #[test]
    fn a_uid_header_that_was_not_published_is_not_read() {
        let caller = proxy(false)
            .caller(&headers(&[("x-remote-user", "u"), ("x-remote-uid", "42")]))
            .unwrap();
        assert_eq!(caller.uid, None);
    }

    #[test]
    fn system_authenticated_is_added_only_where_upstream_adds_it() {
        let groups = |pairs: &[(&'static str, &str)]| proxy(true).caller(&headers(pairs)).unwrap().groups;
        assert_eq!(groups(&[("x-remote-user", "u")]), ["system:authenticated"]);
        assert_eq!(groups(&[("x-remote-user", "system:anonymous")]), [""; 0]);
        assert_eq!(
            groups(&[("x-remote-user", "u"), ("x-remote-group", "system:unauthenticated")]),
            ["system:unauthenticated"]
        );
    }

    #[test]
    fn no_user_two_users_and_broken_text_are_nobody() {
        for pairs in [
            &[][..],
            &[("x-remote-group", "system:masters")],
            &[("x-remote-user", "")],
            &[("x-remote-user", "a"), ("x-remote-user", "b")],
            &[("x-remote-user", "a"), ("x-remote-user", "")],
            &[("x-remote-user", "a"), ("x-remote-uid", "1"), ("x-remote-uid", "2")],
        ] {
            assert_eq!(proxy(true).caller(&headers(pairs)), None, "{pairs:?}");
        }
        let mut broken = HeaderMap::new();
        broken.insert("x-remote-user", HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(proxy(true).caller(&broken), None);
    }

    #[test]
    fn the_first_listed_header_with_a_value_names_the_user() {
        let caller = proxy(true)
            .caller(&headers(&[("x-user", "b"), ("x-remote-user", "a")]))
            .unwrap();
        assert_eq!(caller.user, "a");
        assert_eq!(proxy(true).caller(&headers(&[("x-user", "b")])).unwrap().user, "b");
    }
}
