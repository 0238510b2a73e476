//! The lines of a history: their fields, and the order of their times.

use std::collections::BTreeMap;

/// A line: a word, and fields whose values have no spaces. An unknown value is `-`.
#[derive(Debug, Clone)]
pub struct Line<'a> {
    number: usize,
    /// What the line is about.
    pub word: &'a str,
    fields: BTreeMap<&'a str, &'a str>,
}

/// The words with all their fields.
const WORDS: [(&str, &str); 9] = [
    ("run", "seed members version start end session work"),
    ("fault", "number kind from until members clients text"),
    ("hold", "lock client kind token called granted proven release end held member"),
    ("memory", "set element client kind token read at"),
    ("guarded", "element client kind token called returned outcome"),
    ("register", "key client op value expected version mzxid session called returned result"),
    ("final", "set version elements"),
    ("stuck", "client kind command at"),
    ("note", "at text"),
];

/// Pairs of times; the first must not be later than the second.
const ORDERED: [(&str, &str); 5] = [
    ("from", "until"),
    ("called", "granted"),
    ("granted", "release"),
    ("called", "returned"),
    ("read", "at"),
];

impl<'a> Line<'a> {
    /// Parses a line. Errors name it by its number.
    ///
    /// # Errors
    ///
    /// If the word is unknown, a field is missing, unknown or given twice, or times are in the wrong order.
    pub fn parse(number: usize, line: &'a str) -> Result<Self, String> {
        let error = |text: String| Err(format!("line {number}: {text}"));
        let mut parts = line.split(' ');
        let word = parts.next().unwrap_or_default();
        let Some((_, names)) = WORDS.iter().find(|(of, _)| *of == word) else {
            return error(format!("the word `{word}` is not known"));
        };
        let mut fields = BTreeMap::new();
        for field in parts {
            let Some((name, value)) = field.split_once('=') else {
                return error(format!("`{field}` is no field"));
            };
            if !names.split(' ').any(|known| known == name) || fields.insert(name, value).is_some()
            {
                return error(format!("{word} with an unknown or second {name}"));
            }
        }
        if let Some(missing) = names.split(' ').find(|name| !fields.contains_key(name)) {
            return error(format!("{word} without {missing}"));
        }
        let line = Self { number, word, fields };
        for (first, second) in ORDERED {
            if let (Some(from), Some(to)) = (line.time(first)?, line.time(second)?)
                && to < from
            {
                return error(format!("{second} is before {first}"));
            }
        }
        Ok(line)
    }

    /// The text of a field; empty if lines with this word have no such field.
    #[must_use]
    pub fn text(&self, name: &str) -> &'a str {
        self.fields.get(name).copied().unwrap_or_default()
    }

    /// The value of a field as a number.
    ///
    /// # Errors
    ///
    /// If the value is not a number.
    pub fn number(&self, name: &str) -> Result<u64, String> {
        let text = self.text(name);
        text.parse().map_err(|_| self.wrong(name))
    }

    /// The value of a field as a number; `None` for `-`.
    pub(super) fn optional(&self, name: &str) -> Result<Option<u64>, String> {
        if self.text(name) == "-" { Ok(None) } else { self.number(name).map(Some) }
    }

    /// The token of a hold; `None` for `-`, and for `gone`: its node was not there when it was asked for.
    pub(super) fn token(&self) -> Result<Option<u64>, String> {
        if self.is_gone() { Ok(None) } else { self.optional("token") }
    }

    /// Whether the node of a hold was gone when its token was asked for.
    pub(super) fn is_gone(&self) -> bool {
        self.text("token") == "gone"
    }

    /// The time in a field; `None` if the line has no such field, or for `-`.
    fn time(&self, name: &str) -> Result<Option<u64>, String> {
        if self.fields.contains_key(name) { self.optional(name) } else { Ok(None) }
    }

    /// The text of a field, which must be one of `texts`.
    pub(super) fn one_of(&self, name: &str, texts: &[&str]) -> Result<&'a str, String> {
        let text = self.text(name);
        if texts.contains(&text) { Ok(text) } else { Err(self.wrong(name)) }
    }

    pub(super) fn is_docent(&self) -> Result<bool, String> {
        Ok(self.one_of("kind", &["docent", "curator"])? == "docent")
    }

    /// The numbers of a field, separated by commas.
    pub(super) fn list(&self, name: &str) -> Result<Vec<u64>, String> {
        let parts = self.text(name).split(',').filter(|part| !part.is_empty());
        parts.map(str::parse).collect::<Result<_, _>>().map_err(|_| self.wrong(name))
    }

    /// Checks that all times lie within the run.
    pub(super) fn check_times(&self, start: u64, end: u64) -> Result<(), String> {
        for name in ORDERED.into_iter().flat_map(|(first, second)| [first, second]) {
            if self.time(name)?.is_some_and(|at| at < start || at > end) {
                return Err(format!("line {}: {name} is not in the time of the run", self.number));
            }
        }
        Ok(())
    }

    pub(super) fn wrong(&self, name: &str) -> String {
        format!("line {}: {}: {name}={} is not allowed", self.number, self.word, self.text(name))
    }
}
