//! Reconfigurations and quotas: the embedded servers reply like real ones. One suite for both.

use docent::{Error, Node, Stat, ensemble::Reconfig};
use docent_protocol::{
    connect::ConnectRequest, frame, operation::SetData, request::SetDataRequest,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;
use crate::support::ensemble::{SUPER_DIGEST, changeable};

pub(crate) const OBSERVER: &str = "server.100=0.0.0.0:4001:4002:observer;0.0.0.0:4003";

async fn embedded(size: usize) -> Ensemble {
    let config =
        server::Config { version: server::Version::V3_8, enforce_quota: true, ..changeable(size) };
    Ensemble::Embedded(TestingCluster::start_with(config).await.unwrap())
}

#[track_caller]
pub(crate) fn real(size: usize) -> impl Future<Output = Option<Ensemble>> {
    let settings = settings(
        &[("reconfigEnabled", "true"), ("standaloneEnabled", "false")],
        &[
            ("zookeeper.DigestAuthenticationProvider.superDigest", SUPER_DIGEST),
            ("zookeeper.enforceQuota", "true"),
        ],
    );
    let ensemble = RealEnsemble::start_of(size, settings);
    async move { Some(Ensemble::Real(ensemble.await?)) }
}

on_both_servers! {
    #[tokio::test]
    super::embedded, super::real;
    the_config_node_names_the_members(3)
    the_members_are_changed_by_the_super_user_alone(1)
    refused_changes_have_the_errors_of_a_real_server(1)
    a_removed_follower_goes_on_as_one_that_does_not_vote(3)
    a_removed_leader_is_replaced(3)
    quotas_are_counted_and_enforced(1)
}

pub(crate) async fn super_user(ensemble: &Ensemble, member: usize) -> Client {
    let client = ensemble.client_of(member).await;
    client.add_auth("digest", b"super:test").await.unwrap();
    client
}

pub(crate) fn text(node: &Node) -> String {
    String::from_utf8(node.data.to_vec()).unwrap()
}

fn version(node: &Node) -> i64 {
    let text = text(node);
    i64::from_str_radix(text.lines().last().unwrap().strip_prefix("version=").unwrap(), 16).unwrap()
}

/// The numbers of the servers, sorted: their order in the text is that of a Java hash table.
fn servers(node: &Node) -> Vec<i64> {
    let text = text(node);
    let lines = text.lines().filter_map(|line| line.strip_prefix("server."));
    let mut ids: Vec<_> = lines.map(|l| l.split_once('=').unwrap().0.parse().unwrap()).collect();
    ids.sort_unstable();
    ids
}

pub(crate) const fn joining(servers: &str) -> Reconfig<'_> {
    Reconfig::Incremental { joining: Some(servers), leaving: None }
}

pub(crate) const fn leaving(ids: &str) -> Reconfig<'_> {
    Reconfig::Incremental { joining: None, leaving: Some(ids) }
}

#[track_caller]
fn refused(result: Result<Node, Error>, kind: ErrorKind) {
    let error = result.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (kind, Outcome::NotApplied), "{error}");
}

async fn the_config_node_names_the_members(ensemble: Ensemble) {
    let client = ensemble.client_of(0).await;
    let node = client.get_config().await.unwrap();
    assert_eq!(servers(&node), [1, 2, 3], "{}", text(&node));
    assert!(text(&node).lines().take(3).all(|line| line.contains(":participant")));
    assert_eq!((node.stat.version, node.stat.aversion), (-1, -1));
    assert_eq!(node.stat.mzxid, version(&node));
    assert_eq!(version(&node) & 0xFFFF_FFFF, 0, "the version is the first zxid of an epoch");
    let error = client.set_data("/zookeeper/config", b"x", None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAuth);
}

// Case (Ensembles that change): the members of an ensemble are changed by the super user alone.
async fn the_members_are_changed_by_the_super_user_alone(ensemble: Ensemble) {
    let client = ensemble.client_of(0).await;
    let before = client.get_config().await.unwrap();
    refused(client.reconfig(joining(OBSERVER), None).await, ErrorKind::NoAuth);
    let mut once = client.get_config_and_watch().await.unwrap().1;
    let other = ensemble.client_of(0).await;
    let mut always = other.add_watch("/zookeeper/config", AddWatchMode::Persistent).await.unwrap();

    let admin = super_user(&ensemble, 0).await;
    let joined = admin.reconfig(joining(OBSERVER), Some(version(&before))).await.unwrap();
    assert!(text(&joined).contains(OBSERVER), "{}", text(&joined));
    assert_eq!(servers(&joined), [1, 100]);
    assert_eq!((joined.stat.version, joined.stat.mzxid), (-1, version(&joined)));
    assert!(version(&joined) > version(&before));
    assert_eq!(client.get_config().await.unwrap().data, joined.data);
    let event = within_deadline("the event", once.next()).await.unwrap();
    assert_eq!((event.event_type, &*event.path), (EventType::NodeDataChanged, "/zookeeper/config"));
    // The server writes the node twice.
    for _ in 0..2 {
        let event = within_deadline("each event", always.next()).await.unwrap();
        assert_eq!(event.event_type, EventType::NodeDataChanged);
    }
    other.sync("/").await.unwrap();
    assert_eq!(always.try_next(), None);

    let stale = admin.reconfig(leaving("100"), Some(version(&before))).await;
    refused(stale, ErrorKind::BadVersion);
    let left = admin.reconfig(leaving("100"), None).await.unwrap();
    assert_eq!(servers(&left), [1]);
    assert!(version(&left) > version(&joined));

    let own = text(&left).lines().next().unwrap().to_owned();
    let list = format!("{own},{OBSERVER}");
    let listed = admin.reconfig(Reconfig::Members(&list), None).await.unwrap();
    assert_eq!(servers(&listed), [1, 100], "{}", text(&listed));
}

