//! Java, ZooKeeper and Curator from Debian's packages, and kazoo from Python's, installed when they are missing
//! and may be.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xtask::{Java, Result};

use crate::workspace::root;

const LIBRARIES: [&str; 4] =
    ["zookeeper", "libcurator-recipes-java", "libcurator-framework-java", "libcurator-client-java"];

/// Finds Java with the jars, or installs them and looks again.
pub(crate) fn java() -> Result<Java> {
    let missing = match Java::find() {
        Ok(java) => return Ok(java),
        Err(missing) => missing,
    };
    if env::var_os("DOCENT_JAVA_LIB").is_some() {
        // Installing would put them where we were told not to look.
        return Err(missing);
    }
    let Some(administrator) = administrator() else {
        return Err(format!("{missing}, and no right to install it with apt-get").into());
    };
    eprintln!("xtask: {missing}: installing Debian's packages");
    apt_get(administrator, &["update"])?;
    let mut install = vec!["install", "--yes", "--no-install-recommends", "--no-upgrade"];
    install.extend(LIBRARIES);
    if !succeeds(Command::new("javac").arg("-version")) {
        install.push("default-jdk-headless");
    }
    apt_get(administrator, &install)?;
    Java::find()
}

/// The version of kazoo whose client and recipes are tried on the embedded server.
const KAZOO: &str = "kazoo==2.11.0";

/// A directory for `PYTHONPATH` with kazoo in it; `None` if `python3` has one of its own.
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

/// What has to precede a command that only root may run; `None` if nothing helps.
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
    let (program, prefix) = administrator.split_first().ok_or("no way to run apt-get")?;
    let status = Command::new(program)
        .args(prefix)
        .args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"])
        .args(arguments)
        .stdin(Stdio::null())
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("apt-get {}: {status}", arguments.join(" ")).into())
    }
}

/// Whether a command can be run and ends well.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
