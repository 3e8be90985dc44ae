//! Seeded random numbers: the same on every machine and in every run.

/// The generator SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the sequence of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Creates the sequence of a text.
    pub fn from_text(text: &str) -> Random {
        // FNV-1a: any hash is good enough.
        Random(
            text.bytes()
                .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)),
        )
    }

    /// Returns 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a uniform number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a uniform number in 0..`n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n.max(1) as u64) as usize
    }

    /// Keeps `number` of `items`, each with the same probability, in their order (Knuth, TAOCP 2, §3.4.2, algorithm S).
    pub fn keep<T>(&mut self, items: &mut Vec<T>, number: usize) {
        let (mut left, mut wanted) = (items.len(), number);
        items.retain(|_| {
            let is_kept = self.below(left) < wanted;
            left -= 1;
            wanted -= usize::from(is_kept);
            is_kept
        });
    }

    /// Returns a standard normal number (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Returns a Poisson number: exact for small means, normal for large ones.
    pub fn poisson(&mut self, mean: f64) -> u64 {
        if mean > 50.0 {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0) as u64;
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.unit(), 0);
        while product > limit {
            product *= self.unit();
            count += 1;
        }
        count
    }

    /// Returns how many of `n` are kept if each is kept with probability `p`: exact for small `n`, normal for large ones.
    pub fn binomial(&mut self, n: u64, p: f64) -> u64 {
        if n > 100_000 {
            let (mean, variance) = (n as f64 * p, n as f64 * p * (1.0 - p));
            return (mean + variance.sqrt() * self.normal()).round().clamp(0.0, n as f64) as u64;
        }
        (0..n).filter(|_| self.unit() < p).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requested_number_is_kept() {
        let mut random = Random::from_text("keep");
        let mut times = [0; 10];
        for _ in 0..2000 {
            let mut items: Vec<usize> = (0..10).collect();
            random.keep(&mut items, 3);
            assert_eq!(items.len(), 3);
            items.into_iter().for_each(|i| times[i] += 1);
        }
        assert!(times.iter().all(|t| (500..700).contains(t)), "{times:?}: each in 600 of 2,000");
        let mut all = vec![1, 2];
        random.keep(&mut all, usize::MAX);
        assert_eq!(all, [1, 2]);
    }

    #[test]
    fn means_are_right() {
        let mut random = Random::from_text("means");
        let mean = |draw: &mut dyn FnMut() -> u64| (0..2000).map(|_| draw() as f64).sum::<f64>() / 2000.0;
        assert!((mean(&mut || random.poisson(3.0)) - 3.0).abs() < 0.2);
        assert!((mean(&mut || random.poisson(300.0)) - 300.0).abs() < 2.0);
        assert!((mean(&mut || random.binomial(100, 0.1)) - 10.0).abs() < 0.3);
        assert!((mean(&mut || random.binomial(1_000_000, 0.02)) - 20_000.0).abs() < 20.0);
    }
}
