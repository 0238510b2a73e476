//! Debian packages for the tests, unpacked below `target/debian`: no root is needed, and nothing is installed.
//!
//! Each group of packages has a directory there, with the files of the packages and of their dependencies that the
//! system lacks. Processes find them through environment variables, so xtask executes itself again with these variables
//! set.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use xtask::Result;
use xtask::command::{output, succeeds};
use xtask::workspace::root;

/// The variable that lists the directories whose environment this process already has.
const ACTIVE_GROUPS: &str = "DOCENT_DEBIAN";

/// Executes xtask again with the environment of the fetched groups. Returns if there are none, or if this process has
/// it.
pub(crate) fn reexec_with_groups() -> Result<()> {
    let mut groups = entries(&directory());
    // A directory with an extension is being unpacked by another process.
    groups.retain(|group| group.extension().is_none());
    groups.sort();
    let wanted = env::join_paths(&groups)?;
    if groups.is_empty() || env::var_os(ACTIVE_GROUPS).as_ref() == Some(&wanted) {
        return Ok(());
    }
    let mut again = Command::new(env::current_exe()?);
    again.args(env::args_os().skip(1)).env(ACTIVE_GROUPS, wanted).envs(environment(&groups)?);
    replace_this_process(again)
}

/// Fetches the packages of a group and executes xtask again with them, so it returns only if that fails. `missing` is
/// the text of the error that they are to resolve.
pub(crate) fn fetch(missing: &str, group: &str, packages: &[&str]) -> Result<()> {
    let install = format!("on Debian and Ubuntu, `apt-get install {}`", packages.join(" "));
    let target = directory().join(group);
    if target.exists() {
        return Err(format!("{missing}, and {} has none; {install}", target.display()).into());
    }
    let has_tools = ["apt-get", "dpkg"].map(|tool| succeeds(Command::new(tool).arg("--version")));
    if has_tools != [true; 2] {
        return Err(format!("{missing}; {install}").into());
    }
    let unpacked = directory().join(format!("{group}.{}", std::process::id()));
    let outcome = download(&unpacked, packages).and_then(|packages| {
        let bytes = packages.iter().map(|file| fs::metadata(file).map_or(0, |of| of.len()));
        let megabytes = bytes.sum::<u64>() / 1_000_000;
        let (count, target) = (packages.len(), target.display());
        eprintln!(
            "xtask: {missing}: fetched {count} Debian packages, {megabytes} MB, into {target}"
        );
        packages.iter().try_for_each(|file| {
            output(Command::new("dpkg").arg("--extract").arg(file).arg(&unpacked)).map(drop)
        })?;
        move_links(&unpacked, &unpacked)?;
        fs::remove_dir_all(unpacked.join(DOWNLOADS))?;
        Ok(())
    });
    let moved = outcome.and_then(|()| Ok(fs::rename(&unpacked, &target)?));
    if moved.is_err() {
        // An error is ignored: the one reported below says more.
        let _ = fs::remove_dir_all(&unpacked);
    }
    // Another process may have fetched the group meanwhile.
    if !target.exists() {
        moved.map_err(|error| format!("{missing}; {error}; {install}"))?;
    }
    reexec_with_groups()?;
    Err(format!("{missing}; {install}").into())
}

/// The directory of apt within the directory of a group.
const DOWNLOADS: &str = "apt";

/// Downloads the packages and their dependencies that the system lacks, without changing the system. Returns the files.
fn download(directory: &Path, packages: &[&str]) -> Result<Vec<PathBuf>> {
    let downloads = directory.join(DOWNLOADS);
    let archives = downloads.join("archives");
    for empty in [downloads.join("lists/partial"), archives.join("partial")] {
        fs::create_dir_all(empty)?;
    }
    let option = |name: &str, value: &Path| {
        let mut option = OsString::from(format!("--option={name}="));
        option.push(value);
        option
    };
    let options = [
        option("Dir::State::lists", &downloads.join("lists")),
        option("Dir::Cache", &downloads),
        option("Dir::Cache::archives", &archives),
        "--option=Debug::NoLocking=1".into(),
        // Otherwise apt, run by root, downloads as a user who may not write here.
        "--option=APT::Sandbox::User=root".into(),
        "--quiet=2".into(),
    ];
    let apt = |program: &str| {
        let mut command = Command::new(program);
        command.args(&options).current_dir(&archives).stdin(Stdio::null());
        command
    };
    output(apt("apt-get").arg("update"))?;
    let install = ["install", "--yes", "--download-only", "--no-install-recommends"];
    output(apt("apt-get").args(install).args(packages))?;
    let depends = ["depends", "--recurse", "--important", "--installed"];
    let dependencies = output(apt("apt-cache").args(depends).args(packages))?;
    let installed = fs::read_to_string("/var/lib/dpkg/status")?;
    let of_java = installed_java(&dependencies, &installed);
    if !of_java.is_empty() {
        output(apt("apt-get").arg("download").args(of_java))?;
    }
    let mut files = entries(&archives);
    files.retain(|file| file.extension() == Some(OsStr::new("deb")));
    Ok(files)
}

/// Returns the Java packages and jars that the system has. They are fetched as well, because the parts of a Java
/// installation, and jars that refer to each other, must be in one directory.
fn installed_java<'a>(dependencies: &str, installed: &'a str) -> Vec<&'a str> {
    let dependencies: BTreeSet<_> = dependencies.lines().collect();
    let of_java = installed.split("\n\n").filter(|package| package.contains("\nSection: java\n"));
    let names = of_java.filter_map(|package| package.lines().next()?.strip_prefix("Package: "));
    names.filter(|name| dependencies.contains(name)).collect()
}

