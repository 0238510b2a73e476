//! Instances as JSON, as Curator's Jackson writes them.

mod reader;

use std::str::FromStr;

use self::reader::{Reader, Token};
use crate::{
    InstanceSerializer, Payload, SerializerError, ServiceInstance, ServiceType, UriPart, UriSpec,
    jackson::to_vec,
};

/// The JSON of Curator's `JsonInstanceSerializer`, byte for byte.
///
/// It reads the instances of every version of Curator: any order of the members, unknown and absent ones, white space,
/// bytes behind the object, and the scalars that Jackson converts, such as a port in quotes. What Curator 5.4.0 refuses is
/// refused, but for the forms of payloads: [`Payload`] says what is read and kept of one. An instance without name or id
/// has empty ones. `docs/CURATOR.md` lists the differences.
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
        let mut json = Reader::new(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
        if json.peek_token().is_none() {
            return Err("no data".into());
        }
        if json.token()? != Token::Object {
            return Err("not a JSON object".into());
        }
        let mut instance = ServiceInstance::new("", "").with_registration_time_utc(0);
        // Of equal names the last one counts, and each must be valid.
        json.members(|json, name| {
            match name.as_str() {
                "name" => instance.name = text(json, &name)?.unwrap_or_default(),
                "id" => instance.id = text(json, &name)?.unwrap_or_default(),
                "address" => instance.address = text(json, &name)?,
                "port" => instance.port = integer(json, &name)?,
                "sslPort" => instance.ssl_port = integer(json, &name)?,
                "payload" => {
                    let payload = Some(json.value()?).filter(|payload| !payload.is_null());
                    let payload = payload.map(T::from_json).transpose();
                    instance.payload = payload.map_err(|error| format!("payload: {error}"))?;
                }
                "registrationTimeUTC" => {
                    instance.registration_time_utc = integer(json, &name)?.unwrap_or(0);
                }
                "serviceType" => instance.service_type = service_type(json)?,
                "uriSpec" => instance.uri_spec = uri_spec(json)?,
                "enabled" => instance.enabled = boolean(json, &name)?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        Ok(instance)
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

/// A text, or a scalar as its text, as Jackson reads them.
fn text(json: &mut Reader<'_>, name: &str) -> Result<Option<String>, SerializerError> {
    match json.token()? {
        Token::Null => Ok(None),
        Token::Text(text) => Ok(Some(text)),
        Token::Number(text) => Ok(Some(text.to_owned())),
        Token::Bool(value) => Ok(Some(value.to_string())),
        Token::Array | Token::Object => Err(not_a("string", name)),
    }
}

/// The white space of Java's `String.trim`.
fn trim(text: &str) -> &str {
    text.trim_matches(|c| c <= ' ')
}

/// An integer: also its digits as a string, and a decimal without its fraction. An empty string is none.
///
/// Source: Jackson's `NumberDeserializers`, `ACCEPT_FLOAT_AS_INT`, `ALLOW_COERCION_OF_SCALARS`.
fn integer<N: JavaInteger>(
    json: &mut Reader<'_>,
    name: &str,
) -> Result<Option<N>, SerializerError> {
    let number = match json.token()? {
        Token::Null => return Ok(None),
        Token::Text(text) => match trim(&text) {
            "" | "null" => return Ok(None),
            digits => return digits.parse().map(Some).map_err(|_| not_an("integer", name)),
        },
        Token::Number(text) if is_integer(text) => text.parse().ok(),
        Token::Number(text) => text.parse().ok().and_then(N::from_decimal),
        Token::Bool(_) | Token::Array | Token::Object => return Err(not_an("integer", name)),
    };
    number.map(Some).ok_or_else(|| format!("{name} is out of range").into())
}

/// Whether the text of a number has neither fraction nor exponent.
fn is_integer(number: &str) -> bool {
    !number.contains(['.', 'e', 'E'])
}

/// An `Integer` or a `Long`.
trait JavaInteger: FromStr {
    /// Source: Jackson's `ParserBase.convertNumberToInt`, `convertNumberToLong`.
    fn from_decimal(decimal: f64) -> Option<Self>;
}

impl JavaInteger for i32 {
    fn from_decimal(decimal: f64) -> Option<Self> {
        let range = f64::from(Self::MIN)..=f64::from(Self::MAX);
        range.contains(&decimal).then_some(decimal as Self)
    }
}

impl JavaInteger for i64 {
    fn from_decimal(decimal: f64) -> Option<Self> {
        // The nearest number to the largest one is 2^63, which becomes the largest one.
        let range = Self::MIN as f64..=Self::MAX as f64;
        range.contains(&decimal).then_some(decimal as Self)
    }
}

/// A boolean: also its name as a string, and an integer, which is true unless it is zero.
///
/// Source: Jackson's `StdDeserializer._parseBooleanPrimitive`.
fn boolean(json: &mut Reader<'_>, name: &str) -> Result<bool, SerializerError> {
    match json.token()? {
        Token::Null => Ok(false),
        Token::Bool(value) => Ok(value),
        Token::Number(text) if is_integer(text) => Ok(!matches!(text, "0" | "-0")),
        Token::Text(text) => match trim(&text) {
            "true" | "True" | "TRUE" => Ok(true),
            "false" | "False" | "FALSE" | "" | "null" => Ok(false),
            _ => Err(not_a("boolean", name)),
        },
        Token::Number(_) | Token::Array | Token::Object => Err(not_a("boolean", name)),
    }
}

fn not_a(what: &str, name: &str) -> SerializerError {
    format!("{name} is not a {what}").into()
}

fn not_an(what: &str, name: &str) -> SerializerError {
    format!("{name} is not an {what}").into()
}

/// A type by its name, or by its number.
///
/// Source: Jackson's `EnumDeserializer`.
fn service_type(json: &mut Reader<'_>) -> Result<ServiceType, SerializerError> {
    let number = |digits: &str| digits.parse().ok().and_then(ServiceType::from_number);
    let (service_type, shown) = match json.token()? {
        Token::Null => return Ok(ServiceType::default()),
        Token::Text(name) => {
            let trimmed = trim(&name);
            let is_number = trimmed.starts_with(|c: char| c.is_ascii_digit());
            let found = if is_number { number(trimmed) } else { ServiceType::from_name(trimmed) };
            (found, format!("{name:?}"))
        }
        Token::Number("-0") => (number("0"), String::new()),
        Token::Number(digits) => (number(digits), digits.to_owned()),
        Token::Bool(_) | Token::Array | Token::Object => (None, "of another form".to_owned()),
    };
    service_type.ok_or_else(|| format!("unknown service type {shown}").into())
}

/// A template: its parts, or its text.
fn uri_spec(json: &mut Reader<'_>) -> Result<Option<UriSpec>, SerializerError> {
    match json.token()? {
        Token::Null => return Ok(None),
        Token::Text(template) => return Ok(Some(template.parse()?)),
        Token::Object => {}
        _ => return Err("uriSpec is neither an object nor a string".into()),
    }
    let mut parts = Vec::new();
    json.members(|json, name| match name.as_str() {
        "parts" => {
            parts.clear();
            match json.token()? {
                Token::Null => Ok(()),
                Token::Array => json.elements(|json| {
                    parts.push(uri_part(json)?);
                    Ok(())
                }),
                _ => Err("the parts of uriSpec are not an array".into()),
            }
        }
        _ => json.skip(),
    })?;
    Ok(Some(UriSpec::from_parts(parts)))
}

fn uri_part(json: &mut Reader<'_>) -> Result<UriPart, SerializerError> {
    let mut part = UriPart { value: String::new(), is_variable: false };
    match json.token()? {
        // Java has a null in its list, and cannot build a URI.
        Token::Null => return Ok(part),
        Token::Object => {}
        _ => return Err("a part of uriSpec is not an object".into()),
    }
    json.members(|json, name| {
        match name.as_str() {
            "value" => part.value = text(json, &name)?.unwrap_or_default(),
            "variable" => part.is_variable = boolean(json, &name)?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    Ok(part)
}

#[cfg(test)]
mod tests;
