//! The bytes of Curator 5.4 with Jackson 2.14, and what it reads.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;

fn instance<T>() -> ServiceInstance<T> {
    ServiceInstance::new("web", "i1")
        .with_address("10.1.1.1")
        .with_port(8080)
        .with_registration_time_utc(1_700_000_000_000)
}

fn written<T: Payload>(
    serializer: JsonInstanceSerializer,
    instance: &ServiceInstance<T>,
) -> String {
    String::from_utf8(serializer.serialize(instance).unwrap()).unwrap()
}

fn read<T: Payload>(json: &str) -> Result<ServiceInstance<T>, String> {
    let read = JsonInstanceSerializer::new().deserialize(json.as_bytes());
    read.map_err(|error| error.to_string())
}

/// As recorded from Curator.
const PLAIN: &str = r#"{"name":"web","id":"i1","address":"10.1.1.1","port":8080,"sslPort":null,"payload":null,"registrationTimeUTC":1700000000000,"serviceType":"DYNAMIC","uriSpec":null}"#;

const FULL: &str = r#"{"name":"web","id":"i5","address":"h","port":1,"sslPort":443,"payload":"p1","registrationTimeUTC":1700000000001,"serviceType":"DYNAMIC","uriSpec":{"parts":[{"value":"scheme","variable":true},{"value":"://x","variable":false}]},"enabled":false}"#;

