//! The words of a line, quoted as in a shell.

/// Splits a line into words with a subset of the quoting rules of shells.
pub(crate) fn split_words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            '#' if word.is_none() => break,
            ' ' | '\t' => words.extend(word.take()),
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some(end) if end == char => break,
                        Some('\\') if char == '"' => word.extend(chars.next()),
                        Some(other) => word.push(other),
                        None => return Err(format!("unclosed quote {char}")),
                    }
                }
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_in_a_shell() {
        let words = split_words(r#"set  /a 'b "c"' "d \"\\ 'e'" '' f'g'"#).unwrap();
        assert_eq!(words, ["set", "/a", "b \"c\"", "d \"\\ 'e'", "", "fg"]);
        assert_eq!(split_words("a # b").unwrap(), ["a"]);
        assert!(split_words("a 'b").is_err());
    }
}
