//! Says how the program is linked (docs/decisions/0046-a-fixed-address.md).

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A hundred thousand addresses need not be written each time that it starts.
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|it| it == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
