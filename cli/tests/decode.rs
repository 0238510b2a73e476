//! `docent decode`: input lines, output lines and exit codes.

use std::{collections::BTreeMap, io::Write as _, thread};

use super::*;

struct Outcome {
    code: i32,
    lines: Vec<String>,
    diagnostics: Vec<String>,
}

fn decode(arguments: &[&str], input: &str) -> Outcome {
    let mut child = Command::new(env!("CARGO_BIN_EXE_docent"))
        .arg("decode")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // Written by a thread, because neither pipe buffers everything. The program may exit before it has read all input.
    let writer = thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let lines =
        |bytes| String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    Outcome {
        code: output.status.code().unwrap(),
        lines: lines(output.stdout),
        diagnostics: lines(output.stderr),
    }
}

const HELLO: &str = "0000002d000000000000000000000000000027100000000000000000000000100000000000000000000000000000000000";
const GET_EPHEMERALS: &str = "0000000f3900000100000067000000032f7a7a";

/// Two interleaved streams of one capture on different ports; a third stream is not ZooKeeper traffic.
#[test]
fn the_streams_of_tshark_are_decoded_separately() {
    let (first, second) = HELLO.split_at(30);
    let input = format!(
        "0\t50000\t2181\t{first}\n1\t50001\t2182\t{HELLO}\n2\t50002\t80\t00\n0\t50000\t2181\t{second}\n\
         1\t50001\t2182\t{GET_EPHEMERALS}\n1\t2182\t50001\t00000010\n"
    );
    let arguments = ["--stream", "--port", "2181", "--port", "2182"];
    let outcome = decode(&arguments, &input);
    assert_eq!(outcome.code, 0);
    let begins: Vec<_> = outcome.lines.iter().map(|line| line.get(..13).unwrap()).collect();
    assert_eq!(begins, ["1 c2s connect", "0 c2s connect", "1 c2s 9563013"]);
    let outcome = decode(&[&arguments[..], &["--json"]].concat(), &input);
    let frame: Value = serde_json::from_str(&outcome.lines[1]).unwrap();
    assert_eq!((&frame["stream"], &frame["kind"]), (&0.into(), &"connect".into()));
}

/// More concurrent streams than are kept.
// Case (Found in docent itself): `docent decode --stream --check` dropped an unfinished stream
// beyond 1,024, and the end of a connection inside a frame before `conn`, reported nothing and
// exited with 0.
#[test]
fn a_stream_that_is_displaced_inside_a_frame_is_reported() {
    let part = |range: std::ops::Range<u32>, hex: &str| -> String {
        range.map(|stream| format!("{stream}\t50000\t2181\t{hex}\n")).collect()
    };
    let outcome = decode(&["--stream", "--check"], &part(0..1100, "0000002d00"));
    assert_eq!((outcome.code, outcome.lines.len(), outcome.diagnostics.len()), (1, 0, 1100));
    let last = "docent decode: the last frame c2s of stream 0 is truncated to 5 bytes";
    assert!(outcome.diagnostics.iter().any(|line| line == last), "{:?}", outcome.diagnostics);

    // Streams that are between two frames are displaced first, and may continue later.
    let (first, second) = HELLO.split_at(30);
    let input = [
        part(0..1, first),
        part(1..1100, HELLO),
        part(0..1, second),
        part(1..2, GET_EPHEMERALS),
        part(0..1, GET_EPHEMERALS),
    ];
    let outcome = decode(&["--stream", "--check"], &input.concat());
    assert_eq!((outcome.code, outcome.diagnostics), (0, vec![]));
    assert_eq!(outcome.lines[1099], outcome.lines[0].replacen('1', "0", 1));
    assert_eq!(
        outcome.lines[1100..],
        ["1 c2s 956301313 getEphemerals /zz", "0 c2s 956301313 getEphemerals /zz"]
    );
}

#[test]
fn check_reports_a_connection_that_ends_inside_a_frame() {
    let outcome = decode(&["--stream", "--check"], "c2s 0000002d00\nconn\n");
    assert_eq!((outcome.code, outcome.lines.len()), (1, 0));
    assert_eq!(outcome.diagnostics, ["docent decode: the last frame c2s is truncated to 5 bytes"]);
}

/// Returns the golden recordings as input, each connection as a `conn` line and its frames, and the number of frames.
fn golden() -> (String, usize) {
    let mut connections = BTreeMap::<String, Vec<Value>>::new();
    for text in [
        include_str!("../../protocol/tests/data/golden.json"),
        include_str!("../../protocol/tests/data/golden-versions.json"),
    ] {
        for entry in serde_json::from_str::<Vec<Value>>(text).unwrap() {
            // Leaves out entries that have only a length, and the empty entry at the end of a connection.
            if entry["op"] != "frame" && entry["hex"] != "" {
                let name = format!("{} {}", entry["server"], entry["conn"]);
                connections.entry(name).or_default().push(entry);
            }
        }
    }
    let (mut input, mut count) = (String::new(), 0);
    for entries in connections.values_mut() {
        entries.sort_by_key(|entry| entry["seq"].as_u64());
        let begins = entries[0]["op"] == "connect" || entries[0]["op"] == "4lw";
        input.push_str(if begins { "conn\n" } else { "conn established\n" });
        for entry in entries {
            let (direction, hex) =
                (entry["direction"].as_str().unwrap(), entry["hex"].as_str().unwrap());
            input.push_str(&format!("{direction} {hex}\n"));
            count += 1;
        }
    }
    (input, count)
}

/// The exceptions are those of protocol/tests/golden.rs, which were sent malformed intentionally.
#[test]
fn golden_frames_are_identical_when_encoded_again_except_known_ones() {
    let (input, count) = golden();
    for form in [&["--check"][..], &["--check", "--json"]] {
        let outcome = decode(form, &input);
        assert_eq!((outcome.code, outcome.lines.len(), outcome.diagnostics.len()), (1, count, 45));
        assert!(outcome.diagnostics.iter().all(|line| line.contains(": c2s ")));
    }
    let diagnostics = decode(&["--check"], &input).diagnostics;
    let malformed: Vec<usize> = diagnostics
        .iter()
        .map(|line| line.split(' ').nth(3).unwrap().trim_end_matches(':').parse().unwrap())
        .collect();
    let valid: Vec<&str> = input
        .lines()
        .enumerate()
        .filter(|(index, _)| !malformed.contains(&(index + 1)))
        .map(|(_, line)| line)
        .collect();
    let outcome = decode(&["--check"], &valid.join("\n"));
    assert_eq!((outcome.code, outcome.diagnostics.len()), (0, 0));
}
