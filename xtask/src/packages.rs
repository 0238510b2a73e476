//! Java, ZooKeeper and Curator from Debian's packages, installed when they are missing and may be.

use std::env;
use std::process::{Command, Stdio};

use xtask::{Java, Result};

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
