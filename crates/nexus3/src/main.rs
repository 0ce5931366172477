//! The program. Everything is in the library beside it.

/// Calls are made on one thread and logged on another; the system's allocator makes them wait for each other there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    nexus3::main()
}
