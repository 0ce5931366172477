//! What libFuzzer runs: the target that `NEXUS3_FUZZ_TARGET` names. `NEXUS3_FUZZ_SEEDS=DIRECTORY` writes its seeds there
//! first.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use nexus_fuzzing::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("NEXUS3_FUZZ_TARGET").unwrap_or_default();
    let target = TARGETS.into_iter().find(|target| target.name == name);
    target.unwrap_or_else(|| {
        let names = TARGETS.map(|target| target.name).join(", ");
        panic!("NEXUS3_FUZZ_TARGET is one of {names}, not '{name}'")
    })
});

fuzz_target!(init: write_seeds(), |bytes: &[u8]| (TARGET.run)(bytes));

fn write_seeds() {
    let Some(directory) = std::env::var_os("NEXUS3_FUZZ_SEEDS").map(PathBuf::from) else { return };
    for (number, seed) in TARGET.seeds.iter().enumerate() {
        let file = directory.join(format!("seed-{number}"));
        if let Err(error) = std::fs::write(&file, seed) {
            panic!("{}: {error}", file.display());
        }
    }
}
