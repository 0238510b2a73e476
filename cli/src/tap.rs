//! `docent tap`: the recording proxy from the command line.

use std::{
    io::{self, BufRead as _, Write as _},
    net::SocketAddr,
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use docent_protocol::OpCode;
use docent_testing::{
    fault::Fault,
    tap::{Direction, Tap, TextOptions, json},
};
use tokio::sync::mpsc;

/// Record what passes between ZooKeeper clients and a server, a line for each frame
///
/// The first line of the output is `listening on ADDR`. Runs until it is ended.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(crate) struct TapCommand {
    /// Where to listen; port 0 is a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The server, host:port
    #[arg(long)]
    upstream: String,
    /// One JSON object a line, with everything; nothing is masked
    #[arg(long)]
    json: bool,
    /// Show GUIDs and session ids as they are
    #[arg(long)]
    unmasked: bool,
    /// Show pings and the ends of connections too
    #[arg(long)]
    all: bool,
}

const HELP: &str = "\
Lines of text:
  A -> create2(15) /l/_c_G1-lock- data=\"x\" acl=31:world:anyone flags=3
  A <- create2 OK path=/l/_c_G1-lock-0000000000 +stat
  B <- EVENT NodeDeleted /l/_c_G1-lock-0000000000
  Clients are named by letters, a new one for each session. G1, G2... are GUIDs in order of appearance.

Commands on the standard input, for all connections:
  cut                     cut them now
  cut-after c2s|s2c N     cut when N more bytes have passed
  hold, resume            let nothing pass; let it pass again
  refuse, accept          close the port; open it again
  split on|off            send each byte by itself
  drop-before OP [K]      swallow the K-th such request from now (1) and cut
  drop-reply OP [K]       let it take effect, and cut instead of answering
  lose-reply OP [K]       let it take effect, and swallow the reply
  delay-reply OP MS [K]   answer that much later
  kill CLIENT             end that client's session, as Curator's KillSession does
  note TEXT               write a line of your own";

/// How many records wait at most to be printed.
const KEPT: usize = 100_000;

impl TapCommand {
    pub(crate) fn run(self) -> ExitCode {
        match self.serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("docent tap: {}: {error}", self.listen);
                ExitCode::FAILURE
            }
        }
    }

    fn serve(&self) -> io::Result<()> {
        crate::runtime()?.block_on(async {
            let tap = Tap::listen(self.listen, &self.upstream).await?;
            println!("listening on {}", tap.addr());
            tap.keep(KEPT);
            let (send, mut commands) = mpsc::unbounded_channel();
            // A thread of its own: reading the standard input cannot be given up.
            std::thread::spawn(move || {
                for line in io::stdin().lock().lines().map_while(Result::ok) {
                    if send.send(line).is_err() {
                        return;
                    }
                }
            });
            let mut follow = tap.follow_from(0);
            let mut printer = self.printer();
            loop {
                tokio::select! {
                    record = follow.next(Duration::MAX) => {
                        let Ok(record) = record else { return Ok(()) };
                        printer(&record)?;
                    }
                    Some(command) = commands.recv() => {
                        if let Err(error) = obey(&tap, &command).await {
                            eprintln!("{command}: {error}");
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
            let line = if as_json { Some(json(record)) } else { printer.line(record) };
            let mut out = io::stdout().lock();
            line.map_or(Ok(()), |line| writeln!(out, "{line}"))?;
            out.flush()
        }
    }
}

async fn obey(tap: &Tap, command: &str) -> Result<(), String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let everyone = tap.everyone();
    let io = |result: io::Result<()>| result.map_err(|error| error.to_string());
    match words.as_slice() {
        [] => {}
        ["cut"] => everyone.cut(),
        ["cut-after", direction, bytes] => {
            let direction = Direction::from_name(direction).ok_or("c2s or s2c")?;
            everyone.cut_after(direction, number(bytes)?);
        }
        ["hold"] => everyone.hold(),
        ["resume"] => everyone.resume(),
        ["refuse"] => io(everyone.refuse().await)?,
        ["accept"] => io(everyone.accept().await)?,
        ["split", on] => everyone.split_writes(*on == "on"),
        ["drop-before", op, k @ ..] => inject(tap, Fault::drop_before(op_code(op)?), k)?,
        ["drop-reply", op, k @ ..] => inject(tap, Fault::drop_reply(op_code(op)?), k)?,
        ["lose-reply", op, k @ ..] => inject(tap, Fault::lose_reply(op_code(op)?), k)?,
        ["delay-reply", op, ms, k @ ..] => {
            let delay = Duration::from_millis(number(ms)?);
            inject(tap, Fault::delay_reply(op_code(op)?, delay), k)?;
        }
        ["kill", client] => io(tap.kill_session(client, Duration::from_secs(10)).await)?,
        ["note", ..] => tap.note(command.trim_start().trim_start_matches("note").trim()),
        _ => return Err("no such command; see docent tap --help".to_owned()),
    }
    Ok(())
}

fn inject(tap: &Tap, fault: Fault, k: &[&str]) -> Result<(), String> {
    let nth = k.first().map_or(Ok(1), |k| number(k))?;
    tap.inject(fault.nth(nth));
    Ok(())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

fn op_code(name: &str) -> Result<OpCode, String> {
    let named = OpCode::NAMED.iter().find(|op| op.name() == Some(name));
    named.copied().ok_or_else(|| format!("{name} is no operation"))
}
