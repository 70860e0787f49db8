//! A compact JSON tree for scanning: little larger than its text.
//!
//! The tree of `serde_json` takes 400 bytes for a pair of words, and well-formed tokenizers have 300,000 of them.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Number;
use std::borrow::Cow;
use std::fmt;

/// A JSON value. Strings without escapes are borrowed.
#[derive(Debug)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    Array(Box<[Json<'a>]>),
    Object(Map<'a>),
}

/// Keys and values in the order of the text; duplicate keys are kept.
#[derive(Debug)]
pub(super) struct Map<'a>(Box<[(Cow<'a, str>, Json<'a>)]>);

impl<'a> Json<'a> {
    /// Parses a whole text; `None` where it is not JSON, or nested deeper than 128.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The string, if the value is one.
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Value of a key, if this is an object.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(map) => map.get(key),
            _ => None,
        }
    }
}

impl<'a> Map<'a> {
    /// Value of a key; the last one of duplicates, as in Python.
    pub(super) fn get(&self, key: &str) -> Option<&Json<'a>> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// All keys with their values.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &Json<'a>)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }
}

/// Compact JSON.
impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => to.serialize_unit(),
            Self::Bool(truth) => to.serialize_bool(*truth),
            Self::Number(number) => number.serialize(to),
            Self::Text(text) => to.serialize_str(text),
            Self::Array(items) => to.collect_seq(items),
            Self::Object(map) => to.collect_map(map.pairs()),
        }
    }
}

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Tree)
    }
}

/// Builds the tree.
struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }
    fn visit_bool<E>(self, truth: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(truth))
    }
    fn visit_i64<E>(self, n: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(n.into()))
    }
    fn visit_u64<E>(self, n: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(n.into()))
    }
    fn visit_f64<E>(self, n: f64) -> Result<Json<'de>, E> {
        Ok(Number::from_f64(n).map_or(Json::Null, Json::Number))
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }
    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'de>, A::Error> {
        let mut pairs = Vec::new();
        // Read as a value, so that a key without escapes is borrowed.
        while let Some((key, value)) = map.next_entry::<Json<'de>, Json<'de>>()? {
            if let Json::Text(key) = key {
                pairs.push((key, value));
            }
        }
        Ok(Json::Object(Map(pairs.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_match_the_text() {
        let text = r#"{"a":[null,true,-1,18446744073709551615,1.5,"x\n",{}],"\u0062":"y","a":7}"#;
        let json = Json::parse(text).unwrap();
        assert_eq!(
            json.to_string(),
            r#"{"a":[null,true,-1,18446744073709551615,1.5,"x\n",{}],"b":"y","a":7}"#
        );
        assert_eq!(json.get("b").and_then(Json::as_str), Some("y"));
        // The last duplicate key counts; a value is no larger than a string.
        assert!(matches!(json.get("a"), Some(Json::Number(_))));
        assert_eq!(size_of::<Json<'_>>(), size_of::<String>());
        assert!(Json::parse("{").is_none() && Json::parse("1 2").is_none());
        assert!(Json::parse(&"[".repeat(200)).is_none());
    }
}
