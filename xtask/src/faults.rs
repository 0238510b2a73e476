//! `cargo xtask faults`: how many of the faults listed in `sim/faults` are found by the simulator, by the tests, or not
//! at all.
//!
//! The faults are patches, applied to a copy of the sources below `target/faults`. All are applied at once, and each is
//! active only if the variable `DOCENT_FAULT` names it, so that the copy is built once. `sim/faults/README.md`
//! describes the files.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use xtask::{
    Arguments, Result,
    command::{output, run as run_to_end},
    workspace::{cargo, root},
};

/// The function by which the copy asks whether a fault is active. It is in the lowest crate, so that all others can
/// call it.
const FAULT_SWITCH: &str = "
#[doc(hidden)]
pub mod planted_fault {
    extern crate std;

    #[must_use]
    pub fn is(name: &str) -> bool {
        static PLANTED: std::sync::OnceLock<Option<std::string::String>> = std::sync::OnceLock::new();
        PLANTED.get_or_init(|| std::env::var(\"DOCENT_FAULT\").ok()).as_deref() == Some(name)
    }
}
";

/// The number of seeds that the simulator tries for each fault.
const SEEDS: u64 = 20_000;

/// The tests for the faults that the simulator does not find: packages and arguments of `cargo test`. They need neither
/// Java nor a real server.
const TESTS: [&str; 4] = [
    "-p docent-protocol -p docent-session --lib --tests --features docent-session/sasl",
    "-p docent-recipes -p docent-discovery --lib --tests",
    "-p docent-tests --test parity --test locks --test leader --test data",
    "-p docent-tests --test cache --test discovery --test client",
];

/// A fault of the list.
struct Fault {
    name: String,
    /// What is wrong.
    defect: String,
    hunks: Vec<Hunk>,
}

/// Lines of a file, and the lines that replace them.
#[derive(Default)]
struct Hunk {
    file: String,
    old: String,
    new: String,
}

/// Tries the faults with these names, or all of them.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let arguments = Arguments::parse(arguments, &["no-tests"], &["seeds"])?;
    let (seeds, names) = (arguments.number("seeds", SEEDS)?, arguments.words());
    let faults = read()?;
    if let Some(unknown) = names.iter().find(|name| !faults.iter().any(|one| one.name == **name)) {
        return Err(format!("{unknown}: no fault in sim/faults has this name").into());
    }
    let copy = root().join("target/faults/tree");
    write_copy(&copy, &patched(&faults)?)?;
    let chosen = |fault: &&Fault| names.is_empty() || names.contains(&fault.name.as_str());
    let faults: Vec<_> = faults.iter().filter(chosen).collect();
    let mut missed = simulate(&copy, &faults, seeds)?;
    let (all, found) = (faults.len(), faults.len() - missed.len());
    println!("{found} of {all} faults are found by the simulator within {seeds} seeds");
    if !arguments.flag("no-tests") && !missed.is_empty() {
        missed = test(&copy, missed)?;
        println!("{} more by the tests", all - found - missed.len());
    }
    for fault in missed {
        println!("not found: {}: {}", fault.name, fault.defect);
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads all lists.
fn read() -> Result<Vec<Fault>> {
    let mut files: Vec<PathBuf> = fs::read_dir(root().join("sim/faults"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    let mut faults: Vec<Fault> = Vec::new();
    for file in files {
        let name = file.display();
        let text = fs::read_to_string(&file).map_err(|error| format!("{name}: {error}"))?;
        faults.extend(parse(&text).map_err(|error| format!("{name}: {error}"))?);
    }
    faults.sort_by(|a, b| a.name.cmp(&b.name));
    match faults.iter().zip(faults.iter().skip(1)).find(|(one, next)| one.name == next.name) {
        Some((one, _)) => Err(format!("sim/faults: two faults are named {}", one.name).into()),
        None => Ok(faults),
    }
}

fn parse(text: &str) -> std::result::Result<Vec<Fault>, String> {
    let mut faults: Vec<Fault> = Vec::new();
    let mut file = "";
    // Whether the last line was new text: if so, old text begins another hunk.
    let mut is_new = true;
    for (index, line) in text.lines().enumerate() {
        let error = |what: &str| format!("line {}: {what}", index + 1);
        if let Some(head) = line.strip_prefix("# ") {
            let (name, defect) = head.split_once(": ").ok_or_else(|| error("no `NAME: DEFECT`"))?;
            faults.push(Fault { name: name.into(), defect: defect.into(), hunks: Vec::new() });
            is_new = true;
        } else if let Some(name) = line.strip_prefix("file ") {
            (file, is_new) = (name, true);
        } else if let (Some(kind @ ('-' | '+')), Some(fault)) =
            (line.chars().next(), faults.last_mut())
        {
            if kind == '-' && is_new {
                fault.hunks.push(Hunk { file: file.into(), ..Hunk::default() });
            }
            is_new = kind == '+';
            let hunk = fault.hunks.last_mut().ok_or_else(|| error("new text without old text"))?;
            let text = line.get(2..).unwrap_or_default();
            let side = if is_new { &mut hunk.new } else { &mut hunk.old };
            *side = format!("{side}{text}\n");
        } else if !line.is_empty() && !line.starts_with("note ") {
            return Err(error("none of `#`, `file`, `-`, `+` and `note`"));
        }
    }
    match faults.iter().find(|fault| fault.hunks.is_empty()) {
        Some(fault) => Err(format!("{} changes nothing", fault.name)),
        None => Ok(faults),
    }
}

/// The new texts of all files that faults change.
fn patched(faults: &[Fault]) -> Result<BTreeMap<String, String>> {
    let lowest = "protocol/src/lib.rs";
    let with_switch = fs::read_to_string(root().join(lowest))? + FAULT_SWITCH;
    let mut texts = BTreeMap::from([(lowest.to_owned(), with_switch)]);
    for fault in faults {
        for hunk in &fault.hunks {
            let file = &hunk.file;
            if !texts.contains_key(file) {
                let text = fs::read_to_string(root().join(file));
                let text = text.map_err(|error| format!("{}: {file}: {error}", fault.name))?;
                texts.insert(file.clone(), text);
            }
            let Some(text) = texts.get_mut(file) else { continue };
            // The line break in front makes sure that whole lines match.
            let old = format!("\n{}", hunk.old);
            let times = text.matches(&old).count();
            if times != 1 {
                let Fault { name, .. } = fault;
                return Err(format!("{name}: {file}: {times} times, not once:{old}").into());
            }
            let krate = if file.starts_with("protocol/") { "crate" } else { "docent_protocol" };
            let question = format!("{krate}::planted_fault::is({:?})", fault.name);
            let new = format!("\n{}", hunk.new.replace("FAULT", &question));
            *text = text.replacen(&old, &new, 1);
        }
    }
    Ok(texts)
}

/// Writes the files of the project into the copy, patched where necessary. Files that have not changed
/// stay untouched, so that cargo does not rebuild them.
fn write_copy(copy: &Path, patched: &BTreeMap<String, String>) -> Result<()> {
    let listed = output(Command::new("git").current_dir(root()).args(["ls-files", "-z"]))?;
    for file in listed.split('\0').filter(|file| !file.is_empty()) {
        let text = match patched.get(file) {
            Some(text) => text.clone().into_bytes(),
            None => fs::read(root().join(file))?,
        };
        let target = copy.join(file);
        if !fs::read(&target).is_ok_and(|there| there == text) {
            fs::create_dir_all(target.parent().unwrap_or(copy))?;
            fs::write(&target, text)?;
        }
    }
    Ok(())
}

/// A cargo command in a directory of the copy, with a target directory outside the copy.
fn cargo_in(copy: &Path, directory: &str) -> Command {
    let mut command = cargo();
    command.current_dir(copy.join(directory)).stdin(Stdio::null());
    command.env("CARGO_TARGET_DIR", copy.with_file_name("target").join(directory));
    command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    // These would replace the flags of the simulator.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

/// Runs the simulator with each fault. Returns the faults that it does not find.
fn simulate<'a>(copy: &Path, faults: &[&'a Fault], seeds: u64) -> Result<Vec<&'a Fault>> {
    run_to_end(cargo_in(copy, "sim").args(["build", "--release", "--locked", "--quiet"]))?;
    let program = copy.with_file_name("target").join("sim/release/docent-sim");
    let missed = Mutex::new(Vec::new());
    in_parallel(faults, |fault| {
        let mut simulator = Command::new(&program);
        simulator.args(["--until-broken", "--threads", "1", "--seeds"]).arg(format!("1..{seeds}"));
        let ran = simulator.env("DOCENT_FAULT", &fault.name).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&ran.stdout);
        match said.lines().find(|line| line.starts_with("seed ")) {
            Some(line) => println!("{:<40} {line}", fault.name),
            None if ran.status.success() => {
                missed.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
            }
            None => {
                let why = String::from_utf8_lossy(&ran.stderr);
                return Err(format!("{}: {}: {}", fault.name, ran.status, why.trim()).into());
            }
        }
        Ok(())
    })?;
    Ok(missed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Runs the tests with each fault. Returns the faults that they do not find.
fn test<'a>(copy: &Path, faults: Vec<&'a Fault>) -> Result<Vec<&'a Fault>> {
    let run = |arguments: &str, fault: &str| -> Result<bool> {
        let mut command = cargo_in(copy, ".");
        command.args(["test", "--quiet"]).args(arguments.split(' ')).env("DOCENT_FAULT", fault);
        Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success())
    };
    if let Some(broken) = TESTS.iter().find(|arguments| !run(arguments, "").unwrap_or_default()) {
        return Err(format!("cargo test {broken} fails without a fault").into());
    }
    let mut missed = Vec::new();
    for fault in faults {
        let mut found = None;
        for arguments in TESTS {
            if !run(arguments, &fault.name)? {
                found = Some(arguments);
                break;
            }
        }
        match found {
            Some(arguments) => println!("{:<40} cargo test {arguments}", fault.name),
            None => missed.push(fault),
        }
    }
    Ok(missed)
}

/// Runs a job for each fault, on all processors.
fn in_parallel<'a>(
    faults: &[&'a Fault],
    job: impl Fn(&'a Fault) -> Result<()> + Sync,
) -> Result<()> {
    let (next, threads) = (AtomicUsize::new(0), thread::available_parallelism()?.get());
    thread::scope(|scope| {
        let work = || {
            while let Some(&fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
                job(fault)?;
            }
            Ok(())
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker panicked")?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_names_defects_and_lines() {
        let text =
            "# a-b: late\nfile x.rs\n- one\n- two\n+ if FAULT {\n- three\n+ 3\nnote harmless\n";
        let faults = parse(text).unwrap();
        let [fault] = &faults[..] else { panic!("{} faults", faults.len()) };
        assert_eq!((fault.name.as_str(), fault.defect.as_str()), ("a-b", "late"));
        let hunks: Vec<_> = fault
            .hunks
            .iter()
            .map(|one| (one.file.as_str(), one.old.as_str(), one.new.as_str()))
            .collect();
        assert_eq!(hunks, [("x.rs", "one\ntwo\n", "if FAULT {\n"), ("x.rs", "three\n", "3\n")]);
    }

    #[test]
    fn errors_name_the_line_or_the_fault() {
        for (text, error) in [
            ("# a", "line 1: no `NAME: DEFECT`"),
            ("# a: b\n+ c", "line 2: new text without old text"),
            ("# a: b\nc", "line 2: none of `#`, `file`, `-`, `+` and `note`"),
            ("# a: b\n", "a changes nothing"),
        ] {
            assert_eq!(parse(text).err().as_deref(), Some(error));
        }
    }

    // The lists must change with the sources: each old text must occur in its file exactly once.
    #[test]
    fn the_list_fits_the_sources() {
        patched(&read().unwrap()).unwrap();
    }
}
