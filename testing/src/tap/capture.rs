//! Captures: lines of text with the bytes of connections, which [`Tap::capture`](super::Tap::capture) delivers and
//! `docent decode` reads.

use std::{fmt, time::Duration};

use bytes::Bytes;
use docent_protocol::dissect::Direction;
use tokio::sync::mpsc;

/// A subscription to the bytes that pass a [`Tap`](super::Tap).
#[derive(Debug)]
pub struct Capture(pub(super) mpsc::Receiver<Segment>);

impl Capture {
    /// The next bytes; `None` once the tap has been dropped, or has another subscription. A call that is dropped loses none.
    pub async fn next(&mut self) -> Option<Segment> {
        self.0.recv().await
    }
}

/// Bytes of one direction of a connection, split anywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// When they arrived at the tap, since its start; `None` if the line has no time.
    pub at: Option<Duration>,
    /// The number of the connection; `None` if the line has none.
    pub connection: Option<u64>,
    /// Their direction.
    pub direction: Direction,
    /// The bytes.
    pub bytes: Bytes,
}

/// Four columns separated by tabs: seconds, connection, `c2s` or `s2c`, and hexadecimal digits.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = self.at {
            write!(f, "{}.{:06}\t", at.as_secs(), at.subsec_micros())?;
        }
        if let Some(connection) = self.connection {
            write!(f, "{connection}\t")?;
        }
        write!(f, "{}\t", self.direction)?;
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A line of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// An empty line, a comment, or a segment of other ports.
    Ignored,
    /// A new connection, or one whose handshake is not in the input.
    Connection {
        /// Whether its handshake is not in the input.
        is_established: bool,
    },
    /// Bytes.
    Segment(Segment),
}

impl Line {
    /// Parses a line. With the ports of servers, the columns of tshark are accepted.
    ///
    /// # Errors
    ///
    /// The reason, in one line.
    pub fn parse(line: &str, ports: Option<&[u16]>) -> Result<Self, String> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if word.is_empty() || word.starts_with('#') {
            return Ok(Self::Ignored);
        }
        if let Some(direction) = Direction::from_name(word) {
            return Ok(Self::segment((None, None), direction, unhex(rest)?));
        }
        match (word, rest.trim(), ports) {
            ("conn", "", _) => Ok(Self::Connection { is_established: false }),
            ("conn", "established", _) => Ok(Self::Connection { is_established: true }),
            (.., Some(ports)) => Self::parse_columns(line, ports),
            (.., None) => {
                Err(format!("expected `c2s HEX`, `s2c HEX` or `conn`, not {}", quoted(line)))
            }
        }
    }

    const fn segment(
        (at, connection): (Option<Duration>, Option<u64>),
        direction: Direction,
        bytes: Bytes,
    ) -> Self {
        Self::Segment(Segment { at, connection, direction, bytes })
    }

    /// Parses the columns of a tap, or those of tshark, which may lack the first one or two.
    fn parse_columns(line: &str, ports: &[u16]) -> Result<Self, String> {
        let columns: Vec<_> = line.split('\t').map(str::trim).collect();
        let parsed = match columns.as_slice() {
            [start @ .., direction, hex] if Direction::from_name(direction).is_some() => {
                start_of(start).zip(Direction::from_name(direction).map(Some)).zip(Some(hex))
            }
            [start @ .., source, destination, hex] => {
                let direction = direction_of(source, destination, ports);
                start_of(start).zip(direction).zip(Some(hex))
            }
            _ => None,
        };
        match parsed {
            Some(((start, Some(direction)), hex)) => {
                Ok(Self::segment(start, direction, unhex(hex)?))
            }
            Some(((_, None), _)) => Ok(Self::Ignored),
            None => Err(format!(
                "expected `c2s HEX`, `s2c HEX`, `conn`, or stream, two ports and HEX separated by tabs, not {}",
                quoted(line)
            )),
        }
    }
}

/// The columns in front of the direction: none, the connection, or the time and the connection.
fn start_of(columns: &[&str]) -> Option<(Option<Duration>, Option<u64>)> {
    match columns {
        [] => Some((None, None)),
        [connection] => Some((None, Some(connection.parse().ok()?))),
        [seconds, connection] => {
            let at = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
            Some((Some(at), Some(connection.parse().ok()?)))
        }
        _ => None,
    }
}

/// The direction of a segment between two ports; `Some(None)` if neither is a server's.
fn direction_of(source: &str, destination: &str, ports: &[u16]) -> Option<Option<Direction>> {
    let (source, destination) = (source.parse().ok()?, destination.parse().ok()?);
    Some(if ports.contains(&destination) {
        Some(Direction::ToServer)
    } else if ports.contains(&source) {
        Some(Direction::ToClient)
    } else {
        None
    })
}

/// Quotes the first 40 characters of a line.
fn quoted(line: &str) -> String {
    let short: String = line.chars().take(40).collect();
    format!("\"{}\"{}", short, if short.len() < line.len() { "..." } else { "" })
}

/// Digits may be separated by colons or spaces.
fn unhex(text: &str) -> Result<Bytes, String> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut high = None;
    for character in text.chars().filter(|character| !matches!(character, ':' | ' ' | '\t')) {
        let Some(digit) = character.to_digit(16).and_then(|digit| u8::try_from(digit).ok()) else {
            return Err(format!("'{character}' is not a hexadecimal digit"));
        };
        match high.take() {
            None => high = Some(digit),
            Some(high) => bytes.push(high << 4 | digit),
        }
    }
    match high {
        None => Ok(bytes.into()),
        Some(_) => Err("an odd number of hexadecimal digits".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_read_as_it_was_written() {
        let segment = Segment {
            at: Some(Duration::from_micros(1_000_250)),
            connection: Some(3),
            direction: Direction::ToServer,
            bytes: vec![0, 0xab].into(),
        };
        let text = segment.to_string();
        assert_eq!(text, "1.000250\t3\tc2s\t00ab");
        assert_eq!(Line::parse(&text, Some(&[])), Ok(Line::Segment(segment)));
    }

    #[test]
    fn the_columns_of_tshark_may_have_a_time() {
        let parse = |line| match Line::parse(line, Some(&[2181])) {
            Ok(Line::Segment(segment)) => Ok((segment.at, segment.connection, segment.direction)),
            other => Err(other),
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!(parse("5000\t2181\t00"), Ok((None, None, Direction::ToServer)));
        assert_eq!(parse("7\t2181\t5000\t00"), Ok((None, Some(7), Direction::ToClient)));
        assert_eq!(parse("1.0\t7\t5000\t2181\t00"), Ok((second, Some(7), Direction::ToServer)));
        assert_eq!(parse("1.0\t7\t5000\t5001\t00"), Err(Ok(Line::Ignored)));
        for wrong in [
            "-1.0\t7\t5000\t2181\t00",
            "inf\t7\t5000\t2181\t00",
            "1e300\t7\tc2s\t00",
            "0\t1.0\t7\tc2s\t00",
            "1.0\tx\tc2s\t00",
            "\u{d4c3}\u{b2a1}",
        ] {
            assert!(matches!(parse(wrong), Err(Err(_))), "{wrong}");
        }
    }
}
