//! Installs Java, ZooKeeper, Curator and Kerberos from Debian packages, and kazoo from the Python package index.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xtask::{Java, Kdc, Result, gssapi_headers};

use xtask::workspace::root;

/// The Debian package of java and javac.
const JDK: &str = "default-jdk-headless";

/// The Debian packages of the jars.
const LIBRARIES: [&str; 5] = [
    "zookeeper",
    "libcurator-recipes-java",
    "libcurator-discovery-java",
    "libcurator-framework-java",
    "libcurator-client-java",
];

/// Finds Java with the jars. Installs the packages if they are missing and this process has the right to.
pub(crate) fn java() -> Result<Java> {
    let missing = match Java::find() {
        Ok(java) => return Ok(java),
        Err(missing) => missing,
    };
    if env::var_os("DOCENT_JAVA_LIB").is_some() {
        // The packages install their jars into another directory.
        return Err(missing);
    }
    let Some(administrator) = administrator() else {
        return Err(format!("{missing}; {}", how_to_install()).into());
    };
    eprintln!("xtask: {missing}: installing the Debian packages");
    apt_get(administrator, &["update"])?;
    let mut install = vec!["install", "--yes", "--no-install-recommends", "--no-upgrade"];
    install.extend(LIBRARIES);
    if !succeeds(Command::new("javac").arg("-version")) {
        install.push(JDK);
    }
    apt_get(administrator, &install)?;
    Java::find()
}

/// Finds `ip` and `nft`. Installs their packages if they are missing and this process has the right to.
#[cfg(target_os = "linux")]
pub(crate) fn network_tools() -> Result<()> {
    let has_tools = || {
        succeeds(Command::new("ip").arg("-Version"))
            && succeeds(Command::new("nft").arg("--version"))
    };
    if has_tools() {
        return Ok(());
    }
    let missing = "needs ip and nft; on Debian, run `apt-get install iproute2 nftables` as root";
    let administrator = administrator().ok_or(missing)?;
    eprintln!("xtask: installing iproute2 and nftables");
    apt_get(administrator, &["update"])?;
    apt_get(
        administrator,
        &["install", "--yes", "--no-install-recommends", "iproute2", "nftables"],
    )?;
    if has_tools() { Ok(()) } else { Err(missing.into()) }
}

/// Installs Debian packages, if this process has the right to.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    let Some(administrator) = administrator() else {
        return Err(format!("on Debian, run `apt-get install {names}` as root").into());
    };
    eprintln!("xtask: installing the Debian packages {names}");
    apt_get(administrator, &["update"])?;
    let mut install = vec!["install", "--yes", "--no-install-recommends", "--no-upgrade"];
    install.extend(packages);
    apt_get(administrator, &install)
}

/// Names the Debian packages to install.
fn how_to_install() -> String {
    format!("on Debian, run `apt-get install {} {JDK}` as root", LIBRARIES.join(" "))
}

/// The Debian packages of the KDC and its programs, and of the headers and the library that building docent-gssapi
/// requires.
const KERBEROS: [&str; 6] =
    ["krb5-kdc", "krb5-admin-server", "krb5-user", "libkrb5-dev", "libclang-dev", "pkg-config"];

/// The package that is left out of a build of the workspace if its C headers are missing.
pub(crate) const GSSAPI: &str = "docent-gssapi";

/// Checks that docent-gssapi can be built and tested. Installs the packages if they are missing and this process has
/// the right to. The error names the missing parts.
pub(crate) fn kerberos() -> Result<()> {
    let find = || Kdc::find().and_then(|()| gssapi_headers());
    let Err(missing) = find() else { return Ok(()) };
    let Some(administrator) = administrator() else {
        let packages = KERBEROS.join(" ");
        return Err(
            format!("{missing}; on Debian, run `apt-get install {packages}` as root").into()
        );
    };
    eprintln!("xtask: Kerberos: {missing}: installing the Debian packages");
    apt_get(administrator, &["update"])?;
    let install = ["install", "--yes", "--no-install-recommends", "--no-upgrade"];
    apt_get(administrator, &[&install[..], &KERBEROS].concat())?;
    find()
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

/// Returns the prefix of a command that requires root, or `None` if this process cannot become root.
fn administrator() -> Option<&'static [&'static str]> {
    if !succeeds(Command::new("apt-get").arg("--version")) {
        return None;
    }
    let user = Command::new("id").arg("-u").output().ok()?;
    if user.stdout.trim_ascii() == b"0" {
        return Some(&["env"]);
    }
    succeeds(Command::new("sudo").args(["-n", "true"])).then_some(&["sudo", "-n", "env"])
}

fn apt_get(administrator: &[&str], arguments: &[&str]) -> Result<()> {
    let (program, prefix) = administrator.split_first().ok_or("cannot run apt-get")?;
    let status = Command::new(program)
        .args(prefix)
        // In this runlevel, the scripts of the packages start no service.
        .args(["DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get", "-q"])
        .args(arguments)
        .stdin(Stdio::null())
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("apt-get {}: {status}", arguments.join(" ")).into())
    }
}

/// Whether a command can be started and succeeds.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::how_to_install;

    #[test]
    fn the_hint_names_all_packages() {
        assert_eq!(
            how_to_install(),
            "on Debian, run `apt-get install zookeeper libcurator-recipes-java libcurator-discovery-java \
             libcurator-framework-java libcurator-client-java default-jdk-headless` as root"
        );
    }
}
