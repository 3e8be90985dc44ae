//! Random numbers for delays and choices (xorshift64*). They only need to be independent of the sampled program.

/// The state of a sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a sequence from any seed. The lowest bit is set, because a state of 0 would never change.
    pub fn new(seed: u64) -> Self {
        Random(seed | 1)
    }

    /// Returns a uniformly distributed number in 0..1.
    pub fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns an exponentially distributed delay with this mean, so that every moment is equally likely.
    pub fn delay(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }
}
