//! How models call the tools of servers: `mcp_SERVER_TOOL`, the same after every start, and never one tool for another.

use sha2::{Digest as _, Sha256};

/// What services take as the name of a tool.
const NAME_MAX: usize = 64;

/// Of the digest that tells names apart: `_` and 8 digits.
const SUFFIX: usize = 9;

/// The name of a tool. It depends on the tool alone: one that cannot stand as it is ends in a digest, whether or not
/// another is spelt alike today.
pub fn name(server: &str, tool: &str) -> String {
    let exact = format!("mcp_{server}_{tool}");
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if exact.len() <= NAME_MAX && exact.chars().all(fits) {
        return exact;
    }
    let mapped: String = exact.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    let digest = Sha256::digest(format!("{server}\0{tool}"));
    let digits: String = digest[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let kept = mapped.len().min(NAME_MAX - SUFFIX);
    format!("{}_{digits}", &mapped[..kept])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_names_stay_and_others_end_in_a_digest() {
        assert_eq!(name("git", "status"), "mcp_git_status");
        assert_eq!(name("git", "x-y_Z"), "mcp_git_x-y_Z");
        assert_eq!(name("git", "a.b"), "mcp_git_a_b_7e516e15");
        let long = "t".repeat(56);
        assert_eq!(name("git", &long), format!("mcp_git_{long}"));
        assert_eq!(name("git", &"t".repeat(57)).len(), NAME_MAX);
    }

    proptest! {
        #[test]
        fn every_tool_has_a_name_of_its_own(tools in prop::collection::btree_set("[a-z._ é-]{1,70}", 0..8)) {
            let names: BTreeSet<String> = tools.iter().map(|tool| name("s", tool)).collect();
            prop_assert_eq!(names.len(), tools.len());
            for name in &names {
                prop_assert!(name.len() <= NAME_MAX);
                prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
            }
        }
    }
}
