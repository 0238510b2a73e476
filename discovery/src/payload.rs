//! The payload of an instance.

use std::collections::{BTreeMap, HashMap};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

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
/// [`serde_json::Value`] keeps the JSON as it is, with the names of classes.
///
/// Source: the payload of `ServiceInstance`, with `@JsonTypeInfo`.
pub trait Payload: Serialize + DeserializeOwned {
    /// The full name of the Java class, if its name is written.
    const JAVA_CLASS: Option<&'static str> = None;

    /// Reads a payload. The default removes the names of classes, then deserializes.
    ///
    /// # Errors
    ///
    /// A value of another form.
    fn from_json(value: Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(without_classes(value))
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

impl<T: Payload> Payload for Vec<T> {
    const JAVA_CLASS: Option<&'static str> = Some("java.util.ArrayList");
}

impl<T: Payload> Payload for BTreeMap<String, T> {
    const JAVA_CLASS: Option<&'static str> = Some("java.util.TreeMap");
}

impl<T: Payload> Payload for HashMap<String, T> {
    const JAVA_CLASS: Option<&'static str> = Some("java.util.HashMap");
}

/// The value without the names of classes: `["class", value]` for scalars and lists, a member `@class` of objects.
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

/// Whether a text is the name of a class: of a package, or of an array.
fn is_class(name: &str) -> bool {
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
            (json!(["x", 1]), json!(["x", 1])),
            (json!("p1"), json!("p1")),
        ] {
            assert_eq!(without_classes(written.clone()), expected, "{written}");
        }
    }
}
