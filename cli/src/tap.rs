//! `docent tap`: runs the recording proxy.

use std::{
    fs::File,
    future::pending,
    io::{self, BufRead as _, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use docent::config::ConnectString;
use docent_protocol::OpCode;
use docent_testing::{
    fault::Fault,
    tap::{self, Direction, Tap, TextOptions},
};
use tokio::sync::mpsc;

use crate::{
    duration,
    exit::{self, CommandResult, Failure},
    output::{json_line, print, report},
    serve::address,
    tap_json::json,
};

/// Record the frames between ZooKeeper clients and a server, one line each
///
/// The first line of the output is `listening on ADDR`. Runs until it is killed.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(crate) struct TapCommand {
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0", value_parser = address)]
    listen: SocketAddr,
    /// Address of the server, HOST:PORT
    #[arg(long, value_name = "HOST:PORT", value_parser = upstream)]
    upstream: String,
    /// Print one JSON object per line, with all fields and without masking
    #[arg(long)]
    json: bool,
    /// Do not mask GUIDs and session IDs
    #[arg(long)]
    unmasked: bool,
    /// Show pings and closed connections too
    #[arg(long)]
    all: bool,
    /// Write the bytes to a new file, for docent lab and docent decode: they contain passwords and credentials
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
}

const HELP: &str = "\
Lines of text:
  A -> create2(15) /l/_c_G1-lock- data=\"x\" acl=31:world:anyone flags=3
  A <- create2 OK path=/l/_c_G1-lock-0000000000 +stat
  B <- EVENT NodeDeleted /l/_c_G1-lock-0000000000
  Clients are named by letters, one per session. G1, G2... are GUIDs in order of appearance.

Commands on standard input, for all connections:
  cut                     close them now
  cut-after c2s|s2c N     close after N more bytes in this direction
  stall, resume           stop forwarding; forward again
  refuse, accept          close the port; open it again
  split on|off            send each byte separately
  drop-before OP [K]      drop the K-th request of this type from now (default 1) and close
  drop-reply OP [K]       forward the request, and close instead of forwarding the reply
  lose-reply OP [K]       forward the request, and drop the reply
  delay-reply OP TIME [K] delay the reply: 500ms, 2s; a number without a unit is seconds
  kill CLIENT             end the session of this client, as Curator's KillSession does
  note TEXT               write TEXT to the output";

fn upstream(text: &str) -> Result<String, String> {
    let parsed = text.parse::<ConnectString>().map_err(|error| error.to_string())?;
    match (parsed.hosts(), parsed.chroot()) {
        ([host], None) => Ok(host.to_string()),
        _ => Err("is not the HOST:PORT of one server".to_owned()),
    }
}

/// The maximum number of buffered records.
const MAX_BUFFERED_RECORDS: usize = 100_000;

impl TapCommand {
    pub(crate) fn run(self) -> CommandResult {
        match self.serve() {
            // The reader has closed the output.
            Err(failure) if failure.is_silent() => Ok(0),
            served => served.map(|()| 0),
        }
    }

    fn serve(&self) -> Result<(), Failure> {
        let runtime = crate::runtime().map_err(crate::no_runtime)?;
        runtime.block_on(async {
            let tap = Tap::listen(self.listen, &self.upstream).await;
            let tap = tap.map_err(|error| Failure::os(self.listen, error))?;
            let mut capture = match &self.capture {
                Some(path) => Some(CaptureFile::create(path, &tap)?),
                None => None,
            };
            print(&format!("listening on {}\n", tap.addr()))?;
            tap.keep(MAX_BUFFERED_RECORDS);
            let (send, mut commands) = mpsc::unbounded_channel();
            // In its own thread, because a read of standard input cannot be cancelled.
            std::thread::spawn(move || {
                for line in io::stdin().lock().lines().map_while(Result::ok) {
                    if send.send(line).is_err() {
                        return;
                    }
                }
            });
            let mut records = tap.subscribe_from(0);
            let mut printer = self.printer();
            loop {
                tokio::select! {
                    record = records.next(Duration::MAX) => {
                        let Ok(record) = record else { return Ok(()) };
                        printer(&record)?;
                    }
                    written = CaptureFile::write(capture.as_mut()) => written?,
                    Some(command) = commands.recv() => {
                        if let Err(error) = execute(&tap, &command).await {
                            report(format_args!("{command}: {error}"));
                        }
                    }
                }
            }
        })
    }

    fn printer(&self) -> impl FnMut(&docent_testing::tap::Record) -> io::Result<()> {
        let options = TextOptions {
            mask_guids: !self.unmasked,
            mask_sessions: !self.unmasked,
            omit_pings: !self.all,
            omit_closes: !self.all,
        };
        let (as_json, mut printer) = (self.json, docent_testing::tap::Printer::new(options));
        move |record| {
            let line = if as_json {
                Some(json_line(&json(record)))
            } else {
                printer.line(record).map(|line| line + "\n")
            };
            let mut out = io::stdout().lock();
            line.map_or(Ok(()), |line| out.write_all(line.as_bytes()))?;
            out.flush()
        }
    }
}

/// The file of `--capture`.
struct CaptureFile<'a> {
    path: &'a Path,
    file: File,
    segments: tap::Capture,
}

