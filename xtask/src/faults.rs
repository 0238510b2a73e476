//! `cargo xtask faults`: how many of the faults listed in `sim/faults` are found by the simulator, by the tests, or not
//! at all.
//!
//! The faults are patches, applied to a copy of the sources below `target/faults`. All are applied at once, and each is
//! active only if the variable `DOCENT_FAULTS` names it, so that the copy is built once. `sim/faults/README.md`
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

use crate::programs::without;
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
        static PLANTED: std::sync::OnceLock<std::string::String> = std::sync::OnceLock::new();
        let planted = PLANTED.get_or_init(|| std::env::var(\"DOCENT_FAULTS\").unwrap_or_default());
        planted.split(' ').any(|one| one == name)
    }
}
";

/// The seeds that the simulator tries unless told otherwise. Most of the faults that it finds take fewer than 100.
const SEEDS: u64 = 1000;

/// The number of faults that the simulator tries at once. One may hide another.
const TOGETHER: usize = 48;

/// The packages whose tests are run. They need neither Java nor a real server, without which some are skipped.
const PACKAGES: &str = "--package docent-protocol --package docent-session --package docent-recipes \
    --package docent-discovery --package docent-tests --features docent-session/sasl";

fn packages() -> impl Iterator<Item = &'static str> {
    PACKAGES.split_whitespace()
}

/// The test programs, from those of the lowest level up. Those of a line are run together.
const TESTS: [&str; 11] = [
    "--lib",
    "--test golden --test properties --test corpus --test dissect --test display",
    "--test driver --test watch_model",
    "--test virtual_time",
    "--test data",
    "--test cache",
    "--test leader",
    "--test discovery",
    "--test client --test ensemble",
    "--test locks --test parity",
    "--test memory --test cache_for_a_day",
];

/// The directories of the crates, from the lowest up, and the test programs that reach only this one and those below it: no
/// fault in a higher one can fail them.
const REACH: [(&str, &str); 4] = [
    ("protocol/", "docent_protocol golden properties dissect display"),
    ("session/", "docent_session driver watch_model"),
    ("recipes/", "docent_recipes virtual_time cache_for_a_day"),
    ("discovery/", "docent_discovery"),
];

/// The number of seconds after which a test program counts as failed: a fault may make a test wait for ever.
const LONGEST: &str = "240";

/// A fault of the list.
struct Fault {
    name: String,
    /// What is wrong.
    defect: String,
    /// Whether a note says why nobody can see the fault.
    is_equivalent: bool,
    hunks: Vec<Hunk>,
}

impl Fault {
    /// The test programs that cannot reach it.
    fn out_of_reach(&self) -> impl Iterator<Item = &'static str> {
        let is_in =
            |directory: &str| self.hunks.iter().any(|hunk| hunk.file.starts_with(directory));
        let below = REACH.iter().position(|(directory, _)| is_in(directory)).unwrap_or(0);
        REACH.iter().take(below).flat_map(|(_, programs)| programs.split(' '))
    }
}

/// Lines of a file, and the lines that replace them.
#[derive(Default)]
struct Hunk {
    file: String,
    old: String,
    new: String,
}

/// Tries the faults with these names, or all of them but the equivalent ones.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let arguments = Arguments::parse(arguments, &[], &["seeds"])?;
    let (faults, names) = (read()?, arguments.words());
    let seeds = arguments.number("seeds", SEEDS)?;
    if let Some(unknown) = names.iter().find(|name| !faults.iter().any(|one| one.name == **name)) {
        return Err(format!("{unknown}: no fault in sim/faults has this name").into());
    }
    let copy = root().join("target/faults/tree");
    write_copy(&copy, &patched(&faults)?)?;
    let is_chosen = |fault: &&Fault| match names[..] {
        [] => !fault.is_equivalent,
        _ => names.contains(&fault.name.as_str()),
    };
    let chosen: Vec<_> = faults.iter().filter(is_chosen).collect();
    println!("{} of {} faults", chosen.len(), faults.len());

    run_to_end(cargo_in(&copy, "sim").args(["build", "--release", "--locked", "--quiet"]))?;
    let mut left = without_found(&format!("seeds 1 to {seeds}"), chosen, TOGETHER, 1, |faults| {
        without_simulated(&copy, faults, seeds)
    })?;
    if !left.is_empty() {
        run_to_end(cargo_in(&copy, ".").args(["test", "--no-run", "--quiet"]).args(packages()))?;
        for programs in TESTS {
            if left.is_empty() {
                break;
            }
            if let Some(failed) = failure(&copy, programs, None)? {
                return Err(format!("cargo test {programs}: {failed} fails without a fault").into());
            }
            // Tests mostly wait.
            left = without_found(programs, left, 1, 2, |faults| {
                each_without(faults, |fault| failure(&copy, programs, Some(fault)))
            })?;
        }
    }
    left = without_found("small scopes in every order", left, 1, 1, |faults| {
        each_without(faults, |fault| simulate(&copy, &["exhaust", "--quick"], &[fault]))
    })?;
    for fault in left {
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
            let (name, defect) = (name.into(), defect.into());
            faults.push(Fault { name, defect, is_equivalent: false, hunks: Vec::new() });
            is_new = true;
        } else if let Some(name) = line.strip_prefix("file ") {
            (file, is_new) = (name, true);
        } else if let (Some(note), Some(fault)) = (line.strip_prefix("note "), faults.last_mut()) {
            fault.is_equivalent = note.starts_with("equivalent: ");
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
        } else if !line.is_empty() {
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

/// Looks for faults with the simulator, all planted at once. A seed that breaks a rule is run again with each fault
/// alone. Returns the faults that are not found.
fn without_simulated<'a>(copy: &Path, faults: Vec<&'a Fault>, last: u64) -> Result<Vec<&'a Fault>> {
    let run = |first, last: u64, faults: &[&Fault]| {
        let seeds = format!("{first}..{last}");
        simulate(copy, &["--until-broken", "--threads", "1", "--seeds", &seeds], faults)
    };
    let (mut left, mut first) = (faults, 1);
    while let Some(found) = run(first, last, &left)? {
        let seed = found.rsplit_once("--seed ").and_then(|(_, rest)| rest.split(' ').next());
        let seed = seed.ok_or("the simulator names no seed")?.parse()?;
        if let Some(found) = run(seed, seed, &[])? {
            return Err(format!("without a fault: {found}").into());
        }
        let before = left.len();
        left = each_without(left, |fault| run(seed, seed, &[fault]))?;
        first = seed;
        if left.len() == before {
            println!("{before:>4} faults, none of them alone:          {found}");
            first += 1;
        }
    }
    Ok(left)
}

