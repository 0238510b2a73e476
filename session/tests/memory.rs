//! The memory that replies keep: at most 64 times their own size, whatever was read with them.
//!
//! Counted by the allocator: resident memory would count whole pages, of all tests, as the allocator chooses.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "a part of it is used")]
#[path = "driver/support.rs"]
mod support;

use std::any::Any;

use allocation_counter::measure;
use bytes::Bytes;
use docent_protocol::{
    Encode, ErrorCode, Stat,
    multi::{MultiReply, MultiResult},
    operation::Read,
    reply::{GetChildrenReply, GetDataReply},
};
use docent_session::{
    Client,
    client::{ReadResult, Response},
};
use support::{Conn, Net, connected, get_data_body, reply};

/// The documented limit.
const TIMES: usize = 64;

/// The bytes of a value besides its data: the count of those that share it.
const HEADER: usize = 64;

/// The bytes of a future that was not polled: the path, the slot, the arguments.
const FUTURE: usize = 512;

/// A client, and the server that it speaks to.
struct Session {
    client: Client,
    conn: Conn,
    _net: Net,
}

impl Session {
    async fn start() -> Self {
        let (client, conn, net) = connected().await;
        Self { client, conn, _net: net }
    }

    /// Answers the next requests in one write, in their order.
    async fn answer(&mut self, bodies: &[Vec<u8>]) {
        let mut out = Vec::new();
        for body in bodies {
            let frame = self.conn.frame().await.unwrap();
            let xid = i32::from_be_bytes(*frame.first_chunk().unwrap());
            out.extend(reply(xid, 1, ErrorCode::Ok, body));
        }
        self.conn.send_bytes(&out).await;
    }

    /// Values of these sizes, answered in one write.
    async fn values(&mut self, sizes: &[usize]) -> Vec<Bytes> {
        let responses: Vec<_> = sizes.iter().map(|_| self.client.get_data("/a")).collect();
        self.answer_with_values(sizes).await;
        let mut values = Vec::new();
        for response in responses {
            values.push(response.await.unwrap().data);
        }
        values
    }

    async fn answer_with_values(&mut self, sizes: &[usize]) {
        let bodies: Vec<_> = sizes.iter().map(|size| get_data_body(&vec![7; *size])).collect();
        tokio::join!(self.answer(&bodies), tokio::task::yield_now());
    }

    /// A listing of this many names, and values behind it, answered in one write.
    async fn listing_and_values(&mut self, names: usize, sizes: &[usize]) -> Vec<Bytes> {
        let listing = self.client.get_children("/a");
        let responses: Vec<_> = sizes.iter().map(|_| self.client.get_data("/a")).collect();
        let mut body = Vec::new();
        let names: Vec<_> = (0..names).map(|at| format!("lock-{at:010}")).collect();
        let names: Vec<_> = names.iter().map(|name| name.as_str().into()).collect();
        GetChildrenReply { children: (&names[..]).into() }.encode(&mut body);
        let bodies: Vec<_> = sizes.iter().map(|size| get_data_body(&vec![7; *size])).collect();
        self.answer(&[&[body], &bodies[..]].concat()).await;
        assert_eq!(listing.await.unwrap().len(), names.len());
        let mut values = Vec::new();
        for response in responses {
            values.push(response.await.unwrap().data);
        }
        values
    }

    /// Values of these sizes, read by one request.
    async fn multi(&mut self, sizes: &[usize]) -> Vec<Bytes> {
        let reads: Vec<_> = sizes.iter().map(|_| Read::GetData("/a")).collect();
        let response = self.client.multi_read(&reads);
        let data = vec![7; sizes.iter().copied().max().unwrap_or(0)];
        let results: Vec<_> = sizes
            .iter()
            .map(|size| {
                let data = data.get(..*size);
                MultiResult::GetData(GetDataReply { data, stat: Stat::default() })
            })
            .collect();
        let mut body = Vec::new();
        MultiReply::new(&results).encode(&mut body);
        self.answer(&[body]).await;
        let results = response.await.unwrap().into_iter();
        results
            .map(|result| match result.unwrap() {
                ReadResult::GetData(node) => node.data,
                other => panic!("{other:?}"),
            })
            .collect()
    }
}

/// The memory kept from a session that has ended: the bytes requested, and their number of parts.
struct Kept {
    what: &'static str,
    size: usize,
    parts: usize,
    besides: usize,
    _kept: Box<dyn Any>,
}

