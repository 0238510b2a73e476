//! What tests of ZooKeeper programs need. **Test doubles only**: nothing here keeps anything on disk or
//! replicates anything.
//!
//! * [`TestingServer`], [`TestingCluster`]: an embedded ZooKeeper that every client accepts. Starts in a
//!   millisecond, in the process of the test, without Java.
//! * [`server::Ensemble`]: the same without sockets and clock, for simulations.
//! * [`tap`]: a recording proxy in front of any server, real or not, with faults on request.
//! * [`fault`]: the vocabulary of faults.
//!
//! The crate knows the wire protocol (`docent-protocol`) and no client: what it says about a client is
//! evidence, because it can only have seen its bytes.
//!
//! # In your own tests
//!
//! ```no_run
//! # async fn a_lock_survives_a_cut_connection() -> std::io::Result<()> {
//! use std::time::Duration;
//! use docent_protocol::OpCode;
//! use docent_testing::{TestingServer, fault::Fault};
//!
//! let server = TestingServer::start().await?;      // a free loopback port, gone when dropped
//! let tap = server.tap().await?;                   // optional: see and hurt what passes
//! let a = tap.client("A").await?;
//!
//! // Connect any client to `a.connect_string()`, and let it do its work. Then:
//! tap.inject(Fault::drop_reply(OpCode::Create2));  // the next create takes effect, its reply is lost
//! a.cut();                                         // the connection breaks
//! a.kill_session(Duration::from_secs(5)).await?;   // the session ends, as Curator's KillSession does
//! server.restart().await?;                         // the server goes away and comes back
//! println!("{}", tap.trace().text());              // what was said, frame by frame
//! # Ok(())
//! # }
//! ```
//!
//! Each test can have a server of its own. Wait for what must happen ([`tap::Tap::wait_for`]), never for
//! time to pass.
//!
//! # How faithful it is
//!
//! Answers, errors, Stats, zxids and events are a real 3.8.0 server's: the same random requests to both
//! get the same answers (`tests/differential.rs`). 3.4, 3.6 and 3.9 ([`server::Version`]) follow what was
//! measured on 3.4.14, 3.6.3 and 3.9.5. The differences that are left:
//!
//! | what | here | there |
//! |---|---|---|
//! | order of children, of getEphemerals, of whoAmI, of the deletes of one closeSession | by name | that of a hash table |
//! | auth, SASL and unknown operations | answered in turn | overtake |
//! | requests behind a closeSession, or behind an unknown operation | not answered | a race |
//! | createTTL without a TTL mode and with a negative TTL | ends the connection | ends the server for good |
//! | check outside a multi, up to 3.8 | answered | not answered, and the server cannot load its log |
//! | addWatch with a null path | a watch like any other | its connection cannot be closed |
//! | the sequence counter past 2147483647, requests pipelined | sticks | may go negative, by timing |
//! | order of ACL entries in 3.4 | `auth` behind all others | not kept |
//! | four-letter words | `ruok`, `srvr`, `mntr`, `isro` | as configured |
//! | sessions that only a read-only server knows | live as long as it is read-only | expire |
//! | numbers of connections and of requests in flight | not limited; a client that does not read is not read | limited |
//!
//! It has no TLS, no quotas, no reconfig (`RECONFIGDISABLED`), no observers and no admin server. SASL is
//! there with the feature `sasl`: DIGEST-MD5, for the users of [`server::Config`].

pub mod fault;
pub mod server;
pub mod tap;

pub use server::{TestingCluster, TestingServer};
