//! Plays the script of a case.

use std::{
    collections::{BTreeMap, VecDeque},
    thread,
    time::{Duration, Instant},
};

use bytes::BufMut as _;
use docent_protocol::{Encode as _, OpCode, connect::ConnectRequest, xid};

use crate::{
    case::{Action, Case, Step},
    channel::{Arrived, Channel, Network},
    received::Received,
    request::Built,
    value::{Values, bytes},
    version::Version,
};

/// The time limit for a reply, unless the script says `within`.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How long no frame must arrive to satisfy a step that expects none.
const SILENCE: Duration = Duration::from_millis(300);

/// The pause between two attempts of `until`.
const PAUSE: Duration = Duration::from_millis(50);

/// The session timeout of connections for which the script gives none, in milliseconds.
const SESSION_TIMEOUT: &str = "30000";

/// Why a script did not reach its end.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The server did something else.
    Deviation { step: String, expected: String, actual: String },
    /// The case is not about this server.
    Skipped(String),
    /// The script cannot be played: a defect of this crate, or a server that cannot be reached.
    Unplayable(String),
}

impl From<String> for Ended {
    fn from(why: String) -> Self {
        Self::Unplayable(why)
    }
}

/// An open connection.
struct Connection {
    channel: Box<dyn Channel>,
    next_xid: i32,
    /// The requests without a reply.
    pending: VecDeque<(i32, OpCode)>,
    awaits_handshake: bool,
}

/// Plays scripts.
pub(crate) struct Player<'a> {
    network: &'a mut dyn Network,
    version: Version,
    /// Whether requests that may harm the server may be sent.
    pub(crate) allows_harm: bool,
    /// The time limit for a reply.
    pub(crate) patience: Duration,
    pub(crate) values: Values,
    connections: BTreeMap<String, Connection>,
}

impl<'a> Player<'a> {
    pub(crate) fn new(network: &'a mut dyn Network, version: Version, root: String) -> Self {
        let values = Values::new(root);
        let (connections, patience) = (BTreeMap::new(), PATIENCE);
        Self { network, version, allows_harm: false, patience, values, connections }
    }

