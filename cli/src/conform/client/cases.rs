//! The cases: what the server does to the client, and what the client may do then.

use std::{future::Future, pin::Pin, time::Duration};

use docent_conform::Level;
use docent_protocol::OpCode;
use docent_testing::{
    fault::{Action, Fault},
    tap::Direction,
};

use super::{
    driver::Answer,
    judgement::{Finding, Judged},
    replies::{
        behind_event, of_another_request, with_body, with_children, with_data, with_err,
        with_length,
    },
    stage::{DATA, NODE, Stage, no_case, said},
};

type Playing<'a> = Pin<Box<dyn Future<Output = Judged> + Send + 'a>>;

/// A case.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    /// `GROUP/NAME`.
    pub(super) id: &'static str,
    pub(super) level: Level,
    /// What the server does, and what the client shall do.
    pub(super) about: &'static str,
    /// Where it comes from: a class and method of ZooKeeper's client, or an issue.
    pub(super) source: &'static str,
    /// Plays the case; the driver is connected, unless the case is about connecting.
    pub(super) play: fn(&mut Stage) -> Playing<'_>,
}

const fn must(
    id: &'static str,
    about: &'static str,
    source: &'static str,
    play: fn(&mut Stage) -> Playing<'_>,
) -> Case {
    Case { id, level: Level::Must, about, source, play }
}

const fn should(
    id: &'static str,
    about: &'static str,
    source: &'static str,
    play: fn(&mut Stage) -> Playing<'_>,
) -> Case {
    Case { level: Level::Should, ..must(id, about, source, play) }
}

impl Case {
    /// Whether the case is about connecting, and so begins without a connection.
    pub(super) fn is_about_connecting(&self) -> bool {
        self.id.starts_with("connect/")
    }
}

/// The read of the first node, and its answer.
const GET: &str = "get /node";
const TRUTH: &str = "0 first";

/// The most memory that a client may take for a reply of some bytes.
const MAX_MEMORY: u64 = 1 << 30;

/// A session timeout and more.
const OUTAGE: Duration = Duration::from_secs(10);

