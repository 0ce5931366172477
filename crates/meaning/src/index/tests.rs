//! The index against a plain scan of floats.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// How far a cosine of coded vectors may be off.
const CODED_ERROR: f32 = 0.01;

/// What an index should be.
#[derive(Default)]
struct Plain {
    rows: BTreeMap<u64, (u32, Vec<f32>)>,
}

impl Plain {
    fn nearest(&self, query: &[f32], scopes: &[u32], count: usize) -> Vec<(u64, f32)> {
        let visible = self.rows.iter().filter(|(_, (scope, _))| scopes.contains(scope));
        let mut all: Vec<_> =
            visible.map(|(id, (_, vector))| (*id, cosine(vector, query))).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.truncate(count);
        all
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Numbers of a bell curve, near enough.
fn random_vector(random: &mut fastrand::Rng, dims: usize) -> Vec<f32> {
    (0..dims).map(|_| (0..4).map(|_| random.f32() - 0.5).sum()).collect()
}

/// The part of the nearest ten that the index finds.
fn recall(
    rows: &[Vec<f32>],
    queries: &[Vec<f32>],
    nearest: impl Fn(&Index, &[f32]) -> Vec<(u64, f32)>,
) -> f64 {
    let mut index = Index::new(rows[0].len());
    let mut plain = Plain::default();
    for (id, row) in (0..).zip(rows) {
        index.insert(id, 0, row).unwrap();
        plain.rows.insert(id, (0, row.clone()));
    }
    let mut found = 0;
    for query in queries {
        let ours: BTreeSet<_> = nearest(&index, query).iter().map(|(id, _)| *id).collect();
        assert_eq!(ours.len(), 10);
        let true_ones = plain.nearest(query, &[0], 10);
        found += true_ones.iter().filter(|(id, _)| ours.contains(id)).count();
    }
    found as f64 / (queries.len() * 10) as f64
}

#[test]
fn among_vectors_without_any_order_the_nearest_are_found() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut some =
        |count| -> Vec<_> { (0..count).map(|_| random_vector(&mut random, 384)).collect() };
    let (rows, queries) = (some(20_000), some(20));
    let recall = recall(&rows, &queries, |index, query| index.nearest(query, &[0], 10).unwrap());
    assert!(recall >= 0.95, "{recall}");
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, u32),
    Remove(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..40_u64, 0..4_u32).prop_map(|(id, scope)| Op::Insert(id, scope)),
        1 => (0..40_u64).prop_map(Op::Remove),
    ]
}

proptest! {
    /// Whatever was put in and taken out, a search sees what is there and in its scopes, and nothing else.
    #[test]
    fn what_is_found_is_there_and_visible(
        ops in prop::collection::vec(op(), 0..120),
        scopes in prop::collection::vec(0..5_u32, 0..4),
        (dims, seed) in (1..100_usize, any::<u64>()),
        count in 0..50_usize,
        candidates in 0..50_usize,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut index = Index::new(dims);
        let mut plain = Plain::default();
        for op in ops {
            match op {
                Op::Insert(id, scope) => {
                    let vector = random_vector(&mut random, dims);
                    index.insert(id, scope, &vector).unwrap();
                    plain.rows.insert(id, (scope, vector));
                }
                Op::Remove(id) => prop_assert_eq!(index.remove(id), plain.rows.remove(&id).is_some()),
            }
        }
        prop_assert_eq!(index.len(), plain.rows.len());
        let query = random_vector(&mut random, dims);
        let all = plain.nearest(&query, &scopes, usize::MAX);
        let found = index.nearest(&query, &scopes, count).unwrap();
        prop_assert_eq!(found.len(), count.min(all.len()));
        prop_assert!(found.is_sorted_by(|a, b| a.1 >= b.1));
        let sifted = index.nearest_among(&query, &scopes, count, candidates).unwrap();
        prop_assert!(sifted.len() >= count.min(candidates).min(all.len()));
        let cosines: BTreeMap<_, _> = all.iter().copied().collect();
        for (id, cosine) in found.iter().chain(&sifted) {
            let exact = cosines.get(id);
            prop_assert!(exact.is_some_and(|exact| (exact - cosine).abs() < CODED_ERROR));
        }
        let ids: BTreeSet<_> = found.iter().map(|(id, _)| id).collect();
        prop_assert_eq!(ids.len(), found.len());
        for ((_, ours), (_, exact)) in found.iter().zip(&all) {
            prop_assert!((ours - exact).abs() < CODED_ERROR);
        }
    }
}

