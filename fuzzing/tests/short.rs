//! The short form of `make fuzz`: every seed, and damaged copies of it that are the same in each run.

use nexus_fuzzing::{TARGETS, damaged};

/// Damaged copies of each seed. A longer look without libFuzzer sets `NEXUS3_FUZZ_CASES`.
const CASES: usize = 150;

fn cases() -> usize {
    std::env::var("NEXUS3_FUZZ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES)
}

/// Makes a test of each target, and one that says so when a target has none.
macro_rules! short {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check(stringify!($name)); })*

        #[test]
        fn every_target_is_tried() {
            assert_eq!(TARGETS.map(|target| target.name), [$(stringify!($name)),*]);
        }
    };
}

short! {
    envelope sse lines frames provider patch session gguf config mcp openai websocket acp signed token shown attached
}

fn check(name: &str) {
    let target = TARGETS.into_iter().find(|target| target.name == name);
    let target = target.unwrap_or_else(|| panic!("there is no target {name}"));
    let mut rng = fastrand::Rng::with_seed(20_261_116);
    for seed in target.seeds {
        (target.run)(seed);
        for _ in 0..cases() {
            let bytes = damaged(seed, &mut rng);
            // What breaks is shown with what broke it.
            let ran = std::panic::catch_unwind(|| (target.run)(&bytes));
            assert!(ran.is_ok(), "{name}: {}", bytes.escape_ascii());
        }
    }
}
