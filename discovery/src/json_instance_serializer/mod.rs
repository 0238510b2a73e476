//! Instances as JSON, as Curator's Jackson writes them.

use serde_json::{Map, Value};

use crate::{
    InstanceSerializer, Payload, SerializerError, ServiceInstance, ServiceType, UriPart, UriSpec,
    jackson::to_vec,
};

/// The JSON of Curator's `JsonInstanceSerializer`, byte for byte.
///
/// It reads the instances of every version of Curator: any order of the members, unknown and absent ones, white space,
/// bytes behind the object, and the scalars that Jackson converts, such as a port in quotes. An instance without name or
/// id is refused, which Curator reads. What is kept of a payload: see [`Payload`].
///
/// ```
/// use docent_discovery::{InstanceSerializer, JsonInstanceSerializer, ServiceInstance};
///
/// # fn main() -> Result<(), docent_discovery::SerializerError> {
/// let instance: ServiceInstance<String> = ServiceInstance::new("web", "i1")
///     .with_address("10.1.1.1")
///     .with_port(8080)
///     .with_registration_time_utc(1700000000000);
/// let json = JsonInstanceSerializer::new().serialize(&instance)?;
/// let expected = r#"{"name":"web","id":"i1","address":"10.1.1.1","port":8080,"sslPort":null,"payload":null,"registrationTimeUTC":1700000000000,"serviceType":"DYNAMIC","uriSpec":null}"#;
/// assert_eq!(json, expected.as_bytes());
/// # Ok(())
/// # }
/// ```
///
/// Source: `JsonInstanceSerializer`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JsonInstanceSerializer {
    always_enabled: bool,
}

impl JsonInstanceSerializer {
    /// Writes the member `enabled` of disabled instances only, so that the instances of Curator's default serializer,
    /// which never writes it, have the same bytes. Read by Curator 2.12 and later.
    ///
    /// Source: the constructor with one argument; with C27 in `docs/CURATOR.md`.
    #[must_use]
    pub const fn new() -> Self {
        Self { always_enabled: false }
    }

    /// Writes the member `enabled` of every instance.
    ///
    /// Source: the constructor with `compatibleSerializationMode` false.
    #[must_use]
    pub const fn with_enabled(mut self) -> Self {
        self.always_enabled = true;
        self
    }
}

impl<T: Payload> InstanceSerializer<T> for JsonInstanceSerializer {
    fn serialize(&self, instance: &ServiceInstance<T>) -> Result<Vec<u8>, SerializerError> {
        let mut json = Object::default();
        json.member("name", &to_vec(&instance.name)?);
        json.member("id", &to_vec(&instance.id)?);
        json.member("address", &to_vec(&instance.address)?);
        json.member("port", &to_vec(&instance.port)?);
        json.member("sslPort", &to_vec(&instance.ssl_port)?);
        json.member("payload", &payload_json(instance.payload.as_ref())?);
        json.member("registrationTimeUTC", &to_vec(&instance.registration_time_utc)?);
        json.member("serviceType", &to_vec(instance.service_type.name())?);
        json.member("uriSpec", &uri_spec_json(instance.uri_spec.as_ref())?);
        if self.always_enabled || !instance.enabled {
            json.member("enabled", &to_vec(&instance.enabled)?);
        }
        Ok(json.finish())
    }

    fn deserialize(&self, bytes: &[u8]) -> Result<ServiceInstance<T>, SerializerError> {
        // A byte order mark, which Jackson skips.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
        let mut members = match values.next() {
            Some(Ok(Value::Object(members))) => members,
            Some(Ok(_)) => return Err("not a JSON object".into()),
            Some(Err(error)) => return Err(error.into()),
            None => return Err("no data".into()),
        };
        let payload = members.remove("payload").filter(|payload| !payload.is_null());
        Ok(ServiceInstance {
            name: required_text(&mut members, "name")?,
            id: required_text(&mut members, "id")?,
            address: text(&mut members, "address")?,
            port: port(&mut members, "port")?,
            ssl_port: port(&mut members, "sslPort")?,
            payload: payload.map(T::from_json).transpose().map_err(|e| format!("payload: {e}"))?,
            registration_time_utc: integer(&mut members, "registrationTimeUTC")?.unwrap_or(0),
            service_type: service_type(&mut members)?,
            uri_spec: uri_spec(&mut members)?,
            enabled: boolean(&mut members, "enabled", true)?,
        })
    }
}

/// The text of an object.
#[derive(Default)]
struct Object(Vec<u8>);