impl<'a> CaptureFile<'a> {
    /// Creates the file, for its owner alone. It must not exist.
    fn create(path: &'a Path, tap: &Tap) -> Result<Self, Failure> {
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(|error| Self::failure(path, &error))?;
        Ok(Self { path, file, segments: tap.capture() })
    }

    /// Writes the next bytes; for ever without a file.
    async fn write(capture: Option<&mut Self>) -> Result<(), Failure> {
        let Some(Self { path, file, segments }) = capture else { return pending().await };
        let Some(segment) = segments.next().await else { return pending().await };
        // Each line at once: a tap that is killed leaves whole ones.
        let line = format!("{segment}\n");
        file.write_all(line.as_bytes()).map_err(|error| Self::failure(path, &error))
    }

    fn failure(path: &Path, error: &io::Error) -> Failure {
        Failure::new(exit::IO, format_args!("cannot write {}: {error}", path.display()))
    }
}

async fn execute(tap: &Tap, command: &str) -> Result<(), String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let all_clients = tap.all_clients();
    let io = |result: io::Result<()>| result.map_err(|error| error.to_string());
    match words.as_slice() {
        [] => {}
        ["cut"] => all_clients.cut(),
        ["cut-after", direction, bytes] => {
            let direction =
                Direction::from_name(direction).ok_or("the direction must be c2s or s2c")?;
            all_clients.cut_after(direction, number(bytes)?);
        }
        ["stall"] => all_clients.stall(),
        ["resume"] => all_clients.resume(),
        ["refuse"] => io(all_clients.refuse().await)?,
        ["accept"] => io(all_clients.accept().await)?,
        ["split", on] => all_clients.split_writes(*on == "on"),
        ["drop-before", op, k @ ..] => inject(tap, Fault::drop_before(op_code(op)?), k)?,
        ["drop-reply", op, k @ ..] => inject(tap, Fault::drop_reply(op_code(op)?), k)?,
        ["lose-reply", op, k @ ..] => inject(tap, Fault::lose_reply(op_code(op)?), k)?,
        ["delay-reply", op, time, k @ ..] => {
            let delay = duration::parse(time).map_err(|reason| format!("\"{time}\" {reason}"))?;
            inject(tap, Fault::delay_reply(op_code(op)?, delay), k)?;
        }
        ["kill", client] => io(tap.kill_session(client, Duration::from_secs(10)).await)?,
        ["note", ..] => tap.note(command.trim_start().trim_start_matches("note").trim()),
        _ => return Err("unknown command; see docent tap --help".to_owned()),
    }
    Ok(())
}

fn inject(tap: &Tap, fault: Fault, k: &[&str]) -> Result<(), String> {
    let nth = k.first().map_or(Ok(1), |k| number(k))?;
    tap.inject(fault.nth(nth));
    Ok(())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

fn op_code(name: &str) -> Result<OpCode, String> {
    let named = OpCode::NAMED.iter().find(|op| op.name() == Some(name));
    named.copied().ok_or_else(|| format!("{name} is not an operation"))
}
