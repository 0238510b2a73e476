//! Options with a value, and errors of the command line in one line.

use std::{ops::RangeInclusive, process::ExitCode, time::Duration};

use clap::error::ErrorKind;
use docent_sim::faults::planted;
use docent_testing::server::Version;

/// `EX_USAGE`.
const USAGE: u8 = 64;

/// Prints help as clap does, and an error in one line.
pub(super) fn report(command: &str, error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A closed output is not an error.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or(&text);
    let line: Vec<_> = paragraph.lines().map(str::trim).collect();
    refuse(command, line.join(" ").trim_start_matches("error: "))
}

/// Prints why nothing was run.
pub(super) fn refuse(command: &str, text: &str) -> ExitCode {
    eprintln!("{command}: {text}; see `{command} --help`");
    ExitCode::from(USAGE)
}

/// Parses `FIRST..LAST`.
pub(super) fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (first, last) = text.split_once("..").ok_or("FIRST..LAST is expected, as in 1..2000")?;
    let seed = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is not a seed"));
    let (first, last) = (seed(first)?, seed(last)?);
    if first > last {
        return Err("the range is empty: its first seed is larger than its last".to_owned());
    }
    Ok(first..=last)
}

/// Parses the name of a planted fault.
pub(super) fn plant(name: &str) -> Result<&'static str, String> {
    let plant = planted::plant_named(name).map(|plant| plant.name);
    plant.ok_or_else(|| "no planted fault has this name; `--list-plants` lists them".to_owned())
}

/// Parses a time in minutes.
pub(super) fn minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse::<f64>().ok().filter(|minutes| *minutes > 0.0);
    let time = minutes.and_then(|minutes| Duration::try_from_secs_f64(60.0 * minutes).ok());
    time.ok_or_else(|| "a number of minutes above 0 is expected, as in 10 or 0.5".to_owned())
}

/// Parses a version of the servers.
pub(super) fn version(number: &str) -> Result<String, String> {
    let is_known = Version::from_number(number).is_some();
    is_known.then(|| number.to_owned()).ok_or_else(|| "no embedded server imitates it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::seeds;

    #[test]
    fn a_range_includes_both_ends() {
        assert_eq!(seeds("1..2000"), Ok(1..=2_000));
        assert_eq!(seeds("7..7"), Ok(7..=7));
        assert_eq!(seeds("0..18446744073709551615"), Ok(0..=u64::MAX));
    }

    #[test]
    fn other_ranges_are_refused() {
        for text in ["", "7", "1..", "..7", "7..1", "1..=7", "1..x", "-1..7", "1..2..3", " 1..2"] {
            assert!(seeds(text).is_err(), "{text}");
        }
    }
}
