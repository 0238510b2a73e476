//! The command line: words and options.

use std::collections::HashMap;

use xtask::Result;

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
        assert_eq!(arguments.text("addresses"), Some("a:1,b:2"));
        assert_eq!(arguments.number("lease-ms", 0).unwrap(), 500);
    }

    #[test]
    fn a_missing_or_invalid_value_is_an_error() {
        assert!(parse("etcd cycle --name").is_err());
        assert!(parse("etcd --locks x").unwrap().number("locks", 1).is_err());
    }
}
