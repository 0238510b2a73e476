//! Instances of docent and of Curator side by side. Source of the other side: `tests/java/CuratorServices.java`.

use docent_discovery::{InstanceSerializer, JsonInstanceSerializer, Payload, UriSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::support::peer::{Peer, Side};

/// The payload class that only Curator's peer has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Details {
    zone: String,
    weight: i32,
}

impl Payload for Details {
    const JAVA_CLASS: Option<&'static str> = Some("CuratorServices$Details");
}

/// For each Java payload, docent writes the same bytes as Curator, and reads them.
#[tokio::test]
async fn the_bytes_of_curators_instances_are_docents() {
    let Some((fixture, curator)) = Peer::beside_curator(RECORDED).await else { return };
    let (a, _tap) = fixture.client("A").await;
    for mode in ["", " new"] {
        curator.ask(format!("dopen disc:{}{mode}", fixture.path)).await.ok();
        let serializer = JsonInstanceSerializer::new();
        let serializer = if mode.is_empty() { serializer } else { serializer.with_enabled() };
        let check = async |kind: &str, expected: Option<Value>| {
            let id = format!("{kind}{}", mode.trim());
            curator.ask(format!("dsample disc:{} {id} {kind}", fixture.path)).await.ok();
            let bytes = a.get_data(&node(&fixture, &id)).await.unwrap().data;
            let read: ServiceInstance<Value> = serializer.deserialize(&bytes).unwrap();
            assert_eq!(read.payload(), expected.as_ref(), "{kind}");
            assert_eq!(read.build_uri().as_deref(), Some("http://10.1.1.1:8080"));
            let written = serializer.serialize(&read).unwrap();
            assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(&bytes));
            bytes
        };
        check("null", None).await;
        let text = "\"\\/\u{8}\u{c}\n\r\t\u{1}\u{1f}\u{7f}\u{2028}\u{e9}\u{1f600}";
        check("text", Some(json!(text))).await;
        check("int", Some(json!(7))).await;
        check("double", Some(json!(1.5))).await;
        check("large", Some(json!(1.25e10))).await;
        check("small", Some(json!(-1e-5))).await;
        check("bool", Some(json!(true))).await;
        let long = check("long", Some(json!(["java.lang.Long", 7]))).await;
        let long: ServiceInstance<i64> = serializer.deserialize(&long).unwrap();
        assert_eq!(long.payload(), Some(&7));
        let float = check("float", Some(json!(["java.lang.Float", 0.1]))).await;
        let float: ServiceInstance<f32> = serializer.deserialize(&float).unwrap();
        assert_eq!(float.payload(), Some(&0.1));
        let large = Some(json!(["java.math.BigInteger", u64::MAX]));
        let large = check("biginteger", large).await;
        let large: ServiceInstance<u64> = serializer.deserialize(&large).unwrap();
        assert_eq!(large.payload(), Some(&u64::MAX));
        check("bytes", Some(json!(["[B", "AQID"]))).await;
        check("list", Some(json!(["java.util.ArrayList", ["x", 1]]))).await;
        check("map", Some(json!({"@class": "java.util.TreeMap", "k": "v", "n": 1}))).await;
        let id = format!("bean{}", mode.trim());
        curator.ask(format!("dsample disc:{} {id} bean", fixture.path)).await.ok();
        let bean = a.get_data(&node(&fixture, &id)).await.unwrap().data;
        let read: ServiceInstance<Details> = serializer.deserialize(&bean).unwrap();
        assert_eq!(read.payload(), Some(&Details { zone: "z".to_owned(), weight: 3 }));
        assert_eq!(serializer.serialize(&read).unwrap(), bean);
        curator.ask(format!("dclose disc:{}", fixture.path)).await.ok();
    }
    curator.close().await;
}