pub(super) const CASES: &[Case] = &[
    must(
        "plain/operations",
        "All verbs work, and their answers are true.",
        "ZooKeeper, the methods of these names",
        |s| {
            Box::pin(async move {
                s.expect("create /a x", "/a").await?;
                s.expect("get /a", "0 x").await?;
                s.expect("set /a y", "1").await?;
                s.expect("get /a", "1 y").await?;
                s.expect("set /a z 1", "2").await?;
                s.expect("children /", "3").await?;
                s.expect("create /b x", "/b").await?;
                s.expect("delete /b", "").await?;
                s.expect("state", "connected").await?;
                for (task, error) in [
                    ("get /missing", "NONODE"),
                    ("create /a x", "NODEEXISTS"),
                    ("set /a z 7", "BADVERSION"),
                    ("delete /missing", "NONODE"),
                ] {
                    refused(s, task, error).await?;
                }
                if s.exists("/b").await? || !s.exists("/a").await? {
                    return Err(Finding::Untrue("a node is not as the answers say".to_owned()));
                }
                s.recovers("").await
            })
        },
    ),
    must("plain/multi", "A transaction creates both nodes or none.", "ZooKeeper.multi", |s| {
        Box::pin(async move {
            s.expect("multi /a /b", "").await?;
            refused(s, "multi /c /a", "NODEEXISTS").await?;
            if s.exists("/c").await? || !s.exists("/a").await? || !s.exists("/b").await? {
                return Err(Finding::Untrue("a node is not as the answers say".to_owned()));
            }
            s.recovers("").await
        })
    }),
    must(
        "plain/large-data",
        "A node of 900,000 bytes is written and read.",
        "jute.maxbuffer, 1 MB",
        |s| {
            Box::pin(async move {
                let data = "x".repeat(900_000);
                s.expect(&format!("set {NODE} {data}"), "1").await?;
                s.expect(&format!("get {NODE}"), &format!("1 {data}")).await?;
                Ok("works".to_owned())
            })
        },
    ),
    must(
        "plain/null-data",
        "The data of a node is null, which is not the same as empty on the wire.",
        "BinaryInputArchive.readBuffer",
        |s| {
            Box::pin(async move {
                s.rewrite(OpCode::GetData, |reply| with_data(reply, None));
                let answer = s.ask(GET).await?;
                if !matches!(&answer, Answer::Ok(value) if value.trim() == "0") {
                    return Err(Finding::Untrue(format!(
                        "{}, of a node without data",
                        said(&answer)
                    )));
                }
                s.recovers("").await
            })
        },
    ),
    must(
        "lost-reply/create",
        "A create is applied, and its reply is lost with the connection.",
        "ClientCnxn.conLossPacket",
        |s| {
            Box::pin(async move {
                s.fault("/a", Action::DropReply);
                let answer = s.ask("create /a x").await?;
                s.unknown(&answer, true).await
            })
        },
    ),
    must(
        "lost-reply/delete",
        "A delete is applied, and its reply is lost with the connection.",
        "ClientCnxn.conLossPacket",
        |s| {
            Box::pin(async move {
                s.expect("create /a x", "/a").await?;
                s.fault("/a", Action::DropReply);
                let answer = s.ask("delete /a").await?;
                s.unknown(&answer, true).await
            })
        },
    ),
    must(
        "lost-reply/set",
        "A set by version is applied, and its reply is lost with the connection.",
        "ClientCnxn.conLossPacket",
        |s| {
            Box::pin(async move {
                s.expect("create /a x", "/a").await?;
                s.fault("/a", Action::DropReply);
                let answer = s.ask("set /a y 0").await?;
                s.unknown(&answer, true).await
            })
        },
    ),
    must(
        "lost-reply/multi",
        "A transaction is applied, and its reply is lost with the connection.",
        "ClientCnxn.conLossPacket",
        |s| {
            Box::pin(async move {
                s.inject(Fault::drop_reply(OpCode::Multi));
                let answer = s.ask("multi /a /b").await?;
                s.unknown(&answer, true).await
            })
        },
    ),
    should(
        "lost-reply/never",
        "A reply never comes, and the connection stays and answers pings.",
        "zookeeper.request.timeout, ZOOKEEPER-2251",
        |s| {
            Box::pin(async move {
                s.fault("/a", Action::LoseReply);
                let answer = s.ask("create /a x").await?;
                s.unknown(&answer, true).await
            })
        },
    ),
    must(
        "lost-request/create",
        "The connection ends before the server has read a create.",
        "ClientCnxn.conLossPacket",
        |s| {
            Box::pin(async move {
                s.fault("/a", Action::DropRequest);
                let answer = s.ask("create /a x").await?;
                let is_applied = s.exists("/a").await?;
                s.unknown(&answer, is_applied).await
            })
        },
    ),
    must(
        "lost-request/set",
        "The connection ends before the server has read a set.",
        "ClientCnxn.conLossPacket",
        |s| {
            Box::pin(async move {
                s.expect("create /a x", "/a").await?;
                s.fault("/a", Action::DropRequest);
                let answer = s.ask("set /a y").await?;
                let is_applied = s.data("/a").await? == b"y";
                s.unknown(&answer, is_applied).await
            })
        },
    ),
    must("framing/bytes", "Each byte comes by itself.", "ClientCnxnSocketNIO.doIO", |s| {
        Box::pin(async move {
            s.port.split_writes(true);
            s.expect("children /", "2").await?;
            s.recovers("").await
        })
    }),
    must(
        "framing/cut",
        "The connection ends in the middle of a reply.",
        "ClientCnxnSocketNIO.doIO",
        |s| {
            Box::pin(async move {
                s.port.cut_after(Direction::ToClient, 9);
                s.malformed(GET, TRUTH).await
            })
        },
    ),
    must(
        "framing/too-long",
        "A reply says that it has 2,147,483,647 bytes.",
        "ClientCnxnSocket.readLength",
        |s| {
            Box::pin(async move {
                s.rewrite(OpCode::GetData, |reply| with_length(reply, i32::MAX));
                s.malformed(GET, TRUTH).await
            })
        },
    ),
    must(
        "framing/negative",
        "A reply says that it has -1 bytes.",
        "ClientCnxnSocket.readLength",
        |s| {
            Box::pin(async move {
                s.rewrite(OpCode::GetData, |reply| with_length(reply, -1));
                s.malformed(GET, TRUTH).await
            })
        },
    ),
    must("framing/empty", "A frame has no byte.", "ReplyHeader.deserialize", |s| {
        Box::pin(async move {
            s.rewrite(OpCode::GetData, |_| vec![0; 4]);
            s.malformed(GET, TRUTH).await
        })
    }),
    must(
        "reply/wrong-xid",
        "The reply to another request comes.",
        "ClientCnxn.SendThread.readResponse",
        |s| {
            Box::pin(async move {
                s.rewrite(OpCode::GetData, of_another_request);
                s.malformed(GET, TRUTH).await
            })
        },
    ),
    must("reply/twice", "A reply comes twice.", "ClientCnxn.SendThread.readResponse", |s| {
        Box::pin(async move {
            s.expect("create /a second", "/a").await?;
            s.rewrite(OpCode::GetData, |reply| reply.repeat(2));
            s.malformed("get /a", "0 second").await
        })
    }),
    must(
        "reply/short",
        "A reply ends in the middle of its stat, before the version.",
        "Stat.deserialize",
        |s| {
            Box::pin(async move {
                s.change(NODE, "second").await?;
                s.rewrite(OpCode::GetData, |reply| {
                    let body = reply.get(20..reply.len().saturating_sub(40));
                    with_body(reply, body.unwrap_or_default())
                });
                s.malformed(GET, "1 second").await
            })
        },
    ),
    must(
        "reply/no-body",
        "A reply without an error has no body.",
        "GetDataResponse.deserialize",
        |s| {
            Box::pin(async move {
                s.rewrite(OpCode::GetData, |reply| with_body(reply, &[]));
                s.malformed(GET, TRUTH).await
            })
        },
    ),
    must(
        "reply/long-buffer",
        "The data of a node says that it has 2,147,483,647 bytes.",
        "BinaryInputArchive.checkLength",
        |s| {
            Box::pin(async move {
                s.rewrite(OpCode::GetData, |reply| with_body(reply, &[0x7f, 0xff, 0xff, 0xff]));
                let judged = s.malformed(GET, TRUTH).await?;
                within_memory(s, judged)
            })
        },
    ),
    must(
        "reply/long-list",
        "A list says that it has 2,147,483,647 names, and has two.",
        "BinaryInputArchive.startVector",
        |s| {
            Box::pin(async move {
                for op in [OpCode::GetChildren, OpCode::GetChildren2] {
                    s.rewrite(op, |reply| with_children(reply, i32::MAX, |_| b"a".to_vec(), 2));
                }
                let judged = s.malformed("children /", "2").await?;
                within_memory(s, judged)
            })
        },
    ),
    must(
        "reply/no-utf8",
        "The name of a child is no UTF-8.",
        "BinaryInputArchive.readString",
        |s| {
            Box::pin(async move {
                for op in [OpCode::GetChildren, OpCode::GetChildren2] {
                    s.rewrite(op, |reply| with_children(reply, 2, |_| b"\xff\xfe".to_vec(), 2));
                }
                s.malformed("children /", "2").await
            })
        },
    ),
    must(
        "reply/million",
        "A node has a million children.",
        "ZOOKEEPER-1162, jute.maxbuffer of the client",
        |s| {
            Box::pin(async move {
                for op in [OpCode::GetChildren, OpCode::GetChildren2] {
                    s.rewrite(op, |reply| {
                        with_children(
                            reply,
                            1_000_000,
                            |at| format!("n{at:07}").into_bytes(),
                            1_000_000,
                        )
                    });
                }
                match s.ask("children /").await? {
                    Answer::Ok(count) if count == "1000000" => s.recovers("lists them").await,
                    Answer::Ok(count) if count != "2" => {
                        Err(Finding::Untrue(format!("{count} children")))
                    }
                    Answer::Ok(_) => s.recovers("asks again").await,
                    Answer::Error(error) => s.recovers(&format!("says {error}")).await,
                }
            })
        },
    ),
    must(
        "error/unknown",
        "A server answers with an error code that no version has.",
        "KeeperException.Code.get, ZOOKEEPER-2251",
        |s| {
            Box::pin(async move {
                s.rewrite(OpCode::GetData, |reply| with_err(reply, -999));
                s.malformed(GET, TRUTH).await
            })
        },
    ),
    must(
        "error/throttled",
        "A server of 3.6 and later is overloaded and refuses a write: THROTTLEDOP.",
        "ZooKeeperServer.shouldThrottle, ZOOKEEPER-3683",
        |s| {
            Box::pin(async move {
                s.rewrite(OpCode::SetData, |reply| with_err(reply, -127));
                let answer = s.ask(&format!("set {NODE} {DATA}")).await?;
                s.unknown(&answer, true).await
            })
        },
    ),
    must(
        "error/session-moved",
        "A write is refused because the session is at another server.",
        "SessionTracker.checkSession, SESSIONMOVED",
        |s| {
            Box::pin(async move {
                s.rewrite(OpCode::SetData, |reply| with_err(reply, -118));
                let answer = s.ask(&format!("set {NODE} {DATA}")).await?;
                s.unknown(&answer, true).await
            })
        },
    ),
    must(
        "error/read-only",
        "The server has lost its majority and refuses a write: NOTREADONLY.",
        "ReadOnlyRequestProcessor.run",
        |s| {
            Box::pin(async move {
                s.rewrite(OpCode::SetData, |reply| with_err(reply, -119));
                let answer = s.ask(&format!("set {NODE} {DATA}")).await?;
                s.unknown(&answer, true).await
            })
        },
    ),
    must(
        "event/unknown-type",
        "An event has a type that no version has.",
        "EventType.fromInt",
        |s| {
            Box::pin(async move {
                s.rewrite(OpCode::GetData, |reply| behind_event(reply, 99, b"/node"));
                s.malformed(GET, TRUTH).await
            })
        },
    ),
    must(
        "event/unasked",
        "An event comes for a node that nobody watches.",
        "ZKWatchManager.materialize",
        |s| {
            Box::pin(async move {
                s.rewrite(OpCode::GetData, |reply| behind_event(reply, 3, b"/never/watched"));
                s.malformed(GET, TRUTH).await
            })
        },
    ),
    must("watch/fires", "A watched node changes.", "DataTree.setData", |s| {
        Box::pin(async move {
            s.watch(NODE, true).await?;
            s.change(NODE, "second").await?;
            reports(s, "the change of a watched node").await
        })
    }),
    must(
        "watch/while-disconnected",
        "A watched node changes while the client has no connection.",
        "ClientCnxn.SendThread.primeConnection, DataTree.setWatches",
        |s| {
            Box::pin(async move {
                s.watch(NODE, true).await?;
                s.port.refuse().await.map_err(no_case)?;
                s.port.cut();
                s.change(NODE, "second").await?;
                s.port.accept().await.map_err(no_case)?;
                reports_or_ends(s, NODE, "a change during the outage").await
            })
        },
    ),
    must(
        "watch/created-while-disconnected",
        "A node that is watched for its creation is created while the client has no connection.",
        "DataTree.setWatches",
        |s| {
            Box::pin(async move {
                s.watch("/later", false).await?;
                s.port.refuse().await.map_err(no_case)?;
                s.port.cut();
                let created = s.other.create("/later", b"x", docent::CreateMode::Persistent).await;
                created.map_err(no_case)?;
                s.port.accept().await.map_err(no_case)?;
                reports_or_ends(s, "/later", "a creation during the outage").await
            })
        },
    ),
    should(
        "watch/before-data",
        "The event of a change comes before its data can be read.",
        "the guarantees of watches in ZooKeeper's Programmer's Guide",
        |s| {
            Box::pin(async move {
                s.watch(NODE, true).await?;
                s.change(NODE, "second").await?;
                let task = s.driver.send(GET);
                let answer = s.driver.answer(&task).await?;
                if matches!(&answer, Answer::Ok(value) if value.ends_with("second"))
                    && !s.driver.is_before(&format!("event {NODE}"), &task)
                {
                    return Err(Finding::Untrue(
                        "the new data, before the event of the change".to_owned(),
                    ));
                }
                reports(s, "the change of a watched node").await
            })
        },
    ),
    should(
        "session/resumed",
        "The connection ends, and the session continues on the next one.",
        "ClientCnxn.SendThread.primeConnection",
        |s| {
            Box::pin(async move {
                let before = s.port.session_id();
                s.port.cut();
                let judged = s.recovers("").await?;
                if s.port.session_id() != before {
                    return Err(Finding::Leaks(
                        "the session, for a new one: its ephemeral nodes stay until it ends"
                            .to_owned(),
                    ));
                }
                Ok(judged)
            })
        },
    ),
    must(
        "session/expired",
        "The server ends the session.",
        "ClientCnxn.SendThread.onConnected, Expired",
        |s| {
            Box::pin(async move {
                let before = s.port.session_id();
                s.watch(NODE, true).await?;
                if !before.is_some_and(|id| s.server.expire_session(id)) {
                    return Err(Finding::NoCase("the session is not known".to_owned()));
                }
                if s.driver.notices("state expired", s.driver.limit).await {
                    return Ok("reports it".to_owned());
                }
                match s.ask("state").await? {
                    Answer::Ok(state) if ["expired", "closed"].contains(&&*state) => {
                        Ok(format!("says {state}"))
                    }
                    answer => Err(Finding::Untrue(format!(
                        "{}, and not a word of the session that ended, and its watch",
                        said(&answer)
                    ))),
                }
            })
        },
    ),
    must(
        "session/silence",
        "The server says nothing for longer than the session timeout, then goes on.",
        "ClientCnxn.SendThread.run, readTimeout",
        |s| {
            Box::pin(async move {
                s.expect_no_notice().await?;
                s.port.stall();
                let task = s.driver.send(&format!("set {NODE} {DATA}"));
                let answer = s.driver.answer(&task).await;
                let lost = ["state suspended", "state expired"];
                let is_told = s.driver.notices_one_of(&lost, s.driver.limit).await.is_some();
                s.port.resume();
                match (answer?, is_told) {
                    (Answer::Ok(_), _) => {
                        Err(Finding::Untrue("ok, of a request without a reply".to_owned()))
                    }
                    (Answer::Error(_), false) => {
                        Err(Finding::Untrue("nothing of the loss of the connection".to_owned()))
                    }
                    // The session may be over, which a client that makes no new one says for ever.
                    (Answer::Error(error), true) => Ok(format!("says {error}")),
                }
            })
        },
    ),
    must(
        "connect/silence",
        "A server accepts a connection and says nothing for 5 s.",
        "ClientCnxn.SendThread.run, connectTimeout",
        |s| {
            Box::pin(async move {
                s.port.stall();
                let task = s.connecting();
                tokio::time::sleep(Duration::from_secs(5)).await;
                s.port.resume();
                connects(s, &task).await
            })
        },
    ),
    must(
        "connect/refused",
        "No server listens for 3 s.",
        "ClientCnxn.SendThread.startConnect",
        |s| {
            Box::pin(async move {
                s.port.refuse().await.map_err(no_case)?;
                let task = s.connecting();
                tokio::time::sleep(Duration::from_secs(3)).await;
                s.port.accept().await.map_err(no_case)?;
                connects(s, &task).await
            })
        },
    ),
    must(
        "connect/http",
        "A web server answers for 3 s, then ZooKeeper.",
        "ClientCnxnSocket.readConnectResult",
        |s| {
            Box::pin(async move {
                let web = web_server().await.map_err(no_case)?;
                s.tap.set_upstream(&web);
                let task = s.connecting();
                tokio::time::sleep(Duration::from_secs(3)).await;
                if s.driver.notices("state connected", Duration::ZERO).await {
                    return Err(Finding::Untrue("connected, of a web server".to_owned()));
                }
                s.tap.set_upstream(&s.server.connect_string());
                s.port.cut();
                connects(s, &task).await
            })
        },
    ),
    must(
        "outage/refused",
        "No server listens for longer than a session timeout.",
        "ClientCnxn.SendThread.run",
        |s| {
            Box::pin(async move {
                s.port.refuse().await.map_err(no_case)?;
                s.port.cut();
                let task = s.driver.send("state");
                s.driver.answer(&task).await?;
                tokio::time::sleep(OUTAGE).await;
                let state = s.ask("state").await?;
                s.port.accept().await.map_err(no_case)?;
                match state {
                    Answer::Ok(state) if ["suspended", "expired"].contains(&state.as_str()) => {
                        Ok(format!("says {state}"))
                    }
                    state => {
                        let text = format!("{}, without a server for 10 s", said(&state));
                        Err(Finding::Untrue(text))
                    }
                }
            })
        },
    ),
    must(
        "close/session",
        "The client closes: its session ends at the server, and its process by itself.",
        "ZooKeeper.close",
        |s| Box::pin(async move { closes(s).await }),
    ),
    must(
        "close/lost-reply",
        "The connection ends instead of the reply to the close.",
        "ZooKeeper.close",
        |s| {
            Box::pin(async move {
                s.inject(Fault::drop_reply(OpCode::CloseSession));
                closes(s).await
            })
        },
    ),
    must("close/no-server", "The client closes while no server listens.", "ZooKeeper.close", |s| {
        Box::pin(async move {
            s.port.refuse().await.map_err(no_case)?;
            s.port.cut();
            s.ask("close").await?;
            ends(s).await
        })
    }),
];

