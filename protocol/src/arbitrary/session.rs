//! Generates the connections of one session: each resumes it, and events are of what it watches.

use alloc::{collections::BTreeSet, vec::Vec};

use ::arbitrary::{Result, Unstructured};

use super::{Conversation, Generator};
use crate::{
    AddWatchMode, Encode, ErrorCode, EventType, KeeperState, List, OpCode, Text, WatcherEvent,
    connect::{ConnectRequest, ConnectResponse},
    dissect::Direction,
    frame,
    jute::{Decode as _, Reader},
    reply::ReplyHeader,
    request::{Request, RequestHeader, SetWatches2Request, SetWatchesRequest},
    xid,
};

/// What a session has between its connections.
#[derive(Debug, Default)]
struct Session {
    /// 0 before the first connection, and after the end of a session.
    id: i64,
    passwd: [u8; 16],
    /// The zxid of the last reply.
    zxid: i64,
    watches: BTreeSet<(Kind, Vec<u8>)>,
}

/// The kinds of watches, by what `setWatches2` calls them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Data,
    Exist,
    Child,
    Persistent,
    Recursive,
}

impl Kind {
    const fn is_persistent(self) -> bool {
        matches!(self, Self::Persistent | Self::Recursive)
    }

    /// The types of the events of a watch of this kind.
    const fn events(self) -> &'static [EventType] {
        use EventType::{NodeChildrenChanged, NodeCreated, NodeDataChanged, NodeDeleted};
        match self {
            Self::Data => &[NodeDataChanged, NodeDeleted],
            Self::Exist => &[NodeCreated],
            Self::Child => &[NodeChildrenChanged, NodeDeleted],
            Self::Persistent => &[NodeCreated, NodeDeleted, NodeDataChanged, NodeChildrenChanged],
            Self::Recursive => &[NodeCreated, NodeDeleted, NodeDataChanged],
        }
    }
}

impl Generator {
    /// Generates the first connection of a [`session`](Self::session): the handshake, up to 20 requests with their replies, and
    /// events between them.
    ///
    /// # Errors
    ///
    /// Those of [`Unstructured`]; in practice none, because missing bytes count as zero.
    pub fn conversation(&self, u: &mut Unstructured<'_>) -> Result<Conversation> {
        self.connection(u, &mut Session::default())
    }

    /// Generates up to four connections of one session. Each after the first resumes it, with its id and password, and sets
    /// its watches again; or the session has expired, and the next connection begins another one. Events are of what the
    /// session watches, one for each watch that is not persistent, and zxids do not fall.
    ///
    /// # Errors
    ///
    /// As [`conversation`](Self::conversation).
    pub fn session(&self, u: &mut Unstructured<'_>) -> Result<Vec<Conversation>> {
        let mut session = Session::default();
        (0..u.int_in_range(1..=4)?).map(|_| self.connection(u, &mut session)).collect()
    }

    /// Generates the next connection of a session.
    fn connection(&self, u: &mut Unstructured<'_>, session: &mut Session) -> Result<Conversation> {
        let mut frames = Vec::new();
        if !self.handshake(u, session, &mut frames)? {
            return Ok(Conversation(frames));
        }
        if !session.watches.is_empty() {
            let (op, request) = self.set_watches(u, session)?;
            self.exchange(u, session, &mut frames, (xid::SET_WATCHES, op, request))?;
        }
        for number in 1..=u.int_in_range(0..=20)? {
            let op = self.operation(u)?;
            let xid = match op {
                OpCode::Auth => xid::AUTH,
                OpCode::Ping => xid::PING,
                _ => number,
            };
            let request = self.request(u, xid, op)?;
            self.exchange(u, session, &mut frames, (xid, op, request))?;
            if session.id == 0 {
                break;
            }
        }
        Ok(Conversation(frames))
    }

