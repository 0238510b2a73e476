//! `docent decode`: input lines, output lines and exit codes.

use super::*;

const HELLO: &str = "0000002d000000000000000000000000000027100000000000000000000000100000000000000000000000000000000000";
const GET_EPHEMERALS: &str = "0000000f3900000100000067000000032f7a7a";

/// Runs `docent decode --stream` with these options.
async fn decode(options: &[&str], input: &str) -> Ran {
    run_with_input("", &[&["decode", "--stream"], options].concat(), input).await
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

/// Two interleaved streams of one capture on different ports; a third stream is not ZooKeeper traffic.
#[tokio::test]
async fn the_streams_of_tshark_are_decoded_separately() {
    let (first, second) = HELLO.split_at(30);
    let input = format!(
        "0\t50000\t2181\t{first}\n1\t50001\t2182\t{HELLO}\n2\t50002\t80\t00\n0\t50000\t2181\t{second}\n\
         1\t50001\t2182\t{GET_EPHEMERALS}\n1\t2182\t50001\t00000010\n"
    );
    let ports = ["--port", "2181", "--port", "2182"];
    let text = decode(&ports, &input).await.ok();
    let begins: Vec<_> = text.lines().map(|line| line.get(..13).unwrap()).collect();
    assert_eq!(begins, ["1 c2s connect", "0 c2s connect", "1 c2s 9563013"]);
    let json = decode(&[&ports[..], &["--json"]].concat(), &input).await.ok();
    let frame: Value = serde_json::from_str(lines(&json)[1]).unwrap();
    assert_eq!((&frame["stream"], &frame["kind"]), (&0.into(), &"connect".into()));
}

/// More concurrent streams than are kept.
// Case (Found in docent itself): `docent decode --stream --check` dropped an unfinished stream
// beyond 1,024, and the end of a connection inside a frame before `conn`, reported nothing and
// exited with 0.
#[tokio::test]
async fn a_stream_that_is_displaced_inside_a_frame_is_reported() {
    let part = |range: std::ops::Range<u32>, hex: &str| -> String {
        range.map(|stream| format!("{stream}\t50000\t2181\t{hex}\n")).collect()
    };
    let ran = decode(&["--check"], &part(0..1100, "0000002d00")).await;
    let errors = lines(&ran.err);
    assert_eq!((ran.code, ran.out.as_str(), errors.len()), (Some(1), "", 1100));
    let last = "docent decode: the last frame c2s of stream 0 is truncated to 5 bytes";
    assert!(errors.contains(&last), "{errors:?}");

    // Streams that are between two frames are displaced first, and may continue later.
    let (first, second) = HELLO.split_at(30);
    let input = [
        part(0..1, first),
        part(1..1100, HELLO),
        part(0..1, second),
        part(1..2, GET_EPHEMERALS),
        part(0..1, GET_EPHEMERALS),
    ];
    let text = decode(&["--check"], &input.concat()).await.ok();
    let lines = lines(&text);
    assert_eq!(lines[1099], lines[0].replacen('1', "0", 1));
    assert_eq!(
        lines[1100..],
        ["1 c2s 956301313 getEphemerals /zz", "0 c2s 956301313 getEphemerals /zz"]
    );
}
