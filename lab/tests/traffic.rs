//! Live traffic of a client: its frames, the steps of its lock, and who is first.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use docent::{Client, InterProcessMutex};
use docent_lab::tap::Tap;
use docent_testing::TestingServer;

#[tokio::test]
async fn a_lock_through_the_relay_is_shown_step_by_step() {
    let server = TestingServer::start().await.unwrap();
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let tap = Tap::start(free, &server.connect_string()).unwrap();
    let connect = async || Client::connect(&tap.address().to_string()).await.unwrap();
    let (a, b) = (connect().await, connect().await);
    let (first, second) = (InterProcessMutex::new(&a, "/l"), InterProcessMutex::new(&b, "/l"));
    let (first, second) = (first.unwrap(), second.unwrap());
    let held = first.acquire().await.unwrap();
    let release = async {
        // Until the second one watches the first.
        let watches = || {
            let timeline = tap.timeline(0).unwrap();
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
    let timeline = tap.timeline(0).unwrap();
    let steps: Vec<_> = timeline.frames.iter().filter_map(|frame| frame.step).collect();
    for step in ["lock-1", "lock-2", "lock-5", "lock-7", "lock-8", "lock-10"] {
        assert!(steps.contains(&step), "{step} is not in {steps:?}");
    }
    assert_eq!(timeline.clients, ["A", "B"]);
    let believed: Vec<_> = timeline.beliefs.iter().map(|of| of.client).collect();
    assert_eq!((believed, timeline.overlaps.len()), (vec![0, 1], 0));
    assert!(timeline.frames.iter().all(|frame| frame.arrived.is_some()));
    // A password is in no byte that is shown.
    assert!(timeline.frames.iter().filter(|of| of.hex.is_none()).count() >= 4);
    assert!(tap.timeline(timeline.frames.len()).is_none(), "there is nothing new");
}
