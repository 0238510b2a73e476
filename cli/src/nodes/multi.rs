//! `docent multi`: several writes, all or none.

use std::io::{self, BufRead as _};

use clap::Args;
use docent::{Client, CreateMode, session::TransactionResult};
use serde_json::json;

use super::{check, object, print, print_json};
use crate::{
    command::Command,
    connect::ServerArgs,
    data,
    exit::{self, Ended, Failure},
};

/// Make several writes in one step: all of them, or none
#[derive(Args)]
#[command(after_long_help = format!("\
Operations, one an argument, or one a line of the standard input (where #
begins a comment):
  create [-s] [-c] PATH [DATA]   -s with digits behind the name, -c a container
  set [-v VERSION] PATH DATA
  delete [-v VERSION] PATH
  check [-v VERSION] PATH        fails it all unless the node exists, and has
                                 that version
Words are separated by blanks; 'single quotes' take everything as it is, and
\"double quotes\" all but a backslash, which stands before a quote or itself.

Examples:
  docent multi 'check -v 3 /a' 'set /a 90' 'set /b 110'
  docent multi \"check $DOCENT_LOCK_PATH\" 'set /balance 90'
      in a command under docent lock: is applied only while the lock is held,
      however late it arrives

A line for each: created PATH, set PATH version N, deleted PATH, checked PATH.
With --json, one object a line: op, path, and version for set. When one fails,
nothing was done, and its number (from 0) is told.

{}", exit::TABLE))]
pub(crate) struct Multi {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// The operations; none: from the standard input
    #[arg(value_name = "OPERATION")]
    operations: Vec<String>,
    #[arg(skip)]
    parsed: Vec<Operation>,
    #[command(flatten)]
    server: ServerArgs,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Operation {
    Create { mode: CreateMode, path: String, data: String },
    Set { version: Option<i32>, path: String, data: String },
    Delete { version: Option<i32>, path: String },
    Check { version: Option<i32>, path: String },
}

impl Operation {
    fn path(&self) -> &str {
        match self {
            Self::Create { path, .. }
            | Self::Set { path, .. }
            | Self::Delete { path, .. }
            | Self::Check { path, .. } => path,
        }
    }

    /// Whether a name of digits only is meant: `/a/` with -s.
    fn is_sequential(&self) -> bool {
        matches!(self, Self::Create { mode, .. } if mode.is_sequential())
    }
}

impl Command for Multi {
    fn server(&self) -> &ServerArgs {
        &self.server
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        self.parsed = self.parse()?;
        Ok(())
    }

    async fn run(&self, client: &Client) -> Ended {
        let operations = &self.parsed;
        let results = commit(client, operations).await?;
        for (operation, result) in operations.iter().zip(results) {
            self.show(operation, result)?;
        }
        Ok(0)
    }
}

impl Multi {
    fn parse(&self) -> Result<Vec<Operation>, Failure> {
        let lines: Vec<String> = if self.operations.is_empty() {
            io::stdin().lock().lines().collect::<Result<_, _>>().map_err(|error| {
                Failure::new(exit::IO, format_args!("cannot read the standard input: {error}"))
            })?
        } else {
            self.operations.clone()
        };
        let what = if self.operations.is_empty() { "line" } else { "operation" };
        let mut operations = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let said = format!("{what} {}", index + 1);
            let wrong = |why: String| Failure::usage(format_args!("{said}: {why}"));
            let Some(operation) = parse(line).map_err(wrong)? else { continue };
            let path = operation.path();
            let named = if operation.is_sequential() { path.trim_end_matches('/') } else { path };
            check(if named.is_empty() { "/" } else { named })
                .map_err(|failure| wrong(failure.to_string()))?;
            operations.push(operation);
        }
        if operations.is_empty() {
            return Err(Failure::usage("there is no operation; see docent multi --help"));
        }
        Ok(operations)
    }

    fn show(&self, operation: &Operation, result: TransactionResult) -> Result<(), Failure> {
        let path = operation.path();
        let (verb, path, version) = match result {
            TransactionResult::Created { path, .. } => ("created", path, None),
            TransactionResult::Deleted => ("deleted", path.to_owned(), None),
            TransactionResult::DataSet(stat) => ("set", path.to_owned(), Some(stat.version)),
            _ => ("checked", path.to_owned(), None),
        };
        if self.json {
            let mut object = object(&path);
            object.insert("op".to_owned(), json!(verb));
            if let Some(version) = version {
                object.insert("version".to_owned(), json!(version));
            }
            return print_json(object);
        }
        let version = version.map(|version| format!(" version {version}")).unwrap_or_default();
        print(&format!("{verb} {}{version}\n", data::shown(path.as_bytes())))
    }
}