/// Runs the simulator with faults. Returns what it finds.
fn simulate(copy: &Path, arguments: &[&str], faults: &[&Fault]) -> Result<Option<String>> {
    let mut simulator = Command::new(copy.with_file_name("target/sim/release/docent-sim"));
    simulator.args(arguments).env("DOCENT_FAULTS", joined_names(faults)).stdin(Stdio::null());
    let ran = simulator.output()?;
    let said = String::from_utf8_lossy(&ran.stdout);
    match (ran.status.code(), said.lines().find(|line| line.contains("(replay: "))) {
        (Some(1), Some(found)) => Ok(Some(found.to_owned())),
        (Some(0), None) => Ok(None),
        _ => {
            let why = String::from_utf8_lossy(&ran.stderr);
            Err(format!("{}: {}: {}", joined_names(faults), ran.status, why.trim()).into())
        }
    }
}

fn joined_names(faults: &[&Fault]) -> String {
    faults.iter().map(|fault| fault.name.as_str()).collect::<Vec<_>>().join(" ")
}

/// Runs the test programs that can reach a fault. Returns the test that fails, and fails again: on a busy machine, some tests
/// fail once.
fn failure(copy: &Path, programs: &str, fault: Option<&Fault>) -> Result<Option<String>> {
    let Some(failed) = failed_tests(copy, programs, &[], fault)? else { return Ok(None) };
    let again = failed_tests(copy, programs, &failed, fault)?;
    Ok(again.map(|tests| tests.first().cloned().unwrap_or_else(|| "a crash".to_owned())))
}

/// Runs test programs until one fails, or only these tests of theirs. Returns the tests that fail, none for a crash.
fn failed_tests(
    copy: &Path,
    programs: &str,
    only: &[String],
    fault: Option<&Fault>,
) -> Result<Option<Vec<String>>> {
    let mut command = cargo_in(copy, ".");
    let skipped = fault.iter().flat_map(|fault| fault.out_of_reach());
    command.arg("test").args(without(skipped, &format!("timeout {LONGEST}"))).args(packages());
    command.args(programs.split(' ')).env("DOCENT_FAULTS", fault.map_or("", |fault| &fault.name));
    if !only.is_empty() {
        command.args(["--", "--exact"]).args(only);
    }
    let ran = command.env("RUST_TEST_THREADS", "8").output()?;
    let said = String::from_utf8_lossy(&ran.stdout);
    let ending = |with: &str| -> Vec<String> {
        let tests = said.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(with));
        tests.map(str::to_owned).collect()
    };
    let failed = match ending(" ... FAILED") {
        failed if failed.is_empty() => ending(" has been running for over 60 seconds"),
        failed => failed,
    };
    Ok((!ran.status.success()).then_some(failed))
}

/// Looks for faults, `together` at once and some on each processor, and prints what is found. `without` returns those of its
/// faults that are not found, as this does for all.
fn without_found<'a>(
    judge: &str,
    faults: Vec<&'a Fault>,
    together: usize,
    for_each_processor: usize,
    without: impl Fn(Vec<&'a Fault>) -> Result<Vec<&'a Fault>> + Sync,
) -> Result<Vec<&'a Fault>> {
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // Those of an area, which stand beside each other, are not together.
    let groups = faults.len().div_ceil(together);
    let work = || -> Result<()> {
        loop {
            let group = next.fetch_add(1, Ordering::Relaxed);
            if group >= groups {
                return Ok(());
            }
            let left = without(faults.iter().skip(group).step_by(groups).copied().collect())?;
            missed.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
        }
    };
    let threads = for_each_processor * thread::available_parallelism()?.get();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker panicked")?)
    })?;
    let missed = missed.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{judge}: {} of {} found", faults.len() - missed.len(), faults.len());
    Ok(missed)
}

/// Looks for each of some faults alone, and prints what is found.
fn each_without(
    faults: Vec<&Fault>,
    find: impl Fn(&Fault) -> Result<Option<String>>,
) -> Result<Vec<&Fault>> {
    let mut left = Vec::new();
    for fault in faults {
        match find(fault)? {
            Some(found) => println!("{:<40} {found}", fault.name),
            None => left.push(fault),
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_names_defects_and_lines() {
        let text = "# a-b: late\nfile x.rs\n- one\n- two\n+ if FAULT {\n- three\n+ 3\nnote equivalent: 3 is 3\n";
        let faults = parse(text).unwrap();
        let [fault] = &faults[..] else { panic!("{} faults", faults.len()) };
        assert_eq!((fault.name.as_str(), fault.defect.as_str()), ("a-b", "late"));
        assert!(fault.is_equivalent);
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
