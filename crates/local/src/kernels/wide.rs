//! Inner products by AVX2, eight sums at a time. Where there is none, nothing here can be called.

/// Work that is worth compiling for wide instructions. `run` has to be inlined always.
pub trait Kernel {
    fn run(self, simd: Simd);
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{__m128i, __m256i};

    use super::super::{Q4, Q8, X8};

    pub type Simd = pulp::x86::V3;

    pub fn find() -> Option<Simd> {
        Simd::try_new()
    }

    /// Runs a kernel in a function that is compiled for AVX2. All that it calls is inlined, or it would not be.
    pub fn vectorise(simd: Simd, kernel: impl super::Kernel) {
        struct Call<K>(Simd, K);

        impl<K: super::Kernel> pulp::NullaryFnOnce for Call<K> {
            type Output = ();

            #[inline(always)]
            fn call(self) {
                self.1.run(self.0);
            }
        }

        pulp::Simd::vectorize(simd, Call(simd, kernel));
    }

    #[inline(always)]
    pub fn q4<const N: usize>(simd: Simd, weights: &[Q4], rows: [&[X8]; N]) -> [f32; N] {
        // The same length for all, so that no step has to look.
        let rows = rows.map(|row| &row[..weights.len()]);
        let low_half = simd.avx._mm256_set1_epi8(15);
        let ones = simd.avx._mm256_set1_epi16(1);
        let mut sums = [simd.avx._mm256_setzero_ps(); N];
        let mut mins = [0.0; N];
        for (at, block) in weights.iter().enumerate() {
            let packed: __m128i = pulp::cast(block.q);
            let both = simd.avx._mm256_set_m128i(simd.sse2._mm_srli_epi16::<4>(packed), packed);
            let q = simd.avx2._mm256_and_si256(both, low_half);
            for n in 0..N {
                let x = &rows[n][at];
                let values: __m256i = pulp::cast(x.q);
                let pairs = simd.avx2._mm256_maddubs_epi16(q, values);
                let quads = simd.avx._mm256_cvtepi32_ps(simd.avx2._mm256_madd_epi16(pairs, ones));
                let scale = simd.avx._mm256_set1_ps(block.scale * x.scale);
                sums[n] = simd.fma._mm256_fmadd_ps(quads, scale, sums[n]);
                mins[n] += block.min * x.sum;
            }
        }
        std::array::from_fn(|n| pulp::cast::<_, [f32; 8]>(sums[n]).iter().sum::<f32>() + mins[n])
    }

    #[inline(always)]
    pub fn q8<const N: usize>(simd: Simd, weights: &[Q8], rows: [&[X8]; N]) -> [f32; N] {
        let rows = rows.map(|row| &row[..weights.len()]);
        let ones = simd.avx._mm256_set1_epi16(1);
        let mut sums = [simd.avx._mm256_setzero_ps(); N];
        for (at, block) in weights.iter().enumerate() {
            let q: __m256i = pulp::cast(block.q);
            // The multiplication takes one side without sign: the weights lend theirs to the activations.
            let size = simd.avx2._mm256_sign_epi8(q, q);
            for n in 0..N {
                let x = &rows[n][at];
                let values = simd.avx2._mm256_sign_epi8(pulp::cast(x.q), q);
                let pairs = simd.avx2._mm256_maddubs_epi16(size, values);
                let quads = simd.avx._mm256_cvtepi32_ps(simd.avx2._mm256_madd_epi16(pairs, ones));
                let scale = simd.avx._mm256_set1_ps(block.scale * x.scale);
                sums[n] = simd.fma._mm256_fmadd_ps(quads, scale, sums[n]);
            }
        }
        std::array::from_fn(|n| pulp::cast::<_, [f32; 8]>(sums[n]).iter().sum())
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod none {
    use super::super::{Q4, Q8, X8};

    pub type Simd = std::convert::Infallible;

    pub fn find() -> Option<Simd> {
        None
    }

    pub fn vectorise(simd: Simd, _: impl super::Kernel) {
        match simd {}
    }

    pub fn q4<const N: usize>(simd: Simd, _: &[Q4], _: [&[X8]; N]) -> [f32; N] {
        match simd {}
    }

    pub fn q8<const N: usize>(simd: Simd, _: &[Q8], _: [&[X8]; N]) -> [f32; N] {
        match simd {}
    }
}

#[cfg(target_arch = "x86_64")]
pub use avx2::{Simd, find, q4, q8, vectorise};
#[cfg(not(target_arch = "x86_64"))]
pub use none::{Simd, find, q4, q8, vectorise};
