//! Test support for ZooKeeper programs. **Test doubles only**: nothing here stores data on disk or replicates it.
//!
//! * [`TestingServer`], [`TestingCluster`]: an embedded ZooKeeper that works with every client. It starts within a
//!   millisecond, in the test process, without Java.
//! * [`server::Ensemble`]: the same server without sockets and without a clock, for simulations.
//! * [`tap`]: a recording proxy for any server, real or embedded, with fault injection.
//! * [`fault`]: the faults that can be injected.
//!
//! The crate depends on the wire protocol (`docent-protocol`) and on no client. Its recordings are independent
//! evidence of a client's behaviour: they contain only the client's bytes.
//!
//! # Usage
//!
//! ```no_run
//! # async fn a_lock_survives_a_cut_connection() -> std::io::Result<()> {
//! use std::time::Duration;
//! use docent_protocol::OpCode;
//! use docent_testing::{TestingServer, fault::Fault};
//!
//! let server = TestingServer::start().await?;      // on a free loopback port, until dropped
//! let tap = server.tap().await?;                   // optional: records traffic, injects faults
//! let a = tap.client("A").await?;
//!
//! // Connect any client to `a.connect_string()` and send its requests. Then:
//! tap.inject(Fault::drop_reply(OpCode::Create2));  // the next create takes effect, its reply is lost
//! a.cut();                                         // the connection breaks
//! a.kill_session(Duration::from_secs(5)).await?;   // the session ends, as Curator's KillSession does
//! server.restart().await?;                         // the server goes away and comes back
//! println!("{}", tap.trace().text());              // the conversation, frame by frame
//! # Ok(())
//! # }
//! ```
//!
//! A server is cheap enough to start one per test. Wait for a condition ([`tap::Tap::wait_for`]) instead of sleeping.
//!
//! # Fidelity
//!
//! Replies, errors, Stats, zxids and events match a real 3.8.0 server: `tests/differential.rs` sends the same random
//! requests to both and compares the replies. 3.4, 3.6 and 3.9 ([`server::Version`]) follow measurements on 3.4.14,
//! 3.6.3 and 3.9.5. 3.5 is 3.6 without what came with 3.6, 3.10 is 3.9 with the addresses of ZOOKEEPER-4276, and ClickHouse
//! Keeper is as its issues describe it (`docs/KEEPER.md`): none of these was measured. The remaining differences:
//!
//! | aspect | docent | ZooKeeper |
//! |---|---|---|
//! | order of children, of getEphemerals, of whoAmI, of the deletes of one closeSession | by name | hash table order |
//! | auth, SASL and unknown operations | answered in order | overtake other requests |
//! | requests behind a closeSession, or behind an unknown operation | no reply | a race |
//! | createTTL without a TTL mode and with a negative TTL | ends the connection | stops the server permanently |
//! | check outside a multi, up to 3.8 | a reply | no reply, and the server cannot load its log |
//! | addWatch with a null path | a normal watch | its connection cannot be closed |
//! | the sequence counter past 2147483647, requests pipelined | sticks | may become negative, depending on timing |
//! | order of ACL entries in 3.4 | `auth` after all others | not preserved |
//! | four-letter words | all that the version knows; no latency, files or JVM; each client's port is 0 | as configured: only `srvr` by default |
//! | sessions that only a read-only server knows | live as long as the server is read-only | expire |
//! | a multiRead of more than 256 MiB | ends the connection | a reply up to 2 GiB, if the memory is there |
//! | number of connections and of requests in flight | unlimited; of a client that does not read, no request is handled once 8 MiB wait for it | limited |
//!
//! ## Ensembles
//!
//! The members of an ensemble exchange proposals, acknowledgements, commits, pings and session reports over links that
//! can be cut, in one direction or in both: [`Ensemble::cut`](server::Ensemble::cut),
//! [`isolate`](server::Ensemble::isolate), [`heal`](server::Ensemble::heal). The table below was measured on three
//! real 3.8.0 servers:
//!
//! | cut | consequence |
//! |---|---|
//! | a follower from its leader | It goes on answering pings and reads from its own tree, which no longer changes. The leader does not hear of these clients: it expires their sessions and deletes their nodes, while they get answers. After [`sync_limit`](server::Config::sync_limit) ticks without a message from the leader it closes its clients' connections. |
//! | a leader from all followers | It goes on answering pings, reads and `sync`, so an answered `sync` proves nothing. It steps down at the first tick after it has missed a majority for `sync_limit` ticks, and closes its clients' connections. |
//! | either | A write waits, and with it all later requests of its connection, pings too. It takes effect when the link is healed in time, or when the same leader leads again, or never. So does a handshake: a new session is a write, and only the leader knows which sessions exist. |
//! | a member from its clients | Bytes wait on their side; no connection can be made. The members go on. |
//!
//! And without any cut:
//!
//! * A follower reports its clients' activity to the leader every half tick. A write through a follower does not renew
//!   the session at once; a resumed connection does.
//! * A touch counts with the timeout that it carries, even if it brings the expiry forward. A new leader restarts every
//!   session with the timeout of its creation, whatever was granted when it was resumed.
//! * A change that no majority has accepted is kept in the log of the members that have it. It is committed if one of them
//!   leads next, and dropped otherwise.
//!
//! Where this differs from ZooKeeper:
//!
//! | aspect | docent | ZooKeeper |
//! |---|---|---|
//! | election | at once, between members that reach each other in both directions | takes 200 ms or more, and rounds that may fail |
//! | a link that is not cut | without delay, in order | network and disk |
//! | the other direction of a link that is cut in one | goes on | goes on until TCP waits for an acknowledgement |
//! | a leader whose followers are stopped ([`stop_member`](server::Ensemble::stop_member)) | steps down at once | at its next tick |
//! | a member without a leader | read-only at once, if enabled; it shows committed changes | after two seconds or more; it may show others too |
//! | a returning member | takes the leader's tree | takes the difference, if it is small |
//!
//! ```
//! use std::time::Duration;
//! use docent_testing::server::{Config, Ensemble, Role};
//!
//! let mut ensemble = Ensemble::new(Config { servers: 3, ..Config::default() });
//! ensemble.isolate(Duration::from_secs(1), 0);
//! // Two leaders for a while: the new one, and the old one that has not noticed.
//! while ensemble.leader() == Some(0) {
//!     let due = ensemble.poll_timeout().unwrap();
//!     ensemble.handle_timeout(due);
//! }
//! assert_eq!((ensemble.role(0), ensemble.role(1)), (Role::Leader, Role::Leader));
//! ```
//!
//! ## Reconfiguration and quotas
//!
//! `/zookeeper/config` names the members of an ensemble, with their addresses for clients and a version. With
//! [`reconfig_enabled`](server::Config::reconfig_enabled), the super user changes them; the errors, the bytes and the
//! events are those of a real 3.8.0. Removed members do not vote any more and go on as followers; a leader that is removed
//! steps down. A single server is an ensemble of one without [`standalone_enabled`](server::Config::standalone_enabled).
//! Statistics of quotas are kept; [`enforce_quota`](server::Config::enforce_quota) refuses changes over the hard limits.
//!
//! | aspect | docent | ZooKeeper |
//! |---|---|---|
//! | order of the servers in `/zookeeper/config` | by their numbers | hash table order |
//! | address for clients in `/zookeeper/config`, before a change | always there | only if the configuration file has it there |
//! | servers that a change adds, beyond the members | never connect | connect once they are started |
//! | majority for a change | of the old members | of the old members and of the new ones |
//! | groups and weights of servers | refused | a hierarchical quorum |
//! | creation of `/zookeeper/quota/zookeeper_limits`; statistics that are no numbers | ends the connection; stay as they are | stops the server |
//!
//! Observers that connect and the admin server are not supported. The feature `sasl` adds SASL with DIGEST-MD5, for the
//! users of [`server::Config`]; the feature `tls` adds TLS by ring, `tls-aws-lc-rs` by aws-lc-rs, and `tls-no-provider` by the
//! provider that the program installs, with the certificates of [`server::Config`].

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod fault;
mod kept_port;
pub mod server;
pub mod tap;

pub use server::{TestingCluster, TestingServer};
