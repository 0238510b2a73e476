//! Methods that send several requests: each request, each race with another client, and each lost reply.

use Answer::{Children, Created, Empty, Fails};
use docent_session::retry::{RetryForever, RetryNTimes, RetryPolicy, Verdict};
use tokio::task::JoinHandle;

use super::*;
use crate::support::*;
mod create;
mod delete_recursive;
mod retry;
mod wait;
/// Runs a call of the client beside the test. This also proves that its future can be sent to another thread.
fn run<R, F>(client: &Client, call: impl FnOnce(Client) -> F) -> JoinHandle<R>
where
    R: Send + 'static,
    F: Future<Output = R> + Send + 'static,
{
    tokio::spawn(call(client.clone()))
}
async fn result<R>(what: &str, call: JoinHandle<R>) -> R {
    within_limit(what, call).await.unwrap()
}
/// The reply to a request.
#[derive(Clone, Copy)]
enum Answer<'a> {
    Created,
    Stat,
    Children(&'a [&'a str]),
    Empty,
    Fails(ErrorCode),
}

impl Conn {
    /// The next request, which must be `op` of `path`.
    async fn expect(&mut self, op: &str, path: &str) -> (i32, String) {
        let (xid, request) = self.request().await;
        let of_path = format!("path: {path:?}");
        assert!(request.starts_with(op) && request.contains(&of_path), "{op} {path}: {request}");
        (xid, request)
    }

    /// Loses the connection behind this request; returns the next one of the same session.
    async fn lose_reply(mut self, op: &str, path: &str, net: &mut Net) -> Self {
        self.expect(op, path).await;
        drop(self);
        net.serve(7).await.0
    }

    async fn answer(&mut self, xid: i32, path: &str, answer: Answer<'_>) {
        let (code, body) = match answer {
            Created => (ErrorCode::Ok, encoded(&PathReply { path: path.into() })),
            Answer::Stat => (ErrorCode::Ok, stat_body()),
            Children(names) => {
                let names: Vec<_> = names.iter().map(|name| (*name).into()).collect();
                (ErrorCode::Ok, encoded(&GetChildrenReply { children: (&names[..]).into() }))
            }
            Empty => (ErrorCode::Ok, Vec::new()),
            Fails(code) => (code, Vec::new()),
        };
        self.reply(xid, 9, code, &body).await;
    }