async fn commit(
    client: &Client,
    operations: &[Operation],
) -> Result<Vec<TransactionResult>, Failure> {
    let mut transaction = client.transaction();
    for operation in operations {
        transaction = match operation {
            Operation::Create { mode, path, data } => {
                transaction.create(path, data.as_bytes(), *mode)
            }
            Operation::Set { version, path, data } => {
                transaction.set_data(path, data.as_bytes(), *version)
            }
            Operation::Delete { version, path } => transaction.delete(path, *version),
            Operation::Check { version, path } => transaction.check(path, *version),
        };
    }
    Ok(transaction.commit().await?)
}

/// `None` for an empty line or a comment.
fn parse(line: &str) -> Result<Option<Operation>, String> {
    let words = words(line)?;
    let Some((verb, rest)) = words.split_first() else { return Ok(None) };
    let (mut version, mut sequential, mut container) = (None, false, false);
    let mut rest = rest.iter().map(String::as_str).peekable();
    while let Some(option) = rest.next_if(|word| word.starts_with('-') && word.len() == 2) {
        match (verb.as_str(), option) {
            ("set" | "delete" | "check", "-v") => {
                let number = rest.next().and_then(|text| text.parse().ok());
                let number = number.filter(|number: &i32| *number >= 0);
                version = Some(number.ok_or("-v wants a version, a number from 0")?);
            }
            ("create", "-s") => sequential = true,
            ("create", "-c") => container = true,
            _ => return Err(format!("{verb} has no option {option}")),
        }
    }
    let rest: Vec<String> = rest.map(str::to_owned).collect();
    let operation = match (verb.as_str(), <[String; 2]>::try_from(rest)) {
        ("create", rest) => {
            let [path, data] = match rest {
                Ok(both) => both,
                Err(rest) => match <[String; 1]>::try_from(rest) {
                    Ok([path]) => [path, String::new()],
                    Err(_) => return Err("create wants PATH [DATA]".to_owned()),
                },
            };
            let mode = match (sequential, container) {
                (false, false) => CreateMode::Persistent,
                (true, false) => CreateMode::PersistentSequential,
                (false, true) => CreateMode::Container,
                (true, true) => return Err("a container has no digits: -s or -c".to_owned()),
            };
            Operation::Create { mode, path, data }
        }
        ("set", Ok([path, data])) => Operation::Set { version, path, data },
        ("set", _) => return Err("set wants PATH DATA".to_owned()),
        ("delete" | "check", Err(rest)) if rest.len() == 1 => {
            let path = rest.into_iter().next().unwrap_or_default();
            if verb == "check" {
                Operation::Check { version, path }
            } else {
                Operation::Delete { version, path }
            }
        }
        ("delete" | "check", _) => return Err(format!("{verb} wants one PATH")),
        _ => return Err(format!("{verb:?} is none of create, set, delete, check")),
    };
    Ok(Some(operation))
}

/// As a shell does it, roughly.
fn words(line: &str) -> Result<Vec<String>, String> {
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
                        None => return Err(format!("the quote {char} is not closed")),
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
        let said = words(r#"set  /a 'b "c"' "d \"\\ 'e'" '' f'g'"#).unwrap();
        assert_eq!(said, ["set", "/a", "b \"c\"", "d \"\\ 'e'", "", "fg"]);
        assert_eq!(words("a # b").unwrap(), ["a"]);
        assert!(words("a 'b").is_err());
    }

    #[test]
    fn operations_have_their_options() {
        let check = Operation::Check { version: Some(3), path: "/a".to_owned() };
        assert_eq!(parse("check -v 3 /a"), Ok(Some(check)));
        let create = Operation::Create {
            mode: CreateMode::PersistentSequential,
            path: "/a/".to_owned(),
            data: String::new(),
        };
        assert_eq!(parse("create -s /a/"), Ok(Some(create)));
        let set = Operation::Set { version: None, path: "/a".to_owned(), data: "-1".to_owned() };
        assert_eq!(parse("set /a -1"), Ok(Some(set)));
        assert_eq!(parse(" # nothing"), Ok(None));
        for line in [
            "get /a",
            "set /a",
            "check",
            "delete /a /b",
            "create -s -c /a",
            "set -v x /a b",
            "check -s /a",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
