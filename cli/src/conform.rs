//! `docent conform`: conformance tests of servers.

use std::{fs, path::PathBuf};

use clap::Args;
use docent_conform::{Level, Options, Report, Unusable, Verdict, VerdictKind, Version};

use crate::{
    exit::{self, CommandResult, Failure},
    output::{print, report},
};

/// Test whether servers speak ZooKeeper's protocol as ZooKeeper does
///
/// Each case sends frames and compares what comes with what a ZooKeeper of the same version sends. Everything happens
/// below one new node, which is deleted in the end.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Conform {
    /// The servers, HOST:PORT; several of one ensemble with commas between them
    #[arg(value_name = "HOST:PORT", required_unless_present = "list", value_delimiter = ',')]
    servers: Vec<String>,
    /// Run only the cases whose name contains this; `*` stands for any characters
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Version of the servers: auto (as they say by `srvr`), 3.4 to 3.10 or 3.8.4, keeper-26.6
    #[arg(long, value_name = "VERSION", default_value = "auto", value_parser = version)]
    version: ServerVersion,
    /// Write a report; FORMAT is json (an array with an object for each case), junit or html; may be repeated
    #[arg(long, num_args = 2, value_names = ["FORMAT", "FILE"])]
    report: Vec<String>,
    /// Add the JSON report of another run to the page of `--report html`, as a column; may be repeated
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// Credentials for the subtree: SCHEME:AUTH, such as digest:user:password
    #[arg(long, value_name = "SCHEME:AUTH", value_parser = credentials)]
    auth: Option<(String, String)>,
    /// Node below which everything happens
    #[arg(long, value_name = "PATH", default_value = "/", value_parser = parent)]
    parent: String,
    /// Also send requests that end some servers for good or lose their data; the address must be said again
    #[arg(long, value_name = "HOST:PORT")]
    harmful: Option<String>,
    /// List the cases
    #[arg(long)]
    list: bool,
    /// Print the cases that passed or were skipped, too
    #[arg(long)]
    all: bool,
}

const HELP: &str = "\
Exit codes:
  0   no MUST failed
  1   a MUST failed
  64  wrong usage: an option, a file, an unknown version; nothing was tested
  69  no server, or none that can be tested; or it was gone in the end
  74  a report cannot be written";

/// `auto`, or a version.
#[derive(Clone, Copy)]
struct ServerVersion(Option<Version>);

fn version(text: &str) -> Result<ServerVersion, String> {
    if text == "auto" {
        return Ok(ServerVersion(None));
    }
    let version = Version::parse(text);
    let why = "is neither auto nor a version, such as 3.8, 3.9.5 or keeper-26.6";
    version.map(|version| ServerVersion(Some(version))).ok_or_else(|| why.to_owned())
}

fn credentials(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once(':').ok_or("is not SCHEME:AUTH, such as digest:user:password")?;
    Ok((parts.0.to_owned(), parts.1.to_owned()))
}

fn parent(text: &str) -> Result<String, String> {
    docent_protocol::path::validate(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// A requested report.
struct Output<'a> {
    format: Format,
    file: &'a str,
}

#[derive(Clone, Copy)]
enum Format {
    Json,
    JUnit,
    Html,
}

impl Conform {
    pub(crate) fn run(self) -> CommandResult {
        if self.list {
            return list();
        }
        let outputs = self.outputs()?;
        let others = self.others()?;
        let options = self.options()?;
        let shown = |verdict: &Verdict| self.all || verdict.result == VerdictKind::Fail;
        let mut broken_pipe = Ok(());
        let ran = docent_conform::run(&options, |verdict| {
            if broken_pipe.is_ok() && shown(verdict) {
                broken_pipe = print(&format!("{verdict}\n"));
            }
        });
        let ran = ran.map_err(|error| match error {
            Unusable::Usage(text) => Failure::usage(text),
            other => Failure::new(exit::NO_SERVER, other),
        })?;
        broken_pipe?;
        for output in outputs {
            output.write(&ran, &others)?;
        }
        for left in &ran.left {
            report(format_args!("docent conform: not deleted: {left}"));
        }
        print(&format!("{ran}\n"))?;
        Ok(u8::from(ran.failures(Level::Must) > 0))
    }

    fn options(&self) -> Result<Options, Failure> {
        let mut options =
            Options::new(self.servers.iter().map(String::as_str)).parent(&*self.parent);
        if let Some(pattern) = &self.only {
            options = options.only(pattern);
        }
        if let ServerVersion(Some(version)) = self.version {
            options = options.version(version);
        }
        if let Some((scheme, auth)) = &self.auth {
            options = options.auth(scheme, auth);
        }
        match &self.harmful {
            None => Ok(options),
            Some(address) if *address == self.servers.join(",") => Ok(options.allow_harm()),
            Some(address) => Err(Failure::usage(format_args!(
                "--harmful {address}: is not the address that is tested; nothing was sent"
            ))),
        }
    }

    fn outputs(&self) -> Result<Vec<Output<'_>>, Failure> {
        let pairs = self.report.chunks_exact(2);
        let outputs = pairs.map(|pair| match pair {
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

    /// Reads the reports of other runs.
    fn others(&self) -> Result<Vec<Vec<Verdict>>, Failure> {
        let read = |file: &PathBuf| {
            let refuse =
                |why: String| Failure::usage(format_args!("--with {}: {why}", file.display()));
            let text = fs::read_to_string(file).map_err(|error| refuse(error.to_string()))?;
            serde_json::from_str(&text).map_err(|error| refuse(format!("no report: {error}")))
        };
        self.with.iter().map(read).collect()
    }
}

impl Output<'_> {
    fn write(&self, ran: &Report, others: &[Vec<Verdict>]) -> Result<(), Failure> {
        let text = match self.format {
            Format::Json => ran.to_json().map_err(|error| Failure::new(exit::SOFTWARE, error))?,
            Format::JUnit => ran.to_junit(),
            Format::Html => {
                let of_this = std::iter::once(ran.verdicts.clone());
                docent_conform::matrix(&of_this.chain(others.iter().cloned()).collect::<Vec<_>>())
            }
        };
        let failed = |error| Failure::new(exit::IO, format_args!("{}: {error}", self.file));
        fs::write(self.file, text).map_err(failed)
    }
}

fn list() -> CommandResult {
    for case in docent_conform::all().map_err(|error| Failure::new(exit::SOFTWARE, error))? {
        print(&format!("{:<6} {}: {} ({})\n", case.level, case.id, case.about, case.source))?;
    }
    Ok(0)
}