    /// Appends the handshake. Returns whether there is a session after it.
    fn handshake(
        &self,
        u: &mut Unstructured<'_>,
        session: &mut Session,
        frames: &mut Vec<(Direction, Vec<u8>)>,
    ) -> Result<bool> {
        let time_out = u.arbitrary::<u16>()?.into();
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: session.zxid,
            time_out,
            session_id: session.id,
            passwd: Some(&session.passwd),
            read_only: u.arbitrary()?,
        };
        frames.push((Direction::ToServer, self.frame(u, |out| request.encode(out))?));
        let has_expired = session.id != 0 && u.ratio(1, 8)?;
        if has_expired {
            *session = Session { zxid: session.zxid, ..Session::default() };
        } else if session.id == 0 {
            // Not 0, which is no session.
            session.id = u.arbitrary::<i64>()? | 1;
            session.passwd = u.arbitrary()?;
        }
        let response = ConnectResponse {
            protocol_version: 0,
            time_out: if has_expired { 0 } else { time_out },
            session_id: session.id,
            passwd: Some(&session.passwd),
            read_only: u.arbitrary()?,
        };
        frames.push((Direction::ToClient, self.frame(u, |out| response.encode(out))?));
        Ok(!has_expired)
    }

    /// Appends a request, its reply, and events between them now and then. The session knows then what it watches.
    fn exchange(
        &self,
        u: &mut Unstructured<'_>,
        session: &mut Session,
        frames: &mut Vec<(Direction, Vec<u8>)>,
        (xid, op, request): (i32, OpCode, Vec<u8>),
    ) -> Result<()> {
        frames.push((Direction::ToServer, request.clone()));
        if u.ratio(1, 2)?
            && let Some(event) = self.next_event(u, session)?
        {
            frames.push((Direction::ToClient, event));
        }
        session.zxid += u.int_in_range(0..=2)?;
        let reply = self.reply_at(u, xid, op, session.zxid)?;
        session.learn(&request, &reply);
        frames.push((Direction::ToClient, reply));
        Ok(())
    }

    /// Generates the event of a watch, or any event now and then if `mutate` is set.
    fn next_event(
        &self,
        u: &mut Unstructured<'_>,
        session: &mut Session,
    ) -> Result<Option<Vec<u8>>> {
        if self.mutate && u.ratio(1, 8)? {
            return self.event(u).map(Some);
        }
        if session.watches.is_empty() {
            return Ok(None);
        }
        let (kind, path) = u.choose_iter(&session.watches)?.clone();
        let event_type = *u.choose(kind.events())?;
        // An event may be that of several watches of its path, all of which are over then.
        session.watches.retain(|(kind, other)| kind.is_persistent() || *other != path);
        let zxid = if u.arbitrary()? { -1 } else { session.zxid };
        let path = Text::from_bytes(Some(&path));
        let event = WatcherEvent { event_type, state: KeeperState::SyncConnected, path };
        self.event_frame(u, zxid, &event).map(Some)
    }

    /// Generates the request that sets the watches of a session again.
    fn set_watches(
        &self,
        u: &mut Unstructured<'_>,
        session: &Session,
    ) -> Result<(OpCode, Vec<u8>)> {
        let paths = |wanted: Kind| -> Vec<Text<'_>> {
            let of_kind = session.watches.iter().filter(|(kind, _)| *kind == wanted);
            of_kind.map(|(_, path)| Text::from_bytes(Some(path))).collect()
        };
        let [data, exist, child, persistent, recursive] =
            [Kind::Data, Kind::Exist, Kind::Child, Kind::Persistent, Kind::Recursive].map(paths);
        let has_persistent = !persistent.is_empty() || !recursive.is_empty();
        let op = if has_persistent { OpCode::SetWatches2 } else { OpCode::SetWatches };
        let set = SetWatchesRequest {
            relative_zxid: session.zxid,
            data_watches: List::new(&data),
            exist_watches: List::new(&exist),
            child_watches: List::new(&child),
        };
        let set2 = SetWatches2Request {
            relative_zxid: session.zxid,
            data_watches: set.data_watches,
            exist_watches: set.exist_watches,
            child_watches: set.child_watches,
            persistent_watches: List::new(&persistent),
            persistent_recursive_watches: List::new(&recursive),
        };
        let request = self.frame(u, |out| {
            RequestHeader { xid: xid::SET_WATCHES, op }.encode(out);
            if has_persistent { set2.encode(out) } else { set.encode(out) }
        })?;
        Ok((op, request))
    }
}

impl Session {
    /// Takes from an exchange what the session watches from then on. Frames that do not decode change nothing.
    fn learn(&mut self, request: &[u8], reply: &[u8]) {
        let payload =
            |frame: &'_ [u8]| frame.get(frame::LENGTH_SIZE..).unwrap_or_default().to_vec();
        let (request, reply) = (payload(request), payload(reply));
        let mut reader = Reader::new(&request);
        let Ok(op) = RequestHeader::decode(&mut reader).map(|header| header.op) else { return };
        let Ok(request) = Request::decode(op, &mut reader) else { return };
        let Ok(err) = ReplyHeader::decode(&mut Reader::new(&reply)).map(|it| it.err) else {
            return;
        };
        let is_ok = err == ErrorCode::Ok;
        let watch = match &request {
            Request::Exists(read) if read.watch && is_ok => (Kind::Data, read.path),
            Request::Exists(read) if read.watch && err == ErrorCode::NoNode => {
                (Kind::Exist, read.path)
            }
            Request::GetData(read) if read.watch && is_ok => (Kind::Data, read.path),
            Request::GetChildren(read) | Request::GetChildren2(read) if read.watch && is_ok => {
                (Kind::Child, read.path)
            }
            Request::AddWatch(add) if is_ok && add.mode == AddWatchMode::PersistentRecursive => {
                (Kind::Recursive, add.path)
            }
            Request::AddWatch(add) if is_ok => (Kind::Persistent, add.path),
            Request::RemoveWatches(remove) => {
                self.watches.retain(|(_, path)| Some(&path[..]) != remove.path.bytes());
                return;
            }
            // Refused: the server has none of them.
            Request::SetWatches(_) | Request::SetWatches2(_) if !is_ok => {
                return self.watches.clear();
            }
            Request::CloseSession if is_ok => return *self = Self::default(),
            _ => return,
        };
        if let (kind, Some(path)) = (watch.0, watch.1.bytes())
            && path.first() == Some(&b'/')
        {
            self.watches.insert((kind, path.to_vec()));
        }
    }
}
