//! The program. Everything is in the library beside it.

fn main() -> std::process::ExitCode {
    nexus3::main()
}