    /// Plays a case to its end.
    pub(crate) fn play(&mut self, case: &Case) -> Result<(), Ended> {
        let version = self.version;
        for step in case.steps.iter().filter(|step| step.versions.contains(version)) {
            self.step(step).map_err(|ended| match ended {
                Ended::Unplayable(why) => Ended::Unplayable(format!("{}: {why}", step.text)),
                other => other,
            })?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), Ended> {
        let (label, words) = (step.label.as_str(), step.words.as_slice());
        match step.action {
            Action::Send => self.send(label, words)?,
            Action::Expect => self.expect(step, words)?,
            Action::Control => self.control(step, words)?,
        }
        Ok(())
    }

    /// Sends a request and returns the reply. Events before it are dropped.
    pub(crate) fn ask(&mut self, label: &str, request: &str) -> Result<Received, Ended> {
        let words: Vec<String> = request.split(' ').map(str::to_owned).collect();
        self.ask_words(label, &words)
    }

    fn ask_words(&mut self, label: &str, words: &[String]) -> Result<Received, Ended> {
        self.send(label, words)?;
        let until = Instant::now() + self.patience;
        loop {
            let received = self.receive(label, until, false)?;
            if received.kind != "event" {
                return Ok(received);
            }
            // A server that sends events all the time is no reason to wait longer.
            if Instant::now() >= until {
                return Ok(Received::bare("nothing"));
            }
        }
    }

    fn control(&mut self, step: &Step, words: &[String]) -> Result<(), Ended> {
        let label = step.label.as_str();
        let (verb, arguments) = words.split_first().ok_or_else(|| "no verb".to_owned())?;
        match verb.as_str() {
            "open" => self.open(label, arguments),
            "connect" => {
                self.open(label, arguments)?;
                self.shake_hands(label, arguments)
            }
            "handshake" => self.shake_hands(label, arguments),
            "drop" => {
                self.connections.remove(label);
                Ok(())
            }
            "bytes" | "frame" | "text" => {
                let text = arguments.first().map(String::as_str).unwrap_or_default();
                let mut out = Vec::new();
                let payload = bytes(text)?;
                if verb == "frame" {
                    out.put_i32(i32::try_from(payload.len()).unwrap_or(i32::MAX));
                }
                out.extend(payload);
                self.connection(label)?.channel.send(&out);
                Ok(())
            }
            "until" => self.until(step, arguments),
            "given" => self.given(step, arguments),
            _ => Err(format!("{verb} is no verb").into()),
        }
    }

    fn open(&mut self, label: &str, arguments: &[String]) -> Result<(), Ended> {
        let server = argument(arguments, "server").unwrap_or("0");
        let server = server.parse().map_err(|_| format!("{server} is no server"))?;
        let channel = self.network.open(server).map_err(|error| error.to_string())?;
        let connection =
            Connection { channel, next_xid: 1, pending: VecDeque::new(), awaits_handshake: true };
        self.connections.insert(label.to_owned(), connection);
        Ok(())
    }

    fn shake_hands(&mut self, label: &str, arguments: &[String]) -> Result<(), Ended> {
        let value =
            |name, default| self.values.expand(argument(arguments, name).unwrap_or(default));
        let number = |name, default| -> Result<i64, String> {
            let text = value(name, default)?;
            text.parse().map_err(|_| format!("{name}={text} is no number"))
        };
        let int = |name, default| -> Result<i32, String> {
            i32::try_from(number(name, default)?).map_err(|_| format!("{name} is too large"))
        };
        let passwd = value("passwd", "zeros:16")?;
        let passwd = if passwd == "null" { None } else { Some(bytes(&passwd)?) };
        let request = ConnectRequest {
            protocol_version: int("protocolVersion", "0")?,
            last_zxid_seen: number("zxid", "0")?,
            time_out: int("timeOut", SESSION_TIMEOUT)?,
            session_id: number("id", "0")?,
            passwd: passwd.as_deref(),
            read_only: match value("readOnly", "false")?.as_str() {
                "none" => None,
                text => Some(text == "true"),
            },
        };
        let mut payload = Vec::new();
        request.encode(&mut payload);
        let connection = self.connection(label)?;
        connection.awaits_handshake = true;
        connection.channel.send(&framed(&payload));
        Ok(())
    }

    /// The connection with this label. If there is none, opens it and begins a session.
    fn connected(&mut self, label: &str) -> Result<&mut Connection, Ended> {
        if !self.connections.contains_key(label) {
            self.open(label, &[])?;
            self.shake_hands(label, &[])?;
            let received = self.receive(label, Instant::now() + self.patience, false)?;
            if received.kind != "connected" {
                return Err(Ended::Deviation {
                    step: format!("{label}: connect"),
                    expected: "connected".to_owned(),
                    actual: received.to_string(),
                });
            }
        }
        self.connection(label)
    }

    fn connection(&mut self, label: &str) -> Result<&mut Connection, Ended> {
        let connection = self.connections.get_mut(label);
        connection.ok_or_else(|| format!("{label} is not open").into())
    }

    fn send(&mut self, label: &str, words: &[String]) -> Result<(), Ended> {
        self.connected(label)?;
        let built = Built::read(words, &self.values)?;
        if built.is_harmful() && !self.allows_harm {
            return Err("the request may harm the server".to_owned().into());
        }
        let connection = self.connection(label)?;
        let number = built.xid.unwrap_or(match built.op {
            OpCode::Ping => xid::PING,
            OpCode::Auth => xid::AUTH,
            _ => connection.next_xid,
        });
        if number == connection.next_xid {
            connection.next_xid = xid::next(number);
        }
        // The reply to a ping always has the xid of pings, even if the request had another one.
        let answered = if built.op == OpCode::Ping { xid::PING } else { number };
        connection.pending.push_back((answered, built.op));
        connection.channel.send(&framed(&built.payload(number)));
        Ok(())
    }

    /// Waits for the next frame or text on a connection.
    fn receive(&mut self, label: &str, until: Instant, is_text: bool) -> Result<Received, Ended> {
        let connection = self.connection(label)?;
        let arrived = if is_text {
            connection.channel.receive_text(until)
        } else {
            connection.channel.receive(until)
        };
        let received = match arrived {
            Arrived::Closed => Received::bare("closed"),
            Arrived::Nothing => Received::bare("nothing"),
            Arrived::Text(text) => Received::text(&text),
            Arrived::Frame(payload) if connection.awaits_handshake => {
                connection.awaits_handshake = false;
                Received::handshake(&payload)
            }
            Arrived::Frame(payload) => Received::frame(&payload, |xid| {
                let index = connection.pending.iter().position(|(pending, _)| *pending == xid)?;
                connection.pending.remove(index).map(|(_, op)| op)
            }),
        };
        if received.kind == "connected" {
            for name in ["id", "passwd", "timeOut"] {
                let value = received.fields.get(name).cloned().unwrap_or_default();
                self.values.set(&format!("{label}.{name}"), value);
            }
        }
        Ok(received)
    }

    fn expect(&mut self, step: &Step, words: &[String]) -> Result<(), Ended> {
        let label = step.label.as_str();
        let (patience, words) = match words {
            [within, time, rest @ ..] if within == "within" => (duration(time)?, rest),
            _ => (self.patience, words),
        };
        let kind = words.first().ok_or_else(|| "nothing is expected".to_owned())?;
        let until = Instant::now() + if kind == "nothing" { SILENCE } else { patience };
        let oldest = self.connected(label)?.pending.front().map(|(xid, _)| *xid);
        let received = self.receive(label, until, kind == "text")?;
        let deviation = self.compare(&received, words)?.or_else(|| {
            // Replies must come in the order of the requests, unless the script names the xid.
            let came: i32 = received.fields.get("xid")?.parse().ok()?;
            let is_reply = received.kind != "event";
            let is_named = words.iter().any(|word| word.starts_with("xid="));
            (is_reply && !is_named && oldest != Some(came))
                .then(|| format!("a reply to the request {}", oldest.unwrap_or_default()))
        });
        match deviation {
            None => Ok(()),
            Some(expected) => Err(Ended::Deviation {
                step: step.text.clone(),
                expected,
                actual: received.to_string(),
            }),
        }
    }

    /// Repeats a request until its reply is as expected: `until TIME REQUEST = REPLY`.
    fn until(&mut self, step: &Step, arguments: &[String]) -> Result<(), Ended> {
        let (time, rest) = arguments.split_first().ok_or_else(|| "no time".to_owned())?;
        let end = Instant::now() + duration(time)?;
        let (request, reply) = split_at_equals(rest)?;
        loop {
            let received = self.ask_words(&step.label, request)?;
            let Some(expected) = self.compare(&received, reply)? else { return Ok(()) };
            if Instant::now() >= end || received.kind == "closed" || received.kind == "nothing" {
                let (step, actual) = (step.text.clone(), received.to_string());
                return Err(Ended::Deviation { step, expected, actual });
            }
            thread::sleep(PAUSE);
        }
    }

    /// Skips the case unless the reply is as expected: `given REQUEST = REPLY`.
    fn given(&mut self, step: &Step, arguments: &[String]) -> Result<(), Ended> {
        let (request, reply) = split_at_equals(arguments)?;
        let received = self.ask_words(&step.label, request)?;
        match self.compare(&received, reply)? {
            None => Ok(()),
            Some(_) => Err(Ended::Skipped(format!("{}: {}", request.join(" "), received.kind))),
        }
    }

    /// Returns the expectation if it was not met. A variable without a value takes the received one.
    fn compare(&mut self, received: &Received, words: &[String]) -> Result<Option<String>, String> {
        let (kinds, rest) = words.split_first().ok_or("nothing is expected")?;
        if !kinds.split('|').any(|kind| kind == received.kind) {
            return Ok(Some(self.expanded(words)));
        }
        let rest = match rest {
            [kind, path, rest @ ..] if received.kind == "event" => {
                let path = self.values.expand(path)?;
                let is =
                    |name, value: &str| received.fields.get(name).is_some_and(|it| it == value);
                if !is("type", kind) || !is("path", &path) {
                    return Ok(Some(self.expanded(words)));
                }
                rest
            }
            rest => rest,
        };
        for word in rest {
            if !self.field_matches(received, word)? {
                return Ok(Some(self.expanded(words)));
            }
        }
        Ok(None)
    }

    /// Whether a field satisfies `name=value`, or another relation.
    fn field_matches(&mut self, received: &Received, word: &str) -> Result<bool, String> {
        let (name, relation, value) = parts(word).ok_or_else(|| format!("{word}: no relation"))?;
        let Some(actual) = received.fields.get(name) else { return Ok(false) };
        if value == "*" {
            return Ok(true);
        }
        if let (Some(variable), "=") = (value.strip_prefix('$'), relation)
            && !variable.contains('+')
            && !self.values.is_bound(variable)
        {
            self.values.set(variable, actual.clone());
            return Ok(true);
        }
        for alternative in value.split('|') {
            let value = if name.ends_with("children") {
                let mut list = self.values.expand_list(alternative)?;
                list.sort();
                if list.is_empty() { "empty".to_owned() } else { list.join(",") }
            } else {
                self.values.expand(alternative)?
            };
            if is_related(actual, relation, &value)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The words, with variables replaced by their values.
    fn expanded(&self, words: &[String]) -> String {
        let value = |word: &str| self.values.expand(word).unwrap_or_else(|_| word.to_owned());
        let expand = |word: &String| match parts(word) {
            Some((name, relation, of)) => format!("{name}{relation}{}", value(of)),
            None => value(word),
        };
        words.iter().map(expand).collect::<Vec<_>>().join(" ")
    }
}

const RELATIONS: [&str; 7] = ["!=", "<=", ">=", "=", "<", ">", "~"];

/// The name, relation and value of a word such as `name=value`. A word that begins with `~` is a path, so has none.
fn parts(word: &str) -> Option<(&str, &str, &str)> {
    let at = word.find(['=', '!', '<', '>', '~']).filter(|at| *at > 0)?;
    let (name, rest) = word.split_at(at);
    let relation = RELATIONS.into_iter().find(|relation| rest.starts_with(relation))?;
    Some((name, relation, rest.get(relation.len()..)?))
}

/// Whether a relation holds, between texts or between numbers.
fn is_related(actual: &str, relation: &str, value: &str) -> Result<bool, String> {
    let number = |text: &str| text.parse::<i64>().map_err(|_| format!("{text} is no number"));
    let order = || Ok::<_, String>(number(actual)?.cmp(&number(value)?));
    Ok(match relation {
        "=" => actual == value,
        "!=" => actual != value,
        "~" => actual.contains(value),
        "<" => order()?.is_lt(),
        ">" => order()?.is_gt(),
        "<=" => order()?.is_le(),
        _ => order()?.is_ge(),
    })
}

fn split_at_equals(words: &[String]) -> Result<(&[String], &[String]), String> {
    let middle = words.iter().position(|word| word == "=").ok_or("no =")?;
    let (request, reply) = words.split_at(middle);
    Ok((request, reply.get(1..).unwrap_or_default()))
}

/// The value of `name=value`.
fn argument<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    arguments.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').unwrap_or_default(), 1_000),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text} is no time"))?;
    Ok(Duration::from_millis(number * unit))
}

fn framed(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len() + 4);
    frame.put_i32(i32::try_from(payload.len()).unwrap_or(i32::MAX));
    frame.extend_from_slice(payload);
    frame
}
