//! `docent decode`: prints the frames of captured traffic.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use docent_protocol::{
    EscapedJson,
    dissect::{DEFAULT_FRAME_LIMIT, Direction, Dissector, Frame},
};
use docent_testing::tap::{Line, Segment};

use crate::exit::{self, CommandResult, Failure};

/// Decode captured ZooKeeper traffic, one line per frame
///
/// Credentials, passwords and SASL tokens are never shown. The data of nodes is shown with --json only.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Decode {
    /// Input files; - is standard input, which is the default
    files: Vec<PathBuf>,
    /// Print one JSON object per line, with the field names of zookeeper.jute
    #[arg(long)]
    json: bool,
    /// Encode each decoded frame again; exit code 1 if the bytes differ or bytes are left over
    #[arg(long)]
    check: bool,
    /// Input lines are arbitrary parts of a stream instead of whole frames; accepts the output of tshark
    #[arg(long)]
    stream: bool,
    /// Port of the server, which gives the direction of tshark's segments; may be repeated
    #[arg(long, default_value = "2181", requires = "stream")]
    port: Vec<u16>,
    /// The input of each connection begins after its handshake
    #[arg(long)]
    established: bool,
}

const HELP: &str = "\
Input:
  c2s HEX           a frame from client to server, with its length prefix of four bytes
  s2c HEX           a frame from server to client
  conn              a new connection
  conn established  a new connection, whose handshake is not in the input
  # ...             a comment; empty lines are ignored too
  Digits may be separated by colons or spaces. The lines must be in the order of the connection: a reply can only be
  decoded after its request.

With --stream:
  c2s HEX, s2c HEX  the next bytes of that direction, split anywhere
  STREAM SOURCE-PORT DESTINATION-PORT HEX
                    a segment of connection number STREAM, as printed by
                      tshark -r FILE -Y 'tcp.len > 0 && !tcp.analysis.retransmission' -T fields \\
                        -e tcp.stream -e tcp.srcport -e tcp.dstport -e tcp.payload
                    (columns separated by tabs; lines of other ports are ignored). The number precedes each
                    line of the output, and is the member `stream` with --json.
                    Without the column STREAM, all segments belong to one connection. A column in front of it,
                    -e frame.time_relative, is ignored.
  SECONDS STREAM c2s HEX, SECONDS STREAM s2c HEX
                    a segment, as written by docent tap --capture

With --json, the members are: direction, kind (connect, request, reply, event, word, text, undecodable), and those
of the kind: op and error with ZooKeeper's names, header and body with jute's names, event, xid, leftOver (a number
of bytes). Buffers are hexadecimal digits; of credentials and undecodable bytes only the size is shown.

Exit codes:
  0   all input was decoded
  1   --check found a frame that differs when encoded again, cannot be decoded, or is truncated
  64  wrong usage
  65  the input has another format
  74  a file or the output cannot be read or written

Example:
  printf 'conn established\\nc2s 0000000f3900000100000067000000032f7a7a\\n' | docent decode";

/// The maximum length of an input line in bytes: the longest frame, with a separator after each byte.
const MAX_LINE_LENGTH: u64 = 3 * (DEFAULT_FRAME_LIMIT as u64 + 4) + 64;

/// The maximum number of tshark streams whose state is kept. Beyond it, a new stream displaces another one.
const MAX_STREAMS: usize = 1024;

