//! The program `weighbridge`; see the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(weighbridge_cli::command(std::env::args_os()))
}
