//! Choosing the next token.

/// How an answer is chosen. Low heat rather than none: a small model that always takes the likeliest word falls into
/// circles.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    pub temperature: f32,
    /// The likeliest tokens that together have this probability are drawn from.
    pub top_p: f32,
    /// What was said lately is made this much less likely.
    pub repetition_penalty: f32,
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.2, top_p: 0.9, repetition_penalty: 1.1, seed: 42 }
    }
}

/// How far back a repetition is looked for.
const REPETITION_TOKENS: usize = 64;

/// Tokens that are looked at at all: at low heat nothing beyond has a chance.
const CANDIDATES_MAX: usize = 64;

pub struct Sampler {
    sampling: Sampling,
    state: u64,
}

impl Sampler {
    pub fn new(sampling: Sampling) -> Self {
        Self { sampling, state: sampling.seed }
    }

    /// Draws from `logits`, of which those that may not come are minus infinity.
    pub fn draw(&mut self, mut logits: Vec<f32>, said: &[u32]) -> u32 {
        let recent = &said[said.len().saturating_sub(REPETITION_TOKENS)..];
        let mut seen: Vec<u32> = recent.to_vec();
        seen.sort_unstable();
        seen.dedup();
        let penalty = self.sampling.repetition_penalty;
        for token in seen {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            }
        }
        let likeliest = likeliest(&logits);
        let Some(&(best, top)) = likeliest.first() else { return 0 };
        if self.sampling.temperature <= 0.0 {
            return best;
        }
        let temperature = self.sampling.temperature;
        let weight = |logit: f32| ((logit - top) / temperature).exp();
        let total: f32 = likeliest.iter().map(|&(_, logit)| weight(logit)).sum();
        let mut kept = 0;
        let mut mass = 0.0;
        while kept < likeliest.len() && mass < self.sampling.top_p * total {
            mass += weight(likeliest[kept].1);
            kept += 1;
        }
        let mut point = self.uniform() * mass;
        for &(token, logit) in &likeliest[..kept] {
            point -= weight(logit);
            if point <= 0.0 {
                return token;
            }
        }
        best
    }

    /// A number from 0 to 1 (splitmix64).
    fn uniform(&mut self) -> f32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        (bits >> 40) as f32 / (1u64 << 24) as f32
    }
}

/// The likeliest tokens, best first.
fn likeliest(logits: &[f32]) -> Vec<(u32, f32)> {
    let mut all: Vec<(u32, f32)> = logits
        .iter()
        .enumerate()
        .filter(|(_, logit)| logit.is_finite())
        .map(|(token, &logit)| (token as u32, logit))
        .collect();
    let best_first = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if all.len() > CANDIDATES_MAX {
        all.select_nth_unstable_by(CANDIDATES_MAX, best_first);
        all.truncate(CANDIDATES_MAX);
    }
    all.sort_unstable_by(best_first);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(sampling: Sampling, logits: &[f32], said: &[u32]) -> Vec<u32> {
        let mut sampler = Sampler::new(sampling);
        (0..200).map(|_| sampler.draw(logits.to_vec(), said)).collect()
    }

    #[test]
    fn without_heat_the_likeliest_comes() {
        let cold = Sampling { temperature: 0.0, ..Sampling::default() };
        assert!(draws(cold, &[0.1, 0.5, 0.4], &[]).iter().all(|&token| token == 1));
    }

    #[test]
    fn the_unlikely_rest_never_comes_and_the_forbidden_neither() {
        let warm = Sampling { temperature: 1.0, ..Sampling::default() };
        let drawn = draws(warm, &[5.0, 5.0, 0.0, f32::NEG_INFINITY], &[]);
        assert!(drawn.contains(&0) && drawn.contains(&1));
        assert!(!drawn.contains(&2) && !drawn.contains(&3));
    }

    #[test]
    fn what_was_just_said_is_less_likely() {
        let cold = Sampling { temperature: 0.0, ..Sampling::default() };
        assert_eq!(draws(cold, &[1.0, 1.05], &[1])[0], 0);
        assert_eq!(draws(cold, &[-1.05, -1.0], &[1])[0], 0);
    }

    #[test]
    fn one_seed_is_one_answer() {
        let warm = Sampling { temperature: 1.0, ..Sampling::default() };
        let other = Sampling { seed: 7, ..warm };
        let logits = [1.0, 1.1, 0.9, 1.0];
        assert_eq!(draws(warm, &logits, &[]), draws(warm, &logits, &[]));
        assert_ne!(draws(warm, &logits, &[]), draws(other, &logits, &[]));
    }

    #[test]
    fn many_candidates_are_cut_to_the_best() {
        let logits: Vec<f32> = (0..1000).map(|at| at as f32).collect();
        assert_eq!(likeliest(&logits).first(), Some(&(999, 999.0)));
        assert_eq!(likeliest(&logits).len(), CANDIDATES_MAX);
    }
}
