//! The scripts of the cases: what the server does to the client, and what the client may do then.

use std::time::Duration;

use docent_protocol::OpCode;
use docent_testing::{
    fault::{Action, Fault, Rewrite},
    tap::Direction,
};

use super::{
    driver::{Answer, Task},
    judgement::{Finding, Judged},
    replies::{with_body, with_children, with_data},
    stage::{DATA, NODE, SESSION_MS, Stage, no_case, said},
};

/// The read of the first node, and its answer.
const GET: &str = "get /node";
const TRUTH: &str = "0 first";

/// The most memory that a client may take for a reply of some bytes.
const MAX_MEMORY: u64 = 1 << 30;

/// A session timeout and more.
const OUTAGE: Duration = Duration::from_secs(10);

pub(super) async fn plain_operations(s: &mut Stage) -> Judged {
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
}

pub(super) async fn plain_multi(s: &mut Stage) -> Judged {
    s.expect("multi /a /b", "").await?;
    refused(s, "multi /c /a", "NODEEXISTS").await?;
    if s.exists("/c").await? || !s.exists("/a").await? || !s.exists("/b").await? {
        return Err(Finding::Untrue("a node is not as the answers say".to_owned()));
    }
    s.recovers("").await
}

pub(super) async fn plain_large_data(s: &mut Stage) -> Judged {
    let data = "x".repeat(900_000);
    s.expect(&format!("set {NODE} {data}"), "1").await?;
    s.expect(&format!("get {NODE}"), &format!("1 {data}")).await?;
    Ok("works".to_owned())
}

pub(super) async fn plain_null_data(s: &mut Stage) -> Judged {
    s.rewrite(OpCode::GetData, |reply| with_data(reply, None));
    let answer = s.ask(GET).await?;
    if !matches!(&answer, Answer::Ok(value) if value.trim() == "0") {
        return Err(Finding::Untrue(format!("{}, of a node without data", said(&answer))));
    }
    s.recovers("").await
}

/// A task about `/a`, which may be there, and whose reply is lost.
pub(super) async fn lost_reply(
    s: &mut Stage,
    is_there: bool,
    task: &str,
    action: Action,
) -> Judged {
    if is_there {
        s.expect("create /a x", "/a").await?;
    }
    s.fault("/a", action);
    let answer = s.ask(task).await?;
    s.unknown(&answer, true).await
}

pub(super) async fn lost_reply_multi(s: &mut Stage) -> Judged {
    s.inject(Fault::drop_reply(OpCode::Multi));
    let answer = s.ask("multi /a /b").await?;
    s.unknown(&answer, true).await
}

pub(super) async fn lost_request_create(s: &mut Stage) -> Judged {
    s.fault("/a", Action::DropRequest);
    let answer = s.ask("create /a x").await?;
    let is_applied = s.exists("/a").await?;
    s.unknown(&answer, is_applied).await
}

pub(super) async fn lost_request_set(s: &mut Stage) -> Judged {
    s.expect("create /a x", "/a").await?;
    s.fault("/a", Action::DropRequest);
    let answer = s.ask("set /a y").await?;
    let is_applied = s.data("/a").await? == b"y";
    s.unknown(&answer, is_applied).await
}

pub(super) async fn framing_bytes(s: &mut Stage) -> Judged {
    s.port.split_writes(true);
    s.expect("children /", "2").await?;
    s.recovers("").await
}

pub(super) async fn framing_cut(s: &mut Stage) -> Judged {
    s.port.cut_after(Direction::ToClient, 9);
    s.malformed(GET, TRUTH).await
}

/// The reply to a read of the first node is wrong.
pub(super) async fn wrong_reply(s: &mut Stage, rewrite: Rewrite) -> Judged {
    s.rewrite(OpCode::GetData, rewrite);
    let judged = s.malformed(GET, TRUTH).await?;
    within_memory(s, judged)
}

/// The reply to a listing of the root is wrong.
pub(super) async fn wrong_listing(s: &mut Stage, rewrite: Rewrite) -> Judged {
    rewrite_listing(s, rewrite);
    let judged = s.malformed("children /", "2").await?;
    within_memory(s, judged)
}

fn rewrite_listing(s: &mut Stage, rewrite: Rewrite) {
    for op in [OpCode::GetChildren, OpCode::GetChildren2] {
        s.rewrite(op, rewrite);
    }
}

/// A write gets this reply: an error after which it may have been applied.
pub(super) async fn wrong_reply_to_write(s: &mut Stage, rewrite: Rewrite) -> Judged {
    s.rewrite(OpCode::SetData, rewrite);
    let answer = s.ask(&format!("set {NODE} {DATA}")).await?;
    s.unknown(&answer, true).await
}

pub(super) async fn reply_twice(s: &mut Stage) -> Judged {
    s.expect("create /a second", "/a").await?;
    s.rewrite(OpCode::GetData, |reply| reply.repeat(2));
    s.malformed("get /a", "0 second").await
}

pub(super) async fn reply_short(s: &mut Stage) -> Judged {
    s.change(NODE, "second").await?;
    s.rewrite(OpCode::GetData, |reply| {
        let body = reply.get(20..reply.len().saturating_sub(40));
        with_body(reply, body.unwrap_or_default())
    });
    s.malformed(GET, "1 second").await
}