/// Curator reads docent's payloads as the same values, and writes the same bytes again.
#[tokio::test]
async fn curator_reads_docents_instances() {
    let Some((fixture, curator)) = Peer::beside_curator(RECORDED).await else { return };
    let (a, _tap) = fixture.client("A").await;
    let base = fixture.path.clone();
    curator.ask(format!("dopen disc:{base} new")).await.ok();
    async fn register<T: Payload + Clone + Send + Sync + 'static>(
        fixture: &Fixture,
        client: &Client,
        id: &str,
        payload: T,
    ) -> ServiceDiscovery<T> {
        let serializer = JsonInstanceSerializer::new().with_enabled();
        let options = DiscoveryOptions::default().with_serializer(serializer);
        let discovery = ServiceDiscovery::with_options(client, &fixture.path, options).unwrap();
        let spec: UriSpec = "{scheme}://{address}:{ssl-port}/{name}/{id}".parse().unwrap();
        let instance = ServiceInstance::new("web", id)
            .with_address("10.0.0.\u{e9}")
            .with_ssl_port(8443)
            .with_payload(payload)
            .with_uri_spec(spec)
            .with_enabled(id.len().is_multiple_of(2));
        done("the registration", discovery.register(instance)).await;
        discovery
    }
    let check = async |id: &str, class: &str| {
        let written = data(&a, &node(&fixture, id)).await;
        assert_eq!(curator.ask(format!("dget disc:{base} web {id}")).await.ok(), written);
        assert_eq!(curator.ask(format!("dclass disc:{base} web {id}")).await.ok(), class);
        let uri = format!("https://10.0.0.\u{e9}:8443/web/{id}");
        assert_eq!(curator.ask(format!("duri disc:{base} web {id}")).await.ok(), uri);
    };
    let _text = register(&fixture, &a, "t", "a\u{1f600}\u{1}b".to_owned()).await;
    check("t", "java.lang.String a\u{1f600}\u{1}b").await;
    let _int = register(&fixture, &a, "in", 7).await;
    check("in", "java.lang.Integer 7").await;
    let _long = register(&fixture, &a, "l", 7_i64).await;
    check("l", "java.lang.Long 7").await;
    let _unsigned = register(&fixture, &a, "u", u32::MAX).await;
    check("u", "java.lang.Long 4294967295").await;
    let _big = register(&fixture, &a, "bi", u64::MAX).await;
    check("bi", "java.math.BigInteger 18446744073709551615").await;
    let _float = register(&fixture, &a, "f", 0.1_f32).await;
    check("f", "java.lang.Float 0.1").await;
    let _some = register(&fixture, &a, "some", Some(1.5)).await;
    check("some", "java.lang.Double 1.5").await;
    let _list = register(&fixture, &a, "list", vec!["x".to_owned(), "y".to_owned()]).await;
    check("list", "java.util.ArrayList [x, y]").await;
    let map = std::collections::BTreeMap::from([("k".to_owned(), 1)]);
    let _map = register(&fixture, &a, "m", map).await;
    check("m", "java.util.TreeMap {k=1}").await;
    let details = Details { zone: "eu".to_owned(), weight: 2 };
    let _bean = register(&fixture, &a, "bean", details).await;
    check("bean", "CuratorServices$Details eu/2").await;
    assert_eq!(curator.ask(format!("dnames disc:{base}")).await.ok(), "1 web");
    assert_eq!(curator.ask(format!("dids disc:{base} web")).await.list().len(), 10);
    a.close().await.unwrap();
    curator.close().await;
}

/// The members of Curator's instance, as it writes them.
const THEIRS: &str = r#"{"name":"web","id":"theirs","address":"10.1.1.1","port":1,"sslPort":null,"payload":null,"registrationTimeUTC":1700000000000,"serviceType":"DYNAMIC","uriSpec":null}"#;

/// An operator changes the instances of both sides: each side keeps the new form after a reconnect and in a new
/// session.
#[tokio::test]
async fn both_sides_keep_what_an_operator_writes() {
    let Some(fixture) = Fixture::real().await else { return };
    if !Side::Curator.is_available() {
        return;
    }
    let (a, ours) = fixture.client("A").await;
    let theirs = fixture.tap.client("J").await.unwrap();
    let curator = Peer::java(&theirs.connect_string(), RECORDED).await;
    let (operator, base) = (fixture.observer().await, fixture.path.clone());
    let options = DiscoveryOptions::default().with_watched_instances();
    let discovery = ServiceDiscovery::with_options(&a, &base, options).unwrap();
    curator.ask(format!("dopen disc:{base} watch")).await.ok();
    done("ours", discovery.register(web("ours", 1))).await;
    curator.ask(format!("dreg disc:{base} {THEIRS}")).await.ok();
    let mut events = discovery.events("web", "ours").unwrap();
    for id in ["ours", "theirs"] {
        let path = node(&fixture, id);
        let before = stat(&operator, &path).await;
        let form = data(&operator, &path).await.replace("\"port\":1", "\"port\":9");
        let reads = fixture.tap.len();
        operator.set_data(&path, form.as_bytes(), None).await.unwrap();
        let is_read = |line: &str| line.contains("<- getData OK") && line.contains("\"port\":9");
        let is_reading = async || fixture.tap.trace().since(reads).text().lines().any(is_read);
        until("the read of the new form", is_reading).await;
        if id == "ours" {
            within_deadline("an event", events.next()).await.unwrap();
            ours.kill_session(DEADLINE).await.unwrap();
        } else {
            theirs.cut();
        }
        // Curator deletes the node and creates it again at a reconnect (C32).
        eventually("the new form in another node", async || {
            let node = operator.get_data(&path).await.ok()?;
            let has_form = node.data == form.as_bytes();
            (has_form && node.stat.czxid != before.czxid).then_some(())
        })
        .await;
    }
    finds(&discovery, &["ours:9", "theirs:9"]).await;
    assert_eq!(discovery.instance("web", "ours"), Some(web("ours", 9)));
    curator.close().await;
}

