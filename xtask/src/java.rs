//! A Java installation with ZooKeeper and Curator on its class path.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use crate::workspace::target;
use crate::{Result, command::output};

/// The directory of Debian's jars; `DOCENT_JAVA_LIB` overrides it.
const DEBIAN_JARS: &str = "/usr/share/java";

/// The jars that a server and a Curator client need.
const REQUIRED_JARS: &str = "zookeeper zookeeper-jute curator-client curator-framework \
    curator-recipes curator-x-discovery guava slf4j-api";

/// The jars that some versions and settings (metrics, netty, TLS, snapshots compressed with snappy) need in addition.
const OPTIONAL_JARS: &str = "slf4j-simple netty-buffer netty-codec netty-common netty-handler \
    netty-resolver netty-transport netty-transport-native-epoll netty-transport-native-unix-common \
    snappy-java metrics-core commons-io commons-cli jackson-annotations jackson-core jackson-databind";

/// The programs and the class path of a Java installation.
#[derive(Debug, Clone)]
pub struct Java {
    java: PathBuf,
    javac: PathBuf,
    class_path: OsString,
}

impl Java {
    /// Finds java, javac and the jars. The error names the missing parts.
    pub fn find() -> Result<Self> {
        let directory = env::var_os("DOCENT_JAVA_LIB").unwrap_or_else(|| DEBIAN_JARS.into());
        let directory = PathBuf::from(directory);
        let mut jars = Vec::new();
        for name in REQUIRED_JARS.split(' ') {
            jars.push(jar(&directory, name).ok_or_else(|| {
                format!("{name}.jar is not in {} (DOCENT_JAVA_LIB)", directory.display())
            })?);
        }
        jars.extend(OPTIONAL_JARS.split(' ').filter_map(|name| jar(&directory, name)));
        Self::with_class_path(env::join_paths(jars)?)
    }

    /// Finds java and javac, and uses a class path that [`Java::find`] returned in another process.
    pub fn with_class_path(class_path: OsString) -> Result<Self> {
        let java = program("java").ok_or("no java in JAVA_HOME or PATH")?;
        let javac = program("javac").ok_or("no javac in JAVA_HOME or PATH")?;
        Ok(Self { java, javac, class_path })
    }

    /// Returns the class path, in the format of the environment variable.
    pub fn class_path(&self) -> &OsStr {
        &self.class_path
    }

    /// Compiles a source file, and the files beside it that it needs, unless they were compiled before with the same
    /// content. Returns the directory of the classes.
    ///
    /// The classes are kept in cargo's target directory. They are written into a temporary directory, which is then
    /// renamed, so a concurrent run sees all of them or none.
    pub fn compile(&self, source: &Path) -> Result<PathBuf> {
        let home = source.parent().ok_or("a source file without a directory")?;
        let read = |error| format!("{}: {error}", source.display());
        let files = fs::read_dir(home).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let mut files: Vec<_> = files.map_err(read)?.iter().map(fs::DirEntry::path).collect();
        files.sort();
        let mut hasher = DefaultHasher::new();
        for file in files.iter().filter(|file| file.extension().is_some_and(|it| it == "java")) {
            hasher.write(&fs::read(file).map_err(read)?);
        }
        hasher.write(self.class_path.as_encoded_bytes());
        let name = source.file_stem().ok_or("a source file without a name")?.display();
        let compiled = target()?.join("java");
        let classes = compiled.join(format!("{name}-{:016x}", hasher.finish()));
        if classes.is_dir() {
            return Ok(classes);
        }

        fs::create_dir_all(&compiled)?;
        let unfinished = crate::TemporaryDirectory::new_in(&compiled, "javac")?;
        let mut javac = Command::new(&self.javac);
        let strict = "-Xlint:all,-processing,-path,-classfile -Werror -proc:none -encoding UTF-8";
        javac.args(strict.split(' ')).arg("-cp").arg(&self.class_path);
        javac.arg("-sourcepath").arg(home).arg("-d").arg(unfinished.path()).arg(source);
        output(&mut javac)?;
        // Fails if a concurrent run or test has created the directory.
        let _ = fs::rename(unfinished.path(), &classes);
        if classes.is_dir() { Ok(classes) } else { Err("the compiled classes were removed".into()) }
    }

    /// Waits for a turn to start a program, whose start takes a second of CPU time or more. At most one for each
    /// processor starts at once, in all processes: more would only starve those that run.
    pub fn turn(&self) -> Result<Turn> {
        static TURNS: AtomicUsize = AtomicUsize::new(0);
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let number = TURNS.fetch_add(1, Ordering::Relaxed) % processors;
        let directory = target()?.join("java");
        fs::create_dir_all(&directory)?;
        let file = File::create(directory.join(format!("turn-{number}")))?;
        file.lock()?;
        Ok(Turn { _locked: file })
    }

    /// Returns a `java` command with `classes` before the jars. The caller adds the main class and its arguments.
    pub fn command(&self, classes: &Path) -> Result<Command> {
        let jars = env::split_paths(&self.class_path);
        let class_path = env::join_paths(std::iter::once(classes.to_path_buf()).chain(jars))?;
        let mut command = Command::new(&self.java);
        // For small, short-lived programs: a fast start, and little use of the CPU.
        command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m"]);
        // The counters of performance wake a thread 20 times a second. To verify the classes is a quarter of a start.
        command.args(["-XX:-UsePerfData", "-XX:+UnlockDiagnosticVMOptions"]);
        command.arg("-XX:-BytecodeVerificationRemote");
        // An idle server's threads of the JVM wake four times a second without these, which another version may not know.
        command.arg("-XX:+IgnoreUnrecognizedVMOptions");
        command.args(["-XX:AsyncDeflationInterval=0", "-XX:GuaranteedSafepointInterval=0"]);
        command.args([
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Djava.net.preferIPv4Stack=true",
        ]);
        command.arg("-cp").arg(class_path);
        // Ctrl-C must reach only this process, which ends its children; if it cannot, they exit by themselves.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(command)
    }
}

/// A turn to start a program. It ends on drop.
#[derive(Debug)]
#[must_use]
pub struct Turn {
    _locked: File,
}

/// Finds `NAME.jar` or `NAME-1.2.3.jar`.
fn jar(directory: &Path, name: &str) -> Option<PathBuf> {
    let exact = directory.join(format!("{name}.jar"));
    if exact.is_file() {
        return Some(exact);
    }
    let versioned = |path: &PathBuf| {
        let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let rest = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|rest| {
            rest.starts_with(|c: char| c.is_ascii_digit()) && rest.ends_with(".jar")
        })
    };
    let entries = fs::read_dir(directory).ok()?;
    entries.flatten().map(|entry| entry.path()).find(versioned)
}

/// Finds a program of the JDK in `JAVA_HOME`, or else in `PATH`.
fn program(name: &str) -> Option<PathBuf> {
    let name = format!("{name}{}", env::consts::EXE_SUFFIX);
    let home = env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let mut directories = home.into_iter().chain(env::split_paths(&path));
    directories.find_map(|directory| Some(directory.join(&name)).filter(|file| file.is_file()))
}
