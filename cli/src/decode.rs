//! `docent decode`: captured bytes in, a line for each frame out.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use docent_protocol::follow::{DEFAULT_FRAME_LIMIT, Direction, Follower, Frame};

/// Tell what captured ZooKeeper frames say, a line for each
///
/// Credentials, passwords and SASL tokens are never shown, nor is the data of nodes (--json shows it).
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Decode {
    /// Where to read; - is the standard input, as is nothing
    files: Vec<PathBuf>,
    /// One JSON object a line, with the field names of zookeeper.jute
    #[arg(long)]
    json: bool,
    /// Also encode again what was decoded: exit code 1 where the bytes differ or some are left over
    #[arg(long)]
    check: bool,
    /// Lines are pieces of a stream, cut anywhere, not whole frames; also what tshark prints
    #[arg(long)]
    stream: bool,
    /// The server's port, to tell the directions in what tshark prints (more than one: repeat it)
    #[arg(long, default_value = "2181", requires = "stream")]
    port: Vec<u16>,
    /// Connections begin some time after their handshake
    #[arg(long)]
    established: bool,
}

const HELP: &str = "\
Input:
  c2s HEX           a frame from client to server, its four bytes of length included
  s2c HEX           a frame from server to client
  conn              a new connection begins
  conn established  a new connection, but its handshake is not in the input
  # ...             a comment; empty lines are passed over too
  Digits may be separated by colons or spaces. The order is that of the connection: a reply can only be
  read by who has seen its request.

With --stream:
  c2s HEX, s2c HEX  the next bytes of that direction, cut anywhere
  STREAM SOURCE-PORT DESTINATION-PORT HEX
                    a segment of connection number STREAM, as printed by
                      tshark -r FILE -Y 'tcp.len > 0 && !tcp.analysis.retransmission' -T fields \\
                        -e tcp.stream -e tcp.srcport -e tcp.dstport -e tcp.payload
                    (columns separated by tabs; lines of other ports are passed over). The number stands
                    in front of each line of the output, and in the member `stream` with --json.
                    Without that column all is one connection.

With --json, the members are: direction, kind (connect, request, reply, event, word, text, undecodable), and what
that kind has: op and error by ZooKeeper's names, header and body with jute's, event, xid, leftOver (a number of
bytes). Buffers are hexadecimal digits; credentials and what cannot be read are only their size.

Exit codes:
  0  everything was read
  1  --check found a frame that is not the same when it is encoded again, or cannot be decoded, or is cut off
  2  the input is not as above, or cannot be read

Example:
  printf 'conn established\\nc2s 0000000f3900000100000067000000032f7a7a\\n' | docent decode";

/// The longest line that is read, in bytes: the longest frame, with separators between the digits.
const LONGEST_LINE: u64 = 3 * (DEFAULT_FRAME_LIMIT as u64 + 4) + 64;

/// How many of tshark's streams are followed at a time; the one that began first is given up for another.
const MOST_STREAMS: usize = 1024;

impl Decode {
    pub(crate) fn run(&self) -> ExitCode {
        let output = io::stdout().lock();
        match self.decode(&mut BufWriter::new(output), &mut io::stderr()) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(1),
            // Whoever reads us has seen enough.
            Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                ExitCode::SUCCESS
            }
            Err(failure) => {
                eprintln!("docent decode: {failure}");
                ExitCode::from(2)
            }
        }
    }

    /// Whether all was as it should be.
    fn decode(&self, output: &mut dyn Write, complaints: &mut dyn Write) -> Result<bool, Failure> {
        let standard_input = [PathBuf::from("-")];
        let files = if self.files.is_empty() { &standard_input[..] } else { &self.files };
        let mut session = Session {
            options: self,
            output,
            complaints,
            connection: self.new_follower(),
            streams: BTreeMap::new(),
            order: VecDeque::new(),
            is_good: true,
        };
        for file in files {
            // What was told of the lines before a bad one is not lost.
            let result = session.read_file(file);
            session.output.flush().map_err(Failure::Output)?;
            result?;
        }
        session.finish()?;
        session.output.flush().map_err(Failure::Output)?;
        Ok(session.is_good)
    }

    fn new_follower(&self) -> Follower {
        if self.established { Follower::established() } else { Follower::new() }
    }
}