pub(super) async fn reply_million(s: &mut Stage) -> Judged {
    rewrite_listing(s, |reply| {
        with_children(reply, 1_000_000, |at| format!("n{at:07}").into_bytes(), 1_000_000)
    });
    match s.ask("children /").await? {
        Answer::Ok(count) if count == "1000000" => s.recovers("lists them").await,
        Answer::Ok(count) if count != "2" => Err(Finding::Untrue(format!("{count} children"))),
        Answer::Ok(_) => s.recovers("asks again").await,
        Answer::Error(error) => s.recovers(&format!("says {error}")).await,
    }
}

pub(super) async fn watch_fires(s: &mut Stage) -> Judged {
    s.watch(NODE, true).await?;
    s.change(NODE, "second").await?;
    reports(s, "the change of a watched node").await
}

pub(super) async fn watch_while_disconnected(s: &mut Stage) -> Judged {
    s.watch(NODE, true).await?;
    s.port.refuse().await.map_err(no_case)?;
    s.port.cut();
    s.change(NODE, "second").await?;
    s.port.accept().await.map_err(no_case)?;
    reports_or_ends(s, NODE, "a change during the outage").await
}

pub(super) async fn watch_created_while_disconnected(s: &mut Stage) -> Judged {
    s.watch("/later", false).await?;
    s.port.refuse().await.map_err(no_case)?;
    s.port.cut();
    let created = s.other.create("/later", b"x", docent::CreateMode::Persistent).await;
    created.map_err(no_case)?;
    s.port.accept().await.map_err(no_case)?;
    reports_or_ends(s, "/later", "a creation during the outage").await
}

pub(super) async fn watch_before_data(s: &mut Stage) -> Judged {
    s.watch(NODE, true).await?;
    s.change(NODE, "second").await?;
    let task = s.driver.send(GET);
    let answer = s.driver.answer(&task).await?;
    if matches!(&answer, Answer::Ok(value) if value.ends_with("second"))
        && !s.driver.is_before(&format!("event {NODE}"), &task)
    {
        return Err(Finding::Untrue("the new data, before the event of the change".to_owned()));
    }
    reports(s, "the change of a watched node").await
}

pub(super) async fn session_resumed(s: &mut Stage) -> Judged {
    let before = s.port.session_id();
    s.port.cut();
    let judged = s.recovers("").await?;
    if s.port.session_id() != before {
        return Err(Finding::Leaks(
            "the session, for a new one: its ephemeral nodes stay until it ends".to_owned(),
        ));
    }
    Ok(judged)
}

pub(super) async fn session_expired(s: &mut Stage) -> Judged {
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
}

pub(super) async fn session_silence(s: &mut Stage) -> Judged {
    s.expect_no_notice().await?;
    s.port.stall();
    let task = s.driver.send(&format!("set {NODE} {DATA}"));
    let answer = s.driver.answer(&task).await;
    let lost = ["state suspended", "state expired"];
    let is_told = s.driver.notices_one_of(&lost, s.driver.limit).await.is_some();
    s.port.resume();
    match (answer?, is_told) {
        (Answer::Ok(_), _) => Err(Finding::Untrue("ok, of a request without a reply".to_owned())),
        (Answer::Error(_), false) => {
            Err(Finding::Untrue("nothing of the loss of the connection".to_owned()))
        }
        // The session may be over, which a client that makes no new one says for ever.
        (Answer::Error(error), true) => Ok(format!("says {error}")),
    }
}

pub(super) async fn connect_silence(s: &mut Stage) -> Judged {
    s.port.stall();
    let task = s.connecting();
    tokio::time::sleep(Duration::from_secs(5)).await;
    s.port.resume();
    connects(s, &task).await
}

pub(super) async fn connect_refused(s: &mut Stage) -> Judged {
    s.port.refuse().await.map_err(no_case)?;
    let task = s.connecting();
    tokio::time::sleep(Duration::from_secs(3)).await;
    s.port.accept().await.map_err(no_case)?;
    connects(s, &task).await
}

pub(super) async fn connect_http(s: &mut Stage) -> Judged {
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
}

pub(super) async fn outage_refused(s: &mut Stage) -> Judged {
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
}

pub(super) async fn close_session(s: &mut Stage) -> Judged {
    s.ask("close").await?;
    if !s.has_closed_its_session().await {
        return Err(Finding::Leaks("its session, after the close".to_owned()));
    }
    ends(s).await
}

pub(super) async fn close_lost_reply(s: &mut Stage) -> Judged {
    s.inject(Fault::drop_reply(OpCode::CloseSession));
    close_session(s).await
}

pub(super) async fn close_no_server(s: &mut Stage) -> Judged {
    s.port.refuse().await.map_err(no_case)?;
    s.port.cut();
    s.ask("close").await?;
    ends(s).await
}

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
async fn connects(stage: &mut Stage, task: &Task) -> Judged {
    match stage.driver.answer(task).await? {
        Answer::Ok(_) => stage.recovers("").await,
        Answer::Error(error) => {
            stage.connect(SESSION_MS).await?;
            stage.recovers(&format!("says {error}")).await
        }
    }
}

async fn ends(stage: &mut Stage) -> Judged {
    match stage.driver.ends(stage.driver.limit).await {
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
