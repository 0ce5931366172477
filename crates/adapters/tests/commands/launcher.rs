//! Stands in for `nexus3` where a test starts commands: the launcher and nothing else.

fn main() {
    nexus_adapters::sandbox::confine_main()
}
