//! What the runs of both kinds share: the options about cases and reports.

use std::{collections::BTreeSet, fs, path::PathBuf};

use clap::Args;
use docent_conform::{Level, Report, Verdict, VerdictKind};

use crate::{
    exit::{self, CommandResult, Failure},
    output::print,
};

/// The title of a page.
const TITLE: &str = "docent conform";

#[derive(Args, Debug, Default)]
pub(super) struct Outputs {
    /// Run only the cases whose name contains this; `*` stands for any characters
    #[arg(long, value_name = "PATTERN")]
    pub(super) only: Option<String>,
    /// Name of what is tested in reports; by default the address of a server, and `client`
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Write a report; FORMAT is json (an array with an object for each case), junit or html; may be repeated
    #[arg(long, num_args = 2, value_names = ["FORMAT", "FILE"])]
    report: Vec<String>,
    /// Add the JSON report of another run to the page of `--report html`, as a column; may be repeated
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// List the cases
    #[arg(long)]
    pub(super) list: bool,
    /// Print the cases that passed or were skipped, too
    #[arg(long)]
    all: bool,
}

#[derive(Clone, Copy)]
enum Format {
    Json,
    JUnit,
    Html,
}

/// A requested report.
struct Output<'a> {
    format: Format,
    file: &'a str,
}

/// The reports that a run writes.
pub(super) struct Wanted<'a> {
    name: Option<String>,
    outputs: Vec<Output<'a>>,
    /// The reports of other runs.
    others: Vec<Vec<Verdict>>,
}

impl Outputs {
    /// Reads the options before anything is run.
    pub(super) fn wanted(&self) -> Result<Wanted<'_>, Failure> {
        Ok(Wanted {
            name: self.name.clone(),
            outputs: self.outputs()?,
            others: reports(&self.with)?,
        })
    }

    /// Prints a verdict, if it is one to print.
    pub(super) fn show(&self, verdict: &Verdict) -> Result<(), Failure> {
        if self.all || verdict.result == VerdictKind::Fail {
            print(&format!("{verdict}\n"))
        } else {
            Ok(())
        }
    }

    fn outputs(&self) -> Result<Vec<Output<'_>>, Failure> {
        let mut files = BTreeSet::new();
        let pairs = self.report.chunks_exact(2);
        let outputs = pairs.map(|pair| match pair {
            [_, file] if !files.insert(file) => Err(Failure::usage(format_args!(
                "--report: {file} is given twice, and would have the last report only"
            ))),
            [format, file] => match format.as_str() {
                "json" => Ok(Output { format: Format::Json, file }),
                "junit" => Ok(Output { format: Format::JUnit, file }),
                "html" => Ok(Output { format: Format::Html, file }),
                _ => Err(Failure::usage(format_args!(
                    "--report {format}: is neither json, junit nor html"
                ))),
            },
            _ => Err(Failure::usage("--report wants FORMAT and FILE")),
        });
        outputs.collect()
    }
}

/// Reads the JSON reports of other runs.
fn reports(files: &[PathBuf]) -> Result<Vec<Vec<Verdict>>, Failure> {
    let read = |file: &PathBuf| {
        let refuse = |why: String| Failure::usage(format_args!("{}: {why}", file.display()));
        let text = fs::read_to_string(file).map_err(|error| refuse(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| refuse(format!("no report: {error}")))
    };
    files.iter().map(read).collect()
}

/// Compare the results of runs on one page
///
/// The page has a row for each case, and a column for each report.
#[derive(Args)]
pub(super) struct Matrix {
    /// The title of the page
    #[arg(long, default_value = TITLE)]
    title: String,
    /// The page to write
    #[arg(value_name = "PAGE.html")]
    page: PathBuf,
    /// Reports that `--report json` has written
    #[arg(value_name = "REPORT.json", required = true)]
    reports: Vec<PathBuf>,
}

impl Matrix {
    pub(super) fn run(&self) -> CommandResult {
        if self.page.is_file() && reports(std::slice::from_ref(&self.page)).is_ok() {
            return Err(Failure::usage(format_args!(
                "{}: is a report, and would be overwritten: name the page in front of the reports",
                self.page.display()
            )));
        }
        let page = docent_conform::matrix(&self.title, &reports(&self.reports)?);
        fs::write(&self.page, page).map(|()| 0).map_err(|error| {
            Failure::new(exit::IO, format_args!("{}: {error}", self.page.display()))
        })
    }
}

impl Wanted<'_> {
    /// Writes the reports and prints the counts. Returns the exit code. A report that cannot be written keeps none of the
    /// others from it.
    pub(super) fn write(&self, mut ran: Report) -> Result<u8, Failure> {
        for verdict in &mut ran.verdicts {
            verdict.server = self.name.clone().unwrap_or_else(|| verdict.server.clone());
        }
        let written: Vec<_> =
            self.outputs.iter().map(|output| output.write(&ran, &self.others)).collect();
        print(&format!("{ran}\n"))?;
        written.into_iter().collect::<Result<(), Failure>>()?;
        Ok(u8::from(ran.failures(Level::Must) > 0))
    }
}

impl Output<'_> {
    fn write(&self, ran: &Report, others: &[Vec<Verdict>]) -> Result<(), Failure> {
        let text = match self.format {
            Format::Json => ran.to_json().map_err(|error| Failure::new(exit::SOFTWARE, error))?,
            Format::JUnit => ran.to_junit(),
            Format::Html => {
                let of_this = std::iter::once(ran.verdicts.clone());
                docent_conform::matrix(
                    TITLE,
                    &of_this.chain(others.iter().cloned()).collect::<Vec<_>>(),
                )
            }
        };
        let failed = |error| Failure::new(exit::IO, format_args!("{}: {error}", self.file));
        fs::write(self.file, text).map_err(failed)
    }
}
