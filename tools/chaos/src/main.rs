//! The program of `cargo xtask chaos`.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    return docent_chaos::main();
    #[cfg(not(target_os = "linux"))]
    {
        eprintln!("chaos: needs Linux");
        ExitCode::FAILURE
    }
}
