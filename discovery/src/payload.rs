//! The payload of an instance.

use std::collections::{BTreeMap, HashMap};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::jackson::to_vec;

/// What an application adds to an instance: any type of serde's.
///
/// Java peers make an object of a class from a payload, and need the name of that class in the JSON. A type that they
/// shall understand as their class names it:
///
/// ```
/// use docent_discovery::Payload;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Details {
///     region: String,
///     weight: u32,
/// }
///
/// impl Payload for Details {
///     const JAVA_CLASS: Option<&'static str> = Some("com.example.Details");
/// }
/// ```
///
/// Without the name, Java peers make a map from an object, and cannot read an array. On reading, the name of a class is
/// ignored: unlike in Java, the node's writer does not choose the type that is made (C31 in `docs/CURATOR.md`).
///
/// # What is kept
///
/// * A type reads what it has written. JSON of the same form with the names of Java's classes is read, too: first one
///   for the payload as a whole, then for the values in it. A map without [`JAVA_CLASS`](Self::JAVA_CLASS) keeps `@class`
///   as a key.
/// * [`serde_json::Value`] keeps the JSON with the names of classes, but for the order of the members, which it sorts, and
///   for numbers: integers beyond 64 bits and decimals become the nearest `f64`. Other types keep what they can represent.
/// * A `HashMap` is written in the order of its keys, so that equal maps have equal bytes. One inside of a type of the
///   application's has no order; a `BTreeMap` has.
/// * `null` is no payload: an [`Option`] that is `None`, and `()`, are read as an instance without one.
///
/// Source: the payload of `ServiceInstance`, with `@JsonTypeInfo`.
pub trait Payload: Serialize + DeserializeOwned {
    /// The full name of the Java class, if its name is written.
    const JAVA_CLASS: Option<&'static str> = None;

    /// The JSON of a payload, without the name of its class. The default serializes it.
    ///
    /// # Errors
    ///
    /// A value that has no JSON.
    fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        to_vec(self)
    }

    /// Reads a payload. The default deserializes the form that the type is written in, then without the names of classes.
    ///
    /// # Errors
    ///
    /// A value of another form.
    fn from_json(value: Value) -> Result<Self, serde_json::Error> {
        let bare = without_class(&value, Self::JAVA_CLASS);
        let forms = match Self::JAVA_CLASS {
            None => [Some(&value), bare.as_ref()],
            Some(_) => [bare.as_ref(), Some(&value)],
        };
        let mut first_error = None;
        for form in forms.into_iter().flatten() {
            match Self::deserialize(form) {
                Ok(payload) => return Ok(payload),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        Self::deserialize(&without_classes(value)).map_err(|error| first_error.unwrap_or(error))
    }
}

/// As it is in the node, for payloads of unknown types. Written as it is, too.
impl Payload for Value {
    fn from_json(value: Value) -> Result<Self, serde_json::Error> {
        Ok(value)
    }
}

/// Instances without payload: every payload of others is ignored.
impl Payload for () {
    fn from_json(_: Value) -> Result<Self, serde_json::Error> {
        Ok(())
    }
}

impl Payload for String {}
impl Payload for bool {}
impl Payload for i32 {}
impl Payload for f64 {}

impl Payload for i64 {
    const JAVA_CLASS: Option<&'static str> = Some("java.lang.Long");
}

/// The larger half of the numbers is no `Integer`.
impl Payload for u32 {
    const JAVA_CLASS: Option<&'static str> = Some("java.lang.Long");
}

/// The larger half of the numbers is no `Long`.
impl Payload for u64 {
    const JAVA_CLASS: Option<&'static str> = Some("java.math.BigInteger");
}

impl Payload for f32 {
    const JAVA_CLASS: Option<&'static str> = Some("java.lang.Float");
}

impl<T: Payload> Payload for Option<T> {
    const JAVA_CLASS: Option<&'static str> = T::JAVA_CLASS;

    fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        self.as_ref().map_or_else(|| to_vec(&()), T::to_json)
    }

    fn from_json(value: Value) -> Result<Self, serde_json::Error> {
        if value.is_null() { Ok(None) } else { T::from_json(value).map(Some) }
    }
}

