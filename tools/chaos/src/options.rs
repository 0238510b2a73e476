//! The command-line options.

use std::path::PathBuf;
use std::time::Duration;

use xtask::{Arguments, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) length: Duration,
    pub(crate) seed: u64,
    pub(crate) members: usize,
    pub(crate) report: Option<PathBuf>,
    pub(crate) shows_plan: bool,
    /// Where to write the picture of a run with a single fault. If set, only that run is made.
    pub(crate) picture: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self> {
        let options = ["minutes", "seed", "members", "report", "picture"];
        let arguments = Arguments::parse(arguments, &["plan"], &options)?;
        if let Some(word) = arguments.words().first() {
            return Err(format!("{word} is no option").into());
        }
        let minutes: f64 = arguments.number("minutes", 5.0)?;
        if !(0.5..=1_440.0).contains(&minutes) {
            return Err("--minutes must be from 0.5 to 1440".into());
        }
        let members = arguments.number("members", 3)?;
        if ![3, 5].contains(&members) {
            return Err("--members must be 3 or 5".into());
        }
        Ok(Self {
            length: Duration::from_secs_f64(minutes * 60.0),
            seed: arguments.number("seed", 1)?,
            members,
            report: arguments.text("report").map(PathBuf::from),
            shows_plan: arguments.flag("plan"),
            picture: arguments.text("picture").map(PathBuf::from),
        })
    }
}
