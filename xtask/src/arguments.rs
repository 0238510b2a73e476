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
    /// Reads a command line. `flags` are the options without a value, `options` those with one; others are refused.
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

    /// Whether an option is there.
    pub fn flag(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }

    /// The value of an option.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// The value of an option, or its default.
    pub fn number<T: FromStr>(&self, name: &str, default: T) -> Result<T> {
        let Some(text) = self.text(name) else { return Ok(default) };
        text.parse().map_err(|_| format!("--{name} {text}: must be a number").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments> {
        Arguments::parse(&line.split(' ').collect::<Vec<_>>(), &["quick"], &["locks"])
    }

    #[test]
    fn words_flags_and_options_are_separated() {
        let arguments = parse("etcd --quick --locks 500 cycle").unwrap();
        assert_eq!(arguments.words(), ["etcd", "cycle"]);
        assert!(arguments.flag("quick"));
        assert_eq!(
            (arguments.text("locks"), arguments.number("locks", 1).unwrap()),
            (Some("500"), 500)
        );
    }

    #[test]
    fn a_missing_or_invalid_value_and_an_unknown_option_are_errors() {
        assert!(parse("etcd --locks").is_err());
        assert!(parse("etcd --other x").is_err());
        assert!(parse("etcd --locks x").unwrap().number("locks", 1).is_err());
    }
}