    /// Answers the next requests, which must be these.
    async fn script(&mut self, steps: &[(&str, &str, Answer<'_>)]) {
        for (op, path, answer) in steps {
            let (xid, _) = self.expect(op, path).await;
            self.answer(xid, path, *answer).await;
        }
    }
}

const TWICE: RetryNTimes = RetryNTimes::new(2, ms(500));

const NO_NODE: Answer<'_> = Fails(ErrorCode::NoNode);
const NODE_EXISTS: Answer<'_> = Fails(ErrorCode::NodeExists);
const NOT_EMPTY: Answer<'_> = Fails(ErrorCode::NotEmpty);
const NO_AUTH: Answer<'_> = Fails(ErrorCode::NoAuth);

// Case (Contracts of a call): a read-only server.
#[tokio::test]
async fn methods_that_only_read_work_on_a_read_only_server() {
    let config = docent_testing::server::Config {
        read_only: true,
        local_sessions_enabled: true,
        ..Default::default()
    };
    let server = docent_testing::TestingServer::start_with(config).await.unwrap();
    let config = docent_session::Config::new(&server.connect_string()).unwrap();
    let client = config.with_read_only(true).connect().await.unwrap();
    let mode = CreateMode::Persistent;
    client.ensure_path("/zookeeper", mode).await.unwrap();
    client.ensure_path("/zookeeper/quota", mode).await.unwrap();
    client.wait_until_exists("/zookeeper").await.unwrap();
    client.wait_until_deleted("/none").await.unwrap();
    let read_only = (ErrorKind::NotReadOnly, Outcome::NotApplied);
    assert_eq!(
        refusal(client.create("/a/b", b"", CreateOptions::new(mode).with_parents()).await),
        read_only
    );
    assert_eq!(refusal(client.ensure_path("/a/b", mode).await), read_only);
    assert_eq!(refusal(client.create_or_set("/zookeeper", b"", mode).await), read_only);
    assert_eq!(refusal(client.delete_recursive("/none").await), read_only);
    let write = client.retry(&TWICE, || client.set_data("/zookeeper", b"", None));
    assert_eq!(refusal(write.await), read_only);
}

// Case (Caches): an expected error, of a call that sends several requests too.
#[tokio::test(start_paused = true)]
async fn one_kind_of_error_is_allowed_and_no_other() {
    let (client, mut conn, _net) = connected().await;
    let allowed = [
        client.get_data("/1").allow(ErrorKind::NoNode),
        client.get_data("/2").allow(ErrorKind::NoNode),
        client.get_data("/3").allow(ErrorKind::NoNode),
        client.get_data("//").allow(ErrorKind::InvalidPath),
    ];
    let watch = client.get_data_and_watch("/4").allow(ErrorKind::NoNode);
    conn.answer_data(b"x").await;
    conn.script(&[
        ("GetData", "/2", NO_NODE),
        ("GetData", "/3", NO_AUTH),
        ("GetData", "/4", NO_NODE),
    ])
    .await;
    let [found, missing, refused, invalid] = allowed;
    assert_eq!(within_limit("one", found).await.unwrap().unwrap().data, "x");
    assert_eq!(within_limit("two", missing).await.unwrap(), None);
    assert_eq!(
        refusal(within_limit("three", refused).await),
        (ErrorKind::NoAuth, Outcome::NotApplied)
    );
    assert_eq!(within_limit("invalid", invalid).await.unwrap(), None);
    assert!(within_limit("four", watch).await.unwrap().is_none());
    assert_eq!(client.metrics().watches, 0);
    let several = client.delete_recursive("/").allow(ErrorKind::BadArguments);
    assert_eq!(within_limit("several", several).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_chrooted_clone_is_the_same_session_below_another_path() {
    let (client, mut conn, _net) = connected().await;
    let app = client.with_chroot("/app").unwrap();
    let nested = app.with_chroot("/x/y").unwrap();
    assert_eq!(
        (client.chroot(), app.chroot(), nested.chroot()),
        (None, Some("/app"), Some("/app/x/y"))
    );
    assert_eq!(app.with_chroot("/").unwrap().chroot(), Some("/app"));
    for (handle, path, whole) in [(&nested, "/a", "/app/x/y/a"), (&app, "/", "/app")] {
        let call = handle.exists_and_watch(path);
        conn.script(&[("Exists", whole, NO_NODE)]).await;
        let (_, mut watcher) = within_limit("the read", call).await.unwrap();
        assert_eq!(watcher.path(), path);
        conn.event(EventType::NodeCreated, whole).await;
        assert_eq!(&*within_limit("the event", watcher.next()).await.unwrap().path, path);
    }
    let call = nested.create("/a", b"", CreateMode::Ephemeral);
    conn.script(&[("Create", "/app/x/y/a", Created)]).await;
    assert_eq!(within_limit("the create", call).await.unwrap(), "/a");
    let call = nested.get_data("/");
    conn.script(&[("GetData", "/app/x/y", NO_NODE)]).await;
    assert_eq!(within_limit("the root", call).await.unwrap_err().path(), Some("/"));
    // The last handle ends the session.
    drop((client, app));
    let call = nested.sync("/");
    let (xid, _) = conn.expect("Sync", "/app/x/y").await;
    conn.reply(xid, 9, ErrorCode::Ok, &encoded(&PathReply { path: "/app/x/y".into() })).await;
    within_limit("sync", call).await.unwrap();
    drop(nested);
    conn.confirm_close().await;
}
