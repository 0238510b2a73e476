//! `docent multi`: transactions.

use std::io::{self, BufRead as _};

use clap::Args;
use docent::{Client, CreateMode, Error, TransactionResult};
use serde_json::json;

use super::{path_object, validate_new_path};
use crate::{
    command::Command,
    connect::ServerArgs,
    exit::{self, CommandResult, Failure},
    output::{escape, print, print_json},
    words::split_words,
};

/// Apply several writes in one transaction: all of them, or none
#[derive(Args)]
#[command(after_long_help = format!("\
Operations, one per argument, or one per line of standard input (where #
begins a comment):
  create [-s] [-c] PATH [DATA]   -s sequential, -c container
  set [-v VERSION] PATH DATA
  delete [-v VERSION] PATH
  check [-v VERSION] PATH        the transaction fails unless the node exists
                                 and has this version
Words are separated by blanks. 'Single quotes' preserve every character; in
\"double quotes\", a backslash escapes a quote or a backslash.

Examples:
  docent multi 'check -v 3 /a' 'set /a 90' 'set /b 110'
  docent multi \"check $DOCENT_LOCK_PATH\" 'set /balance 90'
      in a command under docent lock: applied only while the lock is held, even
      if the request is delayed

Prints one line per operation: created PATH, set PATH version N, deleted PATH,
checked PATH. With --json, one object per line: op, path, and version for set.
If an operation fails, none is applied, and the error has its number (from 1), or
its line of standard input.

{}", exit::HELP))]
pub(crate) struct Multi {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Operations; read from standard input if there are none, or with -
    #[arg(value_name = "OPERATION")]
    operations: Vec<String>,
    /// The operations, each with its position in the input, such as `line 3`.
    #[arg(skip)]
    parsed: Vec<(String, Operation)>,
}

/// One operation of the transaction.
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

    /// Whether the server appends a number. If it does, the name may be empty: `/a/` with -s.
    fn is_sequential(&self) -> bool {
        matches!(self, Self::Create { mode, .. } if mode.is_sequential())
    }
}

impl Command for Multi {
    fn reads_input(&self) -> bool {
        self.operations.is_empty() || self.operations == ["-"]
    }

    fn prepare(&mut self, _: &ServerArgs) -> Result<(), Failure> {
        self.parsed = self.parse()?;
        Ok(())
    }

    async fn run(&self, client: &Client) -> CommandResult {
        let operations = self.parsed.iter().map(|(_, operation)| operation);
        let results =
            commit(client, operations.clone()).await.map_err(|error| self.failure(error))?;
        for (operation, result) in operations.zip(results) {
            self.print_result(operation, result)?;
        }
        Ok(0)
    }
}

impl Multi {
    /// The error of the transaction. The client counts the operations from 0, the input from 1.
    fn failure(&self, error: Error) -> Failure {
        let place = error.index().and_then(|index| Some((index, &self.parsed.get(index)?.0)));
        let failure = Failure::from(error);
        let Some((index, place)) = place else { return failure };
        let text = failure.to_string();
        match text.strip_prefix(&format!("operation {index}: ")) {
            Some(text) => Failure::new(failure.code, format_args!("{place}: {text}")),
            None => failure,
        }
    }

    fn parse(&self) -> Result<Vec<(String, Operation)>, Failure> {
        let is_from_input = self.reads_input();
        let lines: Vec<String> = if is_from_input {
            io::stdin().lock().lines().collect::<Result<_, _>>().map_err(|error| {
                Failure::new(exit::IO, format_args!("cannot read standard input: {error}"))
            })?
        } else {
            self.operations.clone()
        };
        let unit = if is_from_input { "line" } else { "operation" };
        let mut operations = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let position = format!("{unit} {}", index + 1);
            let invalid = |reason: String| Failure::usage(format_args!("{position}: {reason}"));
            let Some(operation) = parse(line).map_err(invalid)? else { continue };
            validate_new_path(operation.path(), operation.is_sequential())
                .map_err(|failure| invalid(failure.to_string()))?;
            operations.push((position, operation));
        }
        if operations.is_empty() {
            return Err(Failure::usage("no operation given; see docent multi --help"));
        }
        Ok(operations)
    }

    fn print_result(
        &self,
        operation: &Operation,
        result: TransactionResult,
    ) -> Result<(), Failure> {
        let path = operation.path();
        let (verb, path, version) = match result {
            TransactionResult::Created { path, .. } => ("created", path, None),
            TransactionResult::Deleted => ("deleted", path.to_owned(), None),
            TransactionResult::DataSet(stat) => ("set", path.to_owned(), Some(stat.version)),
            _ => ("checked", path.to_owned(), None),
        };
        if self.json {
            let mut object = path_object(&path);
            object.insert("op".to_owned(), json!(verb));
            if let Some(version) = version {
                object.insert("version".to_owned(), json!(version));
            }
            return print_json(object);
        }
        let version = version.map(|version| format!(" version {version}")).unwrap_or_default();
        print(&format!("{verb} {}{version}\n", escape(&path)))
    }
}

async fn commit(
    client: &Client,
    operations: impl Iterator<Item = &Operation>,
) -> Result<Vec<TransactionResult>, Error> {
    let mut transaction = client.transaction();
    for operation in operations {
        match operation {
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
    transaction.commit().await
}

/// Parses an operation. Returns `None` for an empty line or a comment.
fn parse(line: &str) -> Result<Option<Operation>, String> {
    let words = split_words(line)?;
    let Some((verb, rest)) = words.split_first() else { return Ok(None) };
    let (mut version, mut sequential, mut container) = (None, false, false);
    let mut rest = rest.iter().map(String::as_str).peekable();
    while let Some(option) = rest.next_if(|word| word.starts_with('-') && word.len() == 2) {
        match (verb.as_str(), option) {
            ("set" | "delete" | "check", "-v") => {
                let number = rest.next().and_then(|text| text.parse().ok());
                let number = number.filter(|number: &i32| *number >= 0);
                version = Some(number.ok_or("-v requires a version, a number from 0")?);
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
                    Err(_) => return Err("create requires PATH [DATA]".to_owned()),
                },
            };
            let mode = match (sequential, container) {
                (false, false) => CreateMode::Persistent,
                (true, false) => CreateMode::PersistentSequential,
                (false, true) => CreateMode::Container,
                (true, true) => {
                    return Err(
                        "-s and -c exclude each other: a container cannot be sequential".to_owned()
                    );
                }
            };
            Operation::Create { mode, path, data }
        }
        ("set", Ok([path, data])) => Operation::Set { version, path, data },
        ("set", _) => return Err("set requires PATH DATA".to_owned()),
        ("delete" | "check", Err(rest)) if rest.len() == 1 => {
            let path = rest.into_iter().next().unwrap_or_default();
            if verb == "check" {
                Operation::Check { version, path }
            } else {
                Operation::Delete { version, path }
            }
        }
        ("delete" | "check", _) => return Err(format!("{verb} requires one PATH")),
        _ => return Err(format!("\"{verb}\" is not one of create, set, delete, check")),
    };
    Ok(Some(operation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_accept_their_options_only() {
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
