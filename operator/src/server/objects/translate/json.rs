//! One level of a JSON text at a time, with every value left where it stands.
//!
//! Knows JSON; nothing of what a member means.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Error;
use serde_json::value::RawValue;

/// The members of the object `text` that are called one of `names`, in order, repeated ones too. None of any other JSON value.
///
/// # Errors
/// `text` is no JSON.
pub fn members<'a>(text: &'a str, names: &[&'static str]) -> Result<Vec<(&'static str, &'a str)>, Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let members = reader.deserialize_map(Members(names));
    members
        .and_then(|members| reader.end().map(|()| members))
        .or_else(|error| other(text, error))
}

/// The elements of the array `text`. None of any other JSON value.
///
/// # Errors
/// `text` is no JSON.
pub fn elements(text: &str) -> Result<Vec<&str>, Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let elements = reader.deserialize_seq(Elements);
    elements
        .and_then(|elements| reader.end().map(|()| elements))
        .or_else(|error| other(text, error))
}

/// The characters of the string `text`, as Kubernetes reads them: half of a surrogate pair is U+FFFD. `None` of any other value.
pub fn string(text: &str) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Text>(text).ok().map(|text| text.0)
}

/// The string that the last of `members` called `name` is: a reader of JSON takes the last one.
pub fn last<'a>(members: &[(&str, &'a str)], name: &str) -> Option<Cow<'a, str>> {
    let (_, value) = members.iter().rev().find(|(other, _)| *other == name)?;
    string(value)
}

/// Whether arrays and objects of `text` stand more than `most` deep in each other.
pub fn is_deeper(text: &str, most: usize) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => depth += 1,
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > most {
            return true;
        }
    }
    false
}

/// Nothing, where `text` is JSON after all and only no such collection.
fn other<T: Default>(text: &str, error: Error) -> Result<T, Error> {
    match error.is_data() {
        true => serde_json::from_str::<IgnoredAny>(text).map(|_| T::default()),
        false => Err(error),
    }
}

struct Members<'n>(&'n [&'static str]);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Vec<(&'static str, &'de str)>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<Text>()? {
            match self.0.iter().find(|wanted| **wanted == name.0) {
                Some(name) => members.push((*name, map.next_value::<&RawValue>()?.get())),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(members)
    }
}

struct Elements;

impl<'de> Visitor<'de> for Elements {
    type Value = Vec<&'de str>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element::<&RawValue>()? {
            elements.push(element.get());
        }
        Ok(elements)
    }
}

/// Read as bytes, since JSON's strings hold what Rust's do not.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Characters).map(Text)
    }
}

struct Characters;

impl<'de> Visitor<'de> for Characters {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
        Ok(String::from_utf8_lossy(bytes))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ok(Cow::Owned(String::from_utf8_lossy(bytes).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_in_order_with_repeated_ones_and_as_they_are_written() {
        let text = r#" { "b" : 1.0 , "a":[1e400, 9223372036854775808],"c":{"a":0}, "\u0062" :null , "\ud800":1 } "#;
        assert_eq!(
            members(text, &["a", "b"]).unwrap(),
            [("b", "1.0"), ("a", "[1e400, 9223372036854775808]"), ("b", "null")]
        );
        assert_eq!(
            elements(" [ 1 ,{\"a\": [2]},\"]\"]").unwrap(),
            ["1", "{\"a\": [2]}", "\"]\""]
        );
    }

    #[test]
    fn other_values_have_neither_members_nor_elements() {
        for text in ["1", "\"{}\"", "null", "true", "[{\"a\":1}]"] {
            assert_eq!(members(text, &["a"]).unwrap(), [], "{text}");
        }
        for text in ["1", "{}", "\"[]\""] {
            assert!(elements(text).unwrap().is_empty(), "{text}");
        }
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        for text in [
            "",
            "{",
            "{\"a\":1",
            "{\"a\":01}",
            "{\"a\":1}}",
            "{a:1}",
            "{\"a\":\"\n\"}",
            "{\"a\":1,}",
        ] {
            assert!(members(text, &["a"]).is_err(), "{text}");
            assert!(members(text, &["b"]).is_err(), "{text}");
        }
        for text in ["[", "[1,]", "[1]]", "{", "7 7"] {
            assert!(elements(text).is_err(), "{text}");
            assert!(members(text, &["a"]).is_err(), "{text}");
        }
    }

    #[test]
    fn the_last_of_repeated_members_counts() {
        let members = [("a", "\"one\""), ("b", "1"), ("a", r#""t\u0077o""#), ("b", "2")];
        assert_eq!(last(&members, "a").unwrap(), "two");
        assert_eq!(last(&members, "b"), None);
        assert_eq!(last(&members, "c"), None);
    }

    #[test]
    fn half_a_surrogate_pair_is_read_as_go_reads_it() {
        assert_eq!(string(r#""a\ud800""#).unwrap().chars().next(), Some('a'));
        assert!(string(r#""a\ud800""#).unwrap().ends_with('\u{fffd}'));
        assert_eq!(string(r#""\ud83d\ude42""#).unwrap(), "🙂");
    }

    #[test]
    fn depth_counts_no_brackets_of_strings() {
        assert!(!is_deeper(r#"[{"a":"[[[[\"[["}]"#, 2));
        assert!(is_deeper(r#"[{"a":[]}]"#, 2));
        assert!(!is_deeper("[[],[],[]]", 2));
        assert!(!is_deeper("]]]]{", 2));
    }
}
