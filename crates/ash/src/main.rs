//! The program. Everything is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    ash::command::main()
}
