//! Reciprocal rank fusion: lists that were ranked by different measures become one, by the ranks alone.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// How little it matters to be first: the gain of a rank falls as one over this and the rank.
const FLATNESS: f32 = 60.0;

/// Joins lists, each best first and with its weight, into one of at most `count`, best first. The score is one for who
/// leads every list. What stands in a list twice counts where it stands first.
pub fn fuse<T>(lists: &[(f32, &[T])], count: usize) -> Vec<(T, f32)>
where
    T: Clone + Eq + Hash + Ord,
{
    let most: f32 = lists.iter().map(|(weight, _)| gain(*weight, 0)).sum();
    let mut scores: HashMap<&T, f32> = HashMap::new();
    for (weight, list) in lists {
        let mut seen = HashSet::new();
        let items = list.iter().filter(|item| seen.insert(*item));
        for (rank, item) in items.enumerate() {
            *scores.entry(item).or_default() += gain(*weight, rank) / most;
        }
    }
    let mut fused: Vec<_> = scores.into_iter().collect();
    fused.sort_by(|(a, a_score), (b, b_score)| b_score.total_cmp(a_score).then(a.cmp(b)));
    fused.truncate(count);
    fused.into_iter().map(|(item, score)| (item.clone(), score)).collect()
}

fn gain(weight: f32, rank: usize) -> f32 {
    weight / (FLATNESS + 1.0 + rank as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lists: &[(f32, &[u32])], count: usize, expected: &[u32]) {
        let fused = fuse(lists, count);
        assert_eq!(fused.iter().map(|(item, _)| *item).collect::<Vec<_>>(), expected);
        assert!(fused.iter().all(|(_, score)| *score > 0.0 && *score <= 1.0));
        assert!(fused.is_sorted_by(|a, b| a.1 >= b.1));
    }

    #[test]
    fn what_several_lists_have_comes_before_what_one_has() {
        check(&[(1.0, &[1, 2, 3]), (1.0, &[4, 2, 5])], 9, &[2, 1, 4, 3, 5]);
        check(&[(1.0, &[1, 2, 3]), (1.0, &[4, 2, 5])], 2, &[2, 1]);
    }

    #[test]
    fn one_list_keeps_its_order_and_none_makes_none() {
        check(&[(1.0, &[3, 1, 2]), (1.0, &[])], 9, &[3, 1, 2]);
        check(&[(1.0, &[]), (1.0, &[])], 9, &[]);
        check(&[], 9, &[]);
        check(&[(1.0, &[1])], 0, &[]);
    }

    #[test]
    fn a_heavier_list_decides() {
        check(&[(1.0, &[1]), (2.0, &[2])], 9, &[2, 1]);
        check(&[(2.0, &[1]), (1.0, &[2])], 9, &[1, 2]);
    }

    #[test]
    fn what_stands_twice_counts_once() {
        check(&[(1.0, &[1, 1, 1, 1]), (1.0, &[2, 1])], 9, &[1, 2]);
        assert_eq!(fuse(&[(1.0, &[7, 7][..])], 9), [(7, 1.0)]);
    }

    #[test]
    fn who_leads_every_list_has_one() {
        let fused = fuse(&[(0.7, &["a", "b"][..]), (1.3, &["a"])], 9);
        assert!((fused[0].1 - 1.0).abs() < 1e-6);
    }
}
