//! `docent conform client`: what a client does under faults.

mod cases;
mod driver;
mod judgement;
mod replies;
mod scripts;
mod stage;

use std::time::Duration;

use clap::Args;
use docent_conform::{Report, Verdict, VerdictKind};
use tokio::task::JoinSet;

use self::{
    cases::{CASES, Case},
    driver::{Driver, Processes},
    judgement::{Judged, verdict},
    stage::Stage,
};
use super::{interrupt::Interrupts, output::Outputs};
use crate::{
    duration,
    exit::{self, CommandResult, Failure},
    output::{escape, print},
};

/// Test what a client does under faults
///
/// Starts COMMAND for each case, with {connect} replaced by the address of a server that does one thing: it loses a reply,
/// ends the session, says nothing. The command gets tasks as lines and answers them as lines.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(super) struct ConformClient {
    /// The driver of the client, and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "list")]
    command: Vec<String>,
    /// How many cases run at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..))]
    jobs: u8,
    /// How long an answer may take
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse_positive)]
    limit: Duration,
    #[command(flatten)]
    outputs: Outputs,
}

const HELP: &str = "\
Tasks, one a line, each with a number in front (1 connect 6000):
  connect MS             make a client with this session timeout, and wait until it is connected; after an error,
                         it may come again
  create PATH DATA       create a persistent node            ok PATH
  get PATH               read                                ok VERSION DATA
  set PATH DATA [VERSION]  write                             ok VERSION
  delete PATH            delete
  children PATH          list                                ok NUMBER
  watch PATH             look whether the node exists, and watch it    ok true, ok false
  multi PATH PATH        create both nodes, or none
  state                  what the client believes            ok connected, suspended, expired or closed
  close                  close the session; then end

Answers, one a line, with the number of the task: `1 ok`, `1 ok VALUE`, `1 error NAME`, or `1 skip` if the client has
nothing for the task. NAME is ZooKeeper's, such as NODEEXISTS or CONNECTIONLOSS, or another word. Notices, at any time:
  ! event PATH           a watched node has changed
  ! end PATH             a watch is over without an event
  ! state STATE          connected, suspended or expired

Exit codes:
  0   no MUST failed
  1   a MUST failed
  64  wrong usage: an option, a command without {connect} or that is not there; nothing was tested
  74  a report cannot be written
  128+N  ended by signal N";

/// The version in reports: that of the server of the cases.
const SERVER: &str = "embedded server";

impl ConformClient {
    pub(super) fn run(self) -> CommandResult {
        if self.outputs.list {
            for case in CASES {
                print(&format!(
                    "{:<6} {}: {} ({})\n",
                    case.level, case.id, case.about, case.source
                ))?;
            }
            return Ok(0);
        }
        let wanted = self.outputs.wanted()?;
        let pattern = self.outputs.only.as_deref().unwrap_or_default();
        let chosen = CASES.iter().filter(|case| docent_conform::matches(pattern, case.id));
        let chosen: Vec<_> = chosen.collect();
        if chosen.is_empty() {
            return Err(Failure::usage(format_args!(
                "--only {pattern}: no case has a name with this"
            )));
        }
        if !self.command.iter().any(|word| word.contains("{connect}")) {
            return Err(Failure::usage(
                "the command has no {connect}, where the address of the server goes",
            ));
        }
        let processes = Processes::adopt();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let verdicts = runtime.block_on(async {
            let mut interrupts = Interrupts::listen()?;
            tokio::select! {
                verdicts = self.play(&chosen) => verdicts.map(Ok),
                code = interrupts.next() => Ok(Err(code)),
            }
        });
        // The drivers of cases that have not ended are killed, and then what is left of the others.
        drop(runtime);
        drop(processes);
        let verdicts = match verdicts? {
            Ok(verdicts) => verdicts,
            Err(code) => return Ok(code),
        };
        wanted.write(Report { verdicts, left: Vec::new() })
    }

    /// Plays the cases, some at a time. The verdicts are in the order of the cases.
    async fn play(&self, cases: &[&'static Case]) -> Result<Vec<Verdict>, Failure> {
        Driver::start(&self.command, "127.0.0.1:1", self.limit)
            .map_err(|error| Failure::usage(format_args!("{}: {error}", self.command.join(" "))))?;
        let mut verdicts: Vec<Option<Verdict>> = cases.iter().map(|_| None).collect();
        let (mut running, mut next) = (JoinSet::new(), cases.iter().copied().enumerate());
        loop {
            while running.len() < usize::from(self.jobs) {
                let Some((at, case)) = next.next() else { break };
                let (command, limit) = (self.command.clone(), self.limit);
                running.spawn(async move { (at, play(case, &command, limit).await) });
            }
            let Some(played) = running.join_next().await else { break };
            let (at, judged) = played.map_err(|error| Failure::new(exit::SOFTWARE, error))?;
            if let (Some(case), Some(slot)) = (cases.get(at), verdicts.get_mut(at)) {
                let verdict = self.verdict(case, judged);
                self.outputs.show(&verdict)?;
                *slot = Some(verdict);
            }
        }
        Ok(verdicts.into_iter().flatten().collect())
    }

    fn verdict(&self, case: &Case, judged: Judged) -> Verdict {
        let (result, text) = verdict(judged);
        // A driver may print what a terminal acts on.
        let text = escape(&text);
        let group = case.id.split('/').next().unwrap_or_default();
        let is_skipped = result == VerdictKind::Skip;
        Verdict {
            id: case.id.to_owned(),
            group: group.to_owned(),
            level: case.level,
            about: case.about.to_owned(),
            source: case.source.to_owned(),
            result,
            step: if is_skipped { text.clone() } else { String::new() },
            expected: "recovers or says an error, and says nothing that is not so".to_owned(),
            actual: if is_skipped { String::new() } else { text },
            server: "client".to_owned(),
            version: SERVER.to_owned(),
        }
    }
}

/// Plays a case with a server and a driver of its own.
async fn play(case: &Case, command: &[String], limit: Duration) -> Judged {
    let mut stage = Stage::new(command, limit).await?;
    if let Some(session_ms) = case.session_ms() {
        stage.connect(session_ms).await?;
    }
    let judged = (case.play)(&mut stage).await?;
    stage.driver.has_sense()?;
    stage.has_met_its_fault()?;
    Ok(judged)
}
