//! Random numbers that need not be good, only independent of what is sampled (xorshift64*).

/// Where the sequence is.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Of any seed; 0 would stay 0, so that seeds are made odd.
    pub fn new(seed: u64) -> Self {
        Random(seed | 1)
    }

    /// From 0 to 1, without 1.
    pub fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A delay of that mean, drawn so that no moment is likelier than another (exponentially).
    pub fn delay(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }
}
