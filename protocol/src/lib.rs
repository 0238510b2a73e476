//! ZooKeeper's wire protocol: every message, in both directions, without IO.
//!
//! Bytes in, values out, and back. The crate has no sockets, no clock, no async and no unsafe; it
//! depends on `bytes` and `nom`, and works without `std` (`default-features = false`).
//!
//! * [`frame`]: the four-byte length in front of everything.
//! * [`jute`]: the primitives (int, long, buffer, ustring, vector) and the two traits
//!   [`Encode`] and [`Decode`].
//! * [`connect`], [`request`], [`reply`], [`multi`], [`watch`]: the records, as they are on the wire.
//!   They borrow from the frame they were read from; nothing is copied.
//! * [`call`]: what a client may send. Requests that would destroy a server cannot be said in it.
//! * [`follow`]: reads both directions of a connection and tells what each frame says.
//! * [`raw`]: everything, for fuzzers and tools. Read its warning.
//!
//! # Example
//!
//! A `getData` reply as a 3.8.0 server sent it:
//!
//! ```
//! use docent_protocol::{Decode, ErrorCode, frame, jute::Reader, reply::{GetDataReply, ReplyHeader}};
//!
//! let captured = [&[0, 0, 0, 0x5d, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 2, 0x77, 0, 0, 0, 0,
//!                   0, 0, 0, 5][..], b"hello", &[0; 68]].concat();
//! let (payload, rest) = frame::split(&captured, frame::DEFAULT_LIMIT)?.expect("a whole frame");
//! assert!(rest.is_empty());
//!
//! let mut reader = Reader::new(payload);
//! let header = ReplyHeader::decode(&mut reader)?;
//! assert_eq!((header.xid, header.zxid, header.err), (32, 0x277, ErrorCode::Ok));
//! assert_eq!(GetDataReply::decode(&mut reader)?.data, Some(&b"hello"[..]));
//! # Ok::<(), docent_protocol::DecodeError>(())
//! ```
//!
//! Source: `zookeeper.jute`, `ZooDefs`, `KeeperException` and `BinaryInputArchive` of ZooKeeper 3.4 to
//! 3.10; each fact was checked against frames of real servers (`tests/golden.rs`).

#![no_std]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod macros;

pub mod acl;
pub mod call;
pub mod connect;
mod error;
mod error_code;
pub mod follow;
pub mod frame;
#[cfg(feature = "arbitrary")]
pub mod generate;
pub mod jute;
pub mod multi;
mod op;
pub mod path;
pub mod raw;
pub mod reply;
pub mod request;
#[cfg(feature = "serde")]
mod serial;
mod show;
mod stat;
mod text;
pub mod watch;

pub use acl::{Acl, Id, Perms};
pub use error::{DecodeError, DecodeErrorKind, FrameTooLarge};
pub use error_code::ErrorCode;
pub use follow::{Direction, Follower};
pub use jute::{Decode, Encode, List};
pub use op::{AddWatchMode, CreateMode, OpCode, Ttl, WatcherType, xid};
pub use path::{PathError, sequence_number};
pub use stat::Stat;
pub use text::Text;
pub use watch::{EventType, KeeperState, WatcherEvent};
