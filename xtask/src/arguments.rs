//! A command line: words, flags, and options with a value.

use std::{collections::BTreeMap, str::FromStr};

use crate::Result;

/// The words of a command line, and its options.
#[derive(Debug, Default)]
pub struct Arguments {
    words: Vec<String>,
    options: BTreeMap<String, String>,
}

impl Arguments {
    /// Parses a command line. `flags` are the options without a value, `options` those with one; any other option
    /// is an error.
    pub fn parse<Word: AsRef<str>>(
        words: &[Word],
        flags: &[&str],
        options: &[&str],
    ) -> Result<Self> {
        let mut arguments = Self::default();
        let mut words = words.iter().map(AsRef::as_ref);
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else {
                arguments.words.push(word.to_owned());
                continue;
            };
            let value = if flags.contains(&name) {
                ""
            } else if options.contains(&name) {
                words.next().ok_or_else(|| format!("--{name} needs a value"))?
            } else {
                return Err(format!("no option --{name}").into());
            };
            arguments.options.insert(name.to_owned(), value.to_owned());
        }
        Ok(arguments)
    }

    /// The words that are neither options nor their values.
    pub fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }

    /// Whether an option is given.
    pub fn flag(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }

    /// The value of an option.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// The value of an option, or `default` if it is not given.
    pub fn number<T: FromStr>(&self, name: &str, default: T) -> Result<T> {
        let Some(text) = self.text(name) else { return Ok(default) };
        text.parse().map_err(|_| format!("--{name} {text}: must be a number").into())
    }
}
