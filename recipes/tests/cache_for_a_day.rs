//! A cache whose session expires every minute, in virtual time: neither its memory nor its tasks nor its watches grow.
//!
//! An hour by default; `DOCENT_CACHE_HOURS=24`: a day.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::{sync::Arc, time::Duration};

use docent_protocol::CreateMode;
use docent_recipes::cache::{CacheEvent, CacheOptions, CuratorCache};
use docent_session::{Client, Events};
use docent_testing::TestingServer;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use support::InProcess;

const NODES: usize = 200;
const MINUTE: Duration = Duration::from_secs(60);

/// Counts the resyncs of the cache, and its other events.
async fn count(mut events: Events<CacheEvent>, counts: watch::Sender<(u64, u64)>) {
    while let Some(event) = events.next().await {
        let is_resynced = matches!(event, CacheEvent::Resynced { .. });
        counts.send_modify(|(resynced, others)| {
            *resynced += u64::from(is_resynced);
            *others += u64::from(!is_resynced);
        });
    }
}

struct World {
    server: Arc<TestingServer>,
    writer: Client,
    reader: Client,
    cache: CuratorCache,
    counts: watch::Receiver<(u64, u64)>,
    minutes: usize,
}

fn path(number: usize) -> String {
    format!("/cached/n{:03}", number % NODES)
}

impl World {
    async fn new() -> Self {
        let server = Arc::new(TestingServer::start().await.unwrap());
        let config =
            || InProcess::new(&server).config().with_session_timeout(Duration::from_secs(6));
        let writer = config().connect().await.unwrap();
        let reader = config().connect().await.unwrap();
        writer.create("/cached", b"", CreateMode::Persistent).await.unwrap();
        for number in 0..NODES {
            writer.create(&path(number), &[0; 100], CreateMode::Persistent).await.unwrap();
        }
        let options = CacheOptions::default();
        let (cache, events) = CuratorCache::start_with_events(&reader, "/cached", options).unwrap();
        let (sender, counts) = watch::channel((0, 0));
        tokio::spawn(count(events, sender));
        cache.initialized().await.unwrap();
        Self { server, writer, reader, cache, counts, minutes: 0 }
    }

    /// Some nodes are written and replaced, and the session of the cache expires.
    async fn minute(&mut self) {
        let next = Instant::now() + MINUTE;
        for number in 0..5 {
            let written = path(5 * self.minutes + number);
            self.writer.set_data(&written, &[1; 100], None).await.unwrap();
        }
        let session = self.reader.session().unwrap().session_id();
        assert!(self.server.expire_session(session));
        // While the cache is cut off.
        let replaced = path(7 * self.minutes);
        self.writer.delete(&replaced, None).await.unwrap();
        self.writer.create(&replaced, &[2; 100], CreateMode::Persistent).await.unwrap();
        self.minutes += 1;
        let wanted = self.minutes as u64;
        let resynced = self.counts.wait_for(|(resynced, _)| *resynced == wanted);
        timeout(MINUTE / 2, resynced).await.expect("resynced within the minute").unwrap();
        assert_ne!(self.reader.session().unwrap().session_id(), session);
        sleep_until(next).await;
    }

    /// Entries, failures, watches, pending requests, and sessions on the server.
    fn sizes(&self) -> [usize; 5] {
        let metrics = self.reader.metrics();
        let sessions = self.server.session_ids().len();
        let failures = self.cache.failures().len();
        [self.cache.len(), failures, metrics.watches, metrics.pending, sessions]
    }
}

// Case (Caches): the session of a cache expires every minute for a day: entries, watches, tasks and
// memory stay the same.
#[test]
fn a_cache_whose_session_expires_every_minute_keeps_its_size() {
    let hours = std::env::var("DOCENT_CACHE_HOURS").map_or(1, |text| text.parse().unwrap());
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let mut world = runtime.block_on(World::new());
    let minutes = |world: &mut World, count: usize| {
        runtime.block_on(async {
            for _ in 0..count {
                world.minute().await;
            }
        });
    };
    // After some rounds, buffers no longer grow.
    minutes(&mut world, 10);
    let (sizes, tasks) = (world.sizes(), runtime.metrics().num_alive_tasks());
    assert_eq!(sizes, [NODES + 1, 0, 1, 0, 2]);
    let mut grown = 0;
    for period in 1..=6 * hours {
        let info = allocation_counter::measure(|| minutes(&mut world, 10));
        grown += info.bytes_current;
        println!("{} minutes: {grown} bytes more, {info:?}", 10 * period);
        assert_eq!(world.sizes(), sizes, "after period {period}");
        assert_eq!(runtime.metrics().num_alive_tasks(), tasks, "after period {period}");
        assert!(info.count_total > 1000, "{info:?}: the work is done in this thread");
        // The memory of client, cache and server together. A leak of 40 bytes in each session is found within an hour.
        // The memory may shrink: some buffers are replaced by smaller ones.
        assert!(grown < 2048, "{grown} bytes after period {period}");
    }
    runtime.block_on(async {
        world.cache.close().await;
        world.reader.close().await.unwrap();
        world.writer.close().await.unwrap();
    });
}
