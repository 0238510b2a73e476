//! Servers that are absent, refuse, send something else, or stay silent: an error or another attempt after a
//! pause, never a hang without limit, never a busy loop.

use docent_protocol::{
    List, Ttl,
    multi::{MultiReply, MultiResult},
    reply::Create2Reply,
};
use docent_session::TransactionResult;

use super::*;
use crate::support::*;

/// More than the pauses allow in a minute: the first pauses are short, then there is one in 2.5 to 5 s.
const ATTEMPTS_IN_A_MINUTE: usize = 40;

async fn a_minute() {
    tokio::time::sleep(ms(60_000)).await;
}

/// The server closes the connection, sends a first frame that is not a handshake, or refuses the session. The error
/// says so, and the next attempt follows after a pause.
// Case (Pitfalls of the wire, 8): a first frame that is no handshake.
// Case (What broke other clients): ten thousand connects in a second.
// Case (Failure cases, 5): HTTP, TLS, rubbish for a handshake.
#[tokio::test(start_paused = true)]
async fn a_server_of_another_kind_is_named_and_left_alone() {
    let mut refused = Vec::new();
    frame::put_record(&mut refused, usize::MAX, &granted(0, 0)).unwrap();
    for (bytes, named) in [
        (&b""[..], "closed the connection"),
        (&refused, "refused"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP/1.1 400"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH-2.0"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "handshake"),
        (b"-ERR unknown command\r\n", "-ERR"),
        (&[0xFF; 12], "length -1"),
        (&[0, 0, 0, 0], "handshake"),
        (&[0, 0, 0, 5, 1, 2, 3, 4, 5], "handshake"),
        (&[0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9], "handshake"),
    ] {
        let (dialer, mut net) = net();
        let client = start(config(), dialer);
        let counter = net.counter();
        let answer = bytes.to_vec();
        let server = tokio::spawn(async move {
            loop {
                let mut conn = net.accept().await;
                conn.handshake().await;
                conn.send_bytes(&answer).await;
                if !answer.is_empty() {
                    assert_eq!(conn.maybe_request().await, None);
                }
            }
        });
        a_minute().await;
        let count = counter();
        assert!((5..ATTEMPTS_IN_A_MINUTE).contains(&count), "{count} attempts for {bytes:?}");
        let error = client.wait_until_connected(ms(100)).await.unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
        assert_eq!(client.state().get(), Some(ConnectionState::Suspended), "never LOST");
        server.abort();
    }
}

/// A half-open connection takes no bytes from the client.
#[tokio::test(start_paused = true)]
async fn a_connection_that_takes_nothing_is_left_too() {
    let (dialer, mut net) = net_with_capacity(64);
    let client = start(config(), dialer);
    let (conn, _) = net.serve(7).await;
    client.wait_until_connected(LONG).await.unwrap();
    let begin = stopwatch();
    let calls: Vec<_> = (0..10).map(|_| client.get_data("/a")).collect();
    let again = net.accept().await;
    let waited = begin.elapsed();
    assert!(waited >= ms(3900) && waited < ms(4300), "{waited:?}");
    for call in calls {
        assert_eq!(refusal(within_limit("a call", call).await).0, ErrorKind::ConnectionLoss);
    }
    drop((conn, again));
}

/// A reply with an invalid body fails its own request; later frames are read as before.
#[tokio::test(start_paused = true)]
async fn a_reply_that_cannot_be_read_fails_only_its_own_request() {
    let (client, mut conn, net) = connected().await;
    for body in [&[][..], &[0, 0, 0, 9, 1], &[0x7F, 0xFF, 0xFF, 0xFF], &[0xFF; 3]] {
        let bad = client.get_children("/a");
        let good = client.get_data("/a");
        conn.reply_next(5, ErrorCode::Ok, body).await;
        conn.answer_data(b"x").await;
        assert_eq!(refusal(within_limit("the bad one", bad).await).0, ErrorKind::BadReply);
        within_limit("the good one", good).await.unwrap();
    }
    assert_eq!(net.attempts(), 1);
}

/// The error names the operation, and other requests continue.
// Case (Found in docent itself): a bad answer to a multi read was named as one to a multi.
#[tokio::test(start_paused = true)]
async fn a_bad_answer_to_several_operations_names_the_operations() {
    let (client, mut conn, _net) = connected().await;
    let reads = client.multi_read(&[Read::GetData("/a")]);
    let writes = client.transaction().delete("/a", None).commit();
    // A list without results.
    let end = [0xFF, 0xFF, 0xFF, 0xFF, 1, 0xFF, 0xFF, 0xFF, 0xFF];
    for body in [&[], &end[..]] {
        conn.reply_next(9, ErrorCode::Ok, body).await;
    }
    let error = within_limit("the reads", reads).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::BadReply, Some(OpCode::MultiRead)));
    let error = within_limit("the writes", writes).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::BadReply, Some(OpCode::Multi)));
    assert!(error.to_string().contains("0 results for 1 operations"), "{error}");
}