/// Curator reads each row of the serializer's test table as its second column says.
#[tokio::test]
async fn curator_reads_the_rows_of_the_table() {
    let Some((fixture, curator)) = Peer::beside_curator(RECORDED).await else { return };
    let disc = format!("disc:{}", fixture.path);
    curator.ask(format!("dopen {disc} new")).await.ok();
    let mut defaults = String::new();
    let table = include_str!("../../discovery/src/json_instance_serializer/jackson_cases.txt");
    for row in std::iter::once("{~} | -").chain(table.lines()) {
        let Some((json, rest)) = row.split_once(" | ").filter(|_| !row.starts_with('#')) else {
            continue;
        };
        let json = json.replace('~', r#""name":"w","id":"i""#);
        let mut actual = curator.ask(format!("dread {disc} {json}")).await.ok().to_owned();
        if defaults.is_empty() {
            defaults = actual.trim_matches(['{', '}']).to_owned();
        }
        for member in defaults.split_inclusive(',') {
            actual = actual.replace(member, "");
        }
        let actual = actual.trim_matches(['{', ',']);
        let actual = actual.strip_suffix('}').unwrap_or(actual).trim_matches(',');
        let actual = if actual.is_empty() { "-" } else { actual };
        assert_eq!(actual, rest.split(" | ").next().unwrap(), "{row}");
    }
    curator.close().await;
}

/// Caches and providers of both sides have the instances of both.
#[tokio::test]
async fn providers_of_both_sides_use_the_instances_of_both() {
    let Some((fixture, curator)) = Peer::beside_curator(RECORDED).await else { return };
    let (a, _tap) = fixture.client("A").await;
    let (discovery, base) = (discovery(&fixture, &a), fixture.path.clone());
    let ask = async |command: &str, rest: &str| {
        curator.ask(format!("{command} disc:{base} {rest}")).await.ok().to_owned()
    };
    curator.ask(format!("dopen disc:{base} new")).await.ok();
    // No instance exists yet: docent's cache needs no parent node, Curator's creates it.
    let provider = discovery.service_provider("web").unwrap();
    within_deadline("the load", provider.initialized()).await.unwrap();
    assert_eq!(ask("scstart", "web").await, "0");
    ask("pstart", "web").await;
    let theirs = &THEIRS.replace("10.1.1.1", "10.1.1.2").replace('}', ",\"enabled\":true}");
    let both = async |wanted: &str, listed: &str| {
        until(wanted, async || {
            let instances = provider.instances();
            let ids: Vec<&str> = instances.iter().map(|one| one.id()).collect();
            ids.join(" ") == wanted
        })
        .await;
        let count = wanted.split_whitespace().count();
        until(&format!("{wanted} and {listed} of Curator's"), async || {
            let all = ask("pall", "web").await == format!("{count} {wanted}").trim();
            all && ask("sclist", "web").await == listed
        })
        .await;
    };
    done("the registration", discovery.register(web("ours", 1))).await;
    ask("dreg", theirs).await;
    both("ours theirs", "2 ours=10.1.1.1:1 theirs=10.1.1.2:1").await;
    let mut turns = [ask("pget", "web").await, ask("pget", "web").await];
    turns.sort_unstable();
    assert_eq!(turns, ["ours", "theirs"]);
    let turns = [0, 1, 2].map(|_| provider.instance().unwrap().id().to_owned());
    assert_eq!(turns, ["ours", "theirs", "ours"]);
    // An instance that one side disables is disabled for both.
    ask("dupdate", &theirs.replace("\"enabled\":true", "\"enabled\":false")).await;
    both("ours", "2 ours=10.1.1.1:1 theirs=10.1.1.2:1").await;
    done("disabled", discovery.set_enabled("web", "ours", false)).await;
    both("", "2 ours=10.1.1.1:1 theirs=10.1.1.2:1").await;
    ask("dupdate", &theirs.replace("\"port\":1", "\"port\":2")).await;
    done("the update", discovery.update(web("ours", 2))).await;
    both("ours theirs", "2 ours=10.1.1.1:2 theirs=10.1.1.2:2").await;
    // Curator's instance keeps its id; docent can register that id only after it is gone.
    assert_eq!(refusal(discovery.register(web("theirs", 9))).await, ErrorKind::NodeExists);
    ask("dunreg", "theirs").await;
    both("ours theirs", "2 ours=10.1.1.1:2 theirs=10.1.1.1:9").await;
    done("the close", discovery.close()).await;
    both("", "0").await;
    ask("dclose", "").await;
    curator.close().await;
}
