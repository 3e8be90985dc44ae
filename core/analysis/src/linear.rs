//! Linear systems that are too large to write down (Hestenes and Stiefel, "Methods of Conjugate Gradients for Solving
//! Linear Systems", 1952).
//!
//! Input: a symmetric positive definite matrix as what it does to a vector, and a right side. Output: a solution, near
//! enough. Complexity: a bounded number of applications.

/// Solves `apply(x) = b` approximately, for a symmetric positive definite `apply`, by conjugate gradients preconditioned
/// by a diagonal (Hestenes and Stiefel, 1952). Complexity: `steps_max` applications at most.
pub fn conjugate_gradients(
    apply: impl Fn(&[f64]) -> Vec<f64>,
    b: &[f64],
    diagonal: &[f64],
    steps_max: usize,
) -> Vec<f64> {
    const RESIDUAL_PART: f64 = 1e-3;
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let precondition = |r: &[f64]| r.iter().zip(diagonal).map(|(r, d)| r / d).collect::<Vec<f64>>();
    let (mut x, mut residual) = (vec![0.0; b.len()], b.to_vec());
    let mut z = precondition(&residual);
    let mut direction = z.clone();
    let mut product = dot(&residual, &z);
    let target = product * RESIDUAL_PART * RESIDUAL_PART;
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