impl<T: Payload> Payload for Vec<T> {
    const JAVA_CLASS: Option<&'static str> = Some("java.util.ArrayList");

    fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let values = self.iter().map(T::to_json).collect::<Result<Vec<_>, _>>()?;
        Ok([b"[", &*values.join(&b','), b"]"].concat())
    }
}

impl<T: Payload> Payload for BTreeMap<String, T> {
    const JAVA_CLASS: Option<&'static str> = Some("java.util.TreeMap");

    fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        object(self)
    }
}

impl<T: Payload> Payload for HashMap<String, T> {
    const JAVA_CLASS: Option<&'static str> = Some("java.util.HashMap");

    fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        object(self.iter().collect::<BTreeMap<_, _>>())
    }
}

fn object<'a, T: Payload + 'a>(
    members: impl IntoIterator<Item = (&'a String, &'a T)>,
) -> Result<Vec<u8>, serde_json::Error> {
    let member = |(name, value): (&String, &T)| Ok([to_vec(name)?, value.to_json()?].join(&b':'));
    let members = members.into_iter().map(member).collect::<Result<Vec<_>, serde_json::Error>>()?;
    Ok([b"{", &*members.join(&b','), b"}"].concat())
}

/// The value without the name of its own class, if it has one: that of the type, or any that looks like one.
fn without_class(value: &Value, class: Option<&str>) -> Option<Value> {
    match value {
        Value::Object(members) if members.contains_key("@class") => {
            let members = members.iter().filter(|(name, _)| *name != "@class");
            Some(members.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        Value::Array(values) => match values.as_slice() {
            [Value::String(name), value] if class == Some(name) || is_class(name) => {
                Some(value.clone())
            }
            _ => None,
        },
        _ => None,
    }
}

/// The value without anything that looks like the name of a class: `["class", value]` for scalars and lists, a member `@class` of objects.
///
/// Source: `JsonTypeInfo.As.PROPERTY` of Jackson, which uses an array for values that have no members.
fn without_classes(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter().filter(|(name, _)| name != "@class");
            Value::Object(members.map(|(name, value)| (name, without_classes(value))).collect())
        }
        Value::Array(mut values) => {
            if let [Value::String(name), _] = values.as_slice()
                && is_class(name)
                && let Some(value) = values.pop()
            {
                return match value {
                    Value::Array(values) => {
                        Value::Array(values.into_iter().map(without_classes).collect())
                    }
                    other => without_classes(other),
                };
            }
            Value::Array(values.into_iter().map(without_classes).collect())
        }
        other => other,
    }
}

/// Whether a text looks like the name of a class: of a package, possibly with the types of its elements, or of an array.
fn is_class(name: &str) -> bool {
    let (name, _) = name.split_once('<').unwrap_or((name, ""));
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && word.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '$')
    };
    name.starts_with('[') || (name.contains('.') && name.split('.').all(is_word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_names_of_classes_are_removed() {
        for (written, expected) in [
            (json!(["java.lang.Long", 7]), json!(7)),
            (json!(["[B", "AQID"]), json!("AQID")),
            (json!(["java.util.ArrayList", ["x", 1]]), json!(["x", 1])),
            (json!(["java.util.ArrayList", ["a.b", 1]]), json!(["a.b", 1])),
            (
                json!({"@class": "com.example.A", "b": {"@class": "com.example.B", "n": ["java.lang.Long", 1]}}),
                json!({"b": {"n": 1}}),
            ),
            (json!(["java.util.EnumSet<com.example.Color>", ["RED"]]), json!(["RED"])),
            (json!(["x", 1]), json!(["x", 1])),
            (json!("p1"), json!("p1")),
        ] {
            assert_eq!(without_classes(written.clone()), expected, "{written}");
        }
    }
}
