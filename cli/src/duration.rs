//! Times on the command line: `10s`, `500ms`, `2m`, `1h`; a bare number is seconds, as flock(1) and sleep(1).

use std::time::Duration;

/// For clap and the configuration file.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, unit) = units
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|number| (number, *unit)))
        .unwrap_or((text, 1.0));
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = number.parse::<f64>().ok().filter(|_| is_plain).map(|number| number * unit);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "is no time such as 10s, 500ms, 2m or 1h".to_owned())
}

/// As [`parse`], but not nothing.
pub(crate) fn positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("must be more than nothing".to_owned()),
        duration => Ok(duration),
    }
}

/// For people: `3s`, `4m 10s`, `2h 5m`, `3d 4h`.
pub(crate) fn show(duration: Duration) -> String {
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
    fn times_have_units_and_bare_numbers_are_seconds() {
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
        for text in ["", "s", "-1s", "1d", "nan", "inf", "1e9999", "+3", "ten"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(positive("0").is_err());
    }

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (250, "4m 10s"),
            (7500, "2h 5m"),
            (90_000, "1d 1h"),
        ] {
            assert_eq!(show(Duration::from_secs(seconds)), text);
        }
    }
}
