//! Traffic of clients, live and captured: its frames, the steps of its lock, and who is first.

use std::{
    fmt::Write as _,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use docent::{Client, CreateMode, InterProcessMutex};
use docent_lab::{timeline::Timeline, traffic::Traffic};
use docent_protocol::OpCode;
use docent_testing::{
    TestingServer,
    fault::Fault,
    tap::{Segment, Tap},
};

/// A file that is removed at the end.
struct Kept(PathBuf);

impl Kept {
    fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = std::env::temp_dir().join(format!("docent-lab-{}-{name}", std::process::id()));
        fs::write(&path, content).unwrap();
        Self(path)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Two clients acquire a lock one after the other, through a relay of the lab, behind which a tap captures. Returns what
/// the relay shows, and the capture.
async fn two_clients() -> (Timeline, Vec<Segment>) {
    let server = TestingServer::start().await.unwrap();
    let tap = Tap::start(&server.connect_string()).await.unwrap();
    let mut captured = tap.capture();
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (traffic, address) = Traffic::relay(free, &tap.connect_string()).unwrap();
    let connect = async || Client::connect(&address.to_string()).await.unwrap();
    let (a, b) = (connect().await, connect().await);
    let (first, second) = (InterProcessMutex::new(&a, "/l"), InterProcessMutex::new(&b, "/l"));
    let (first, second) = (first.unwrap(), second.unwrap());
    let held = first.acquire().await.unwrap();
    let release = async {
        // Until the second one watches the first.
        let watches = || {
            let timeline = traffic.timeline(0).unwrap();
            timeline.frames.iter().any(|frame| frame.step == Some("lock-7") && !frame.to_server)
        };
        while !watches() {
            tokio::task::yield_now().await;
        }
        held.release().await.unwrap();
    };
    let both = async { tokio::join!(second.acquire(), release) };
    let (next, ()) = tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
    next.unwrap().release().await.unwrap();
    a.close().await.unwrap();
    b.close().await.unwrap();
    let mut segments = Vec::new();
    while let Ok(Some(segment)) = tokio::time::timeout(Duration::ZERO, captured.next()).await {
        segments.push(segment);
    }
    let timeline = traffic.timeline(0).unwrap();
    assert!(traffic.timeline(timeline.frames.len()).is_none(), "there is nothing new");
    (timeline, segments)
}

fn assert_shows_two_clients(timeline: &Timeline) {
    let steps: Vec<_> = timeline.frames.iter().filter_map(|frame| frame.step).collect();
    for step in ["lock-1", "lock-2", "lock-5", "lock-6", "lock-7", "lock-8", "lock-10"] {
        assert!(steps.contains(&step), "{step} is not in {steps:?}");
    }
    assert_eq!(timeline.clients, ["A", "B"]);
    let believed: Vec<_> = timeline.beliefs.iter().map(|of| of.client).collect();
    assert_eq!((believed, timeline.overlaps.len()), (vec![0, 1], 0));
    assert!(timeline.frames.iter().all(|frame| frame.arrived.is_some()));
    // A password is in no byte that is shown.
    assert!(timeline.frames.iter().filter(|of| of.hex.is_none()).count() >= 4);
    assert!(!timeline.is_cut_off && !timeline.takes_faults);
}

/// What is the same on the relay and in the capture, client by client.
fn of_clients(timeline: &Timeline) -> Vec<(usize, &str, Option<&str>)> {
    let frames = timeline.frames.iter();
    let mut shown: Vec<_> = frames.map(|of| (of.client, of.text.as_str(), of.step)).collect();
    shown.sort_by_key(|(client, ..)| *client);
    shown
}

#[tokio::test]
async fn a_lock_is_shown_step_by_step_live_and_from_a_capture() {
    let (live, segments) = two_clients().await;
    assert_shows_two_clients(&live);
    assert!(live.is_live);
    let lines: String = segments.iter().map(|segment| format!("{segment}\n")).collect();
    let tshark = segments.iter().fold(String::new(), |mut lines, segment| {
        let words = segment.to_string();
        let ports = words.replace("\tc2s\t", "\t5000\t2999\t").replace("\ts2c\t", "\t2999\t5000\t");
        writeln!(lines, "{ports}").unwrap();
        lines
    });
    for (name, text, ports) in [("tap", &lines, [2181]), ("tshark", &tshark, [2999])] {
        let file = Kept::new(name, format!("# a comment\n\n{text}"));
        let captured = Traffic::read(&file.0, &ports).unwrap().timeline(0).unwrap();
        assert_shows_two_clients(&captured);
        assert_eq!(of_clients(&captured), of_clients(&live), "{name}");
        assert!(!captured.is_live && captured.end > 0);
    }
}

/// A holder whose create had no reply is known by the GUID.
#[tokio::test]
async fn a_holder_whose_create_had_no_reply_is_shown() {
    let server = TestingServer::start().await.unwrap();
    let tap = Tap::start(&server.connect_string()).await.unwrap();
    tap.inject(Fault::drop_reply(OpCode::Create2));
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (traffic, address) = Traffic::relay(free, &tap.connect_string()).unwrap();
    let client = Client::connect(&address.to_string()).await.unwrap();
    client.create("/l", b"", CreateMode::Container).await.unwrap();
    let held = InterProcessMutex::new(&client, "/l").unwrap().acquire().await.unwrap();
    held.release().await.unwrap();
    client.close().await.unwrap();
    let timeline = traffic.timeline(0).unwrap();
    let steps: Vec<_> = timeline.frames.iter().filter_map(|frame| frame.step).collect();
    assert!(steps.contains(&"lock-3") && steps.contains(&"lock-10"), "{steps:?}");
    assert_eq!(timeline.beliefs.iter().map(|of| of.client).collect::<Vec<_>>(), [0]);
}

/// The handshake of a connection may be missing, and the lines may have no times.
#[test]
fn a_capture_that_begins_behind_a_handshake_is_read() {
    let exists = "c2s 0000000f3900000100000003000000022f6100";
    let file = Kept::new("established", format!("conn established\n{exists}\n"));
    let timeline = Traffic::read(&file.0, &[]).unwrap().timeline(0).unwrap();
    let frames: Vec<_> = timeline.frames.iter().map(|frame| frame.text.as_str()).collect();
    assert_eq!((timeline.clients.len(), frames), (1, vec!["956301313 exists /a"]));
}

#[test]
fn a_file_that_is_no_capture_is_an_error_of_one_line() {
    let read = |path: &Path| Traffic::read(path, &[2181]).err().unwrap();
    let pcap = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0".as_slice();
    let long = [b"c2s ".to_vec(), vec![b'0'; 2 << 20]].concat();
    for (name, content, expected) in [
        ("pcap", pcap, "line 1: expected `c2s HEX`"),
        ("truncated", b"0.1\t1\tc2s\t0000002d0\n", "line 1: an odd number"),
        ("empty", b"", "no frame"),
        ("comment", b"# said\n", "no frame"),
        ("of another port", b"1\t5000\t80\t474554\n", "no frame"),
        ("start of a frame", b"0.1\t1\tc2s\t0000002d00\n", "no frame"),
        ("long", &long, "line 1: is too long"),
    ] {
        let error = read(&Kept::new(name, content).0);
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{name}: {error}");
        let error = error.to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{name}: {error}");
    }
    assert_eq!(read(Path::new("/no/such/file")).kind(), io::ErrorKind::NotFound);
}

/// Neither many frames nor long ones fill the memory.
#[test]
fn a_capture_without_end_is_cut_off() {
    let ping = "c2s 00000008fffffffe0000000b\n";
    let frames = format!("conn established\n{}", ping.repeat(6_000));
    let data = format!("c2s {:08x}{}\n", 300_000, "00".repeat(300_000));
    let bytes = format!("conn established\n{}", data.repeat(40));
    for (name, text, most) in [("frames", frames, 5_000), ("bytes", bytes, 30)] {
        let file = Kept::new(name, text);
        let timeline = Traffic::read(&file.0, &[]).unwrap().timeline(0).unwrap();
        assert!(timeline.is_cut_off && timeline.frames.len() <= most, "{name}");
    }
}