/// The client took no more memory than it may.
fn within_memory(stage: &Stage, judged: String) -> Judged {
    match stage.driver.peak_memory() {
        Some(bytes) if bytes > MAX_MEMORY => {
            Err(Finding::Leaks(format!("{} MiB of memory for a reply of some bytes", bytes >> 20)))
        }
        _ => Ok(judged),
    }
}

/// The driver reports an event of the first node.
async fn reports(stage: &mut Stage, what: &str) -> Judged {
    match stage.driver.notices(&format!("event {NODE}"), stage.driver.limit).await {
        true => stage.recovers("reports it").await,
        false => Err(Finding::Untrue(format!("nothing, of {what}"))),
    }
}

/// The driver reports an event that happened during an outage, or that the watch is over, so that its user looks again.
async fn reports_or_ends(stage: &mut Stage, path: &str, what: &str) -> Judged {
    let (event, end) = (format!("event {path}"), format!("end {path}"));
    match stage.driver.notices_one_of(&[&event, &end], stage.driver.limit).await {
        Some(0) => stage.recovers("reports it").await,
        Some(_) => stage.recovers("says that the watch is over").await,
        None => Err(Finding::Untrue(format!("nothing, of {what}"))),
    }
}

/// A task is refused with this error.
async fn refused(stage: &mut Stage, task: &str, error: &str) -> Result<(), Finding> {
    match stage.ask(task).await? {
        Answer::Error(said) if said == error => Ok(()),
        answer => {
            Err(Finding::Untrue(format!("{}, to `{task}`, instead of {error}", said(&answer))))
        }
    }
}

/// The driver, which could not connect for some seconds, is connected now, or has said an error and connects if it is asked
/// again.
async fn connects(stage: &mut Stage, task: &super::driver::Task) -> Judged {
    match stage.driver.answer(task).await? {
        Answer::Ok(_) => stage.recovers("").await,
        Answer::Error(error) => {
            stage.connect().await?;
            stage.recovers(&format!("says {error}")).await
        }
    }
}

async fn closes(stage: &mut Stage) -> Judged {
    stage.ask("close").await?;
    if !stage.has_no_session().await {
        return Err(Finding::Leaks("its session, after the close".to_owned()));
    }
    ends(stage).await
}

async fn ends(stage: &mut Stage) -> Judged {
    match stage.driver.ends(Duration::from_secs(10)).await {
        Some(status) if status.success() => Ok("closes and ends".to_owned()),
        Some(status) => Err(Finding::Ends(format!("{status}, after the close"))),
        None => Err(Finding::Leaks("its process, after the close".to_owned())),
    }
}

/// Starts a server that answers everything as a web server does, and returns its address.
async fn web_server() -> std::io::Result<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ =
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
        }
    });
    Ok(address)
}
