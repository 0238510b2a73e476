//! The recordings of Curator: each is played by the test that its row in `docs/CURATOR.md` names.

/// Checks this for the recordings in a file; `sources` are the files of the tests that play them.
#[track_caller]
pub fn assert_played_and_listed(recordings: &str, sources: &[&str]) {
    let document = include_str!("../../docs/CURATOR.md");
    let sources = sources.concat();
    let titles: Vec<_> = recordings.lines().filter_map(|line| line.strip_prefix("=== ")).collect();
    assert!(!titles.is_empty(), "has the form of the recordings changed?");
    for title in titles {
        let (number, _) = title.split_once('-').unwrap();
        let rows = document.lines().filter(|line| line.starts_with(&format!("| {number} ")));
        let rows: Vec<_> = rows.collect();
        let [row] = rows[..] else { panic!("{} rows of {title} in CURATOR.md", rows.len()) };
        let cells = row.trim_end_matches(" |").rsplit_once('|');
        let test = cells.and_then(|(_, test)| test.split('`').nth(1));
        let test = test.unwrap_or_else(|| panic!("the row of {title} names no test"));
        let start = format!("\n#[tokio::test]\nasync fn {test}() {{\n");
        let (_, body) = sources.split_once(&start).unwrap_or_else(|| panic!("no test {test}"));
        let body = body.split("\n}\n").next().unwrap_or_default();
        // The number alone, or the title.
        let is_played = ["\"", "-"].iter().any(|end| body.contains(&format!("\"{number}{end}")));
        assert!(is_played, "{test} does not play {title}");
    }
}
