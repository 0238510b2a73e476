//! Diagrams of runs.

use docent_sim::{
    run::diagram,
    world::{
        history::{History, Record, What},
        time::SECOND,
    },
};

#[test]
fn messages_are_arrows_and_the_rest_are_notes() {
    let frame = |to_server, text: &str| What::Frame {
        pid: 0,
        member: 1,
        to_server,
        is_event: false,
        text: text.to_owned(),
    };
    let guid = "01234567-89ab-4def-8123-456789abcdef";
    let whats = [
        frame(true, &format!("create2 /m/_c_{guid}-lock-")),
        frame(true, "-2 ping"),
        frame(false, &format!("create2 /m/_c_{guid}-lock-0000000000")),
        What::Violation("bad; very bad".to_owned()),
        What::Finished(0),
    ];
    let records = whats.into_iter().map(|what| Record { at: SECOND, what }).collect();
    assert_eq!(
        diagram::draw(&History { records }, 1, 2),
        "sequenceDiagram\n    participant p0\n    participant s0\n    participant s1\n    \
         p0->>s1: create2 /m/_c_G1-lock-\n    s1-->>p0: create2 /m/_c_G1-lock-0000000000\n    \
         Note over p0,s1: 1.000 s: VIOLATION: bad, very bad\n"
    );
}
