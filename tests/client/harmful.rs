//! Writes that would stop a server are refused, and nothing is sent. Only on the embedded server: a real one that
//! received one of them would not start again.

use docent_protocol::{
    operation::{ApplicationOperation, Create, Multi, SetData, Write},
    request::SetDataRequest,
};

use super::*;

const ROOT: &str = "/zookeeper/quota/zookeeper_limits";
const LIMITS: &str = "/zookeeper/quota/app/zookeeper_limits";
const STATS: &str = "/zookeeper/quota/app/zookeeper_stats";
const NUMBERS: &[u8] = b"count=5,bytes=-1";

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, op: OpCode, path: &str) {
    let error = result.unwrap_err();
    let found = (error.kind(), error.outcome(), error.operation(), error.path());
    assert_eq!(found, (ErrorKind::BadArguments, Outcome::NotApplied, Some(op), Some(path)));
    assert!(error.to_string().contains("stops the server"), "{error}");
}

async fn submitted(client: &Client, operation: &impl ApplicationOperation) -> Result<(), Error> {
    client.submit(operation).await.map(drop)
}

// Case (Found in docent itself): the client could stop a real server for good: it sent the create
// of `/zookeeper/quota/zookeeper_limits`, and statistics of a quota that are not numbers.
#[tokio::test]
async fn a_write_that_stops_a_server_is_not_sent() {
    let fixture = Fixture::embedded().await;
    let (client, _tap) = fixture.client("A").await;
    let mode = CreateMode::Persistent;
    for path in ["/app", "/zookeeper/quota/app"] {
        client.create(path, b"", mode).await.unwrap();
    }
    client.create(LIMITS, NUMBERS, mode).await.unwrap();
    client.create(STATS, b"", mode).await.unwrap();

    let before = fixture.tap.len();
    let acl = acl::OPEN_ACL_UNSAFE;
    refused(client.create(ROOT, NUMBERS, mode).await, OpCode::Create, ROOT);
    refused(client.create_with_stat(ROOT, NUMBERS, mode).await, OpCode::Create2, ROOT);
    let container = CreateMode::Container;
    refused(client.create(ROOT, NUMBERS, container).await, OpCode::CreateContainer, ROOT);
    refused(client.create(LIMITS, b"many", mode).await, OpCode::Create, LIMITS);
    for data in [&b""[..], b"many", b"count=1,bytes", b"count=99999999999999999999,bytes=1"] {
        refused(client.set_data(STATS, data, None).await, OpCode::SetData, STATS);
        refused(client.set_data(LIMITS, data, None).await, OpCode::SetData, LIMITS);
    }
    // The same writes below a chroot, and as operations.
    let below = client.with_chroot("/zookeeper/quota").unwrap();
    let path = "/zookeeper_limits";
    refused(below.create(path, NUMBERS, mode).await, OpCode::Create, path);
    let create = Create::new(ROOT, Some(NUMBERS), acl, mode);
    refused(submitted(&client, &create).await, OpCode::Create, "");
    let write = SetData(SetDataRequest { path: STATS.into(), data: None, version: -1 });
    refused(submitted(&client, &write).await, OpCode::SetData, "");
    let multi: Multi = [Write::set_data(STATS, Some(b"many"), -1)].iter().collect();
    refused(submitted(&client, &multi).await, OpCode::Multi, "");

    let mut transaction = client.transaction();
    transaction.check("/app", None).set_data(STATS, b"many", None).create(ROOT, NUMBERS, mode);
    let error = transaction.commit().await.unwrap_err();
    assert_eq!(error.index(), Some(1));
    refused::<()>(Err(error), OpCode::SetData, STATS);
    assert_eq!(fixture.sent("A", before), []);

    // Other writes still work, also in a transaction that was cleared.
    transaction.clear();
    transaction.set_data(STATS, NUMBERS, None).commit().await.unwrap();
    client.set_data(LIMITS, b"count=9,bytes=-1=;byteHardLimit=5", None).await.unwrap();
    client.create("/app/zookeeper_stats", b"many", mode).await.unwrap();
}

#[tokio::test]
async fn a_chroot_in_the_connect_string_hides_no_harmful_write() {
    let fixture = Fixture::embedded().await;
    let client = Client::connect(&format!("{}/zookeeper", fixture.server)).await.unwrap();
    let path = "/quota/zookeeper_limits";
    refused(client.create(path, NUMBERS, CreateMode::Persistent).await, OpCode::Create, path);
}