/// A create is answered by either result of a create (ZOOKEEPER-4026), every other operation by its own.
// Case (Found in docent itself): results of a transaction or a multiRead of the wrong kind were
// accepted.
#[tokio::test(start_paused = true)]
async fn the_result_of_another_operation_is_no_result() {
    use MultiResult as Result;
    let (client, mut conn, _net) = connected().await;
    let stat = Stat::default();
    let results = [
        Result::Create(PathReply { path: "/a".into() }),
        Result::Create2(Create2Reply { path: "/a".into(), stat }),
        Result::Delete,
        Result::SetData(StatReply { stat }),
        Result::Check,
        Result::GetData(GetDataReply { data: None, stat }),
        Result::GetChildren(GetChildrenReply { children: List::new(&[]) }),
        Result::Error(ErrorCode::Ok),
    ];
    let ttl = CreateMode::PersistentWithTtl(Ttl::from_duration(ms(9)).unwrap());
    let modes = [CreateMode::Persistent, CreateMode::Container, ttl];
    let mut writes = modes
        .map(|mode| (client.transaction(), mode))
        .map(|(mut write, mode)| {
            write.create("/a", b"", mode);
            (write, &[0, 1][..])
        })
        .to_vec();
    for (index, accepted) in [(0, &[2][..]), (1, &[3]), (2, &[4])] {
        let mut write = client.transaction();
        match index {
            0 => write.delete("/a", None),
            1 => write.set_data("/a", b"", None),
            _ => write.check("/a", None),
        };
        writes.push((write, accepted));
    }
    for (index, result) in results.iter().enumerate() {
        for (write, accepted) in &writes {
            let call = write.commit();
            conn.reply_next(9, ErrorCode::Ok, &several(&[*result])).await;
            let reply = within_limit("the writes", call).await.map_err(|error| error.kind());
            let is_accepted = accepted.contains(&index);
            assert_eq!(reply.is_ok(), is_accepted, "{write:?}: {result:?}");
            assert!(is_accepted || reply == Err(ErrorKind::BadReply), "{reply:?}");
        }
        for (read, accepted) in [(Read::GetData("/a"), 5), (Read::GetChildren("/a"), 6)] {
            let call = client.multi_read(&[read]);
            conn.reply_next(9, ErrorCode::Ok, &several(&[*result])).await;
            let reply = within_limit("the reads", call).await.map(|mut reads| reads.remove(0));
            let is_accepted = matches!(reply, Ok(Ok(_)));
            assert_eq!(is_accepted, index == accepted, "{read:?}: {result:?}");
        }
    }
}

/// The path of a sequential node ends with digits, and that of another node is the requested one; both are below the
/// chroot.
#[tokio::test(start_paused = true)]
async fn the_path_in_the_reply_to_a_create_is_the_one_asked_for() {
    use CreateMode::{Persistent, PersistentSequential as Sequential};
    let (client, mut conn, _net) = connected().await;
    let below = client.with_chroot("/c").unwrap();
    for (client, path, mode, reply, created) in [
        (&client, "/a", Persistent, "/a", Some("/a")),
        (&client, "/a", Persistent, "/b", None),
        (&client, "/a", Persistent, "/a0000000001", None),
        (&client, "/a", Persistent, "", None),
        (&client, "/a", Sequential, "/a0000000001", Some("/a0000000001")),
        (&client, "/a", Sequential, "/a-2147483648", Some("/a-2147483648")),
        (&client, "/", Sequential, "/0000000001", Some("/0000000001")),
        (&client, "/a", Sequential, "/a", None),
        (&client, "/a", Sequential, "/b0000000001", None),
        (&client, "/a", Sequential, "/a/0000000001", None),
        (&below, "/a", Persistent, "/c/a", Some("/a")),
        (&below, "/a", Persistent, "/a", None),
        (&below, "/a", Persistent, "/ca", None),
        (&below, "/", Sequential, "/c/0000000001", Some("/0000000001")),
        (&below, "/", Sequential, "/0000000001", None),
    ] {
        let check = |outcome: Result<String, Error>| match (outcome, created) {
            (Ok(path), Some(created)) => assert_eq!(path, created),
            (Err(error), None) => {
                assert_eq!(
                    (error.kind(), error.outcome()),
                    (ErrorKind::BadReply, Outcome::Unknown)
                );
                assert!(error.to_string().contains(path), "{error}");
            }
            (outcome, _) => panic!("{path}, {mode:?}, {reply}: {outcome:?}"),
        };
        let stat = Stat::default();
        let with_path = PathReply { path: reply.into() };
        let with_stat = Create2Reply { path: reply.into(), stat };
        let call = client.create(path, b"", mode);
        conn.reply_next(9, ErrorCode::Ok, &encoded(&with_path)).await;
        check(within_limit("create", call).await);
        let call = client.create_with_stat(path, b"", mode);
        conn.reply_next(9, ErrorCode::Ok, &encoded(&with_stat)).await;
        check(within_limit("create2", call).await.map(|(path, _)| path));
        for result in [MultiResult::Create(with_path), MultiResult::Create2(with_stat)] {
            let call = client.transaction().create(path, b"", mode).commit();
            conn.reply_next(9, ErrorCode::Ok, &several(&[result])).await;
            check(within_limit("multi", call).await.map(|mut results| match results.remove(0) {
                TransactionResult::Created { path, .. } => path,
                other => panic!("{other:?}"),
            }));
        }
    }
}

fn several(results: &[MultiResult<'_>]) -> Vec<u8> {
    encoded(&MultiReply::new(results))
}
