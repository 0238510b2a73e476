//! ZooKeeper's wire protocol: every message, in both directions, without IO.
//!
//! The crate decodes bytes into values and encodes values into bytes. It has no sockets, no clock, no async and
//! no unsafe code; it depends on `bytes` and `nom`, and works without `std` (`default-features = false`).
//!
//! * [`frame`]: the four-byte length in front of every message.
//! * [`jute`]: the primitives (int, long, buffer, ustring, vector) and the traits [`Encode`] and [`Decode`].
//! * [`connect`], [`request`], [`reply`], [`multi`], [`watch`]: the records, field by field as on the wire. A
//!   decoded record borrows from its frame; nothing is copied.
//! * [`operation`]: the requests a client may send. It cannot express a request that harms a server.
//! * [`fields`]: the names and values in a record, from which lines and JSON are written.
//! * [`dissect`]: decodes both directions of a connection, frame by frame.
//! * [`raw`]: encodes any request, for fuzzers and tools. Read its warning.
//!
//! # Example
//!
//! Decodes a `getData` reply of a 3.8.0 server:
//!
//! ```
//! use docent_protocol::{Decode, ErrorCode, frame, jute::Reader, reply::{GetDataReply, ReplyHeader}};
//!
//! let captured = [&[0, 0, 0, 0x5d, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 2, 0x77, 0, 0, 0, 0,
//!                   0, 0, 0, 5][..], b"hello", &[0; 68]].concat();
//! let (payload, rest) = frame::split(&captured, frame::DEFAULT_LIMIT)?.expect("a complete frame");
//! assert!(rest.is_empty());
//!
//! let mut reader = Reader::new(payload);
//! let header = ReplyHeader::decode(&mut reader)?;
//! assert_eq!((header.xid, header.zxid, header.err), (32, 0x277, ErrorCode::Ok));
//! assert_eq!(GetDataReply::decode(&mut reader)?.data, Some(&b"hello"[..]));
//! # Ok::<(), docent_protocol::DecodeError>(())
//! ```
//!
//! Source: `zookeeper.jute`, `ZooDefs`, `KeeperException` and `BinaryInputArchive` of ZooKeeper 3.4 to 3.9.
//! Every fact was checked against frames of real servers (`tests/golden.rs`).

#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod macros;

pub mod acl;
#[cfg(feature = "arbitrary")]
pub mod arbitrary;
mod client_info;
pub mod connect;
mod digest;
mod display;
pub mod dissect;
mod error;
mod error_code;
mod escape;
pub mod fields;
pub mod frame;
mod harmful;
pub mod jute;
pub mod multi;
mod op;
pub mod operation;
pub mod path;
pub mod raw;
pub mod reply;
pub mod request;
#[cfg(feature = "serde")]
mod serde;
mod stat;
mod text;
pub mod watch;

pub use acl::{Acl, Id, Perms};
pub use dissect::{Direction, Dissector};
pub use error::{DecodeError, DecodeErrorKind, FrameTooLarge};
pub use error_code::ErrorCode;
pub use escape::{Escaped, EscapedJson};
pub use jute::{Decode, Encode, List};
pub use op::{AddWatchMode, CreateMode, OpCode, Ttl, WatcherType, xid};
pub use path::{PathError, sequence_number};
pub use stat::Stat;
pub use text::Text;
pub use watch::{EventType, KeeperState, WatcherEvent};
