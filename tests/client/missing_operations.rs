//! Servers of every version: a missing operation is detected once in a session, refused with the version that it
//! requires, and replaced where possible.

use super::*;

/// The operations that were added in 3.5 and later, with the version of each.
const OPERATIONS: [(OpCode, Version, &str); 10] = [
    (OpCode::Create2, Version::V3_5, "ZooKeeper 3.5.0"),
    (OpCode::CheckWatches, Version::V3_5, "ZooKeeper 3.5.0"),
    (OpCode::RemoveWatches, Version::V3_5, "ZooKeeper 3.5.0"),
    (OpCode::CreateContainer, Version::V3_5, "ZooKeeper 3.5.1"),
    (OpCode::CreateTtl, Version::V3_5, "ZooKeeper 3.5.3"),
    (OpCode::MultiRead, Version::V3_6, "ZooKeeper 3.6.0"),
    (OpCode::GetEphemerals, Version::V3_6, "ZooKeeper 3.6.0"),
    (OpCode::GetAllChildrenNumber, Version::V3_6, "ZooKeeper 3.6.0"),
    (OpCode::AddWatch, Version::V3_6, "ZooKeeper 3.6.0"),
    (OpCode::WhoAmI, Version::V3_8, "ZooKeeper 3.7.0"),
];

async fn call(client: &Client, op: OpCode) -> Result<(), Error> {
    let path = format!("/{op}-");
    let ttl = CreateMode::PersistentSequentialWithTtl(Ttl::from_millis(60_000).unwrap());
    match op {
        OpCode::Create2 => {
            client.create_with_stat(&path, b"", CreateMode::PersistentSequential).await.map(drop)
        }
        OpCode::CheckWatches => client.check_watches("/", WatcherType::Data).await,
        OpCode::RemoveWatches => client.remove_watches("/", WatcherType::Data).await,
        OpCode::CreateContainer => {
            let created = client.create(&path, b"", CreateMode::Container).await.map(drop);
            client.delete(&path, None).await.ok();
            created
        }
        OpCode::CreateTtl => client.create(&path, b"", ttl).await.map(drop),
        OpCode::MultiRead => client.multi_read(&[Read::GetData("/")]).await.map(drop),
        OpCode::GetEphemerals => client.get_ephemerals("/").await.map(drop),
        OpCode::GetAllChildrenNumber => client.get_all_children_number("/").await.map(drop),
        OpCode::AddWatch => client.add_watch("/", AddWatchMode::Persistent).await.map(drop),
        OpCode::WhoAmI => client.who_am_i().await.map(drop),
        _ => panic!("{op}"),
    }
}

#[tokio::test]
async fn a_missing_operation_is_sent_once_to_each_version() {
    for version in Version::ALL {
        for (op, since, requires) in OPERATIONS {
            let fixture = Fixture::of_version(version).await;
            let (client, _tap) = fixture.client("A").await;
            let session = session_id(&client);
            let context = format!("{op} on {version}");
            for round in 0..3 {
                let result = within_deadline(&context, call(&client, op)).await;
                if version >= since {
                    let missing = result.err().filter(|e| e.kind() != ErrorKind::NoWatcher);
                    assert_eq!(missing, None, "{context}");
                    continue;
                }
                let error = result.unwrap_err();
                let found = (error.kind(), error.outcome(), error.operation());
                let expected = (ErrorKind::Unimplemented, Outcome::NotApplied, Some(op));
                assert_eq!(found, expected, "{context}, round {round}");
                assert!(error.to_string().contains(requires), "{error}");
            }
            let lacks = version < since;
            assert_eq!(fixture.requests(0, op), if lacks { 1 } else { 3 }, "{context}");
            client.exists("/").await.unwrap();
            assert_eq!(client.metrics().connections, 1 + u64::from(lacks), "{context}");
            assert_eq!(session_id(&client), session, "{context}");
        }
    }
}
