//! A server that sends the events of a recursive watch with the path of the watch, as ClickHouse Keeper does
//! (ClickHouse #115475). The cache notices it and uses one-shot watches in that session.

use std::{fmt, sync::Arc, time::Duration};

use bytes::{Buf, BufMut, BytesMut};
use docent::session::{Connecting, Host, Transport};
use docent::{CacheOptions, Client, Clock, Config, CreateMode, CuratorCache, EventType};
use docent_testing::{
    TestingServer,
    server::{self, Version},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex, split};

use crate::{
    expect, expect_all, list,
    support::{eventually, in_process},
};

/// Connections to a server in this process, with the path `/r` in the events of all nodes below it, as long as the
/// session has a recursive watch.
struct WrongPaths(Arc<TestingServer>);

impl fmt::Debug for WrongPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WrongPaths")
    }
}

impl Transport for WrongPaths {
    fn connect<'a>(&'a self, _: &'a Host, _: Duration) -> Connecting<'a> {
        Box::pin(async move {
            let server = self.0.connect().ok_or(std::io::ErrorKind::ConnectionRefused)?;
            let (ours, theirs) = duplex(1 << 20);
            tokio::spawn(forward(server, theirs));
            Ok(Box::new(ours) as _)
        })
    }
}

async fn forward(server: DuplexStream, client: DuplexStream) {
    let (mut from_server, mut to_server) = split(server);
    let (mut from_client, mut to_client) = split(client);
    let up = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    };
    let down = async {
        let mut input = BytesMut::new();
        while let Ok(1..) = from_server.read_buf(&mut input).await {
            while let Some(frame) = frame(&mut input) {
                if to_client.write_all(&frame).await.is_err() {
                    return;
                }
            }
        }
    };
    tokio::select! { () = up => {}, () = down => {} }
}

/// The next frame, as this server sends it.
fn frame(input: &mut BytesMut) -> Option<BytesMut> {
    let len = usize::try_from(u32::from_be_bytes(*input.first_chunk()?)).unwrap();
    if input.len() < 4 + len {
        return None;
    }
    let frame = input.split_to(4 + len);
    let mut body = &frame[4..];
    // An event: xid -1, zxid, error, type, state, path. Only recursive watches send the creation of a node that was not
    // read, and only they send events below `/r` in this test until it has noticed.
    if len < 28 || body.get_i32() != -1 {
        return Some(frame);
    }
    body.advance(12);
    let event_type = body.get_i32();
    body.advance(8);
    if event_type == EventType::NodeChildrenChanged.number() || !body.starts_with(b"/r/rec") {
        return Some(frame);
    }
    let mut wrong = BytesMut::new();
    wrong.put_u32(28 + 2);
    wrong.extend_from_slice(&frame[4..28]);
    wrong.put_u32(2);
    wrong.extend_from_slice(b"/r");
    Some(wrong)
}

#[tokio::test(start_paused = true)]
async fn events_with_the_path_of_the_watch_are_noticed_once_in_a_session() {
    let config = server::Config { version: Version::V3_8, ..Default::default() };
    let server = Arc::new(TestingServer::start_with(config).await.unwrap());
    let writer = in_process::client(&server).await;
    let make = async |path: &str, data: &str| {
        writer.create(path, data.as_bytes(), CreateMode::Persistent).await.unwrap();
    };
    make("/r", "root").await;
    make("/r/rec", "A").await;
    make("/r/rec2", "B").await;
    let config = Config::new("in-process:2181").unwrap().with_clock(Clock::tokio());
    let config = config.with_transport(WrongPaths(Arc::clone(&server)));
    let client: Client = config.connect().await.unwrap();
    let options = CacheOptions::default();
    let (cache, mut events) = CuratorCache::start_with_events(&client, "/r", options).unwrap();
    let wanted = ["created  0 root", "created /rec 0 A", "created /rec2 0 B"];
    expect_all(&mut events, "/r", &wanted, "initialized 3").await;
    // A deletion, reported as that of the root: the tree stays.
    writer.delete("/r/rec", None).await.unwrap();
    expect_all(&mut events, "/r", &["stale", "deleted /rec 0 A"], "resynced 2").await;
    // From here on, one-shot watches.
    assert!(client.session().is_some_and(|lease| lease.lacks(docent::OpCode::AddWatch)));
    make("/r/n", "N").await;
    expect(&mut events, "/r", &["created /n 0 N"]).await;
    writer.set_data("/r/n", b"N2", None).await.unwrap();
    expect(&mut events, "/r", &["changed /n 1 N2 was 0 N"]).await;
    assert_eq!(list(&cache, "/r"), [" 0 root", "/n 1 N2", "/rec2 0 B"]);
    let second = CuratorCache::start(&client, "/r").unwrap();
    second.initialized().await.unwrap();
    assert_eq!(second.len(), 3);
    writer.delete("/r/n", None).await.unwrap();
    eventually("both", async || (cache.len() == 2 && second.len() == 2).then_some(())).await;
}
