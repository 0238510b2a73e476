//! The settings of a server by the names of ZooKeeper's configuration.

use std::{ops::RangeInclusive, time::Duration};

use docent_protocol::acl::is_digest_id;

use super::{Config, Version};

/// A setting, and how its text is read.
struct Setting {
    name: &'static str,
    value: &'static str,
    set: fn(&mut Config, &str) -> Result<(), String>,
}

/// A table of settings: `"name" ("value") field = how its text is read`.
macro_rules! settings {
    ($($(#[$attribute:meta])* $name:literal ($value:literal) $field:ident = $read:expr;)*) => {
        &[$($(#[$attribute])* Setting {
            name: $name,
            value: $value,
            set: |config, text| {
                let read: fn(&str) -> Result<_, String> = $read;
                config.$field = read(text)?;
                Ok(())
            },
        }),*]
    };
}

/// All settings that have a textual value. Those without a name in ZooKeeper come last.
const SETTINGS: &[Setting] = settings! {
    "tickTime" ("milliseconds") tick_time = interval;
    "syncLimit" ("ticks") sync_limit = |text| number(text, 1..=MAX);
    "minSessionTimeout" ("milliseconds, -1: 2 ticks") min_session_timeout = min_timeout;
    "maxSessionTimeout" ("milliseconds") max_session_timeout = interval;
    "jute.maxbuffer" ("bytes") max_buffer = |text| number(text, HANDSHAKE_SIZE..=MAX);
    "extendedTypesEnabled" ("true or false") extended_types_enabled = flag;
    "znode.container.checkIntervalMs" ("milliseconds, of containers and TTL nodes")
        container_check_interval = interval;
    "DigestAuthenticationProvider.superDigest" ("USER:HASH") super_digest = super_digest;
    "reconfigEnabled" ("true or false") reconfig_enabled = flag;
    "standaloneEnabled" ("true or false") standalone_enabled = flag;
    "enforceQuota" ("true or false") enforce_quota = flag;
    "readonlymode.enabled" ("true or false") read_only_mode_enabled = flag;
    "localSessionsEnabled" ("true or false") local_sessions_enabled = flag;
    "localSessionsUpgradingEnabled" ("true or false") local_sessions_upgrading_enabled = flag;
    #[cfg(feature = "sasl")]
    "sessionRequireClientSASLAuth" ("true or false") sasl_required = flag;
    "version" ("3.4 to 3.10, keeper-24.8 to keeper-26.6") version = version;
    "servers" ("1 to 99") servers = |text| number(text, 1..=99);
    "readOnly" ("true or false") read_only = flag;
    "electionTime" ("milliseconds") election_time = |text| millis(text, 0);
    "seed" ("a number") seed = |text| number(text, 0..=u64::MAX.into());
    "epochMs" ("milliseconds since 1970 at the start") epoch_ms =
        |text| number(text, i64::MIN.into()..=i64::MAX.into()).map(Some);
};

impl Config {
    /// Sets a field by the name that ZooKeeper has for it in `zoo.cfg` or as a system property, in any case and with or
    /// without the prefix `zookeeper.`: `tickTime`, `zookeeper.extendedTypesEnabled`. Fields without a ZooKeeper name
    /// are named in camel case: `electionTime`. Units are ZooKeeper's: durations are milliseconds.
    ///
    /// The users of SASL and the certificates have no textual value.
    ///
    /// ```
    /// use docent_testing::server::Config;
    ///
    /// let mut config = Config::default();
    /// config.set("znode.container.checkIntervalMs", "100")?;
    /// config.set("zookeeper.extendedTypesEnabled", "false")?;
    /// assert!(config.set("tickTime", "0").is_err());
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The reason of a refusal: an unknown name, or an invalid value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let lower = name.to_ascii_lowercase();
        let short = lower.strip_prefix("zookeeper.").unwrap_or(&lower);
        let setting = SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(short));
        let Some(setting) = setting else {
            let names: Vec<_> = Self::settings().map(|(name, _)| name).collect();
            return Err(format!("{name} is no setting; there are {}", names.join(", ")));
        };
        (setting.set)(self, value).map_err(|reason| format!("{name}={value}: {reason}"))
    }

    /// The names that [`set`](Self::set) knows, each with a description of its value.
    pub fn settings() -> impl Iterator<Item = (&'static str, &'static str)> {
        SETTINGS.iter().map(|setting| (setting.name, setting.value))
    }
}

/// Like Java's `Boolean.parseBoolean`, except that a typo is an error instead of false.
fn flag(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("is not true or false".to_owned()),
    }
}

/// A decimal number, or a hexadecimal one as in `jute.maxbuffer=0xfffff`.
fn number<T: TryFrom<i128>>(text: &str, range: RangeInclusive<i128>) -> Result<T, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let number = parsed.ok().filter(|number| range.contains(number));
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("is not a number from {} to {}", range.start(), range.end()))
}

