//! Each rule sees a history that breaks it, and accepts one that does not.

use docent_judge::{Judgement, judge};

/// A second.
const S: u64 = 1_000_000_000;

const RUN: &str = "run seed=1 members=3 version=3.8.0 start=0 end=99000000000 session=6000000000\n";

const GUARDED: &str = "final set=guarded version=0 elements=\n";

/// Judges these lines, and those that every history has.
fn judged(lines: &[String]) -> Judgement {
    judge(&format!("{}\n{GUARDED}{RUN}", lines.join("\n"))).unwrap()
}

/// The violations, without their times.
fn violations(lines: &[String]) -> Vec<String> {
    judged(lines).violations.into_iter().map(|(_, text)| text).collect()
}

/// A hold of docent, in seconds: called, granted, proven until, released.
fn hold(client: &str, token: u64, [called, granted, proven, released]: [u64; 4]) -> String {
    of_kind("docent", client, token, [called, granted, proven, released])
}

fn of_kind(kind: &str, client: &str, token: u64, times: [u64; 4]) -> String {
    let [called, granted, proven, released] = times.map(|time| time * S);
    format!(
        "hold lock=/l client={client} kind={kind} token={token} called={called} granted={granted} \
         proven={proven} release={released} end=released held={granted}-{released}"
    )
}

fn fault(kind: &str, from: u64, until: u64) -> String {
    format!(
        "fault number=1 kind={kind} from={} until={} members=0 clients= text=x",
        from * S,
        until * S
    )
}

#[test]
fn holds_one_after_the_other_are_good() {
    let lines =
        [hold("a", 5, [1, 2, 8, 3]), hold("b", 6, [1, 3, 8, 9]), hold("a", 9, [4, 9, 10, 12])];
    let judgement = judged(&lines);
    assert_eq!(judgement.violations, []);
    assert_eq!(judgement.counted, []);
    assert_eq!(judgement.value("holds"), Some("3"));
    assert_eq!(judgement.value("holds with a proven part"), Some("3"));
    assert_eq!(judgement.value("proven, in total"), Some("7.000 s"));
}

#[test]
fn two_holds_with_one_token_are_a_violation() {
    let found = violations(&[hold("a", 5, [1, 2, 2, 3]), hold("b", 5, [1, 4, 4, 5])]);
    assert_eq!(found, ["/l: b and a have token 5"]);
}

#[test]
fn a_token_that_does_not_rise_is_a_violation() {
    let found = violations(&[hold("a", 7, [1, 2, 2, 3]), hold("b", 6, [4, 5, 5, 6])]);
    assert_eq!(found, ["/l: b has token 6, but 7 was granted before its call"]);
    // Called before the other one was granted: its place in the queue may be the earlier one.
    assert_eq!(violations(&[hold("a", 7, [1, 4, 4, 5]), hold("b", 6, [2, 3, 3, 4])]), [""; 0]);
}

#[test]
fn a_grant_within_a_proven_hold_is_a_violation() {
    let killed = hold("a", 5, [1, 2, 8, 3]).replace("release=3000000000", "release=-");
    let found = violations(&[killed.clone(), hold("b", 6, [1, 7, 7, 9])]);
    assert_eq!(found, ["/l: granted to b 1.000 s before the proven end of the hold of a"]);
    assert_eq!(violations(&[killed, hold("b", 6, [1, 8, 8, 9])]), [""; 0]);
    // A release ends the proof.
    assert_eq!(violations(&[hold("a", 5, [1, 2, 8, 3]), hold("b", 6, [1, 4, 4, 9])]), [""; 0]);
}

#[test]
fn a_stale_hold_needs_a_fault_of_members() {
    let holds = [hold("a", 5, [1, 2, 2, 30]), hold("b", 6, [1, 28, 28, 40])];
    let found = violations(&holds);
    assert_eq!(
        found,
        ["/l: a still believed to hold it for 2.000 s beside b, without a fault of members"]
    );
    let with = |fault| judged(&[&holds[..], &[fault]].concat());
    assert_eq!(with(fault("cut-client", 20, 25)).violations.len(), 1);
    assert_eq!(with(fault("leader-alone", 1, 15)).violations.len(), 1, "too long ago");
    let counted = with(fault("leader-alone", 20, 25));
    assert_eq!(counted.violations, []);
    let text = "/l: a still believed to hold it for 2.000 s beside b (leader-alone)".to_owned();
    assert_eq!(counted.counted, [(28 * S, text)]);
    assert_eq!(counted.value("overlaps of naive holds, docent"), Some("1"));
}

