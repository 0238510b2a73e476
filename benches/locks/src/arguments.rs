//! The command line: words and options.

use std::{collections::HashMap, time::Duration};

use crate::{Result, services::Target};

/// Options without a value.
const FLAGS: [&str; 3] = ["quick", "java", "save"];

/// The words of a command line, and its options.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    words: Vec<String>,
    options: HashMap<String, String>,
}

impl Arguments {
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let mut arguments = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.strip_prefix("--") {
                None => arguments.words.push(word.clone()),
                Some(flag) if FLAGS.contains(&flag) => {
                    arguments.options.insert(flag.to_owned(), String::new());
                }
                Some(name) => {
                    let value = words.next().ok_or_else(|| format!("--{name} needs a value"))?;
                    arguments.options.insert(name.to_owned(), value.clone());
                }
            }
        }
        Ok(arguments)
    }

    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// The value of an option, or its default.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> Result<T> {
        let Some(text) = self.text(name) else { return Ok(default) };
        text.parse().map_err(|_| format!("--{name} {text}: not a number").into())
    }

    pub(crate) fn target(&self) -> Result<Target> {
        let addresses = self.text("addresses").ok_or("--addresses is missing")?;
        Ok(Target {
            addresses: addresses.split(',').map(str::to_owned).collect(),
            lease: Duration::from_millis(self.number("lease-ms", 10_000)?),
        })
    }

    pub(crate) fn name(&self) -> &str {
        self.text("name").unwrap_or("bench")
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.text("pids").unwrap_or_default().split(',').filter_map(|id| id.parse().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments> {
        Arguments::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_flags_and_options_are_separated() {
        let arguments = parse("etcd cycle --quick --addresses a:1,b:2 --lease-ms 500").unwrap();
        assert_eq!(arguments.words(), ["etcd", "cycle"]);
        assert!(arguments.flag("quick") && !arguments.flag("java"));
        let target = arguments.target().unwrap();
        assert_eq!(target.addresses, ["a:1", "b:2"]);
        assert_eq!(target.lease, Duration::from_millis(500));
    }

    #[test]
    fn a_missing_or_invalid_value_is_an_error() {
        assert!(parse("etcd cycle --name").is_err());
        assert!(parse("etcd cycle").unwrap().target().is_err());
        assert!(parse("etcd --locks x").unwrap().number("locks", 1).is_err());
    }
}
