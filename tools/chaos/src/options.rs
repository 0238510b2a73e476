//! The options of the command.

use std::path::PathBuf;
use std::time::Duration;

/// The options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) length: Duration,
    pub(crate) seed: u64,
    pub(crate) members: usize,
    pub(crate) report: Option<PathBuf>,
    pub(crate) shows_plan: bool,
    /// Where the picture of a run with one fault is written, instead of a run with many.
    pub(crate) picture: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            length: Duration::from_secs(5 * 60),
            seed: 1,
            members: 3,
            report: None,
            shows_plan: false,
            picture: None,
        };
        let mut rest = arguments.iter();
        while let Some(option) = rest.next() {
            if *option == "--plan" {
                options.shows_plan = true;
                continue;
            }
            let value = rest.next().ok_or_else(|| format!("{option} needs a value"))?;
            let refused = |text: &str| format!("{option} {value}: {text}");
            match *option {
                "--minutes" => {
                    let minutes: f64 = value.parse().map_err(|_| refused("must be a number"))?;
                    if !(0.5..=1_440.0).contains(&minutes) {
                        return Err(refused("must be from 0.5 to 1440"));
                    }
                    options.length = Duration::from_secs_f64(minutes * 60.0);
                }
                "--seed" => {
                    options.seed = value.parse().map_err(|_| refused("must be a number"))?
                }
                "--members" => {
                    options.members = match *value {
                        "3" => 3,
                        "5" => 5,
                        _ => return Err(refused("must be 3 or 5")),
                    }
                }
                "--picture" => options.picture = Some(PathBuf::from(value)),
                "--report" => options.report = Some(PathBuf::from(value)),
                _ => return Err(format!("{option} is no option of chaos")),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Options;

    #[test]
    fn options_are_parsed() {
        let options =
            Options::parse(&["--minutes", "2.5", "--seed", "9", "--members", "5"]).unwrap();
        assert_eq!(options.length, Duration::from_secs(150));
        assert_eq!((options.seed, options.members, options.shows_plan), (9, 5, false));
        assert!(Options::parse(&["--plan"]).unwrap().shows_plan);
    }

    #[test]
    fn wrong_options_are_refused() {
        for wrong in [
            &["--members", "4"][..],
            &["--minutes", "0"],
            &["--minutes", "inf"],
            &["--minutes"],
            &["--seed", "x"],
            &["--other", "1"],
        ] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
