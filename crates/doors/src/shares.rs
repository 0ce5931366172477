//! Who gives something up where there is not room for all.

use std::collections::HashMap;

/// Who has most of all, by the shares of each; of several the one that comes first.
pub fn greediest<'a>(shares: impl Iterator<Item = (&'a str, usize)>) -> Option<&'a str> {
    let mut sums: HashMap<&str, (usize, usize)> = HashMap::new();
    for (place, (name, share)) in shares.enumerate() {
        sums.entry(name).or_insert((0, place)).0 += share;
    }
    let most = sums.into_iter().max_by_key(|(_, (sum, place))| (*sum, usize::MAX - place));
    most.map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(shares: &[(&str, usize)], expected: Option<&str>) {
        assert_eq!(greediest(shares.iter().copied()), expected);
    }

    #[test]
    fn who_has_most_is_found_and_among_equals_the_first() {
        check(&[], None);
        check(&[("a", 2), ("b", 1), ("b", 2)], Some("b"));
        check(&[("c", 1), ("a", 1), ("b", 1)], Some("c"));
    }
}
