//! Stands in for `nexus3` where a test starts commands: the launcher and nothing else.

fn main() {
    nexus_tools::sandbox::confine_main()
}
