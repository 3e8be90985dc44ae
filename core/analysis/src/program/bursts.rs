//! Path bursts as clusters of what a program does: how often they went through each procedure.
//!
//! Input: the transfers of each burst, by procedure. Output: their sums, the part of each burst in these, and what follows for code that is in
//! no procedure. Complexity: linear in the pairs of a burst and a procedure.

use std::collections::BTreeMap;

use super::{Shape, is_sound};

/// Least number of bursts that have weights.
const BURSTS_MIN: usize = 3;
/// A procedure with this many times its part of timed bursts in other bursts runs when bursts cannot be timed, between system calls
/// for example.
const UNTIMED_TIMES_MAX: f64 = 2.0;
/// Number of standard errors by which a part must exceed that.
const ERRORS: f64 = 2.0;

/// A path burst, or several of which no time is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// The CPU time that the thread itself took for it, in cycles, if that is known.
    pub cycles: Option<f64>,
    /// Number of its transfers of control, in all code.
    pub transfers: f64,
}

/// The path bursts of a selection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bursts {
    /// The bursts. Others refer to them by their index.
    pub all: Vec<Burst>,
    /// The part of the time samples, 0 to 1, that is in recordings without timed bursts.
    pub uncovered_part: f64,
}

impl Bursts {
    fn has_timed(&self) -> bool {
        self.all.iter().any(|burst| burst.cycles.is_some())
    }
}

/// This says how often control left an instruction of a procedure in a burst, to one that is not simply the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstTransfer {
    /// Index of the burst.
    pub burst: usize,
    /// Index of the instruction that control left.
    pub from: usize,
    /// Control left it this often.
    pub count: f64,
}

/// The part of a burst that is in a procedure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstPart {
    /// Index of the burst.
    pub burst: usize,
    /// Number of transfers that [`Shape::transfers`] counts as well.
    pub stepped: f64,
    /// Number of all transfers.
    pub transfers: f64,
}

/// Sums the transfers of a procedure by burst. `is_recorded` is whether [`Shape::transfers`] counts those from an instruction.
pub fn parts(transfers: &[BurstTransfer], is_recorded: impl Fn(usize) -> bool) -> Vec<BurstPart> {
    let mut sums: BTreeMap<usize, BurstPart> = BTreeMap::new();
    for transfer in transfers.iter().filter(|t| is_sound(t.count)) {
        let burst = transfer.burst;
        let sum = sums.entry(burst).or_insert(BurstPart { burst, stepped: 0.0, transfers: 0.0 });
        sum.transfers += transfer.count;
        sum.stepped += if is_recorded(transfer.from) { transfer.count } else { 0.0 };
    }
    sums.into_values().collect()
}

/// This says by how much a number grows with the weight of each burst (an index), relative to that number.
pub type Weights = Vec<(usize, f64)>;

/// Returns for each procedure by how much its number of transfers in bursts grows, relative to that, for each burst that counts once more:
/// a burst (an index) could as well have been taken twice or not at all, and all procedures that it went through have the error in common.
/// The variance that follows is that of a ratio estimate from clusters (W. G. Cochran, Sampling Techniques, 1977, §6.4). `None` for a
/// procedure whose transfers are not from bursts; nothing if there are too few bursts.
pub fn weights(shapes: &[Shape], bursts: &Bursts) -> Vec<Option<Weights>> {
    let mut of_burst = vec![0.0; bursts.all.len()];
    shapes.iter().flat_map(|shape| &shape.parts).for_each(|part| of_burst[part.burst] += part.stepped);
    let number = of_burst.iter().filter(|n| is_sound(**n)).count();
    if number < BURSTS_MIN {
        return vec![Some(Vec::new()); shapes.len()];
    }
    let times = (number as f64 / (number - 1) as f64).sqrt();
    let of = |shape: &Shape| {
        let own = shape.parts.iter().map(|part| part.stepped).sum::<f64>();
        let weight = |part: &BurstPart| (part.burst, times * part.stepped / own);
        is_sound(own).then(|| shape.parts.iter().filter(|part| part.stepped > 0.0).map(weight).collect())
    };
    shapes.iter().map(of).collect()
}

/// Returns the shape of all code that is in none of these procedures, in which there are `samples`: bursts went through it, too,
/// and its time is known by its samples as that of a procedure is. `None` without timed bursts, or if nothing is known of it.
pub fn rest(shapes: &[Shape], bursts: &Bursts, samples: f64) -> Option<Shape> {
    if !bursts.has_timed() {
        return None;
    }
    let sum = |of: fn(&Shape) -> f64| shapes.iter().map(of).filter(|n| is_sound(*n)).sum::<f64>();
    let mut left: Vec<f64> = bursts.all.iter().map(|burst| burst.transfers).collect();
    shapes.iter().flat_map(|shape| &shape.parts).for_each(|part| left[part.burst] -= part.transfers);
    let parts: Vec<BurstPart> = (0..)
        .zip(&left)
        .filter(|(_, left)| is_sound(**left))
        .map(|(burst, left)| BurstPart { burst, stepped: *left, transfers: *left })
        .collect();
    let transfers = samples * sum(|s| s.transfers) / sum(|s| s.samples);
    let stepped = parts.iter().map(|part| part.stepped).sum();
    let is_known = is_sound(samples) && is_sound(stepped) && is_sound(transfers);
    is_known.then(|| Shape {
        transfers,
        stepped,
        headroom: f64::INFINITY,
        samples,
        parts,
        ..Shape::default()
    })
}

/// Returns whether each procedure runs largely when bursts cannot be timed, so that timed bursts say little of it. All bursts count
/// alike, whatever their length.
pub fn runs_untimed(shapes: &[Shape], bursts: &Bursts) -> Vec<bool> {
    let is_sound = |burst: &&Burst| is_sound(burst.transfers);
    let [timed, untimed] = [true, false].map(|is_timed| {
        bursts.all.iter().filter(is_sound).filter(|burst| burst.cycles.is_some() == is_timed).count() as f64
    });
    let of = |shape: &Shape| {
        let mut parts = [0.0; 2];
        for part in &shape.parts {
            let burst = &bursts.all[part.burst];
            parts[usize::from(burst.cycles.is_none())] += part.transfers / burst.transfers;
        }
        let [timed, untimed_part] = [parts[0] / timed, parts[1] / untimed];
        // What a burst goes through is far from independent: as if it were all or nothing.
        let error = (untimed_part * (1.0 - untimed_part).max(0.0) / untimed).sqrt();
        untimed_part - ERRORS * error > UNTIMED_TIMES_MAX * timed
    };
    shapes.iter().map(of).collect()
}
