//! `docent conform client`: drivers, good and bad.

use serde_json::Value;

use crate::support::{TemporaryFile, docent, ended, eventually, kill, processes_with, run};

#[tokio::test]
async fn docents_client_conforms() {
    let driver = driver();
    let json = TemporaryFile::new();
    let arguments = ["conform", "client", "--limit", "10s", "--report", "json", json.path()];
    let ran = run("", &[&arguments[..], &["--", &driver, "{connect}"]].concat()).await.ok();
    // A server that never replies is waited for, as ZooKeeper's own client does.
    assert!(ran.contains(" 1 failed (0 MUST, 1 SHOULD, 0 MAY), 0 skipped"), "{ran}");
    assert!(ran.contains("FAIL  SHOULD lost-reply/never"), "{ran}");
    let report: Vec<Value> = serde_json::from_str(&json.text()).unwrap();
    let listed = run("", &["conform", "client", "--list"]).await.ok();
    assert_eq!(listed.lines().count(), report.len());
}

/// What a driver says is judged, whatever it says.
#[cfg(unix)]
#[tokio::test]
async fn a_driver_that_misbehaves_is_the_result_of_its_case() {
    const OK: &str = "while read number task; do echo $number ok; done # {connect}";
    const LOSS: &str = "while read n task; do echo $n error CONNECTIONLOSS; done # {connect}";
    // Never connects, and answers and reports what is true or an error in most cases.
    const MADE_UP: &str = r#"
        printf '! event /node\n! event /later\n! state suspended\n! state expired\n'
        while read n verb path rest; do case $verb in
            get) echo "$n ok 0 first";;
            watch) [ $path = /node ] && echo "$n ok true" || echo "$n ok false";;
            state) echo "$n ok suspended";;
            connect) echo "$n ok";;
            close) echo "$n ok"; exit;;
            *) echo "$n error CONNECTIONLOSS";;
        esac; done # {connect}"#;
    for (driver, case, text) in [
        (
            "read task; exit 3 # {connect}",
            "close/session",
            "ends: exit status: 3 at `connect 6000`",
        ),
        (
            "cat > /dev/null # {connect}",
            "close/session",
            "hangs: no answer to `connect 6000` within 5s",
        ),
        (
            "while read n task; do echo $n hello; done # {connect}",
            "close/session",
            "prints nonsense: `1 hello`",
        ),
        (OK, "close/session", "untrue: connected, without a session at the server"),
        // Each case can fail.
        (OK, "", "cases: 0 passed"),
        (MADE_UP, "", "cases: 0 passed"),
        (LOSS, "", "cases: 0 passed"),
        (
            "echo 2 ok; while read n task; do echo $n ok; done # {connect}",
            "close/session",
            "prints nonsense: `2 ok`, before its task",
        ),
        (
            "yes x$(printf %04000d 0) # {connect}",
            "close/session",
            "prints nonsense: more than 16 MiB",
        ),
        ("tr '\\0' x < /dev/zero # {connect}", "close/session", "nonsense: more than 16 MiB"),
        (
            r"read task; printf '1 \033[2J\0\n'; cat > /dev/null # {connect}",
            "close/session",
            r"`1 \u{1b}[2J\0`, to",
        ),
    ] {
        // The limit of a single case is longer than the start of a shell on a busy machine.
        let limit = if case.is_empty() { "1s" } else { "5s" };
        let arguments = ["conform", "client", "--limit", limit, "--only", case];
        let ran = run("", &[&arguments[..], &["--", "sh", "-c", driver]].concat()).await;
        assert_eq!(ran.code, Some(1), "{driver}: {ran:?}");
        assert!(ran.out.contains(text), "{driver}: {ran:?}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_driver_that_cannot_be_started_is_wrong_usage() {
    for (arguments, text) in [
        (&["--", "/nowhere/driver", "{connect}"][..], "/nowhere/driver {connect}: No such file"),
        (&["--", "sh"], "has no {connect}"),
        (&["--only", "nothing-has-this-name", "--", "sh", "{connect}"], "no case has a name with"),
        (&["--limit", "soon", "--", "sh", "{connect}"], "--limit"),
        (&[], "COMMAND"),
    ] {
        run("", &[&["conform", "client"], arguments].concat()).await.failed(64, text);
    }
}

/// The path of docent's driver.
fn driver() -> String {
    xtask::example("conform_driver").unwrap().to_str().unwrap().to_owned()
}

/// Runs a case with docent's driver behind a filter of its tasks and of its answers, both in the shell; `&3` is standard
/// output.
#[cfg(unix)]
async fn filtered(case: &str, tasks: &str, answers: &str) -> crate::support::Ran {
    let script = format!(r#"exec 3>&1; {{ {tasks}; }} | "$0" "$1" | {{ {answers}; }}"#);
    let arguments = ["conform", "client", "--all", "--limit", "5s", "--only", case, "--"];
    run("", &[&arguments[..], &["sh", "-c", &script, &driver(), "{connect}"]].concat()).await
}

#[cfg(unix)]
const ALL: &str = "cat";

#[cfg(unix)]
#[tokio::test]
async fn a_client_without_transactions_is_not_judged_by_them() {
    let tasks = r#"while read -r number task; do case $task in
        multi*) echo "$number skip" >&3;; *) echo "$number $task";; esac; done"#;
    let ran = filtered("plain/multi", tasks, ALL).await.ok();
    assert!(ran.contains("skip  MUST   plain/multi"), "{ran}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_watch_may_end_instead_of_its_event() {
    let answers = "sed -u 's/^! event/! end/'";
    let ran = filtered("watch/while-disconnected", ALL, answers).await.ok();
    assert!(ran.contains("says that the watch is over, recovers"), "{ran}");
}

// Case (Found in docent itself): most cases of `docent conform client` passed with a driver that never sent the request.
#[cfg(unix)]
#[tokio::test]
async fn an_answer_without_a_request_is_untrue() {
    for (case, task, answer, text) in [
        ("lost-reply/create", "create", "error CONNECTIONLOSS", "an answer, without a request"),
        ("lost-request/create", "create", "ok /a", "ok, of an operation that was not applied"),
    ] {
        let tasks = format!(
            r#"while read -r number task; do case $task in
            {task}*) echo "$number {answer}" >&3;; *) echo "$number $task";; esac; done"#
        );
        let ran = filtered(case, &tasks, ALL).await;
        assert!(ran.out.contains(&format!("untrue: {text}")), "{case}: {ran:?}");
    }
}

