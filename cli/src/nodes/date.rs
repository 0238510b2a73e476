//! Instants as dates.

/// Formats milliseconds since 1970 as Java's `Date.toString` does in the time zone UTC: `Thu Jan 01 00:00:00 UTC 1970`.
pub(super) fn date(millis: i64) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"];
    let seconds = millis.div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years begin in March here, so that a leap day is the last day of its year. 400 years have 146,097 days.
    let day_of_cycles = days + 719_468;
    let (cycle, day) = (day_of_cycles.div_euclid(146_097), day_of_cycles.rem_euclid(146_097));
    let year_of_cycle = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let year = cycle * 400 + year_of_cycle + i64::from(month >= 10);
    let name = |names: &[&'static str], index: i64| {
        usize::try_from(index).ok().and_then(|index| names.get(index).copied()).unwrap_or_default()
    };
    format!(
        "{} {} {day_of_month:02} {:02}:{:02}:{:02} UTC {year:04}",
        name(&WEEKDAYS, days.rem_euclid(7)),
        name(&MONTHS, month),
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As printed by `date -u`.
    #[test]
    fn dates_are_those_of_java() {
        for (seconds, text) in [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (-1, "Wed Dec 31 23:59:59 UTC 1969"),
            (951_782_400, "Tue Feb 29 00:00:00 UTC 2000"),
            (951_868_800, "Wed Mar 01 00:00:00 UTC 2000"),
            (1_709_251_199, "Thu Feb 29 23:59:59 UTC 2024"),
            (4_107_542_400, "Mon Mar 01 00:00:00 UTC 2100"),
            (1_700_000_000, "Tue Nov 14 22:13:20 UTC 2023"),
        ] {
            assert_eq!(date(seconds * 1000), text);
        }
        assert_eq!(date(i64::MAX).len(), date(0).len() + 5);
    }
}
