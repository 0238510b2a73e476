//! How many tests passed, failed and were skipped, from what they print.

use std::fmt;

/// The numbers of the closing line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Tally {
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`; other lines count
    /// for nothing. An ignored test is a skipped one.
    pub(crate) fn add_line(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let counts = result.split_once(". ").map_or("", |(_verdict, counts)| counts);
        for count in counts.split(';') {
            let mut words = count.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else { continue };
            let Ok(number) = number.parse::<usize>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }

    /// Moves tests that said that they did nothing from the passed, where libtest counted them.
    pub(crate) fn skip(&mut self, tests: usize) {
        self.passed = self.passed.saturating_sub(tests);
        self.skipped += tests;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn results_of_all_binaries_are_summed() {
        let mut tally = Tally::default();
        for line in [
            "running 4 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s",
        ] {
            tally.add_line(line);
        }
        assert_eq!(tally, Tally { passed: 13, failed: 2, skipped: 1 });
    }

    #[test]
    fn a_skipped_test_was_counted_as_passed_by_libtest() {
        let mut tally = Tally { passed: 3, failed: 0, skipped: 1 };
        tally.skip(2);
        assert_eq!(tally.to_string(), "1 passed, 0 failed, 3 skipped");
    }
}
