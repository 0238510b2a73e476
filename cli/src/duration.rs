//! Durations on the command line: `10s`, `500ms`, `2m`, `1h`. A number without a unit is seconds, as in flock(1) and
//! sleep(1).

use std::time::Duration;

/// The longest duration, 114 years. The sum of a few of them does not overflow.
const MAX: Duration = Duration::from_secs(1_000_000 * 3600);

/// Parses a duration.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, unit) = units
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|number| (number, *unit)))
        .unwrap_or((text, 1.0));
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = number.parse::<f64>().ok().filter(|_| is_plain).map(|number| number * unit);
    match seconds.map(Duration::try_from_secs_f64) {
        Some(Ok(duration)) if duration <= MAX => Ok(duration),
        Some(_) => Err("is more than 1000000h".to_owned()),
        None => Err("is not a duration such as 10s, 500ms, 2m or 1h".to_owned()),
    }
}

/// Parses a duration other than zero.
pub(crate) fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("must be greater than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// Formats a duration with one or two units: `3s`, `4m 10s`, `2h 5m`, `3d 4h`.
pub(crate) fn format(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let pair = |large: u64, name, small: u64, other| match small {
        0 => format!("{large}{name}"),
        small => format!("{large}{name} {small}{other}"),
    };
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => pair(seconds / 60, "m", seconds % 60, "s"),
        3600..86_400 => pair(seconds / 3600, "h", seconds % 3600 / 60, "m"),
        _ => pair(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_unit_is_seconds() {
        for (text, millis) in [
            ("10s", 10_000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("0.5", 500),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1s", "1d", "nan", "inf", "1e9999", "+3", "ten", "1000001h"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse_positive("0").is_err());
    }

    #[test]
    fn durations_are_formatted_with_at_most_two_units() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (250, "4m 10s"),
            (7500, "2h 5m"),
            (90_000, "1d 1h"),
        ] {
            assert_eq!(format(Duration::from_secs(seconds)), text);
        }
    }
}
