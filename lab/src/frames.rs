//! Frames of connections, from bytes that were sent and that have arrived.

use std::collections::BTreeMap;

use docent_protocol::dissect::{Direction, Dissector};
use docent_sim::world::{history::Wire, time::Nanos};
use serde::Serialize;
use serde_json::Value;

/// The most bytes of a frame that are shown in hexadecimal.
const MOST_HEX: usize = 512;

/// A frame. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Frame {
    pub sent: u64,
    /// `None`: it has not arrived.
    pub arrived: Option<u64>,
    pub client: usize,
    pub member: usize,
    pub connection: usize,
    pub to_server: bool,
    /// The line that every program of docent shows of the frame.
    pub text: String,
    /// The fields, by their names in jute.
    pub fields: Value,
    /// The bytes, in hexadecimal; `None`: they hold credentials.
    pub hex: Option<String>,
    pub length: usize,
    /// The number of the delivery with its last byte, for a script.
    pub delivery: Option<u32>,
    /// The step of a recipe that it belongs to.
    pub step: Option<&'static str>,
}

impl Frame {
    /// `connect`, `request`, `reply` or `event`.
    pub(crate) fn kind(&self) -> &str {
        self.fields["kind"].as_str().unwrap_or_default()
    }

    pub(crate) fn op(&self) -> &str {
        self.fields["op"].as_str().unwrap_or_default()
    }

    pub(crate) fn path(&self) -> &str {
        self.fields["body"]["path"].as_str().unwrap_or_default()
    }

    pub(crate) fn xid(&self) -> Option<i64> {
        self.fields["header"]["xid"].as_i64()
    }

    /// The error of a reply.
    pub(crate) fn error(&self) -> Option<&str> {
        self.fields["error"].as_str()
    }
}

pub(crate) const fn micros(nanos: Nanos) -> u64 {
    nanos / 1_000
}

/// The frames of all connections.
#[derive(Default)]
pub(crate) struct Frames {
    pub(crate) all: Vec<Frame>,
    connections: BTreeMap<usize, Connection>,
}

#[derive(Default)]
struct Connection {
    dissector: Dissector,
    /// The direction to the server first.
    ways: [Way; 2],
}

/// One direction of a connection.
#[derive(Default)]
struct Way {
    sent: usize,
    arrived: usize,
    /// The frames that have not arrived, each with the position of its end.
    waiting: Vec<(usize, usize)>,
}

impl Frames {
    /// A connection whose handshake is not among the bytes.
    pub(crate) fn establish(&mut self, connection: usize) {
        let dissector = Dissector::established();
        self.connections.insert(connection, Connection { dissector, ways: Default::default() });
    }

    /// Takes bytes.
    pub(crate) fn take(&mut self, at: Nanos, wire: &Wire) {
        let connection = self.connections.entry(wire.connection).or_default();
        let way = &mut connection.ways[usize::from(!wire.to_server)];
        if let Some(delivery) = wire.delivery {
            way.arrived += wire.bytes.len();
            let arrived = way.arrived;
            way.waiting.retain(|(end, frame)| {
                if let Some(frame) = self.all.get_mut(*frame).filter(|_| *end <= arrived) {
                    frame.arrived = Some(micros(at));
                    frame.delivery = Some(delivery);
                }
                *end > arrived
            });
            return;
        }
        let direction = if wire.to_server { Direction::ToServer } else { Direction::ToClient };
        let mut bytes = &wire.bytes[..];
        while let Some(frame) = connection.dissector.feed(direction, &mut bytes) {
            let fields = serde_json::to_value(frame).unwrap_or_default();
            // A frame begins with its length.
            let length = frame.payload.len() + 4;
            way.sent += length;
            way.waiting.push((way.sent, self.all.len()));
            let shows_bytes = fields["kind"] != "connect"
                && !matches!(fields["op"].as_str(), Some("auth" | "sasl"));
            let hex = shows_bytes.then(|| hex(frame.payload));
            let text = frame.message.to_string();
            self.all.push(Frame {
                sent: micros(at),
                arrived: None,
                client: wire.pid,
                member: wire.member,
                connection: wire.connection,
                to_server: wire.to_server,
                text,
                fields,
                hex,
                length,
                delivery: None,
                step: None,
            });
        }
    }
}

fn hex(payload: &[u8]) -> String {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let shown = length.iter().chain(payload).take(MOST_HEX);
    shown.map(|byte| format!("{byte:02x}")).collect()
}