impl Decode {
    pub(crate) fn run(&self) -> CommandResult {
        let output = io::stdout().lock();
        match self.decode(&mut BufWriter::new(output), &mut io::stderr()) {
            Ok(true) => Ok(0),
            Ok(false) => Ok(1),
            // The reader has closed the output.
            Err(DecodeFailure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
            Err(failure) => Err(Failure::new(failure.code(), failure)),
        }
    }

    /// Decodes all files. Returns whether every frame passed `--check`.
    fn decode(
        &self,
        output: &mut dyn Write,
        diagnostics: &mut dyn Write,
    ) -> Result<bool, DecodeFailure> {
        let standard_input = [PathBuf::from("-")];
        let files = if self.files.is_empty() { &standard_input[..] } else { &self.files };
        let mut decoder = Decoder {
            options: self,
            output,
            diagnostics,
            connection: self.new_dissector(),
            streams: BTreeMap::new(),
            displaced: BTreeSet::new(),
            passed: true,
        };
        for file in files {
            // The frames before an invalid line are printed too.
            let result = decoder.read_file(file);
            decoder.output.flush().map_err(DecodeFailure::Output)?;
            result?;
        }
        decoder.finish()?;
        decoder.output.flush().map_err(DecodeFailure::Output)?;
        Ok(decoder.passed)
    }

    fn new_dissector(&self) -> Dissector {
        if self.established { Dissector::established() } else { Dissector::new() }
    }
}

/// An error that ends the command.
enum DecodeFailure {
    /// A file cannot be read.
    Input(PathBuf, io::Error),
    /// An input line is invalid.
    Line { file: PathBuf, line: usize, reason: String },
    /// The output cannot be written.
    Output(io::Error),
}

impl DecodeFailure {
    const fn code(&self) -> u8 {
        match self {
            Self::Line { .. } => exit::REFUSED,
            Self::Input(..) | Self::Output(_) => exit::IO,
        }
    }
}

impl fmt::Display for DecodeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(file, error) => write!(f, "{}: {error}; check the path", file.display()),
            Self::Line { file, line, reason } => {
                write!(f, "{}:{line}: {reason}; see docent decode --help", file.display())
            }
            Self::Output(error) => write!(f, "cannot write the output: {error}"),
        }
    }
}

/// The state of a run over all input files.
struct Decoder<'a> {
    options: &'a Decode,
    output: &'a mut dyn Write,
    diagnostics: &'a mut dyn Write,
    /// The connection of lines without a stream number.
    connection: Dissector,
    /// The connections of tshark's streams, each with the number of its last input line.
    streams: BTreeMap<u64, (usize, Dissector)>,
    /// The streams whose state is no longer kept.
    displaced: BTreeSet<u64>,
    passed: bool,
}