#[test]
fn an_instance_has_the_bytes_of_curators_serializer() {
    let plain = instance::<Value>();
    assert_eq!(written(JsonInstanceSerializer::new(), &plain), PLAIN);
    let enabled = PLAIN.replace(r#":null}"#, r#":null,"enabled":true}"#);
    assert_eq!(written(JsonInstanceSerializer::new().with_enabled(), &plain), enabled);
    let full = ServiceInstance::new("web", "i5")
        .with_address("h")
        .with_port(1)
        .with_ssl_port(443)
        .with_payload("p1".to_owned())
        .with_registration_time_utc(1_700_000_000_001)
        .with_uri_spec("{scheme}://x".parse().unwrap())
        .with_enabled(false);
    assert_eq!(written(JsonInstanceSerializer::new().with_enabled(), &full), FULL);
    assert_eq!(read::<String>(FULL).unwrap(), full);
    assert_eq!(read::<Value>(PLAIN).unwrap(), plain);
}

/// C27: Curator's default serializer omits `enabled`, and the instance becomes enabled for all readers.
#[test]
fn a_disabled_instance_is_written_as_disabled_by_every_serializer() {
    let disabled = instance::<Value>().with_enabled(false);
    for serializer in [JsonInstanceSerializer::new(), JsonInstanceSerializer::new().with_enabled()]
    {
        assert_eq!(read::<Value>(&written(serializer, &disabled)).unwrap(), disabled);
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Details {
    zone: String,
    a: i32,
}

impl Payload for Details {
    const JAVA_CLASS: Option<&'static str> = Some("com.example.Details");
}

/// Each payload with the text that Jackson makes of it.
#[test]
fn payloads_have_the_class_names_that_java_peers_need() {
    fn check<T: Payload + std::fmt::Debug + PartialEq>(payload: T, expected: &str) {
        let json = payload_json(Some(&payload)).unwrap();
        assert_eq!(String::from_utf8(json).unwrap(), expected);
        let node = PLAIN.replace(r#""payload":null"#, &format!(r#""payload":{expected}"#));
        assert_eq!(read::<T>(&node).unwrap().payload(), Some(&payload));
    }
    check("p1".to_owned(), r#""p1""#);
    check(7, "7");
    check(1.5, "1.5");
    check(true, "true");
    check(7_i64, r#"["java.lang.Long",7]"#);
    check(vec!["x".to_owned()], r#"["java.util.ArrayList",["x"]]"#);
    check(Vec::<i32>::new(), r#"["java.util.ArrayList",[]]"#);
    let map = [("k".to_owned(), 1), ("n".to_owned(), 2)];
    check(BTreeMap::from(map), r#"{"@class":"java.util.TreeMap","k":1,"n":2}"#);
    check(HashMap::<String, i32>::new(), r#"{"@class":"java.util.HashMap"}"#);
    let details = Details { zone: "z".to_owned(), a: 1 };
    check(details, r#"{"@class":"com.example.Details","zone":"z","a":1}"#);
    check(json!(["java.lang.Long", 7]), r#"["java.lang.Long",7]"#);
    check(json!({"@class": "a.B", "k": 1}), r#"{"@class":"a.B","k":1}"#);
}

/// C31: the class that a writer names decides nothing.
#[test]
fn the_class_of_a_payload_is_ignored_by_its_reader() {
    let node = PLAIN
        .replace(r#""payload":null"#, r#""payload":{"@class":"org.evil.Gadget","zone":"z","a":1}"#);
    let details = Details { zone: "z".to_owned(), a: 1 };
    assert_eq!(read::<Details>(&node).unwrap().payload(), Some(&details));
    assert_eq!(read::<()>(&node).unwrap().payload(), Some(&()));
    let opaque = read::<Value>(&node).unwrap();
    assert_eq!(opaque.payload().unwrap()["@class"], "org.evil.Gadget");
    assert!(read::<String>(&node).is_err());
}

/// Two texts with dots, and a text with a number, look like Jackson's `["class", value]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Upstreams {
    hosts: Vec<String>,
    weights: Vec<(String, i32)>,
}

impl Payload for Upstreams {}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Money(Vec<String>);

impl Payload for Money {
    // Of no package.
    const JAVA_CLASS: Option<&'static str> = Some("Money");
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "@class")]
enum Tagged {
    #[serde(rename = "com.example.Http")]
    Http { version: i32 },
}

impl Payload for Tagged {}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pair(String, i32);

impl Payload for Pair {}

// Case (Found in docent itself): discovery: an instance whose payload had a list of two texts with
// dots, or a pair of such a text and a value, could not be read: it looked like a class name of
// Jackson's.
#[test]
fn lists_that_look_like_class_names_are_read_back() {
    fn check<T: Payload + Clone + std::fmt::Debug + PartialEq>(payload: T) {
        let instance = instance().with_payload(payload);
        let json = written(JsonInstanceSerializer::new(), &instance);
        assert_eq!(read::<T>(&json), Ok(instance), "{json}");
    }
    let hosts = vec!["db1.example.com".to_owned(), "db2.example.com".to_owned()];
    let weights = vec![("a.example.com".to_owned(), 3), ("b".to_owned(), 1)];
    check(Upstreams { hosts: hosts.clone(), weights });
    check(Pair("a.example.com".to_owned(), 1));
    check(Money(vec!["12.5".to_owned()]));
    check(Money(hosts.clone()));
    check(Tagged::Http { version: 2 });
    check(hosts.clone());
    check(vec![hosts.clone(), hosts.clone()]);
    check(BTreeMap::from([("hosts".to_owned(), hosts.clone())]));
    check(Some(hosts));
    check(u32::MAX);
    check(u64::MAX);
    check(0.1_f32);
    check(vec![1.5_f32]);
}

/// With classes of Java at each level, as a bean with annotations writes them.
#[test]
fn classes_within_a_payload_are_ignored_too() {
    let hosts = vec!["a.b".to_owned(), "c.d".to_owned()];
    let payload = r#"{"@class":"com.example.Upstreams","hosts":["java.util.ArrayList",["a.b","c.d"]],"weights":[]}"#;
    let node = PLAIN.replace(r#""payload":null"#, &format!(r#""payload":{payload}"#));
    let expected = Upstreams { hosts, weights: Vec::new() };
    assert_eq!(read::<Upstreams>(&node).unwrap().payload(), Some(&expected));
}

/// Maps have no order of their own, and each `HashMap` another one.
// Case (Found in docent itself): discovery: an instance with a `HashMap` as payload had its members
// in another order each time it was written.
#[test]
fn equal_maps_have_equal_bytes() {
    let map = || (0..50).map(|n| (format!("k{n:02}"), n)).collect::<HashMap<_, _>>();
    let sorted: BTreeMap<_, _> = map().into_iter().collect();
    let expected = payload_json(Some(&sorted)).unwrap();
    let expected = String::from_utf8(expected).unwrap();
    for _ in 0..3 {
        let json = payload_json(Some(&map())).unwrap();
        let json = String::from_utf8(json).unwrap();
        assert_eq!(json, expected.replace("TreeMap", "HashMap"));
        let list = payload_json(Some(&vec![map()])).unwrap();
        let list = String::from_utf8(list).unwrap();
        let inner = expected.replace(r#""@class":"java.util.TreeMap","#, "");
        assert_eq!(list, format!(r#"["java.util.ArrayList",[{inner}]]"#));
    }
}

/// Each row of `jackson_cases.txt`; `tests/discovery/interop.rs` compares its second column with Curator.
// Case (Found in docent itself): discovery: half a surrogate pair, a number beyond `f64` or deep
// nesting in a member that is not known, and an absent name or id made an instance unreadable; a
// member that occurs twice was read if only its last value is valid, and `1e2` as a name became
// `100.0`.
#[test]
fn instances_are_read_and_refused_as_by_curator() {
    let serializer = JsonInstanceSerializer::new().with_enabled();
    let defaults = ServiceInstance::new("w", "i").with_registration_time_utc(0);
    let defaults = written::<Value>(serializer, &defaults);
    let defaults: Vec<_> = defaults.trim_matches(['{', '}']).split_inclusive(',').collect();
    let rows = include_str!("jackson_cases.txt").lines().filter(|line| !line.starts_with('#'));
    for row in rows {
        let columns: Vec<_> = row.split(" | ").collect();
        let [json, curator, ..] = columns[..] else { panic!("{row}") };
        let wanted = match columns[..] {
            [_, _] => curator,
            [_, _, docent, reason] if !reason.is_empty() => docent,
            _ => panic!("{row}"),
        };
        let actual = match read::<Value>(&json.replace('~', r#""name":"w","id":"i""#)) {
            Err(_) => "refused".to_owned(),
            Ok(instance) => {
                let mut text = written(serializer, &instance);
                for member in &defaults {
                    text = text.replace(member, "");
                }
                let text = text.trim_matches(['{', ',']);
                let text = text.strip_suffix('}').unwrap_or(text).trim_matches(',');
                if text.is_empty() { "-".to_owned() } else { text.to_owned() }
            }
        };
        assert_eq!(actual, wanted, "{row}");
    }
}

/// What cannot stand in a table: bytes that are no text, and long values.
// Case (Found in docent itself): discovery: a number with a sign, a point or an exponent was
// refused below Jackson's limit of 1,000 digits, and nesting within `uriSpec` was read beyond its
// limit.
#[test]
fn bytes_nesting_and_lengths_are_those_of_jackson() {
    let read = |front: &str, middle: &[u8], back: &str| {
        let json = [br#"{"name":"w","id":"i","#, front.as_bytes(), middle, back.as_bytes()];
        let read = JsonInstanceSerializer::new().deserialize(&json.concat());
        read.map(|instance: ServiceInstance<Value>| instance.address.unwrap_or_default()).ok()
    };
    let address = |bytes: &[u8]| read(r#""address":""#, bytes, r#""}"#);
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(address("\u{7f}é€\u{ffff}\u{1f600}".as_bytes()), some("\u{7f}é€\u{ffff}\u{1f600}"));
    // Surrogates, and a longer form than needed.
    assert_eq!(address(b"\xed\xa0\xbd\xed\xb8\x80"), some("\u{1f600}"));
    assert_eq!(address(b"\xed\xa0\x80"), some("\u{fffd}"));
    assert_eq!(address(b"\xc0\x80"), some("\0"));
    for invalid in [&b"\xff"[..], b"\x80", b"\xc3", b"\xe2\x82x", b"\xf8\x88", b"\0", b"\t", b"\n"]
    {
        assert_eq!(address(invalid), None, "{invalid:?}");
        assert_eq!(read(r#""a":""#, invalid, r#""}"#), None, "{invalid:?}");
    }
    assert_eq!(read(r#""a":1"#, b"\0", "}"), None);
    // Unknown members do not use the stack.
    let nested = |depth| [b"[".repeat(depth), b"]".repeat(depth)].concat();
    assert_eq!(read(r#""a":"#, &nested(999), "}"), some(""));
    assert_eq!(read(r#""a":"#, &nested(1_000), "}"), None);
    for (front, around) in [(r#""uriSpec":{"a":"#, 1), (r#""uriSpec":{"parts":[{"a":"#, 3)] {
        let back = ["}}", "}]}}"][around / 2];
        assert_eq!(read(front, &nested(999 - around), back), some(""));
        assert_eq!(read(front, &nested(1_000 - around), back), None);
    }
    // Sign, point and exponent are no digits.
    for (front, rest) in [("", 1_000), ("-", 1_000), ("1.", 999), ("-1.5e+", 998)] {
        let front = format!(r#""a":{front}"#);
        assert_eq!(read(&front, &b"9".repeat(rest), "}"), some(""), "{front}");
        assert_eq!(read(&front, &b"9".repeat(rest + 1), "}"), None, "{front}");
    }
    // Payloads do; Jackson reads 999.
    assert_eq!(read(r#""payload":"#, &nested(127), "}"), some(""));
    assert_eq!(read(r#""payload":"#, &nested(1_000), "}"), None);
    let utf16: Vec<_> = "{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(
        InstanceSerializer::<Value>::deserialize(&JsonInstanceSerializer::new(), &utf16).is_err()
    );
}

/// Source: `TestJsonInstanceSerializerCompatibility`, and the rules of Jackson.
// Case (Found in docent itself): discovery: scalars that Jackson converts (a port with a fraction,
// a type by its number, a boolean in quotes) and a byte order mark made an instance unreadable.
#[test]
fn instances_of_every_version_are_read() {
    let plain = instance::<Value>();
    for json in [
        &format!("{PLAIN} trailing {{"),
        " { \"id\" : \"i1\",\n \"name\":\"web\", \"future\":{\"x\":[1]}, \"port\":\"8080\", \"address\":\"10.1.1.1\", \"registrationTimeUTC\":\"1700000000000\" } ",
        r#"{"name":"other","name":"web","id":"i1","address":"10.1.1.1","port":8080,"registrationTimeUTC":1700000000000,"serviceType":null,"enabled":true}"#,
    ] {
        assert_eq!(read::<Value>(json).as_ref(), Ok(&plain), "{json}");
    }
    let bare = read::<Value>(r#"{"name":"w","id":"i"}"#).unwrap();
    assert_eq!((bare.address(), bare.port(), bare.registration_time_utc()), (None, None, 0));
    assert!(bare.is_enabled() && bare.service_type() == ServiceType::Dynamic);
    assert!(!read::<Value>(r#"{"name":"w","id":"i","enabled":null}"#).unwrap().is_enabled());
    // Jackson's coercions of scalars.
    for json in [
        r#"{"name":"w","id":"i","port":80.9,"registrationTimeUTC":5.5,"serviceType":2,"enabled":1}"#,
        r#"{"name":"w","id":"i","port":" 80 ","registrationTimeUTC":"5","serviceType":" PERMANENT ","enabled":" True "}"#,
        "\u{feff}{\"name\":\"w\",\"id\":\"i\",\"port\":80,\"sslPort\":\"\",\"registrationTimeUTC\":5,\"serviceType\":\"PERMANENT\"}",
    ] {
        let read = read::<Value>(json).unwrap_or_else(|error| panic!("{json}: {error}"));
        let wanted = ServiceInstance::new("w", "i").with_port(80).with_registration_time_utc(5);
        assert_eq!(read, wanted.with_service_type(ServiceType::Permanent), "{json}");
    }
    let bare =
        read::<Value>(r#"{"name":7,"id":true,"port":"null","registrationTimeUTC":"","enabled":0}"#);
    let bare = bare.unwrap();
    assert_eq!((bare.name(), bare.id(), bare.port()), ("7", "true", None));
    assert_eq!((bare.registration_time_utc(), bare.is_enabled()), (0, false));
    let part = read::<Value>(
        r#"{"name":"w","id":"i","uriSpec":{"parts":[{"variable":"true","value":"name"}]}}"#,
    );
    assert_eq!(part.unwrap().build_uri().as_deref(), Some("w"));
    let part = read::<Value>(
        r#"{"name":"w","id":"i","uriSpec":{"parts":[{"variable":false,"value":"/x"}]}}"#,
    );
    assert_eq!(part.unwrap().build_uri().as_deref(), Some("/x"));
}

#[test]
fn invalid_instances_are_refused_with_the_reason() {
    for (json, reason) in [
        ("", "no data"),
        ("notjson", "expected"),
        ("[1]", "not a JSON object"),
        (r#"{"name":"w","id":"i","serviceType":"dynamic"}"#, "unknown service type"),
        (r#"{"name":"w","id":"i","port":3000000000}"#, "port is out of range"),
        (r#"{"name":"w","id":"i","port":3e9}"#, "port is out of range"),
        (r#"{"name":"w","id":"i","port":1e30}"#, "port is out of range"),
        (
            r#"{"name":"w","id":"i","registrationTimeUTC":1e19}"#,
            "registrationTimeUTC is out of range",
        ),
        (r#"{"name":"w","id":"i","enabled":"yes"}"#, "enabled is not a boolean"),
        (r#"{"name":"w","id":"i","serviceType":4}"#, "unknown service type"),
        (
            r#"{"name":"w","id":"i","uriSpec":{"parts":[{"variable":"x"}]}}"#,
            "variable is not a boolean",
        ),
        (r#"{"name":"w","id":"i","port":"x"}"#, "port is not an integer"),
        (r#"{"name":"w","id":"i","address":[]}"#, "address is not a string"),
        (r#"{"name":"w","id":"i","uriSpec":3}"#, "uriSpec is neither an object nor a string"),
    ] {
        let error = read::<Value>(json).unwrap_err();
        assert!(error.contains(reason), "{json}: {error}");
    }
}

fn instances() -> impl Strategy<Value = ServiceInstance<String>> {
    let ports = (proptest::option::of(any::<i32>()), proptest::option::of(any::<i32>()));
    let parts = proptest::collection::vec((any::<String>(), any::<bool>()), 0..4);
    let rest = (any::<i64>(), 0..4_usize, proptest::option::of(parts), any::<bool>());
    let address = proptest::option::of(any::<String>());
    let payload = proptest::option::of(any::<String>());
    let names = ("\\PC+", "\\PC+");
    (names, address, ports, payload, rest).prop_map(|(names, address, ports, payload, rest)| {
        let (registration_time_utc, service_type, parts, enabled) = rest;
        let part = |(value, is_variable)| UriPart { value, is_variable };
        ServiceInstance {
            name: names.0,
            id: names.1,
            address,
            port: ports.0,
            ssl_port: ports.1,
            payload,
            registration_time_utc,
            service_type: [
                ServiceType::Dynamic,
                ServiceType::Static,
                ServiceType::Permanent,
                ServiceType::DynamicSequential,
            ][service_type],
            uri_spec: parts.map(|parts| UriSpec::from_parts(parts.into_iter().map(part))),
            enabled,
        }
    })
}

proptest! {
    #[test]
    fn every_instance_is_read_back(instance in instances()) {
        let json = written(JsonInstanceSerializer::new(), &instance);
        prop_assert_eq!(read::<String>(&json), Ok(instance));
    }

    // Case (Found in docent itself): discovery: floating-point numbers in payloads were read as
    // their neighbours.
    #[test]
    fn every_number_is_read_back(number in proptest::num::f64::NORMAL) {
        let instance = instance().with_payload(number);
        let json = written(JsonInstanceSerializer::new(), &instance);
        prop_assert_eq!(read::<f64>(&json), Ok(instance.clone()), "{}", json);
        let read = read::<Value>(&json).unwrap();
        prop_assert_eq!(read.payload().and_then(Value::as_f64), Some(number));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        let _ = InstanceSerializer::<String>::deserialize(&JsonInstanceSerializer::new(), &bytes);
    }
}
