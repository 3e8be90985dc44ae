//! The evidence of estimates besides samples of time, as numbers and in words.

use super::{Evidence, absolute, counted};
use crate::Basis;

/// Counts the evidence of each kind.
pub fn from_evidence(evidence: &Evidence) -> Basis {
    let sum = |counts: &mut dyn Iterator<Item = u64>| counts.fold(0u64, u64::saturating_add);
    Basis {
        directions: sum(&mut evidence.directions.iter().flat_map(|&(t, n)| [t, n])),
        steps: evidence.transfers.iter().filter(|t| t.is_sound()).fold(0.0, |sum, t| sum + t.count),
        counted: counted::sound(evidence.counted).count() as u64,
        absolute: absolute::number(evidence),
        retired: evidence.retired.map_or(0, |r| sum(&mut r.samples.iter().copied())),
    }
}

/// Describes the samples of retired instructions.
pub fn retired(basis: &Basis) -> String {
    format!("{} of retired instructions", number(basis.retired, "sample"))
}

/// Describes the absolute counts.
pub fn absolute(basis: &Basis) -> Option<String> {
    (basis.absolute > 0)
        .then(|| format!("executions of {} counted while the program ran", number(basis.absolute, "place")))
}

/// Describes the transfers and breakpoint counts.
pub fn relative(basis: &Basis) -> Vec<String> {
    let steps = basis.steps.round() as u64;
    let breakpoints = || format!("counted windows of {}", number(basis.counted, "place"));
    let seen =
        [(steps > 0).then(|| format!("{steps} stepped transfers")), (basis.counted > 0).then(breakpoints)];
    seen.into_iter().flatten().collect()
}

/// Describes the sampled directions.
pub fn directions(basis: &Basis) -> Option<String> {
    (basis.directions > 0).then(|| number(basis.directions, "sampled direction"))
}

/// Joins parts as "a, b and c". Returns `None` if there are none.
pub fn enumeration(parts: &[String]) -> Option<String> {
    Some(match parts {
        [] => return None,
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        all => all.concat(),
    })
}

fn number(n: u64, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}
