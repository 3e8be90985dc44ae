//! Solution of linear systems that are too large to store (Hestenes and Stiefel, "Methods of Conjugate Gradients for
//! Solving Linear Systems", 1952).
//!
//! Input: a symmetric positive definite matrix, as a function that applies it to a vector, and a right side. Output: an
//! approximate solution. Complexity: a bounded number of applications.

/// Solves `apply(x) = b` approximately, for a symmetric positive definite `apply`, by conjugate gradients preconditioned
/// by a diagonal (Hestenes and Stiefel, 1952). It stops when the residual, as weighted by the preconditioner, is the part
/// `residual_part` of the initial one. Complexity: `steps_max` applications at most.
pub fn conjugate_gradients(
    apply: impl Fn(&[f64]) -> Vec<f64>,
    b: &[f64],
    diagonal: &[f64],
    residual_part: f64,
    steps_max: usize,
) -> Vec<f64> {
    let precondition = |r: &[f64]| r.iter().zip(diagonal).map(|(r, d)| r / d).collect::<Vec<f64>>();
    let (mut x, mut residual) = (vec![0.0; b.len()], b.to_vec());
    let mut z = precondition(&residual);
    let mut direction = z.clone();
    let mut product = dot(&residual, &z);
    let target = product * residual_part * residual_part;
    for _ in 0..steps_max {
        if product <= target || product <= 0.0 {
            break;
        }
        let applied = apply(&direction);
        let length = product / dot(&direction, &applied).max(f64::MIN_POSITIVE);
        for i in 0..x.len() {
            x[i] += length * direction[i];
            residual[i] -= length * applied[i];
        }
        z = precondition(&residual);
        let next = dot(&residual, &z);
        let part = next / product;
        direction.iter_mut().zip(&z).for_each(|(d, z)| *d = z + part * *d);
        product = next;
    }
    x
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A generator of random signs by xorshift (Marsaglia, Journal of Statistical Software 8, 2003). The sequence is always
/// the same.
pub struct Signs(u64);

impl Signs {
    /// Starts the sequence.
    pub fn new() -> Signs {
        Signs(0x9E37_79B9_7F4A_7C15)
    }

    /// Returns 1 or −1.
    pub fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        if self.0 >> 63 == 0 { 1.0 } else { -1.0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RESIDUAL_PART: f64 = 1e-3;

    /// A chain of resistors to ground: tridiagonal.
    fn chain(x: &[f64]) -> Vec<f64> {
        let at = |i: usize| x.get(i).copied().unwrap_or(0.0);
        (0..x.len()).map(|i| 2.5 * at(i) - at(i.wrapping_sub(1)) - at(i + 1)).collect()
    }

    /// Checks that the residual is as small as requested, and what every step guarantees: x is no worse than 0, ½ xᵀAx ≤
    /// bᵀx. This holds for matrices that are well enough conditioned. With counts near 2^63 rounding breaks both, so that
    /// a caller who solves for a direction must search along it.
    fn verify(apply: impl Fn(&[f64]) -> Vec<f64>, b: &[f64], x: &[f64]) -> Result<(), String> {
        const ROUNDING: f64 = 1e-3;
        let applied = apply(x);
        let (energy, work) = (0.5 * dot(x, &applied), dot(b, x));
        if energy > work * (1.0 + ROUNDING) {
            return Err(format!("half of {energy} is more than {work}"));
        }
        let norm = |r: &[f64]| dot(r, r).sqrt();
        let residual = norm(&b.iter().zip(&applied).map(|(b, a)| b - a).collect::<Vec<_>>());
        if residual > (1.0 + ROUNDING) * RESIDUAL_PART * norm(b) {
            return Err(format!("a residual of {residual} is left of {}", norm(b)));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn chains_are_solved(b in prop::collection::vec(-1e6f64..1e6, 1..80)) {
            let x = conjugate_gradients(chain, &b, &vec![2.5; b.len()], RESIDUAL_PART, 200);
            prop_assert_eq!(verify(chain, &b, &x), Ok(()));
            let off: Vec<f64> = x.iter().map(|x| 1.01 * x).collect();
            prop_assert!(b.iter().all(|b| *b == 0.0) || verify(chain, &b, &off).is_err());
        }
    }
}