/// The session is over at the server, but only by its timeout.
#[cfg(unix)]
#[tokio::test]
async fn a_session_that_is_left_to_its_timeout_leaks() {
    let script = r#"pipe=$(mktemp -u); mkfifo "$pipe"; "$0" "$1" < "$pipe" & exec 3> "$pipe"; rm "$pipe"
        while read -r number task; do case $task in
        close) kill -KILL $!; echo "$number ok"; exit;; *) echo "$number $task" >&3;; esac; done"#;
    let arguments = ["conform", "client", "--only", "close/session", "--", "sh", "-c", script];
    let ran = run("", &[&arguments[..], &[&driver(), "{connect}"]].concat()).await;
    assert!(ran.out.contains("leaks: its session, after the close"), "{ran:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_process_that_stays_after_the_close_leaks() {
    let ran = filtered("close/session", ALL, "cat; sleep 1000").await;
    assert!(ran.out.contains("leaks: its process, after the close"), "{ran:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_second_answer_is_nonsense() {
    let ran = filtered("framing/bytes", ALL, "sed -u '/^2 /p'").await;
    assert!(ran.out.contains("prints nonsense: `2 ok 2`, a second answer"), "{ran:?}");
}

// Case (Found in docent itself): a notice that a driver printed in front of its cause counted as one of it.
#[cfg(unix)]
#[tokio::test]
async fn a_notice_before_its_cause_is_untrue() {
    let ran = filtered("session/expired", ALL, "sed -u '/^2 ok/a ! state expired'").await;
    assert!(ran.out.contains("`! state expired`, before anything happened"), "{ran:?}");
}

// Case (Found in docent itself): a client that crashed as it closed had closed its session, and passed.
#[cfg(unix)]
#[tokio::test]
async fn a_crash_at_the_close_is_an_end() {
    let script = r#""$0" "$1"; kill -SEGV $$"#;
    let arguments = ["conform", "client", "--only", "close/session", "--", "sh", "-c", script];
    let ran = run("", &[&arguments[..], &[&driver(), "{connect}"]].concat()).await;
    assert!(ran.out.contains("ends: signal: 11 (SIGSEGV)"), "{ran:?}");
}

// Case (Found in docent itself): a driver that did not read its tasks kept the run waiting for ever.
#[cfg(unix)]
#[tokio::test]
async fn a_driver_that_does_not_read_its_tasks_hangs() {
    let ran = filtered("plain/large-data", "head -n 1; sleep 1000", ALL).await;
    assert!(ran.out.contains("hangs: no answer to `set /node xxx"), "{ran:?}");
}

// Case (Found in docent itself): what a driver had started stayed, if the driver had ended or it had a session of its own.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn no_process_of_a_driver_that_has_ended_is_left() {
    for start in ["sleep", "setsid sleep", "setsid setsid --fork sleep"] {
        let mark = docent_tests::real::unique_path("driver");
        let script = format!("{start} 1000 > /dev/null & exec >&-; exit 3");
        let arguments = ["conform", "client", "--only", "close/session", "--", "sh", "-c", &script];
        let mut command = docent("", &[&arguments[..], &["{connect}"]].concat());
        let ran = ended(command.env("DRIVER_MARK", &mark).spawn().unwrap()).await;
        assert!(ran.out.contains("ends: exit status: 3"), "{ran:?}");
        eventually(start, async || processes_with(&mark).is_empty().then_some(())).await;
    }
}

// Case (Found in docent itself): SIGTERM ended `docent conform client`, and drivers that ignored their end of input stayed.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_signal_ends_the_drivers_too() {
    let mark = docent_tests::real::unique_path("driver");
    let script = "trap '' TERM HUP INT; sleep 1000";
    let arguments = ["conform", "client", "--only", "close/session", "--", "sh", "-c", script];
    let mut command = docent("", &[&arguments[..], &["{connect}"]].concat());
    let ran = command.env("DRIVER_MARK", &mark).spawn().unwrap();
    eventually("the driver", async || (processes_with(&mark).len() >= 3).then_some(())).await;
    kill("-TERM", ran.id().unwrap()).await;
    assert_eq!(ended(ran).await.code, Some(143));
    eventually("the end of the driver", async || processes_with(&mark).is_empty().then_some(()))
        .await;
}