fn values(what: &'static str, values: Vec<Bytes>) -> Kept {
    let size = values.iter().map(Bytes::len).sum();
    let parts = values.len();
    Kept { what, size, parts, besides: HEADER + size_of::<Bytes>() * 2, _kept: Box::new(values) }
}

/// Plays a session to its end, and counts the memory left.
fn keeps_no_more_than_promised(play: impl AsyncFnOnce(&mut Session) -> Kept) -> bool {
    let mut kept = None;
    let info = measure(|| {
        // Paused: nobody answers pings here, however long the machine takes.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        kept = Some(runtime.block_on(async {
            let mut session = Session::start().await;
            play(&mut session).await
        }));
    });
    let kept = kept.unwrap();
    let retained = usize::try_from(info.bytes_current).unwrap();
    let Kept { what, size, parts, besides, .. } = &kept;
    let times = retained as f64 / *size as f64;
    println!("{what}: {size} bytes in {parts} keep {retained}, {times:.1} times as much");
    assert!(*parts > 0 && retained >= *size, "{what}: {retained}");
    retained <= size * TIMES + parts * besides
}

const ROUNDS: usize = 40;

// Case (Found in docent itself): values and answers kept far more than 64 times their size: read
// behind a large reply, as a part of a multi, or not looked at (up to 961 times).
#[test]
fn values_keep_at_most_64_times_their_size() {
    let mut good = true;
    // The first runtime of a process allocates what every later one shares, such as tokio's table of signals.
    drop(tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    for size in [8, 20, 63, 64, 65, 500, 1000, 1024, 1100, 3000, 4095, 4096, 5000, 20_000] {
        good &= keeps_no_more_than_promised(async |session| {
            let mut kept = Vec::new();
            for round in 0..ROUNDS {
                let mut all = session.values(&[size; 100]).await;
                kept.push(all.swap_remove(round));
            }
            values("one of a hundred values", kept)
        });
        good &= keeps_no_more_than_promised(async |session| {
            let mut kept = Vec::new();
            for _ in 0..ROUNDS {
                kept.extend(session.values(&[1 << 20, size, 100]).await.into_iter().skip(1));
            }
            values("values behind one of 1 MiB", kept)
        });
        good &= keeps_no_more_than_promised(async |session| {
            let mut kept = session.listing_and_values(30_000, &[size]).await;
            for _ in 0..ROUNDS {
                kept.extend(session.values(&[size; 30]).await.pop());
            }
            values("values behind a listing of 30,000", kept)
        });
        for (what, total) in [
            ("one value of a multi of 800 bytes", 800),
            ("one value of a multi of 3,000 bytes", 3000),
            ("one value of a multi of 2 MiB", 2 << 20),
        ] {
            good &= keeps_no_more_than_promised(async |session| {
                let mut kept = Vec::new();
                for _ in 0..ROUNDS / 10 {
                    // Each with its type and its Stat.
                    let sizes = vec![size; (total / (size + 81)).max(1)];
                    kept.extend(session.multi(&sizes).await.pop());
                }
                values(what, kept)
            });
        }
        good &= keeps_no_more_than_promised(async |session| {
            let mut kept: Vec<Response<_>> = Vec::new();
            for _ in 0..ROUNDS {
                let sizes = [100, size, 100, 150_000];
                let mut responses: Vec<_> =
                    sizes.iter().map(|_| session.client.get_data("/a")).collect();
                session.answer_with_values(&sizes).await;
                responses.pop().unwrap().await.unwrap();
                kept.push(responses.swap_remove(1));
            }
            // The record, with its Stat and the length of the data.
            let (parts, size) = (kept.len(), kept.len() * (size + 72));
            let what = "an answer that was not looked at";
            Kept { what, size, parts, besides: FUTURE, _kept: Box::new(kept) }
        });
    }
    // Anything in any order.
    let mut random = 1_u64;
    let mut random = move |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(random >> 33).unwrap() % below
    };
    good &= keeps_no_more_than_promised(async |session| {
        let mut kept = Vec::new();
        for _ in 0..200 {
            let all = [10, 64, 500, 1023, 1024, 4096, 5000, 60_000, 140_000, 300_000, 1_500_000];
            let sizes: Vec<_> = (0..=random(20)).map(|_| all[random(all.len())]).collect();
            let values = session.values(&sizes).await;
            kept.extend(
                values
                    .into_iter()
                    .filter(|value| (1..=5000).contains(&value.len()) && random(10) == 0),
            );
        }
        values("anything", kept)
    });
    assert!(good, "more than {TIMES} times: see above");
}