async fn refused_changes_have_the_errors_of_a_real_server(ensemble: Ensemble) {
    let client = super_user(&ensemble, 0).await;
    let before = client.get_config().await.unwrap();
    let unreachable = "server.7=127.0.0.1:1:2:participant;127.0.0.1:3";
    for (change, kind) in [
        (joining("some thing"), ErrorKind::BadArguments),
        (joining("server.7=127.0.0.1:1:2:observer"), ErrorKind::BadArguments),
        (joining("server.7=127.0.0.1:1:1:observer;3"), ErrorKind::BadArguments),
        (joining("server.7=127.0.0.1:1:2:king;3"), ErrorKind::BadArguments),
        (joining("server.x=127.0.0.1:1:2:observer;3"), ErrorKind::MarshallingError),
        (joining("server.7=127.0.0.1:99999:2:observer;3"), ErrorKind::MarshallingError),
        (joining(unreachable), ErrorKind::NewConfigNoQuorum),
        (leaving("x"), ErrorKind::MarshallingError),
        (leaving("1"), ErrorKind::BadArguments),
        (Reconfig::Members("bogus stuff"), ErrorKind::BadArguments),
        (Reconfig::Members(OBSERVER), ErrorKind::MarshallingError),
        (Reconfig::Members(unreachable), ErrorKind::NewConfigNoQuorum),
    ] {
        refused(client.reconfig(change, None).await, kind);
    }
    assert_eq!(client.get_config().await.unwrap().data, before.data);
    let unchanged = client.reconfig(leaving("99"), None).await.unwrap();
    assert_eq!(servers(&unchanged), [1]);
    assert!(version(&unchanged) > version(&before), "a change of nothing is one");
}

/// A member's line of the configuration, with which it can join again.
fn line_of(node: &Node, id: i64, client: &str) -> String {
    let text = text(node);
    let start = format!("server.{id}=");
    let line = text.lines().find(|line| line.starts_with(&start)).unwrap();
    format!("{};{client}", line.split(';').next().unwrap())
}

async fn a_removed_follower_goes_on_as_one_that_does_not_vote(ensemble: Ensemble) {
    let leader = ensemble.leader().await;
    let follower = (leader + 1) % 3;
    let id = i64::try_from(follower).unwrap() + 1;
    let admin = super_user(&ensemble, leader).await;
    let client = ensemble.client_of(follower).await;
    let before = admin.get_config().await.unwrap();
    let removed = admin.reconfig(leaving(&id.to_string()), None).await.unwrap();
    assert_eq!(servers(&removed).len(), 2);
    client.sync("/").await.unwrap();
    assert_eq!(client.get_config().await.unwrap().data, removed.data);
    client.create("/written-there", b"", CreateMode::Persistent).await.unwrap();

    let line = line_of(&before, id, &ensemble.connect_to(follower));
    let added = admin.reconfig(joining(&line), None).await.unwrap();
    assert_eq!(servers(&added), [1, 2, 3]);
    assert!(text(&added).contains(&line), "{}", text(&added));
}

async fn a_removed_leader_is_replaced(ensemble: Ensemble) {
    let leader = ensemble.leader().await;
    let id = i64::try_from(leader).unwrap() + 1;
    let admin = super_user(&ensemble, (leader + 1) % 3).await;
    // The connection may end before the reply.
    let change = admin.reconfig(leaving(&id.to_string()), None).await;
    if let Err(error) = change {
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::ConnectionLoss, Outcome::Unknown));
    }
    eventually("the configuration without it", async || {
        let config = admin.get_config().await.ok()?;
        (!servers(&config).contains(&id)).then_some(())
    })
    .await;
    until("another leader", async || ensemble.leader().await != leader).await;
    eventually("a write", async || {
        admin.create_or_set("/after", b"", CreateMode::Persistent).await.ok()
    })
    .await;
}

async fn stats(client: &Client, of: &str) -> (String, Stat) {
    let path = format!("/zookeeper/quota{of}/zookeeper_stats");
    let node = client.get_data(&path).await.unwrap();
    (text(&node), node.stat)
}

