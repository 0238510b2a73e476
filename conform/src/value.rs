//! The values of a script: literals, `~` for the subtree of the case, and variables.

use std::collections::BTreeMap;

/// The meaning of `~` and of the variables in a script.
#[derive(Debug, Default)]
pub(crate) struct Values {
    /// The subtree of the case.
    pub(crate) root: String,
    variables: BTreeMap<String, String>,
}

impl Values {
    pub(crate) fn new(root: String) -> Self {
        Self { root, variables: BTreeMap::new() }
    }

    pub(crate) fn set(&mut self, name: &str, value: String) {
        self.variables.insert(name.to_owned(), value);
    }

    pub(crate) fn is_bound(&self, name: &str) -> bool {
        self.variables.contains_key(name)
    }

    /// Expands `~/a`, `$variable`, `$variable+1`, `"text"`, or a literal.
    pub(crate) fn expand(&self, word: &str) -> Result<String, String> {
        if let Some(rest) = word.strip_prefix('~') {
            return Ok(format!("{}{rest}", self.root));
        }
        if let Some(name) = word.strip_prefix('$') {
            let (name, plus) = name.split_once('+').unwrap_or((name, "0"));
            let value = self.variables.get(name).ok_or_else(|| format!("${name} has no value"))?;
            return Ok(match plus {
                "0" => value.clone(),
                _ => sum(value, plus).ok_or_else(|| format!("{word} is no number"))?.to_string(),
            });
        }
        let text = word.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        Ok(text.unwrap_or(word).to_owned())
    }

    /// Expands each value of a list separated by commas.
    pub(crate) fn expand_list(&self, word: &str) -> Result<Vec<String>, String> {
        match word {
            "" | "empty" => Ok(Vec::new()),
            _ => word.split(',').map(|word| self.expand(word)).collect(),
        }
    }
}

fn sum(value: &str, plus: &str) -> Option<i64> {
    value.parse::<i64>().ok()?.checked_add(plus.parse().ok()?)
}

/// The largest number of bytes that `zeros:` may stand for.
const MAX_ZEROS: usize = 2 << 20;

/// Bytes from `hex:00ff` or `zeros:1000`, or the bytes of the text.
pub(crate) fn bytes(text: &str) -> Result<Vec<u8>, String> {
    if let Some(count) = text.strip_prefix("zeros:") {
        let count = count.parse().ok().filter(|count| *count <= MAX_ZEROS);
        return count.map(|count| vec![0; count]).ok_or_else(|| format!("{text}: no count"));
    }
    let Some(hex) = text.strip_prefix("hex:") else { return Ok(text.as_bytes().to_vec()) };
    let pairs = hex.as_bytes().chunks(2).map(|pair| {
        let digits = std::str::from_utf8(pair).ok().filter(|digits| digits.len() == 2);
        digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())
    });
    pairs.collect::<Option<_>>().ok_or_else(|| format!("{text}: not pairs of digits"))
}

/// The hexadecimal digits of bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
