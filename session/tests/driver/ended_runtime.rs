//! Programs that end without a close: the runtime ends, and the client before, with or after it. Sessions last a
//! minute, so a session that has ended at once was closed.

use docent_protocol::jute::Decode as _;
use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::support::*;

/// The number of runs of each program, so that rare orders of events occur.
const ROUNDS: usize = 20;

fn runtimes() -> [fn() -> Runtime; 2] {
    [
        || Builder::new_current_thread().enable_all().build().unwrap(),
        || Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
    ]
}

/// A server that outlives the clients' runtimes.
struct Stage {
    runtime: Runtime,
    server: TestingServer,
}

impl Stage {
    fn set() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(TestingServer::start()).unwrap();
        Self { runtime, server }
    }

    async fn connect(&self) -> Client {
        self.config().connect().await.unwrap()
    }

    fn config(&self) -> Config {
        let config = Config::new(&self.server.connect_string()).unwrap();
        config.with_session_timeout(ms(60_000))
    }

    /// Waits until there is no session, for much less than the session timeout.
    fn is_left_empty(&self, what: &str) {
        let left = async || self.server.session_ids().is_empty();
        self.runtime.block_on(eventually(what, left));
    }
}

// Case (Found in docent itself): a program that returned early wrote neither the deletes of its
// guards nor closeSession (ten of ten with one thread): its locks lasted for the session timeout.
#[test]
fn a_client_that_goes_right_before_its_runtime_closes_its_session() {
    let stage = Stage::set();
    for runtime in runtimes().into_iter().cycle().take(ROUNDS) {
        let runtime = runtime();
        runtime.block_on(async {
            let client = stage.connect().await;
            drop(client.create("/a", b"", CreateMode::Persistent));
            drop(client.delete("/a", None));
        });
        drop(runtime);
        stage.is_left_empty("a client that went before its runtime");
    }
    assert!(stage.runtime.block_on(async {
        let observer = stage.connect().await;
        observer.exists("/a").await.unwrap().is_none()
    }));
}

/// The runtime drops the driver before or after the tasks that use its client.
#[test]
fn a_client_that_goes_with_its_runtime_closes_its_session() {
    let stage = Stage::set();
    for runtime in runtimes().into_iter().cycle().take(ROUNDS) {
        let runtime = runtime();
        runtime.block_on(async {
            let client = stage.connect().await;
            for _ in 0..3 {
                let client = client.clone();
                tokio::spawn(async move {
                    std::future::pending::<()>().await;
                    drop(client);
                });
            }
            client.create("/a", b"", CreateMode::Ephemeral).await.unwrap();
        });
        drop(runtime);
        stage.is_left_empty("a client in the hands of a task");
    }
}

/// Requests that are queued while the client leaves its server, and would go out on the next connection.
#[test]
fn a_client_that_goes_while_it_moves_leaves_nothing_behind() {
    let stage = Stage::set();
    let observer = stage.runtime.block_on(stage.connect());
    for _ in 0..ROUNDS {
        // With one thread, the driver does not move before the end.
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = stage.connect().await;
            client.create("/a", b"", CreateMode::Persistent).await.unwrap();
            client.update_server_list("127.0.0.1:1").unwrap();
            drop(client.delete("/a", None));
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(client);
            });
        });
        drop(runtime);
        stage.runtime.block_on(async {
            eventually("the delete", async || observer.exists("/a").await.unwrap().is_none()).await;
            observer.sync("/").await.unwrap();
        });
    }
    stage.runtime.block_on(observer.close()).unwrap();
    stage.is_left_empty("a client that was moving");
}

/// No replies will arrive any more that could make room for the waiting requests.
// Case (Found in docent itself): a program that ended while its requests waited for room in flight
// wrote no closeSession, nor what waited.
#[test]
fn a_client_that_goes_with_a_full_line_closes_its_session() {
    let stage = Stage::set();
    let observer = stage.runtime.block_on(stage.connect());
    for runtime in runtimes().into_iter().cycle().take(ROUNDS) {
        let runtime = runtime();
        runtime.block_on(async {
            let config = stage.config().with_when_full(WhenFull::Wait).with_max_requests(1);
            let client = config.connect().await.unwrap();
            for _ in 0..20 {
                drop(client.create("/a", b"", CreateMode::Persistent));
                drop(client.delete("/a", None));
            }
            drop(client);
        });
        drop(runtime);
        stage.runtime.block_on(async {
            let closed = async || stage.server.session_ids().len() == 1;
            eventually("the end of the session", closed).await;
            assert!(observer.exists("/a").await.unwrap().is_none());
        });
    }
}

