//! The guide shows a run: its diagrams are recorded, and the committed ones equal those of a new run. With
//! `DOCENT_BLESS` set (`cargo xtask guide` does so), they are written again.

mod by_hand;
mod diagram;
mod drawing;
mod lock_scenes;
mod scenes;
mod stage;
mod steps;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use docent_steps::STEPS;

fn guide() -> PathBuf {
    xtask::workspace::root().join("docs/guide/src")
}

fn blessing() -> bool {
    std::env::var_os("DOCENT_BLESS").is_some()
}

/// Compares a committed file with its expected text; with `DOCENT_BLESS`, writes it.
fn is_kept(path: &Path, made: &str) -> bool {
    if blessing() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, made).unwrap();
    }
    fs::read_to_string(path).unwrap_or_default().replace("\r\n", "\n") == made
}

fn chapters() -> Vec<(String, String)> {
    let mut chapters: Vec<_> = fs::read_dir(guide())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect();
    chapters.sort();
    chapters
}

/// The targets of a page's links and images that are files of the guide.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .map(|link| link.split('#').next().unwrap_or_default())
        .filter(|link| !link.is_empty() && !link.contains("://"))
}

/// A scene with a timeout may take another course on a busy machine, so it has several tries.
const TRIES: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn diagrams_are_what_a_run_makes_and_each_is_shown() {
    let text: String = chapters().into_iter().map(|(_, text)| text).collect();
    let (table, mut requests) = (explained_requests(), 0);
    let mut number = 0;
    'scenes: while let Some(mut diagram) = scenes::play(number).await {
        let shown = format!("](diagrams/{}.svg)", diagram.name);
        assert!(text.contains(&shown), "{} is in no chapter", diagram.name);
        assert!(diagram.is_explained(), "{}: an event of a remark did not come", diagram.name);
        for name in diagram.requests() {
            assert!(table.contains(name), "{}: {name} is not explained", diagram.name);
            requests += 1;
        }
        for _ in 0..TRIES {
            let file = guide().join("diagrams").join(diagram.name).with_extension("svg");
            if is_kept(&file, &diagram.svg()) {
                number += 1;
                continue 'scenes;
            }
            diagram = scenes::play(number).await.unwrap();
        }
        let (name, made) = (diagram.name, diagram.svg());
        panic!("{name} is not what a run makes; `cargo xtask guide` writes it anew:\n{made}");
    }
    assert!(number > 10 && requests > 100, "{number}, {requests}");
}

/// The operations in the table of the first chapter, which is read before the diagrams.
fn explained_requests() -> BTreeSet<String> {
    let table = fs::read_to_string(guide().join("sessions-and-watches.md")).unwrap();
    let (_, table) = table.split_once("\n| frame | Rust | does |\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let names = rows.filter_map(|row| row.split('|').nth(1)).flat_map(|names| names.split(','));
    names.map(|name| name.trim().trim_matches('`').to_owned()).collect()
}

/// The table of the herd has the numbers of the example.
#[tokio::test]
async fn the_herd_is_as_counted() {
    let example = xtask::example("herd").unwrap();
    let output = tokio::process::Command::new(example).output();
    let output = tokio::time::timeout(4 * stage::DEADLINE, output).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8(output.stdout).unwrap();
    let text = fs::read_to_string(guide().join("naive-lock.md")).unwrap();
    let kept = text.split("<!-- herd -->").nth(1).unwrap();
    assert_eq!(kept.trim(), table.trim(), "the table of naive-lock.md");
}

/// Lines of code without their indentation.
fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

fn rust_files(directory: &Path, found: &mut Vec<Vec<String>>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(lines(&fs::read_to_string(path).unwrap()));
        }
    }
}

/// Each line of Rust code on a page is in an example or in the recipes. `// …` stands for omitted lines; the lines
/// after it may be from another file.
#[test]
fn snippets_are_parts_of_tested_code() {
    let root = xtask::workspace::root();
    let mut sources = Vec::new();
    for directory in ["examples", "discovery/examples", "recipes/src"] {
        rust_files(&root.join(directory), &mut sources);
    }
    let mut compared = 0;
    for (page, text) in chapters() {
        for snippet in text.split("```rust,ignore\n").skip(1) {
            let snippet = snippet.split("```").next().unwrap();
            if snippet.contains("{{#include") {
                continue;
            }
            for part in snippet.split("// …\n") {
                let part = lines(part);
                let is_there = sources
                    .iter()
                    .any(|source| source.windows(part.len().max(1)).any(|window| window == part));
                assert!(is_there, "{page}: in no example and no recipe:\n{}", part.join("\n"));
                compared += 1;
            }
        }
        assert!(!text.contains("```rust\n"), "{page}: `rust,ignore`, which this test compares");
    }
    assert!(compared > 25, "{compared}");
}

/// The files that pages include exist, and each example is on a page.
#[test]
fn each_example_is_on_a_page() {
    let mut included = BTreeSet::new();
    for (page, text) in chapters() {
        for file in text.split("{{#include ").skip(1).filter_map(|rest| rest.split("}}").next()) {
            assert!(guide().join(file).is_file(), "{page} includes {file}, which is not there");
            included.extend(Path::new(file).file_stem().map(|it| it.to_str().unwrap().to_owned()));
        }
    }
    let examples = ["examples", "discovery/examples", "examples/ported"];
    let examples = examples.map(|it| xtask::workspace::root().join(it));
    for entry in examples.into_iter().flat_map(|examples| fs::read_dir(examples).unwrap()) {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_example = path.extension().is_some_and(|extension| extension == "rs");
        assert!(!is_example || included.contains(name), "the example {name} is on no page");
    }
}

