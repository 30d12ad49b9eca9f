//! A request's query parameters, read as Go's `net/url` and Kubernetes read them.
//!
//! Knows the parameters that every request may have. Those of one resource are read by that resource.

use std::borrow::Cow;
use std::time::Duration;

use http::{HeaderMap, header::USER_AGENT};

use super::duration;
use super::status::Failure;

/// More parameters than any client sends. Go gives up on ten thousand, and then sees none.
const MANY: usize = 256;

/// Decoded pairs in the order they were given. A pair that cannot be decoded is left out, as Go leaves it out.
#[derive(Debug, Default)]
pub struct Query<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    odd: bool,
}

impl<'a> Query<'a> {
    /// Reads the text behind the question mark.
    pub fn parse(text: &'a str) -> Self {
        let mut query = Query::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let pair = match pair.contains(';') {
                true => None,
                false => unescape(name).zip(unescape(value)),
            };
            match pair {
                Some((name, value)) => {
                    query.odd |= [&name, &value]
                        .iter()
                        .any(|text| text.contains(char::REPLACEMENT_CHARACTER));
                    query.pairs.push((name, value));
                }
                None => query.odd = true,
            }
        }
        query.odd |= query.pairs.len() > MANY;
        query
    }

    /// Whether another program may read these parameters differently: broken escapes, bytes that are no text, very many of them.
    pub fn is_odd(&self) -> bool {
        self.odd
    }

    /// The first value of `name`: of a repeated parameter, Kubernetes reads the first.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|pair| pair.0 == name)
            .map(|pair| pair.1.as_ref())
    }

    /// Every value of `name`, in order.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.pairs
            .iter()
            .filter(move |pair| pair.0 == name)
            .map(|pair| pair.1.as_ref())
    }

    /// Whether a collection is to be watched: Kubernetes takes every value but two for yes.
    pub fn watches(&self) -> bool {
        self.get("watch")
            .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Whether the answer is to be indented: on demand, and for the programs that show it to a person as it is.
    pub fn pretty(&self, headers: &HeaderMap) -> bool {
        match self.get("pretty") {
            Some(value) if !value.is_empty() => is_true(value),
            _ => headers
                .get(USER_AGENT)
                .and_then(|agent| agent.to_str().ok())
                .is_some_and(|agent| {
                    ["curl", "Wget", "Mozilla/5.0"]
                        .iter()
                        .any(|program| agent.starts_with(program))
                }),
        }
    }

    /// How long the caller is willing to wait: `timeout`, where neither absent, empty nor zero.
    pub fn timeout(&self) -> Result<Option<Duration>, Failure> {
        let text = match self.get("timeout") {
            None | Some("") => return Ok(None),
            Some(text) => text,
        };
        let nanoseconds = duration::parse(text)
            .ok()
            .and_then(|nanoseconds| u64::try_from(nanoseconds).ok())
            .ok_or_else(|| Failure::bad_request(format!("invalid timeout specified in the request URL: {text:?}")))?;
        Ok((nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds)))
    }
}

/// What Go's `strconv.ParseBool` takes for true.
fn is_true(value: &str) -> bool {
    matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// Undoes percent and plus encoding; `None` where an escape is broken. What is no text keeps its place, with a mark in it.
fn unescape(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let bytes = percent_decoded(&text.replace('+', " "))?;
    Some(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Undoes percent encoding; `None` where an escape is broken or the result is not text.
pub(super) fn percent_decode(text: &str) -> Option<String> {
    String::from_utf8(percent_decoded(text)?).ok()
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || (bytes.next()? as char).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            byte => byte,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_repeated_parameters_counts_and_broken_pairs_do_not() {
        let query = Query::parse("a=1&a=2&b=%zz&c=x+y%2Bz&d;e=1&f&=g");
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.get("b"), None);
        assert_eq!(query.get("c"), Some("x y+z"));
        assert_eq!(query.get("e"), None);
        assert_eq!(query.get("f"), Some(""));
    }

    #[test]
    fn what_two_programs_may_read_differently_is_odd() {
        let many = "a=1&".repeat(257);
        for text in ["a=%zz", "a;b", "a=%ff", "%ff=a", "a=%EF%BF%BD", &many] {
            assert!(Query::parse(text).is_odd(), "{text}");
        }
        for text in ["", "a", "a=1&a=2", "a=%C3%A4+b", &"a=1&".repeat(256)] {
            assert!(!Query::parse(text).is_odd(), "{text}");
        }
        // It keeps its place: the first of two counts, as it does for Go.
        assert_eq!(Query::parse("a=%ff&a=b").get("a"), Some("\u{fffd}"));
    }

    #[test]
    fn every_value_but_two_watches() {
        for text in [
            "watch",
            "watch=",
            "watch=1",
            "watch=true",
            "watch=yes",
            "watch=1&watch=0",
        ] {
            assert!(Query::parse(text).watches(), "{text}");
        }
        for text in [
            "",
            "watch=0",
            "watch=false",
            "watch=FALSE",
            "watch=0&watch=1",
            "Watch=1",
        ] {
            assert!(!Query::parse(text).watches(), "{text}");
        }
    }

    #[test]
    fn timeout_is_a_go_duration() {
        let timeout = |text| Query::parse(text).timeout();
        assert_eq!(timeout("timeout=1m30s"), Ok(Some(Duration::from_secs(90))));
        for none in ["", "timeout=", "timeout=0s", "timeout=0"] {
            assert_eq!(timeout(none), Ok(None), "{none}");
        }
        for malformed in ["timeout=34", "timeout=soon", "timeout=-1s"] {
            assert!(timeout(malformed).is_err(), "{malformed}");
        }
    }

    #[test]
    fn pretty_on_demand_and_for_people() {
        let mut browser = HeaderMap::new();
        browser.insert(USER_AGENT, "curl/8.5.0".parse().unwrap());
        assert!(Query::parse("pretty=true").pretty(&HeaderMap::new()));
        assert!(Query::parse("pretty=1").pretty(&HeaderMap::new()));
        assert!(!Query::parse("pretty=no").pretty(&browser));
        assert!(!Query::parse("").pretty(&HeaderMap::new()));
        assert!(Query::parse("").pretty(&browser));
    }
}
