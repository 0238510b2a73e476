//! Finds Java, ZooKeeper, Curator, Kerberos and a browser, or fetches their Debian packages. Fetches kazoo from the Python
//! package index.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xtask::{Java, Kdc, Result, gssapi_headers};

use crate::debian;
use xtask::command::succeeds;
use xtask::workspace::root;

/// The Debian packages of the jars, and of java and javac.
const JAVA: [&str; 6] = [
    "zookeeper",
    "libcurator-recipes-java",
    "libcurator-discovery-java",
    "libcurator-framework-java",
    "libcurator-client-java",
    "default-jdk-headless",
];

/// Finds Java with the jars, or fetches the packages.
pub(crate) fn java() -> Result<Java> {
    match Java::find() {
        // Packages could not help: their jars are in another directory.
        Err(missing) if env::var_os("DOCENT_JAVA_LIB").is_none() => {
            debian::fetch(&missing.to_string(), "java", &JAVA)?;
            Err(missing)
        }
        found => found,
    }
}

/// Finds `ip` and `nft`, or fetches their packages.
pub(crate) fn network_tools() -> Result<()> {
    if succeeds(Command::new("ip").arg("-Version"))
        && succeeds(Command::new("nft").arg("--version"))
    {
        return Ok(());
    }
    debian::fetch("no ip or nft", "network", &["iproute2", "nftables"])
}

/// Finds chromium and chromedriver, or fetches their packages. A font, because a page without letters has other sizes.
pub(crate) fn browser() -> Result<()> {
    let has_browser = |directory: PathBuf| {
        directory.join("chromedriver").is_file()
            && directory.join("../lib/chromium/chromium").is_file()
    };
    let path = env::var_os("PATH").unwrap_or_default();
    if env::split_paths(&path).any(has_browser) {
        return Ok(());
    }
    let packages = ["chromium", "chromium-driver", "fonts-dejavu-core"];
    debian::fetch("no chromedriver with chromium", "browser", &packages)
}

/// Fetches what the tests need and the system lacks. Without an error: the tests say what is missing.
pub(crate) fn fetch_all() {
    let _ = network_tools();
    let _ = browser();
    let _ = kerberos();
    let _ = java();
}

/// Fetches a group of Debian packages.
pub(crate) fn fetch(group: &str, packages: &[&str]) -> Result<()> {
    debian::fetch("missing programs", group, packages)
}

/// The Debian packages of the KDC and its programs, and of the headers and the library that docent-gssapi needs to
/// build.
const KERBEROS: [&str; 6] =
    ["krb5-kdc", "krb5-admin-server", "krb5-user", "libkrb5-dev", "libclang-dev", "pkg-config"];

/// The package that is excluded from builds of the workspace if its C headers are missing.
pub(crate) const GSSAPI: &str = "docent-gssapi";

/// Checks that docent-gssapi can be built and tested, or fetches the packages. The error names the missing parts.
pub(crate) fn kerberos() -> Result<()> {
    Kdc::find()
        .and_then(|()| gssapi_headers())
        .or_else(|missing| debian::fetch(&missing.to_string(), "kerberos", &KERBEROS))
}

/// The version of kazoo whose client and recipes are tested on the embedded server.
const KAZOO: &str = "kazoo==2.11.0";

/// Returns a directory for `PYTHONPATH` that contains kazoo, or `None` if `python3` finds an installed one.
pub(crate) fn kazoo() -> Result<Option<PathBuf>> {
    if succeeds(Command::new("python3").args(["-c", "import kazoo"])) {
        return Ok(None);
    }
    let directory = root().join("target/python").join(KAZOO.replace("==", "-"));
    let has_kazoo = |directory: &Path| {
        succeeds(Command::new("python3").args(["-c", "import kazoo"]).env("PYTHONPATH", directory))
    };
    if !has_kazoo(&directory) {
        eprintln!("xtask: installing {KAZOO} into target");
        let status = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"])
            .arg(&directory)
            .arg(KAZOO)
            .stdin(Stdio::null())
            .status()?;
        if !status.success() || !has_kazoo(&directory) {
            return Err(format!("python3 -m pip install {KAZOO}: {status}").into());
        }
    }
    Ok(Some(directory))
}