/// Makes absolute links relative, so that they lead into `root`, if their target is there.
fn move_links(directory: &Path, root: &Path) -> Result<()> {
    for entry in entries(directory) {
        let kind = fs::symlink_metadata(&entry)?.file_type();
        if kind.is_dir() {
            move_links(&entry, root)?;
        } else if kind.is_symlink() {
            let link = fs::read_link(&entry)?;
            let Ok(inside) = link.strip_prefix("/") else { continue };
            let target = root.join(inside);
            if target.exists() {
                // Relative, because the directory is renamed later.
                let depth = entry.strip_prefix(root)?.components().count();
                let up: PathBuf = std::iter::repeat_n("..", depth.saturating_sub(1)).collect();
                fs::remove_file(&entry)?;
                link_to(&up.join(inside), &entry)?;
            }
        }
    }
    Ok(())
}

/// Returns the variables by which programs, compilers and linkers find the files of the groups.
fn environment(groups: &[PathBuf]) -> Result<Vec<(&'static str, OsString)>> {
    let below = |path: &'static str| groups.iter().map(move |group| group.join(path));
    let java_home = below("usr/lib/jvm/default-java").find(|home| home.exists());
    let programs = ["usr/bin", "usr/sbin", "bin", "sbin"].into_iter().flat_map(below);
    let programs = java_home.iter().map(|home| home.join("bin")).chain(programs);
    // `x86_64-linux-gnu`, or the same for another architecture.
    let libraries = ["usr/lib", "lib"].into_iter().flat_map(below).flat_map(|lib| entries(&lib));
    let is_of_architecture = |path: &PathBuf| path.to_string_lossy().ends_with("-linux-gnu");
    // The library of PulseAudio, which a browser loads, has parts in a directory of its own.
    let with_parts = |library: PathBuf| [library.join("pulseaudio"), library].into_iter();
    let libraries = libraries.filter(is_of_architecture).flat_map(with_parts);
    let libraries: Vec<_> = libraries.filter(|library| library.is_dir()).collect();
    let mut environment = vec![
        ("PATH", before("PATH", programs)?),
        ("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", libraries.iter().cloned())?),
        ("LIBRARY_PATH", before("LIBRARY_PATH", libraries.iter().cloned())?),
    ];
    environment.extend(java_home.map(|home| ("JAVA_HOME", home.into())));
    // The caller's own jars precede those that were fetched.
    if env::var_os("DOCENT_JAVA_LIB").is_none() {
        environment.extend(
            below("usr/share/java")
                .find(|jars| jars.join("zookeeper.jar").exists())
                .map(|jars| ("DOCENT_JAVA_LIB", jars.into())),
        );
    }
    if let Some(group) = groups.iter().find(|group| group.join("usr/sbin/krb5kdc").exists()) {
        let descriptions = libraries.iter().map(|library| library.join("pkgconfig"));
        environment.push(("PKG_CONFIG_PATH", before("PKG_CONFIG_PATH", descriptions)?));
        environment.push(("PKG_CONFIG_SYSROOT_DIR", group.into()));
        let clang = entries(&group.join("usr/lib"));
        let is_clang = |path: &PathBuf| path.to_string_lossy().contains("/llvm-");
        if let Some(library) = clang.into_iter().find(is_clang).map(|llvm| llvm.join("lib")) {
            // libclang searches for its headers relative to the library file, which is in another directory.
            let own_headers = entries(&library.join("clang")).pop().unwrap_or_default();
            let argument = format!("-resource-dir={}", own_headers.display());
            environment.push(("BINDGEN_EXTRA_CLANG_ARGS", argument.into()));
            environment.push(("LIBCLANG_PATH", library.into()));
        }
    }
    Ok(environment)
}

/// Prepends directories to a variable that is a list of directories.
fn before(name: &str, directories: impl Iterator<Item = PathBuf>) -> Result<OsString> {
    let rest = env::var_os(name).unwrap_or_default();
    let rest = env::split_paths(&rest).filter(|path| path != Path::new(""));
    Ok(env::join_paths(directories.chain(rest))?)
}

fn directory() -> PathBuf {
    root().join("target/debian")
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = directory.read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[cfg(unix)]
fn link_to(target: &Path, link: &Path) -> Result<()> {
    Ok(std::os::unix::fs::symlink(target, link)?)
}

#[cfg(not(unix))]
fn link_to(_target: &Path, _link: &Path) -> Result<()> {
    Err("there are no Debian packages here".into())
}

#[cfg(unix)]
fn replace_this_process(mut command: Command) -> Result<()> {
    Err(std::os::unix::process::CommandExt::exec(&mut command).into())
}

#[cfg(not(unix))]
fn replace_this_process(_command: Command) -> Result<()> {
    Err("there are no Debian packages here".into())
}

#[cfg(test)]
mod tests {
    use super::installed_java;

    #[test]
    fn of_what_is_installed_java_is_fetched() {
        let installed = ["libc6 libs", "jar java", "other java"].map(|package| {
            let (name, section) = package.split_once(' ').unwrap();
            format!("Package: {name}\nSection: {section}\nVersion: 1\n\n")
        });
        let dependencies = "zookeeper\n  Depends: jar\njar\n  Depends: libc6\nlibc6\n";
        assert_eq!(installed_java(dependencies, &installed.concat()), ["jar"]);
    }
}