/// Why there is no answer.
enum Failure {
    /// A file that cannot be read.
    Input(PathBuf, io::Error),
    /// A line that is none of the kinds there are.
    Line {
        file: PathBuf,
        line: usize,
        what: String,
    },
    Output(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(file, error) => write!(f, "{}: {error}", file.display()),
            Self::Line { file, line, what } => write!(f, "{}:{line}: {what}", file.display()),
            Self::Output(error) => write!(f, "cannot write: {error}"),
        }
    }
}

/// Everything between the first line and the last.
struct Session<'a> {
    options: &'a Decode,
    output: &'a mut dyn Write,
    complaints: &'a mut dyn Write,
    /// The connection of lines without a stream's number.
    connection: Follower,
    /// The connections of tshark's streams, and in which order they began.
    streams: BTreeMap<u64, Follower>,
    order: VecDeque<u64>,
    is_good: bool,
}

/// One line of the input.
enum Line {
    Nothing,
    Connection { is_established: bool },
    Bytes { stream: Option<u64>, direction: Direction, bytes: Vec<u8> },
}

impl Session<'_> {
    fn read_file(&mut self, file: &Path) -> Result<(), Failure> {
        let name =
            || if file == Path::new("-") { "standard input".into() } else { file.to_owned() };
        let failed = |error| Failure::Input(name(), error);
        let mut input: Box<dyn BufRead> = if file == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            Box::new(BufReader::new(File::open(file).map_err(failed)?))
        };
        let mut text = Vec::new();
        for line in 1.. {
            text.clear();
            let read = io::Read::take(&mut input, LONGEST_LINE).read_until(b'\n', &mut text);
            if read.map_err(failed)? == 0 {
                break;
            }
            let bad = |what| Failure::Line { file: name(), line, what };
            if text.last() != Some(&b'\n') && text.len() as u64 == LONGEST_LINE {
                return Err(bad("the line is too long".to_owned()));
            }
            let parsed = self.options.parse(&String::from_utf8_lossy(&text)).map_err(bad)?;
            self.take(parsed, line)?.map_or(Ok(()), |what| Err(bad(what)))?;
        }
        Ok(())
    }

    /// Reads a line; gives back what is wrong with it.
    fn take(&mut self, line: Line, number: usize) -> Result<Option<String>, Failure> {
        match line {
            Line::Nothing => Ok(None),
            Line::Connection { is_established } => {
                self.connection = if is_established {
                    Follower::established()
                } else {
                    self.options.new_follower()
                };
                Ok(None)
            }
            Line::Bytes { stream, direction, bytes } => {
                self.bytes(stream, direction, &bytes, number).map_err(Failure::Output)
            }
        }
    }

    fn bytes(
        &mut self,
        stream: Option<u64>,
        direction: Direction,
        mut bytes: &[u8],
        number: usize,
    ) -> io::Result<Option<String>> {
        let options = self.options;
        let follower = match stream {
            None => &mut self.connection,
            Some(stream) => {
                if !self.streams.contains_key(&stream) {
                    self.order.push_back(stream);
                }
                if self.order.len() > MOST_STREAMS
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.streams.remove(&oldest);
                }
                self.streams.entry(stream).or_insert_with(|| options.new_follower())
            }
        };
        while let Some(frame) = follower.feed(direction, &mut bytes) {
            options.tell(&mut self.output, stream, &frame)?;
            if options.check
                && let Some(what) = difference(&frame)
            {
                self.is_good = false;
                writeln!(self.complaints, "docent decode: line {number}: {what}: {frame}")?;
            }
        }
        let unfinished = follower.buffered(direction);
        if options.stream || unfinished == 0 {
            return Ok(None);
        }
        follower.discard(direction);
        Ok(Some(format!(
            "the frame is cut off: {unfinished} bytes of it are there (pieces of frames need --stream)"
        )))
    }

    /// Looks for frames that never ended.
    fn finish(&mut self) -> Result<(), Failure> {
        if !self.options.check {
            return Ok(());
        }
        let unfinished = std::iter::once((None, &self.connection))
            .chain(self.streams.iter().map(|(number, follower)| (Some(*number), follower)))
            .flat_map(|(stream, follower)| {
                [Direction::ToServer, Direction::ToClient]
                    .map(|direction| (stream, direction, follower.buffered(direction)))
            });
        for (stream, direction, count) in unfinished.filter(|(.., count)| *count > 0) {
            self.is_good = false;
            let stream = stream.map_or_else(String::new, |stream| format!(" of stream {stream}"));
            let result = writeln!(
                self.complaints,
                "docent decode: the last frame {direction}{stream} is cut off: {count} bytes of it are there"
            );
            result.map_err(Failure::Output)?;
        }
        Ok(())
    }
}