impl Decoder<'_> {
    fn read_file(&mut self, file: &Path) -> Result<(), DecodeFailure> {
        let name =
            || if file == Path::new("-") { "standard input".into() } else { file.to_owned() };
        let failed = |error| DecodeFailure::Input(name(), error);
        let mut input: Box<dyn BufRead> = if file == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            Box::new(BufReader::new(File::open(file).map_err(failed)?))
        };
        let mut text = Vec::new();
        for line in 1.. {
            text.clear();
            let read = io::Read::take(&mut input, MAX_LINE_LENGTH).read_until(b'\n', &mut text);
            if read.map_err(failed)? == 0 {
                break;
            }
            let invalid = |reason| DecodeFailure::Line { file: name(), line, reason };
            if text.last() != Some(&b'\n') && text.len() as u64 == MAX_LINE_LENGTH {
                return Err(invalid("the line is too long".to_owned()));
            }
            let ports = self.options.stream.then_some(&*self.options.port);
            let parsed = Line::parse(&String::from_utf8_lossy(&text), ports).map_err(invalid)?;
            self.process(parsed, line)?.map_or(Ok(()), |reason| Err(invalid(reason)))?;
        }
        Ok(())
    }

    /// Processes a line. Returns the reason if it is invalid.
    fn process(&mut self, line: Line, number: usize) -> Result<Option<String>, DecodeFailure> {
        match line {
            Line::Ignored => Ok(None),
            Line::Connection { is_established } => {
                let next = if is_established {
                    Dissector::established()
                } else {
                    self.options.new_dissector()
                };
                let ended = std::mem::replace(&mut self.connection, next);
                self.end(None, &ended)?;
                Ok(None)
            }
            Line::Segment(Segment { connection, direction, bytes, .. }) => {
                if let Some(stream) = connection {
                    self.displace_for(stream)?;
                }
                self.feed(connection, direction, &bytes, number).map_err(DecodeFailure::Output)
            }
        }
    }

    fn feed(
        &mut self,
        stream: Option<u64>,
        direction: Direction,
        mut bytes: &[u8],
        number: usize,
    ) -> io::Result<Option<String>> {
        let options = self.options;
        let dissector = match stream {
            None => &mut self.connection,
            Some(stream) => {
                let displaced = &mut self.displaced;
                let (last_line, dissector) = self.streams.entry(stream).or_insert_with(|| {
                    let is_known = displaced.remove(&stream);
                    let new =
                        if is_known { Dissector::established() } else { options.new_dissector() };
                    (number, new)
                });
                *last_line = number;
                dissector
            }
        };
        while let Some(frame) = dissector.feed(direction, &mut bytes) {
            options.print_frame(&mut self.output, stream, &frame)?;
            if options.check
                && let Some(reason) = difference(&frame)
            {
                self.passed = false;
                writeln!(self.diagnostics, "docent decode: line {number}: {reason}: {frame}")?;
            }
        }
        let unfinished = dissector.buffered(direction);
        if options.stream || unfinished == 0 {
            return Ok(None);
        }
        dissector.discard(direction);
        Ok(Some(format!(
            "the frame is truncated to {unfinished} bytes (use --stream for parts of frames)"
        )))
    }

    /// Makes room for a stream: displaces the one that has been silent for longest, if possible one that is between two
    /// frames.
    fn displace_for(&mut self, stream: u64) -> Result<(), DecodeFailure> {
        if self.streams.len() < MAX_STREAMS || self.streams.contains_key(&stream) {
            return Ok(());
        }
        let least = self.streams.iter().min_by_key(|(_, (last_line, dissector))| {
            let is_inside = DIRECTIONS.iter().any(|direction| dissector.buffered(*direction) > 0);
            (is_inside, *last_line)
        });
        let Some(least) = least.map(|(stream, _)| *stream) else { return Ok(()) };
        let Some((_, dissector)) = self.streams.remove(&least) else { return Ok(()) };
        self.displaced.insert(least);
        self.end(Some(least), &dissector)
    }

    /// Reports incomplete frames at the end of the input.
    fn finish(&mut self) -> Result<(), DecodeFailure> {
        let connection = std::mem::take(&mut self.connection);
        self.end(None, &connection)?;
        for (stream, (_, dissector)) in std::mem::take(&mut self.streams) {
            self.end(Some(stream), &dissector)?;
        }
        Ok(())
    }

    /// Reports incomplete frames at the end of a connection, with `--check`.
    fn end(&mut self, stream: Option<u64>, dissector: &Dissector) -> Result<(), DecodeFailure> {
        let counts = DIRECTIONS.map(|direction| (direction, dissector.buffered(direction)));
        let is_checked = self.options.check;
        for (direction, count) in counts.into_iter().filter(|(_, count)| is_checked && *count > 0) {
            self.passed = false;
            let stream = stream.map_or_else(String::new, |stream| format!(" of stream {stream}"));
            let result = writeln!(
                self.diagnostics,
                "docent decode: the last frame {direction}{stream} is truncated to {count} bytes"
            );
            result.map_err(DecodeFailure::Output)?;
        }
        Ok(())
    }
}

const DIRECTIONS: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

/// Returns why a frame differs when it is encoded again, or `None` if it does not.
fn difference(frame: &Frame<'_>) -> Option<String> {
    if frame.is_exact() {
        return None;
    }
    Some(match (&frame.message, frame.left_over.len()) {
        (docent_protocol::dissect::Message::Undecodable { .. }, _) => {
            "cannot be decoded".to_owned()
        }
        (_, 0) => "encodes to other bytes".to_owned(),
        (_, count) => format!("{count} bytes are left over"),
    })
}

impl Decode {
    fn print_frame(
        &self,
        output: &mut dyn Write,
        stream: Option<u64>,
        frame: &Frame<'_>,
    ) -> io::Result<()> {
        match (self.json, stream) {
            (false, None) => writeln!(output, "{frame}"),
            (false, Some(stream)) => writeln!(output, "{stream} {frame}"),
            (true, None) => writeln!(output, "{}", EscapedJson(&serde_json::to_string(frame)?)),
            (true, Some(stream)) => {
                let frame = serde_json::to_string(frame)?;
                let members = frame.strip_prefix('{').unwrap_or(&frame);
                writeln!(output, "{{\"stream\":{stream},{}", EscapedJson(members))
            }
        }
    }
}