/// A panic in `main` unwinds through the runtime.
#[test]
fn a_panic_that_takes_client_and_runtime_along_closes_the_session() {
    let stage = Stage::set();
    for runtime in runtimes() {
        let died = std::thread::scope(|scope| {
            let program = scope.spawn(|| {
                runtime().block_on(async {
                    let _client = stage.connect().await;
                    panic!("on purpose");
                });
            });
            program.join()
        });
        assert!(died.is_err());
        stage.is_left_empty("a program that panicked");
    }
}

/// A session that is not closed stays: another process may continue it.
#[test]
fn a_session_that_was_detached_is_not_closed_by_the_end_of_the_runtime() {
    let stage = Stage::set();
    for runtime in runtimes() {
        let runtime = runtime();
        let token = runtime.block_on(async { stage.connect().await.detach().unwrap() });
        drop(runtime);
        stage.runtime.block_on(async {
            let config = stage.config().with_session(token.clone());
            let heir = config.connect().await.unwrap();
            assert_eq!(heir.session().unwrap().session_id(), token.session_id());
            heir.close().await.unwrap();
        });
    }
}

/// The program that has the client still relies on its session.
#[test]
fn a_client_that_outlives_its_runtime_keeps_its_session() {
    let stage = Stage::set();
    let observer = stage.runtime.block_on(stage.connect());
    for runtime in runtimes() {
        let runtime = runtime();
        let client = runtime.block_on(async {
            let client = stage.connect().await;
            client.create("/a", b"", CreateMode::Ephemeral).await.unwrap();
            client
        });
        let lease = client.session().unwrap();
        drop(runtime);
        assert!(lease.is_lost(), "nothing renews it any more");
        stage.runtime.block_on(async {
            assert!(observer.exists("/a").await.unwrap().is_some());
            client.get_data("/a").await.unwrap_err();
            assert!(stage.server.expire_session(lease.session_id()));
        });
        drop(client);
    }
}

/// Grants a session on a real socket, and returns it behind two requests.
fn grant_and_read_two(listener: &TcpListener) -> TcpStream {
    let mut stream = listener.accept().unwrap().0;
    let read = |mut stream: &TcpStream| {
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        stream.read_exact(&mut payload).unwrap();
    };
    read(&stream);
    let mut out = Vec::new();
    frame::put_record(&mut out, usize::MAX, &granted(7, 60_000)).unwrap();
    stream.write_all(&out).unwrap();
    read(&stream);
    read(&stream);
    stream
}

/// A socket that is closed before a reply was read resets the connection. A server that writes to it then may not read
/// closeSession any more.
// Case (Found in docent itself): a program that returned early with requests in flight closed its
// socket before their replies: the connection was reset, the server did not read closeSession, and
// the session stayed (1 to 12 of 100, with a runtime of several threads).
#[test]
fn a_connection_is_not_reset_behind_its_last_request() {
    for outlives in [false, true] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let config = Config::new(&listener.local_addr().unwrap().to_string()).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (client, mut stream) = runtime.block_on(async {
            let server = tokio::task::spawn_blocking(move || grant_and_read_two(&listener));
            let client = config.connect().await.unwrap();
            drop(client.delete("/a", None));
            drop(client.delete("/b", None));
            (client, server.await.unwrap())
        });
        // The client's task does not run any more, so nothing reads the reply.
        stream.write_all(&reply(1, 1, ErrorCode::NoNode, &[])).unwrap();
        if outlives {
            drop(runtime);
            drop(client);
        } else {
            drop(client);
            drop(runtime);
        }
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        let (payload, _) = frame::split(&rest, usize::MAX).unwrap().expect("closeSession");
        let header = RequestHeader::decode(&mut Reader::new(payload)).unwrap();
        assert_eq!(header.op, OpCode::CloseSession, "{outlives}");
    }
}