/// Why a frame is not the same when it is encoded again.
fn difference(frame: &Frame<'_>) -> Option<String> {
    if frame.is_exact() {
        return None;
    }
    Some(match (&frame.message, frame.left_over.len()) {
        (docent_protocol::follow::Message::Undecodable { .. }, _) => "cannot be decoded".to_owned(),
        (_, 0) => "encodes to other bytes".to_owned(),
        (_, count) => format!("{count} bytes are left over"),
    })
}

impl Decode {
    fn tell(
        &self,
        output: &mut dyn Write,
        stream: Option<u64>,
        frame: &Frame<'_>,
    ) -> io::Result<()> {
        match (self.json, stream) {
            (false, None) => writeln!(output, "{frame}"),
            (false, Some(stream)) => writeln!(output, "{stream} {frame}"),
            (true, None) => writeln!(output, "{}", serde_json::to_string(frame)?),
            (true, Some(stream)) => {
                let frame = serde_json::to_string(frame)?;
                let members = frame.strip_prefix('{').unwrap_or(&frame);
                writeln!(output, "{{\"stream\":{stream},{members}")
            }
        }
    }

    fn parse(&self, line: &str) -> Result<Line, String> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if word.is_empty() || word.starts_with('#') {
            return Ok(Line::Nothing);
        }
        if let Some(direction) = Direction::from_name(word) {
            return Ok(Line::Bytes { stream: None, direction, bytes: unhex(rest)? });
        }
        match (word, rest.trim()) {
            ("conn", "") => Ok(Line::Connection { is_established: false }),
            ("conn", "established") => Ok(Line::Connection { is_established: true }),
            _ if self.stream => self.parse_columns(line),
            _ => Err(format!("expected `c2s HEX`, `s2c HEX` or `conn`, not {}", quoted(line))),
        }
    }

    /// What tshark prints: stream, ports, payload.
    fn parse_columns(&self, line: &str) -> Result<Line, String> {
        let columns: Vec<_> = line.split('\t').map(str::trim).collect();
        let (stream, ports, hex) = match columns[..] {
            [stream, source, destination, hex] => {
                (Some(stream.parse()), [source, destination], hex)
            }
            [source, destination, hex] => (None, [source, destination], hex),
            _ => (None, ["", ""], ""),
        };
        let ports = (ports[0].parse::<u16>(), ports[1].parse::<u16>());
        let (Ok(stream), (Ok(source), Ok(destination))) = (stream.transpose(), ports) else {
            return Err(format!(
                "expected `c2s HEX`, `s2c HEX`, `conn`, or stream, two ports and HEX between tabs, not {}",
                quoted(line)
            ));
        };
        let direction = if self.port.contains(&destination) {
            Direction::ToServer
        } else if self.port.contains(&source) {
            Direction::ToClient
        } else {
            return Ok(Line::Nothing);
        };
        Ok(Line::Bytes { stream, direction, bytes: unhex(hex)? })
    }
}

/// The beginning of a line, fit to be shown.
fn quoted(line: &str) -> String {
    let short: String = line.chars().take(40).collect();
    format!("{short:?}{}", if short.len() < line.len() { "..." } else { "" })
}

fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut high = None;
    for character in text.chars().filter(|character| !matches!(character, ':' | ' ' | '\t')) {
        let Some(digit) = character.to_digit(16).and_then(|digit| u8::try_from(digit).ok()) else {
            return Err(format!("{character:?} is no hexadecimal digit"));
        };
        match high.take() {
            None => high = Some(digit),
            Some(high) => bytes.push(high << 4 | digit),
        }
    }
    match high {
        None => Ok(bytes),
        Some(_) => Err("an odd number of hexadecimal digits".to_owned()),
    }
}