/// The largest `int` of Java.
const MAX: i128 = i32::MAX as i128;

/// The size of a ConnectRequest with a password and the read-only byte, as clients since 3.4 send it. With a limit
/// below it, no client can connect.
const HANDSHAKE_SIZE: i128 = 45;

fn millis(text: &str, min: i128) -> Result<Duration, String> {
    number(text, min..=MAX).map(Duration::from_millis)
}

fn interval(text: &str) -> Result<Duration, String> {
    millis(text, 1)
}

fn min_timeout(text: &str) -> Result<Option<Duration>, String> {
    if text == "-1" { Ok(None) } else { interval(text).map(Some) }
}

fn super_digest(text: &str) -> Result<Option<String>, String> {
    if is_digest_id(text) {
        return Ok(Some(text.to_owned()));
    }
    Err("is not USER:HASH, with the Base64 of a hash and not a password".to_owned())
}

fn version(text: &str) -> Result<Version, String> {
    Version::from_number(text).ok_or_else(|| {
        "is not one of 3.4, 3.5, 3.6, 3.8, 3.9, 3.10, keeper-24.8, keeper-26.1, keeper-26.3, keeper-26.6".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each setting, a value other than the default.
    const OTHERS: &[(&str, &str)] = &[
        ("tickTime", "1234"),
        ("syncLimit", "7"),
        ("minSessionTimeout", "4000"),
        ("maxSessionTimeout", "40000"),
        ("jute.maxbuffer", "0x1000"),
        ("extendedTypesEnabled", "false"),
        ("znode.container.checkIntervalMs", "100"),
        ("DigestAuthenticationProvider.superDigest", "super:D/InIHSb7yEEbrWz8b9l71RjZJU="),
        ("reconfigEnabled", "true"),
        ("standaloneEnabled", "false"),
        ("enforceQuota", "true"),
        ("readonlymode.enabled", "false"),
        ("localSessionsEnabled", "true"),
        ("localSessionsUpgradingEnabled", "true"),
        #[cfg(feature = "sasl")]
        ("sessionRequireClientSASLAuth", "true"),
        ("version", "3.6"),
        ("servers", "3"),
        ("readOnly", "true"),
        ("electionTime", "200"),
        ("seed", "18446744073709551615"),
        ("epochMs", "-1"),
    ];

    /// The lines of the debug format that begin a field.
    fn fields(config: &Config) -> Vec<String> {
        let text = format!("{config:#?}");
        let is_field = |line: &&str| line.starts_with("    ") && !line.starts_with("     ");
        let lines = text.lines().filter(is_field).filter(|line| line.contains(": "));
        lines.map(str::to_owned).collect()
    }

    // Case (Found in docent itself): `docent serve` had no option for half of the settings of its
    // servers.
    // Case (Found in docent itself): `docent serve` took `ZOOKEEPER.tickTime` for no setting, a
    // `jute.maxbuffer` that no handshake fits in, and `sessionRequireClientSASLAuth` without users,
    // so that no client could connect.
    #[test]
    fn every_field_of_a_configuration_has_a_name() {
        let names: Vec<_> = Config::settings().map(|(name, _)| name).collect();
        assert_eq!(names, OTHERS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        let (default, mut config) = (Config::default(), Config::default());
        for (name, value) in OTHERS {
            let before = fields(&config);
            config.set(&format!("zookeeper.{name}").to_uppercase(), value).unwrap();
            let changed = before.iter().zip(fields(&config)).filter(|(old, new)| *old != new);
            assert_eq!(changed.count(), 1, "{name}");
        }
        let (default, config) = (fields(&default), fields(&config));
        let unchanged = default.iter().zip(&config).filter(|(old, new)| old == new);
        let unchanged: Vec<_> =
            unchanged.filter_map(|(line, _)| line.trim().split(':').next()).collect();
        let without_text: &[&str] = &[
            #[cfg(feature = "sasl")]
            "sasl_users",
            #[cfg(feature = "tls-no-provider")]
            "tls",
        ];
        assert_eq!(unchanged, without_text);
        assert_eq!(default.len(), OTHERS.len() + without_text.len());
    }

    #[test]
    fn invalid_settings_and_values_are_refused_with_the_reason() {
        for (name, value, reason) in [
            ("maxClientCnxns", "0", "maxClientCnxns is no setting; there are tickTime, "),
            ("tickTime", "0", "tickTime=0: is not a number from 1 to 2147483647"),
            ("tickTime", "2s", "is not a number"),
            ("minSessionTimeout", "-2", "is not a number"),
            ("enforceQuota", "yes", "is not true or false"),
            ("servers", "100", "from 1 to 99"),
            ("jute.maxbuffer", "44", "jute.maxbuffer=44: is not a number from 45 to 2147483647"),
            ("version", "3.7", "is not one of 3.4"),
            ("DigestAuthenticationProvider.superDigest", "super:test", "not a password"),
        ] {
            let error = Config::default().set(name, value).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