#[test]
fn a_stale_hold_of_curator_is_counted() {
    let curator = of_kind("curator", "a", 5, [1, 2, 2, 30]);
    let judgement = judged(&[curator, hold("b", 6, [1, 28, 28, 40])]);
    assert_eq!(judgement.violations, []);
    assert_eq!(judgement.value("longest overlap, Curator"), Some("2.000 s"));
}

fn guarded(element: u64, token: u64, called: u64, returned: u64, outcome: &str) -> String {
    format!(
        "guarded element={element} client=a kind=docent token={token} called={called} returned={returned} outcome={outcome}"
    )
}

fn guarded_violations(elements: &[u64], version: u64, lines: &[String]) -> Vec<String> {
    let elements: Vec<_> = elements.iter().map(u64::to_string).collect();
    let last = format!("final set=guarded version={version} elements={}\n", elements.join(","));
    let judgement = judge(&format!("{}\n{last}{RUN}", lines.join("\n"))).unwrap();
    judgement.violations.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn guarded_writes_are_kept_once_in_order() {
    let lines = [
        guarded(1, 5, 1, 2, "applied"),
        guarded(2, 6, 3, 4, "unknown"),
        guarded(3, 7, 5, 6, "not"),
    ];
    assert_eq!(guarded_violations(&[1, 2], 2, &lines), [""; 0]);
    assert_eq!(guarded_violations(&[1], 1, &lines), [""; 0]);
    assert_eq!(guarded_violations(&[2], 1, &lines), ["the guarded write of 1 by a is lost"]);
    assert_eq!(
        guarded_violations(&[1, 3], 2, &lines),
        ["the guarded write of 3 by a was refused, but is there"]
    );
    assert_eq!(guarded_violations(&[1, 1], 2, &lines), ["the guarded set has 1 twice"]);
    assert_eq!(
        guarded_violations(&[1, 9], 2, &lines),
        ["the guarded set has 9, which no client wrote"]
    );
    assert_eq!(
        guarded_violations(&[1], 2, &lines),
        ["the guarded set has 1 elements after Some(2) writes: one was lost"]
    );
}

#[test]
fn the_tokens_of_guarded_writes_rise_in_their_order() {
    let lines = [guarded(1, 6, 1, 9, "applied"), guarded(2, 5, 2, 8, "applied")];
    assert_eq!(
        guarded_violations(&[1, 2], 2, &lines),
        ["the guarded write of 2 has token 5, behind one of 6"]
    );
    let lines = [guarded(1, 5, 1, 2, "applied"), guarded(2, 5, 3, 4, "applied")];
    assert_eq!(
        guarded_violations(&[2, 1], 2, &lines),
        ["the guarded write of 1 had returned before one in front of it was called"]
    );
}

#[test]
fn what_a_proven_holder_wrote_to_memory_is_not_lost() {
    let memory = |set: &str, element| {
        format!("memory set={set} element={element} client=a kind=docent at=5")
    };
    let last = |set: &str, elements: &str| format!("final set={set} version=- elements={elements}");
    let lost = [memory("proven", 1), memory("proven", 2), last("proven", "2")];
    assert_eq!(violations(&lost), ["the proven set in memory has lost 1 of a"]);
    let naive = judged(&[memory("naive", 1), last("naive", "")]);
    assert_eq!(naive.violations, []);
    assert_eq!(naive.value("lost of the naive set in memory"), Some("1"));
}

fn register(
    op: &str,
    value: u64,
    version: &str,
    [called, returned]: [u64; 2],
    result: &str,
) -> String {
    // For a compare-and-set, the version is the expected one.
    let expected = if op == "cas" { version } else { "-" };
    format!(
        "register key=0 client=c{called} op={op} value={value} expected={expected} version={version} \
         session=s called={called} returned={returned} result={result}"
    )
}

#[test]
fn registers_that_one_order_explains_are_good() {
    assert_eq!(
        violations(&[
            register("set", 1, "1", [1, 2], "ok"),
            register("fenced", 1, "1", [3, 4], "ok"),
            register("cas", 2, "1", [5, 6], "ok"),
            register("cas", 3, "1", [7, 8], "refused"),
            // At the same time, so in either order.
            register("fenced", 4, "3", [9, 12], "ok"),
            register("set", 4, "3", [10, 11], "ok"),
            // Applied long after its caller has given up, or never.
            register("set", 5, "-", [13, 14], "unknown"),
            register("fenced", 4, "3", [15, 16], "ok"),
            register("fenced", 5, "4", [17, 18], "ok"),
            register("set", 6, "-", [19, 20], "unknown"),
            register("set", 7, "-", [19, 20], "not"),
        ]),
        [""; 0]
    );
}

#[test]
fn registers_that_no_order_explains_are_violations() {
    let write = || register("set", 1, "1", [1, 2], "ok");
    for (what, wrong) in [
        (
            "a stale read",
            vec![
                write(),
                register("set", 2, "2", [3, 4], "ok"),
                register("fenced", 1, "1", [5, 6], "ok"),
            ],
        ),
        ("a lost write", vec![write(), register("set", 2, "1", [3, 4], "ok")]),
        ("a value of no write", vec![write(), register("fenced", 9, "1", [3, 4], "ok")]),
        (
            "two for one version",
            vec![
                write(),
                register("cas", 2, "1", [3, 4], "ok"),
                register("cas", 3, "1", [5, 6], "ok"),
            ],
        ),
        (
            "a refusal that was never true",
            vec![write(), register("cas", 2, "1", [3, 4], "refused")],
        ),
        (
            "one that was not applied",
            vec![register("set", 1, "-", [1, 2], "not"), register("fenced", 1, "1", [3, 4], "ok")],
        ),
        (
            "a read of the future",
            vec![register("fenced", 1, "1", [1, 2], "ok"), register("set", 1, "1", [3, 4], "ok")],
        ),
    ] {
        let found = violations(&wrong);
        assert!(
            found.iter().any(|text| text.starts_with("register 0: no order")),
            "{what}: {found:?}"
        );
    }
}

#[test]
fn reads_of_one_session_do_not_go_back() {
    let read = |version: &str, at| {
        register("plain", 1, version, [at, at + 1], "ok")
            .replace(&format!("client=c{at}"), "client=c")
    };
    assert_eq!(violations(&[read("1", 3), read("1", 5), read("2", 7)]), [""; 0]);
    assert_eq!(
        violations(&[read("2", 3), read("1", 5)]),
        ["register 0: c read version 1 after 2 in one session"]
    );
    let other = read("1", 5).replace("session=s", "session=t");
    assert_eq!(violations(&[read("2", 3), other]), [""; 0]);
}

#[test]
fn stale_reads_are_counted() {
    let lines = [
        register("set", 1, "1", [1, 2], "ok"),
        register("plain", 0, "0", [3, 4], "ok"),
        register("synced", 0, "0", [1, 4], "ok"),
    ];
    let judgement = judged(&lines);
    assert_eq!(judgement.violations, []);
    assert_eq!(judgement.value("stale plain reads"), Some("1"));
    assert_eq!(judgement.value("stale reads behind a sync"), Some("0"));
}

#[test]
fn a_command_without_a_reply_is_a_violation_of_docent() {
    let stuck = |kind: &str| format!("stuck client=a kind={kind} command=release at=5");
    assert_eq!(violations(&[stuck("docent")]), ["a: no reply to release"]);
    assert_eq!(violations(&[stuck("curator")]), [""; 0]);
}

#[test]
fn a_history_without_its_end_is_refused() {
    assert_eq!(judge(GUARDED).unwrap_err(), "the history has no line `run`: the run did not end");
    assert_eq!(judge(RUN).unwrap_err(), "the guarded set was not read at the end");
    let wrong = format!("hold lock=/l\n{GUARDED}{RUN}");
    assert_eq!(judge(&wrong).unwrap_err(), "line 1: hold without held");
}