#[test]
fn a_shelf_of_several_blocks_gives_up_any_row() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut index = Index::new(3);
    let ids: Vec<u64> = (0..2 * BLOCK_ROWS as u64 + 1).collect();
    for id in &ids {
        index.insert(*id, 1, &random_vector(&mut random, 3)).unwrap();
    }
    let mut left: BTreeSet<_> = ids.iter().copied().collect();
    let mut order = ids;
    random.shuffle(&mut order);
    for (gone, id) in order.iter().enumerate() {
        assert!(index.remove(*id) && !index.remove(*id));
        left.remove(id);
        if gone % 500 == 0 || left.len() < 3 {
            let found = index.nearest(&[1.0, 1.0, 1.0], &[1], usize::MAX).unwrap();
            assert_eq!(found.iter().map(|(id, _)| *id).collect::<BTreeSet<_>>(), left);
        }
    }
    assert!(index.is_empty() && index.shelves.is_empty());
}

#[test]
fn an_id_that_comes_again_changes_its_place() {
    let mut index = Index::new(2);
    index.insert(1, 7, &[1.0, 0.0]).unwrap();
    index.insert(1, 8, &[0.0, 3.0]).unwrap();
    assert_eq!(index.nearest(&[1.0, 0.0], &[7], 5).unwrap(), []);
    assert_eq!(index.nearest(&[0.0, 2.0], &[7, 8, 8], 5).unwrap(), [(1, 1.0)]);
}

#[test]
fn what_is_no_vector_is_refused_and_changes_nothing() {
    let mut index = Index::new(2);
    index.insert(1, 0, &[1.0, 0.0]).unwrap();
    let cases: [(&[f32], VectorError); 6] = [
        (&[1.0], VectorError::Dimensions { expected: 2, found: 1 }),
        (&[1.0; 3], VectorError::Dimensions { expected: 2, found: 3 }),
        (&[0.0, 0.0], VectorError::Nowhere),
        (&[f32::NAN, 1.0], VectorError::Nowhere),
        (&[f32::INFINITY, 1.0], VectorError::Nowhere),
        (&[f32::NEG_INFINITY, f32::INFINITY], VectorError::Nowhere),
    ];
    for (vector, error) in cases {
        assert_eq!(index.insert(1, 0, vector), Err(error));
        assert_eq!(index.nearest(vector, &[0], 1), Err(error));
    }
    assert_eq!(index.nearest(&[1.0, 0.0], &[0], 1).unwrap(), [(1, 1.0)]);
}

#[test]
fn very_small_and_very_large_vectors_point_somewhere() {
    let mut index = Index::new(2);
    for (id, size) in [(1, f32::MIN_POSITIVE), (2, f32::MAX), (3, 1e-42)] {
        index.insert(id, 0, &[size, 0.0]).unwrap();
    }
    for (_, cosine) in index.nearest(&[f32::MAX, 0.0], &[0], 9).unwrap() {
        assert!((cosine - 1.0).abs() < CODED_ERROR, "{cosine}");
    }
}

#[test]
fn of_equals_the_older_comes_first() {
    let mut index = Index::new(2);
    for id in [5, 3, 9, 1] {
        index.insert(id, 0, &[1.0, 1.0]).unwrap();
    }
    let ids: Vec<_> =
        index.nearest(&[1.0, 1.0], &[0], 3).unwrap().iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [1, 3, 5]);
}