/// Each step has the name and the method of Curator that the lab shows, its code, and what the client believes, and until
/// when.
#[test]
fn each_step_says_what_the_client_believes() {
    let text = fs::read_to_string(guide().join("lock-internals.md")).unwrap();
    let known: Vec<_> = STEPS.iter().filter(|step| step.number.is_some()).collect();
    let steps: Vec<_> = text.split("\n### Step ").skip(1).collect();
    for (index, (step, known)) in steps.iter().zip(&known).enumerate() {
        // Of the last step of a section, up to the next one.
        let step = step.split("\n## ").next().unwrap();
        assert!(
            step.starts_with(&format!("{}: {}", index + 1, known.title.to_lowercase())),
            "{step}"
        );
        for method in known.curator.split(", ") {
            assert!(step.contains(&format!("`{method}`")), "{method}: {step}");
        }
        let (_, belief) = step.split_once("\n**The client believes**").expect(step);
        assert!(step.contains("```rust,ignore\n") && step.contains("Curator"), "{step}");
        assert!(belief.contains("until") || belief.contains("for ever"), "{belief}");
    }
    assert_eq!((steps.len(), known.len()), (10, 10));
}

/// The specification has the steps, but for the fourth, which decides nothing. Each has a chapter.
#[test]
fn the_specification_has_the_steps_of_the_guide() {
    let specification = xtask::workspace::root().join("sim/spec/src/lock_internals.rs");
    let specification = fs::read_to_string(specification).unwrap();
    for step in STEPS {
        let chapter = guide().join(step.chapter).with_extension("md");
        assert!(chapter.is_file(), "{}: {}", step.id, chapter.display());
        if let Some(number) = step.number.filter(|number| *number != 4) {
            let named = format!("{number}. {}", step.title.to_lowercase());
            assert!(specification.contains(&named), "{named}");
        }
    }
}

/// Each lesson of the lab is named in its chapter, with its title, and no page names another one.
#[test]
fn each_lesson_of_the_lab_is_in_its_chapter() {
    let mut named: Vec<String> = Vec::new();
    for entry in fs::read_dir(xtask::workspace::root().join("lab/lessons")).unwrap() {
        let path = entry.unwrap().path();
        let lesson = fs::read_to_string(&path).unwrap();
        let value = |key: &str| lesson.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        let chapter = guide().join(value("chapter: ")).with_extension("md");
        let name = path.file_stem().unwrap().to_str().unwrap();
        let item = format!("* `docent lab --open --lesson {name}`: {}\n", value("title: "));
        let text = fs::read_to_string(&chapter).unwrap();
        assert!(text.contains(&item), "{}: {item}", chapter.display());
        named.push(item);
    }
    let pages: String = chapters().into_iter().map(|(_, text)| text).collect();
    assert_eq!(pages.matches("docent lab --open --lesson ").count(), named.len());
    assert!(named.len() > 12, "{named:?}");
}

/// The minutes of each path are those that its first words promise.
#[test]
fn the_paths_take_the_time_they_say() {
    let text = fs::read_to_string(guide().join("introduction.md")).unwrap();
    for (path, time, minutes) in
        [("A student's path", "Three hours", 180), ("A reviewer's path", "Thirty minutes", 30)]
    {
        let (_, path) = text.split_once(&format!("\n## {path}\n\n")).unwrap();
        let path = path.split("\n## ").next().unwrap();
        assert!(path.starts_with(time), "{path}");
        let items = path.lines().filter_map(|line| line.strip_prefix("* ")?.split_once(" min: "));
        let sum: u32 = items.map(|(minutes, _)| minutes.parse::<u32>().unwrap()).sum();
        assert_eq!(sum, minutes, "{path}");
    }
}

/// The anchors of a page's headings, as mdBook makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let kept = |char: &char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_');
        let words: String = heading.trim_start_matches('#').trim().chars().filter(kept).collect();
        words.to_lowercase().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn links_to_headings_find_them() {
    let chapters = chapters();
    let mut found = 0;
    for (name, text) in &chapters {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for (page, anchor) in links.filter_map(|link| link.split_once('#')) {
            let page = if page.is_empty() { name } else { page };
            let Some((_, target)) = chapters.iter().find(|(name, _)| name == page) else {
                continue;
            };
            assert!(anchors(target).contains(anchor), "{name} links to {page}#{anchor}");
            found += 1;
        }
    }
    assert!(found > 20, "{found}");
}

/// The page on errors has a row for each kind.
#[test]
fn each_kind_of_error_has_advice() {
    let root = xtask::workspace::root();
    let page = fs::read_to_string(root.join("src/cookbook/error_kinds.md")).unwrap();
    let api = fs::read_to_string(root.join("docs/api/docent-session.txt")).unwrap();
    let kinds =
        api.lines().filter_map(|line| line.strip_prefix("variant docent_session::ErrorKind::"));
    let kinds: Vec<_> = kinds.collect();
    assert!(kinds.len() > 30, "{kinds:?}");
    for kind in kinds {
        assert!(page.contains(&format!("`{kind}`")), "{kind}");
    }
}

#[test]
fn chapters_are_listed_and_links_lead_somewhere() {
    if blessing() {
        // Another test may still be writing the pictures.
        return;
    }
    let chapters = chapters();
    let summary = fs::read_to_string(guide().join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<_> = links(&summary).collect();
    for (name, text) in &chapters {
        assert!(name == "SUMMARY.md" || listed.contains(&**name), "{name} is not in SUMMARY.md");
        for link in links(text) {
            assert!(guide().join(link).exists(), "{name} links to {link}, which is not there");
        }
    }
}