impl Object {
    fn member(&mut self, name: &str, value: &[u8]) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        self.0.push(b'"');
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
        self.0.extend_from_slice(value);
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

/// The payload with the name of its class: as the first member of an object, otherwise in an array.
fn payload_json<T: Payload>(payload: Option<&T>) -> Result<Vec<u8>, SerializerError> {
    let Some(payload) = payload else { return Ok(b"null".to_vec()) };
    let json = payload.to_json()?;
    let Some(class) = T::JAVA_CLASS.filter(|_| json != b"null") else { return Ok(json) };
    let class = to_vec(class)?;
    Ok(match json.strip_prefix(b"{") {
        Some(b"}") => [b"{\"@class\":", &*class, b"}"].concat(),
        Some(members) => [b"{\"@class\":", &*class, b",", members].concat(),
        None => [b"[", &*class, b",", &*json, b"]"].concat(),
    })
}

fn uri_spec_json(uri_spec: Option<&UriSpec>) -> Result<Vec<u8>, SerializerError> {
    let Some(uri_spec) = uri_spec else { return Ok(b"null".to_vec()) };
    let mut parts = Vec::new();
    for part in uri_spec.parts() {
        let mut json = Object::default();
        json.member("value", &to_vec(&part.value)?);
        json.member("variable", &to_vec(&part.is_variable)?);
        parts.push(json.finish());
    }
    let mut json = Object::default();
    json.member("parts", &[b"[", &*parts.join(&b','), b"]"].concat());
    Ok(json.finish())
}

type Members = Map<String, Value>;

/// A text, or a scalar as its text, as Jackson reads them.
fn text(members: &mut Members, name: &str) -> Result<Option<String>, SerializerError> {
    match members.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(scalar @ (Value::Number(_) | Value::Bool(_))) => Ok(Some(scalar.to_string())),
        Some(_) => Err(not_a("string", name)),
    }
}

fn required_text(members: &mut Members, name: &str) -> Result<String, SerializerError> {
    let text = text(members, name)?.filter(|text| !text.is_empty());
    text.ok_or_else(|| format!("{name} is missing").into())
}

/// An integer: also its digits as a string, and a decimal without its fraction. An empty string is none.
///
/// Source: Jackson's `NumberDeserializers`, `ACCEPT_FLOAT_AS_INT`, `ALLOW_COERCION_OF_SCALARS`.
fn integer(members: &mut Members, name: &str) -> Result<Option<i64>, SerializerError> {
    let digits = match members.remove(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => match text.trim() {
            "" | "null" => return Ok(None),
            digits => return Ok(Some(digits.parse().map_err(|_| not_an("integer", name))?)),
        },
        Some(Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => return Ok(Some(integer)),
            (None, Some(decimal)) => format!("{:.0}", decimal.trunc()),
            (None, None) => number.to_string(),
        },
        Some(_) => return Err(not_an("integer", name)),
    };
    digits.parse().map(Some).map_err(|_| out_of_range(name))
}

fn port(members: &mut Members, name: &str) -> Result<Option<i32>, SerializerError> {
    let port = integer(members, name)?.map(i32::try_from).transpose();
    port.map_err(|_| out_of_range(name))
}

/// A boolean: also its name as a string, and an integer, which is true unless it is zero.
///
/// Source: Jackson's `StdDeserializer._parseBooleanPrimitive`.
fn boolean(members: &mut Members, name: &str, absent: bool) -> Result<bool, SerializerError> {
    match members.remove(name) {
        None => Ok(absent),
        Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(value),
        Some(Value::Number(number)) if !number.is_f64() => Ok(number.as_i64() != Some(0)),
        Some(Value::String(text)) => match text.trim() {
            "true" | "True" | "TRUE" => Ok(true),
            "false" | "False" | "FALSE" | "" | "null" => Ok(false),
            _ => Err(not_a("boolean", name)),
        },
        Some(_) => Err(not_a("boolean", name)),
    }
}

fn not_a(what: &str, name: &str) -> SerializerError {
    format!("{name} is not a {what}").into()
}

fn not_an(what: &str, name: &str) -> SerializerError {
    format!("{name} is not an {what}").into()
}

fn out_of_range(name: &str) -> SerializerError {
    format!("{name} is out of range").into()
}

/// A type by its name, or by its number.
///
/// Source: Jackson's `EnumDeserializer`.
fn service_type(members: &mut Members) -> Result<ServiceType, SerializerError> {
    let value = members.remove("serviceType").unwrap_or_default();
    let service_type = match &value {
        Value::Null => Some(ServiceType::default()),
        Value::String(name) => ServiceType::from_name(name.trim()),
        Value::Number(number) => number.as_u64().and_then(ServiceType::from_number),
        _ => None,
    };
    service_type.ok_or_else(|| format!("unknown service type {value}").into())
}

fn uri_spec(members: &mut Members) -> Result<Option<UriSpec>, SerializerError> {
    let mut uri_spec = match members.remove("uriSpec") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(members)) => members,
        Some(_) => return Err("uriSpec is not an object".into()),
    };
    let parts = match uri_spec.remove("parts") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(parts)) => parts,
        Some(_) => return Err("the parts of uriSpec are not an array".into()),
    };
    let part = |part: Value| match part {
        Value::Object(mut part) => Ok(UriPart {
            value: text(&mut part, "value")?.unwrap_or_default(),
            is_variable: boolean(&mut part, "variable", false)?,
        }),
        _ => Err("a part of uriSpec is not an object".into()),
    };
    let parts = parts.into_iter().map(part).collect::<Result<Vec<_>, SerializerError>>()?;
    Ok(Some(UriSpec::from_parts(parts)))
}

#[cfg(test)]
mod tests;
