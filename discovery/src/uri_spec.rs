//! Templates for the URI of an instance.

use std::{collections::BTreeMap, error, fmt, str::FromStr};

use crate::{ServiceInstance, ServiceType};

/// A template for the URI of an instance, such as `{scheme}://{address}:{port}/status`.
///
/// | variable | value |
/// |---|---|
/// | `scheme` | `https` if the instance has an SSL port, otherwise `http` |
/// | `name`, `id`, `address`, `port`, `ssl-port` | those of the instance; empty if it has none |
/// | `registration-time-utc` | milliseconds |
/// | `service-type` | in lower case, such as `dynamic` |
/// | `[`, `]` | a brace |
///
/// ```
/// use docent_discovery::{ServiceInstance, UriSpec};
///
/// let spec: UriSpec = "{scheme}://{address}:{ssl-port}/{tenant}".parse()?;
/// let instance: ServiceInstance =
///     ServiceInstance::new("web", "1").with_address("10.0.0.7").with_ssl_port(8443);
/// let uri = spec.build_with(&instance, &[("tenant", "acme")]);
/// assert_eq!(uri, "https://10.0.0.7:8443/acme");
/// # Ok::<(), docent_discovery::InvalidUriSpec>(())
/// ```
///
/// Source: `UriSpec`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct UriSpec {
    parts: Vec<UriPart>,
}

/// A part of a template.
///
/// Source: `UriSpec.Part`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UriPart {
    /// The text, or the name of the variable.
    pub value: String,
    /// Whether the part is a variable.
    pub is_variable: bool,
}

impl UriSpec {
    /// A template of these parts.
    #[must_use]
    pub fn from_parts(parts: impl IntoIterator<Item = UriPart>) -> Self {
        Self { parts: parts.into_iter().collect() }
    }

    /// The parts, in their order.
    #[must_use]
    pub fn parts(&self) -> &[UriPart] {
        &self.parts
    }

    /// The URI of an instance. An unknown variable is empty.
    #[must_use]
    pub fn build<T>(&self, instance: &ServiceInstance<T>) -> String {
        self.build_with(instance, &[])
    }

    /// As [`build`](Self::build), with further variables, which precede those of the instance.
    #[must_use]
    pub fn build_with<T>(
        &self,
        instance: &ServiceInstance<T>,
        variables: &[(&str, &str)],
    ) -> String {
        let given: BTreeMap<_, _> = variables.iter().copied().collect();
        let mut uri = String::new();
        for part in &self.parts {
            match given.get(part.value.as_str()) {
                _ if !part.is_variable => uri.push_str(&part.value),
                Some(value) => uri.push_str(value),
                None => uri.push_str(&variable(&part.value, instance)),
            }
        }
        uri
    }
}

fn variable<T>(name: &str, instance: &ServiceInstance<T>) -> String {
    let port = |port: Option<i32>| port.map(|port| port.to_string()).unwrap_or_default();
    match name {
        "scheme" if instance.ssl_port().is_some() => "https".to_owned(),
        "scheme" => "http".to_owned(),
        "name" => instance.name().to_owned(),
        "id" => instance.id().to_owned(),
        "address" => instance.address().unwrap_or_default().to_owned(),
        "port" => port(instance.port()),
        "ssl-port" => port(instance.ssl_port()),
        "registration-time-utc" => instance.registration_time_utc().to_string(),
        "service-type" => ServiceType::name(instance.service_type()).to_lowercase(),
        "[" => "{".to_owned(),
        "]" => "}".to_owned(),
        _ => String::new(),
    }
}

impl FromStr for UriSpec {
    type Err = InvalidUriSpec;

    /// Source: the constructor of `UriSpec`.
    fn from_str(template: &str) -> Result<Self, InvalidUriSpec> {
        let mut parts = Vec::new();
        let (mut rest, mut is_variable) = (template, false);
        while let Some(at) = rest.find(['{', '}']) {
            let (text, after) = rest.split_at(at);
            push(&mut parts, text, is_variable);
            is_variable = match (after.starts_with('{'), is_variable) {
                (true, false) => true,
                (false, true) => false,
                (true, true) => return Err(InvalidUriSpec("a brace opens inside of a variable")),
                (false, false) => return Err(InvalidUriSpec("a brace closes that was not opened")),
            };
            rest = after.get(1..).unwrap_or_default();
        }
        if is_variable {
            return Err(InvalidUriSpec("the last brace is not closed"));
        }
        push(&mut parts, rest, false);
        Ok(Self { parts })
    }
}

fn push(parts: &mut Vec<UriPart>, text: &str, is_variable: bool) {
    if !text.is_empty() {
        let value = if is_variable { text.trim() } else { text };
        parts.push(UriPart { value: value.to_owned(), is_variable });
    }
}

impl fmt::Display for UriSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            if part.is_variable {
                write!(f, "{{{}}}", part.value)?;
            } else {
                f.write_str(&part.value)?;
            }
        }
        Ok(())
    }
}

/// An invalid template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidUriSpec(&'static str);

impl fmt::Display for InvalidUriSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid template of a URI: {}", self.0)
    }
}

impl error::Error for InvalidUriSpec {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: `TestUriSpec`.
    #[test]
    fn a_template_is_split_into_parts_and_filled_in() {
        let spec: UriSpec = "{scheme}://{ foo.com }:{port}/{[}x{]}".parse().unwrap();
        let part = |value: &str, is_variable| UriPart { value: value.to_owned(), is_variable };
        let expected = [
            part("scheme", true),
            part("://", false),
            part("foo.com", true),
            part(":", false),
            part("port", true),
            part("/", false),
            part("[", true),
            part("x", false),
            part("]", true),
        ];
        assert_eq!(spec.parts(), expected);
        assert_eq!(spec.to_string().parse(), Ok(spec.clone()));
        let instance: ServiceInstance = ServiceInstance::new("web", "1").with_port(80);
        assert_eq!(spec.build(&instance), "http://:80/{x}");
        assert_eq!(spec.build_with(&instance, &[("foo.com", "h")]), "http://h:80/{x}");
        let all: UriSpec = "{scheme} {name} {id} {address} {port} {ssl-port} {service-type} {registration-time-utc} {x}"
            .parse()
            .unwrap();
        let instance: ServiceInstance = ServiceInstance::new("n", "i")
            .with_address("a")
            .with_ssl_port(2)
            .with_registration_time_utc(3)
            .with_service_type(ServiceType::DynamicSequential);
        assert_eq!(all.build(&instance), "https n i a  2 dynamic_sequential 3 ");
    }

    #[test]
    fn braces_must_match() {
        for wrong in ["{", "}", "{a{b}}", "a}", "{a"] {
            assert!(wrong.parse::<UriSpec>().is_err(), "{wrong}");
        }
    }
}