/// Writes a node without the checks of a client.
async fn write_unchecked(server: &str, path: &str, data: &[u8]) {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let handshake = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        time_out: 10_000,
        session_id: 0,
        passwd: Some(&[0; 16]),
        read_only: Some(false),
    };
    let write = SetData(SetDataRequest { path: path.into(), data: Some(data), version: -1 });
    let mut out = Vec::new();
    frame::put_record(&mut out, 1 << 20, &handshake).unwrap();
    frame::put_operation(&mut out, 1 << 20, 1, &write).unwrap();
    stream.write_all(&out).await.unwrap();
    for _ in ["the session", "the reply"] {
        let len = usize::try_from(stream.read_i32().await.unwrap()).unwrap();
        stream.read_exact(&mut vec![0; len]).await.unwrap();
    }
}

// Case (Found in docent itself): the embedded server: statistics of a quota near the largest number
// made it panic, where a real one wraps; one multiRead of 1,000 reads of 1 MB took 1 GB.
async fn quotas_are_counted_and_enforced(ensemble: Ensemble) {
    let client = ensemble.client_of(0).await;
    let create = async |path: &str, data: &[u8]| {
        client.create(path, data, CreateMode::Persistent).await.map(drop)
    };
    let exceeded = |result: Result<(), Error>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::QuotaExceeded);
    };
    create("/q", b"abc").await.unwrap();
    create("/q/x", b"12345").await.unwrap();
    create("/q-beside", b"12345").await.unwrap();
    create("/zookeeper/quota/q", b"").await.unwrap();
    let limits = b"count=4,bytes=20;byteHardLimit=40;countHardLimit=6";
    create("/zookeeper/quota/q/zookeeper_limits", limits).await.unwrap();
    create("/q/before", b"zz").await.unwrap();
    create("/zookeeper/quota/q/zookeeper_stats", b"count=-1,bytes=-1").await.unwrap();
    let (counted, stat) = stats(&client, "/q").await;
    assert_eq!((counted.as_str(), stat.version, stat.mzxid), ("count=3,bytes=10", 0, stat.czxid));

    // Counting does not change the version of the statistics node.
    create("/q/y", b"1234567").await.unwrap();
    assert_eq!(stats(&client, "/q").await.0, "count=4,bytes=17");
    client.set_data("/q/y", b"1", None).await.unwrap();
    client.create("/q/e", b"1", CreateMode::Ephemeral).await.unwrap();
    client.delete("/q/x", None).await.unwrap();
    let (counted, stat) = stats(&client, "/q").await;
    assert_eq!((counted.as_str(), stat.version), ("count=4,bytes=7", 0));

    // The soft limit of the count is reached; the hard limits are enforced, and checked before the version.
    let long = vec![b'x'; 100];
    exceeded(client.set_data("/q/y", &long, None).await.map(drop));
    exceeded(client.set_data("/q/y", &long, Some(99)).await.map(drop));
    create("/q/n0", b"").await.unwrap();
    create("/q/n1", b"").await.unwrap();
    exceeded(create("/q/n2", b"").await);
    let mut transaction = client.transaction();
    transaction.create("/q/m", b"", CreateMode::Persistent);
    exceeded(transaction.commit().await.map(drop));
    assert_eq!(stats(&client, "/q").await.0, "count=6,bytes=7");

    // Only the longest path with a quota counts.
    create("/zookeeper/quota/q/y", b"").await.unwrap();
    create("/zookeeper/quota/q/y/zookeeper_limits", b"count=1,bytes=-1").await.unwrap();
    create("/zookeeper/quota/q/y/zookeeper_stats", b"").await.unwrap();
    create("/q/y/z", b"ab").await.unwrap();
    assert_eq!(stats(&client, "/q").await.0, "count=6,bytes=7");
    assert_eq!(stats(&client, "/q/y").await.0, "count=2,bytes=3");
    client.delete("/zookeeper/quota/q/y/zookeeper_limits", None).await.unwrap();
    exceeded(create("/q/y/w", b"").await);

    let path = "/zookeeper/quota/q/zookeeper_stats";
    client.set_data(path, b"count=1;foo=3,bytes=9", None).await.unwrap();
    create("/q/g", b"ab").await.unwrap();
    assert_eq!(stats(&client, "/q").await.0, "count=2,bytes=11=;foo=3");
    // The largest numbers wrap.
    client.set_data(path, format!("count={0},bytes={0}", i64::MAX).as_bytes(), None).await.unwrap();
    create("/q/wraps", b"ab").await.unwrap();
    let wrapped = format!("count={},bytes={}", i64::MIN, i64::MIN + 1);
    assert_eq!(stats(&client, "/q").await.0, wrapped);
    // The client refuses the write, so it is sent without the client.
    let limits = "/zookeeper/quota/q/zookeeper_limits";
    let error = client.set_data(limits, b"garbage", None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArguments);
    write_unchecked(&ensemble.connect_to(0), limits, b"garbage").await;
    let error = create("/q/h", b"").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MarshallingError);
}
