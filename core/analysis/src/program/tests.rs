//! Tests of the scales of a program's procedures.

use proptest::prelude::*;

use super::*;
use crate::{Interval, linear::Signs};

/// Returns the scales without timed bursts.
fn fix(shapes: &[Shape]) -> Vec<OuterScale> {
    scales(shapes, &Bursts::default())
}

fn factors(shapes: &[Shape]) -> Vec<f64> {
    fix(shapes).iter().map(|s| s.factor).collect()
}

/// `main` calls `a` ten times and `b` once; each has its own wrong scale, and `b`'s callee `c` is called by both.
fn shape(entries: f64, calls: &[(usize, f64)]) -> Shape {
    Shape { entries, calls: calls.to_vec(), headroom: 1.0, ..Shape::default() }
}

fn assert_near(factors: &[f64], expected: &[f64], within: f64) {
    let common = factors[0] / expected[0];
    for (f, e) in factors.iter().zip(expected) {
        assert!((f / e / common).ln().abs() < within, "{factors:?} for {expected:?}");
    }
}

#[test]
fn calls_join_scales() {
    let shapes = [
        shape(1.0, &[(1, 10.0), (2, 1.0)]),
        shape(20.0, &[(3, 40.0)]), // twice the true value
        shape(0.5, &[(3, 2.0)]),   // half the true value
        shape(30.0, &[]),
    ];
    let factors = factors(&shapes);
    assert_near(&factors, &[1.0, 0.5, 2.0, 24.0 / 30.0], 0.15);
}

#[test]
fn steps_join_scales() {
    let stepped = |transfers, stepped| Shape { transfers, stepped, ..Shape::default() };
    let factors = factors(&[stepped(10.0, 1e5), stepped(10.0, 3e5), stepped(10.0, 1e4)]);
    assert_near(&factors, &[1.0, 3.0, 0.1], 0.1);
}

#[test]
fn breakpoint_counts_join_the_scales_of_their_group() {
    let window = |group, ratio: f64| CountedShape { group, log: ratio.ln(), variance: 0.001 };
    let counted = |counts: &[CountedShape]| Shape { counted: counts.to_vec(), ..Shape::default() };
    // The first two run in one phase, the other two in another phase, on another scale.
    let factors = factors(&[
        counted(&[window(1, 1e5)]),
        counted(&[window(1, 3e5)]),
        counted(&[window(7, 1e-2)]),
        counted(&[window(7, 2e-2)]),
    ]);
    assert_near(&factors[..2], &[1.0, 3.0], 0.1);
    assert_near(&factors[2..], &[1.0, 2.0], 0.1);
    assert!((factors[0] * factors[1] / (factors[2] * factors[3])).ln().abs() < 0.1, "{factors:?}");
}

#[test]
fn without_evidence_nothing_changes() {
    assert_eq!(factors(&[shape(0.0, &[]), shape(3.0, &[])]), [1.0, 1.0]);
    assert!(fix(&[]).is_empty());
    let odd = [shape(f64::MAX, &[(1, f64::MAX)]), shape(1e-300, &[(0, 1e-300), (1, 5.0)])];
    assert!(factors(&odd).iter().all(|f| f.is_finite() && *f > 0.0));
}

#[test]
fn procedures_joined_to_a_counted_one_become_absolute() {
    let stepped = |transfers, own_deviation| Shape {
        transfers,
        stepped: 1e5,
        own_deviation,
        samples: 1000.0,
        headroom: 10.0,
        ..Shape::default()
    };
    // The guesses of the second and the third are four times too high. No evidence joins the last one to the
    // others.
    let shapes = [stepped(10.0, Some(0.02)), stepped(40.0, None), stepped(40.0, None), shape(7.0, &[])];
    let scales = fix(&shapes);
    assert_near(&factors(&shapes)[..3], &[1.0, 0.25, 0.25], 0.1);
    assert!((scales[0].factor).ln().abs() < 0.02, "{scales:?}");
    let kinds: Vec<ScaleKind> = scales.iter().map(|s| s.kind).collect();
    let absolute = ScaleKind::Absolute;
    assert_eq!(kinds, [absolute, absolute, absolute, ScaleKind::Procedure]);
    assert!((0.05..0.15).contains(&scales[1].deviation), "{scales:?}");
}

#[test]
fn a_counted_procedure_keeps_its_scale() {
    // Pointers call it as well, so the calls that are known are a hundredth of its entries.
    let counted =
        |entries, calls: &[(usize, f64)]| Shape { own_deviation: Some(0.05), ..shape(entries, calls) };
    let callers = (0..40).map(|_| shape(1.0, &[(0, 1.0)]));
    let shapes: Vec<Shape> = std::iter::once(counted(4000.0, &[])).chain(callers).collect();
    let scale = &fix(&shapes)[0];
    assert_eq!((scale.factor, scale.deviation), (1.0, 0.05));
    // What is joined to a count alone is less certain than the count.
    let joined = [counted(10.0, &[(1, 10.0)]), shape(40.0, &[])];
    let scales = fix(&joined);
    assert!((scales[1].factor / 0.25).ln().abs() < 0.05, "{scales:?}");
    assert!((0.1..0.3).contains(&scales[1].deviation), "{scales:?}");
}

#[test]
fn without_counts_frequencies_stay_possible() {
    let stepped =
        |transfers, headroom| Shape { transfers, stepped: 1e5, samples: 9.0, headroom, ..Shape::default() };
    let scales = fix(&[stepped(10.0, 0.5), stepped(10.0, 3.0)]);
    assert!(scales.iter().all(|s| s.kind == ScaleKind::Program), "{scales:?}");
    assert!(scales.iter().all(|s| (s.factor - 0.5).abs() < 0.01), "{scales:?}");
}

/// A procedure of which nothing is known but samples, and that has this many recorded transfers by its own estimate.
fn sampled(samples: f64, transfers: f64) -> Shape {
    Shape { samples, transfers, headroom: 1e9, ..Shape::default() }
}

/// One timed burst: the factor by which its time is off, its transfers in other code, and in each procedure.
type BurstOf<'a> = (f64, f64, &'a [f64]);

/// Lets bursts go through procedures whose own estimates must be multiplied by `truth`.
fn time(shapes: &mut [Shape], truth: &[f64], bursts: &[BurstOf]) -> Bursts {
    let mut timed = Bursts::default();
    for (burst, (times, foreign, counts)) in bursts.iter().enumerate() {
        let (mut cycles, mut own) = (0.0, 0.0);
        for ((shape, truth), &stepped) in shapes.iter_mut().zip(truth).zip(*counts) {
            cycles += stepped * shape.samples / (shape.transfers * truth);
            own += stepped;
            shape.stepped += stepped;
            shape.parts.extend((stepped > 0.0).then_some(BurstPart { burst, stepped, transfers: stepped }));
        }
        let cycles = times * cycles * (own + foreign) / own;
        timed.all.push(Burst { cycles: Some(cycles), transfers: own + foreign });
    }
    timed
}

/// Two procedures and the bursts that went through them: their scales, with true factors of 0.5 and 2.
fn timed_scales(bursts: &[BurstOf]) -> Vec<OuterScale> {
    let mut shapes = [sampled(500.0, 200.0), sampled(400.0, 50.0)];
    let timed = time(&mut shapes, &[0.5, 2.0], bursts);
    scales(&shapes, &timed)
}

fn kinds(scales: &[OuterScale]) -> Vec<ScaleKind> {
    scales.iter().map(|s| s.kind).collect()
}

#[test]
fn timed_bursts_fix_the_scale() {
    let counts = [100e3, 90e3];
    let bursts: Vec<BurstOf> =
        (0..20).map(|b| (if b % 2 == 0 { 1.1 } else { 0.92 }, 0.0, &counts[..])).collect();
    let all = timed_scales(&bursts);
    assert_eq!(kinds(&all), [ScaleKind::Absolute; 2], "{all:?}");
    assert_eq!(
        all[0].evidence,
        ["20 bursts whose time is known", "calls and bursts that join it to other functions"]
    );
    // The counts of the bursts say that the second procedure runs 3.6 times as often as estimated, compared with the
    // first one; it is 4 times in truth.
    for (scale, truth) in all.iter().zip([0.5, 2.0]) {
        assert!((scale.factor / truth).ln().abs() < 0.12, "{all:?}");
        assert!((0.03..0.12).contains(&scale.deviation), "{all:?}");
    }
    // Fewer bursts say less, and four say nothing.
    let few = timed_scales(&bursts[..6]);
    assert!(few[0].deviation > all[0].deviation && few[0].deviation <= 0.2, "{few:?}");
    assert_eq!(kinds(&timed_scales(&bursts[..4])), [ScaleKind::Program; 2]);
}

#[test]
fn code_without_estimates_takes_its_part_of_timed_bursts() {
    let truth = [0.5, 2.0];
    // The first half of the bursts are in other code for a third of their transfers, the others hardly.
    let counts = [100e3, 90e3];
    let bursts: Vec<BurstOf> =
        (0..20).map(|b| (1.0, if b < 10 { 100e3 } else { 1e3 }, &counts[..])).collect();
    let mut shapes = vec![sampled(500.0, 200.0), sampled(400.0, 50.0)];
    let timed = time(&mut shapes, &truth, &bursts);
    let samples = 101.0 / 380.0 * 900.0;
    shapes.extend(rest(&shapes, &timed, samples));
    let all = scales(&shapes, &timed);
    for (scale, truth) in all.iter().zip(truth) {
        assert!(scale.deviation < 0.15 && (scale.factor / truth).ln().abs() < 0.15, "{all:?}");
    }
    // Nothing is known of no samples, or without bursts.
    assert_eq!(rest(&shapes[..2], &timed, 0.0), None);
    assert_eq!(rest(&shapes[..2], &Bursts::default(), samples), None);
}

#[test]
fn one_burst_with_a_wrong_time_matters_little() {
    let counts = [100e3, 100e3];
    let mut bursts: Vec<BurstOf> = vec![(1.0, 0.0, &counts[..]); 9];
    bursts.push((30.0, 0.0, &counts));
    let scales = timed_scales(&bursts);
    assert!((scales[1].factor / 2.0).ln().abs() < 0.05, "{scales:?}");
}

#[test]
fn bursts_that_contradict_each_other_widen_the_deviation() {
    let counts = [100e3, 100e3];
    let apart = |times: f64| {
        let times = [times, 1.0 / times, 1.0];
        let bursts: Vec<BurstOf> = (0..9).map(|b| (times[b % 3], 0.0, &counts[..])).collect();
        timed_scales(&bursts)
    };
    let (near, far) = (apart(1.1), apart(4.0));
    assert_eq!(kinds(&near), [ScaleKind::Absolute; 2]);
    assert_eq!(kinds(&far), [ScaleKind::Program; 2], "{far:?}");
    let mild = apart(1.6);
    assert!(mild[0].deviation > 1.5 * near[0].deviation, "{near:?} {mild:?}");
}

/// Intervals are wider where the times of bursts differ much: all bursts may be slower than the rest of the run then.
#[test]
fn intervals_are_as_wide_as_bursts_are_apart() {
    let counts = [100e3, 100e3];
    let apart = |by: f64| {
        let bursts: Vec<BurstOf> = (0..40)
            .map(|b| (if b % 2 == 0 { 1.0 + by } else { 1.0 / (1.0 + by) }, 0.0, &counts[..]))
            .collect();
        timed_scales(&bursts)[0].deviation
    };
    let (none, little, much) = (apart(0.0), apart(0.03), apart(0.15));
    assert!(none < 0.06 && little < 0.065 && (0.08..0.13).contains(&much), "{none} {little} {much}");
}

#[test]
fn bursts_mostly_in_other_code_are_left_out() {
    let counts = [100e3, 100e3];
    let foreign = |transfers: f64| timed_scales(&vec![(1.0, transfers, &counts[..]); 30]);
    assert_eq!(kinds(&foreign(250e3)), [ScaleKind::Program; 2]);
    let (all, some) = (foreign(0.0), foreign(20e3));
    assert_eq!((kinds(&all), kinds(&some)), (vec![ScaleKind::Absolute; 2], vec![ScaleKind::Absolute; 2]));
    assert!((some[0].factor / all[0].factor).ln().abs() < 0.01);
    // All bursts are wrong alike about the other code, so that many of them are no better.
    assert!(some[0].deviation > all[0].deviation && some[0].deviation > 0.045, "{all:?} {some:?}");
    assert!(foreign(150e3).iter().all(|s| s.deviation > 0.2), "{:?}", foreign(150e3));
}

/// The second procedure runs when bursts cannot be timed: other bursts have it more often.
#[test]
fn a_procedure_that_other_bursts_have_more_often_is_less_certain() {
    let bursts: Vec<BurstOf> = vec![(1.0, 0.0, &[100e3, 90e3]); 20];
    let kinds_of = |part: f64, untimed: usize| {
        let mut shapes = [sampled(500.0, 200.0), sampled(400.0, 50.0)];
        let mut timed = time(&mut shapes, &[0.5, 2.0], &bursts);
        for burst in bursts.len()..bursts.len() + untimed {
            timed.all.push(Burst { cycles: None, transfers: 1000.0 });
            for (shape, transfers) in shapes.iter_mut().zip([1000.0 * (1.0 - part), 1000.0 * part]) {
                shape.parts.push(BurstPart { burst, stepped: transfers, transfers });
            }
        }
        kinds(&scales(&shapes, &timed))
    };
    assert_eq!(kinds_of(0.5, 100), [ScaleKind::Absolute; 2]);
    assert_eq!(kinds_of(0.99, 100), [ScaleKind::Absolute, ScaleKind::Program]);
    // Two bursts say too little.
    assert_eq!(kinds_of(0.97, 2), [ScaleKind::Absolute; 2]);
}

#[test]
fn a_procedure_without_timed_bursts_is_less_certain() {
    let counts = [100e3, 100e3, 0.0, 0.0];
    let bursts: Vec<BurstOf> = vec![(1.0, 0.0, &counts[..]); 30];
    let called = Shape { entries: 60.0, ..sampled(500.0, 200.0) };
    let caller = Shape { calls: vec![(2, 10.0)], ..sampled(500.0, 200.0) };
    let mut shapes = [caller, sampled(400.0, 50.0), called, sampled(500.0, 10.0)];
    let timed = time(&mut shapes, &[0.5, 2.0, 1.0, 1.0], &bursts);
    let scales = scales(&shapes, &timed);
    let expected = [ScaleKind::Absolute, ScaleKind::Absolute, ScaleKind::Absolute, ScaleKind::Procedure];
    assert_eq!(kinds(&scales), expected, "{scales:?}");
    assert!((scales[2].factor / (10.0 * 0.5 / 60.0)).ln().abs() < 0.15, "{scales:?}");
    assert!(scales[2].deviation > 0.14, "a call alone joins it: {scales:?}");
    assert_eq!(scales[3].deviation, f64::INFINITY);
}

#[test]
fn a_procedure_that_few_bursts_went_through_is_less_certain() {
    // Only one burst of 20 goes through the second procedure, so how often it runs is a matter of chance.
    let counts = [[200e3, 0.0], [190e3, 10e3]];
    let bursts: Vec<BurstOf> = (0..20).map(|b| (1.0, 0.0, &counts[usize::from(b == 7)][..])).collect();
    let scales = timed_scales(&bursts);
    assert_eq!(kinds(&scales), [ScaleKind::Absolute, ScaleKind::Program], "{scales:?}");
    // It is not if other bursts, whose time is not known, went through it as often as these all together.
    let even = [190e3, 10e3];
    let all = timed_scales(&[(1.0, 0.0, &even[..]); 20]);
    assert_eq!(kinds(&all), [ScaleKind::Absolute; 2], "{all:?}");
}

/// The executions of one procedure were counted, and each burst went through one of two phases: a long one, and many short ones.
#[test]
fn one_long_burst_says_little_of_other_phases() {
    let kinds_of = |lengths: [f64; 12], first: f64| {
        let mut shapes = [sampled(500.0, 200.0), sampled(400.0, 50.0)];
        shapes[0].own_deviation = Some(0.02);
        let mut bursts = Bursts::default();
        for (burst, length) in lengths.into_iter().enumerate() {
            bursts.all.push(Burst { cycles: None, transfers: length });
            let part = if burst == 0 { first } else { 0.5 };
            for (shape, part) in shapes.iter_mut().zip([part, 1.0 - part]) {
                let stepped = part * length;
                shape.stepped += stepped;
                shape.parts.push(BurstPart { burst, stepped, transfers: stepped });
            }
        }
        kinds(&scales(&shapes, &bursts))
    };
    let (even, mut uneven) = ([60e3; 12], [60e3; 12]);
    assert_eq!(kinds_of(even, 0.5), [ScaleKind::Absolute; 2]);
    uneven[0] = 5e6;
    assert_eq!(kinds_of(uneven, 0.5), [ScaleKind::Absolute; 2]);
    assert_eq!(kinds_of(uneven, 0.9), [ScaleKind::Absolute, ScaleKind::Program]);
}

#[test]
fn timed_bursts_do_not_move_what_was_counted() {
    let counts = [100e3, 100e3];
    let mut shapes = [sampled(500.0, 200.0), sampled(400.0, 50.0)];
    shapes[0].own_deviation = Some(0.02);
    let timed = time(&mut shapes, &[1.0, 4.0], &[(1.2, 0.0, &counts[..]); 10]);
    let scales = scales(&shapes, &timed);
    assert_eq!((scales[0].factor, scales[0].deviation), (1.0, 0.02));
    assert!(scales[0].evidence.is_empty());
    assert!((3.5..4.3).contains(&scales[1].factor), "{scales:?}");
    assert_eq!(scales[1].evidence.len(), 2);
}

#[test]
fn recordings_without_timed_bursts_widen_the_deviation() {
    let counts = [100e3, 100e3];
    let mut shapes = [sampled(500.0, 200.0), sampled(400.0, 50.0)];
    let mut timed = time(&mut shapes, &[0.5, 2.0], &[(1.0, 0.0, &counts[..]); 20]);
    let deviation = |timed: &Bursts| scales(&shapes, timed)[0].deviation;
    let whole = deviation(&timed);
    timed.uncovered_part = 0.5;
    let half = deviation(&timed);
    assert!(half > 0.15 && half > 2.0 * whole, "{half} {whole}");
    timed.uncovered_part = 1.0;
    assert_eq!(deviation(&timed), f64::INFINITY);
}

#[test]
fn transfers_are_summed_by_burst() {
    let timed = |burst, from, count| BurstTransfer { burst, from, count };
    let all = [timed(2, 0, 5.0), timed(0, 1, 3.0), timed(2, 1, 7.0), timed(1, 0, f64::NAN), timed(1, 0, 0.0)];
    let parts = bursts::parts(&all, |from| from == 0);
    let of = |burst, stepped, transfers| BurstPart { burst, stepped, transfers };
    assert_eq!(parts, [of(0, 0.0, 3.0), of(2, 5.0, 12.0)]);
}

/// Programs of 12 procedures with random cycles for a transfer, and bursts that go through them more or less evenly. Each
/// time is off by a random factor. Returns the part of the procedures whose scale is absolute, and the part of these
/// whose 90 % interval contains the truth.
fn simulate(bursts: usize, unevenness: f64, time_deviation: f64) -> (f64, f64) {
    const PROCEDURES: usize = 12;
    const PROGRAMS: usize = 100;
    let mut signs = Signs::new();
    // About normal.
    let mut logs = |deviation: f64| deviation * (0..24).map(|_| signs.next()).sum::<f64>() / 24_f64.sqrt();
    let (mut absolute, mut within) = (0, 0);
    for _ in 0..PROGRAMS {
        let truth: Vec<f64> = (0..PROCEDURES).map(|_| logs(0.5).exp()).collect();
        let often: Vec<f64> = (0..PROCEDURES).map(|_| 1e4 * logs(1.2).exp()).collect();
        let mut shapes: Vec<Shape> = truth
            .iter()
            .zip(&often)
            .map(|(truth, often)| sampled(often * logs(0.5).exp(), 0.2 * often / truth))
            .collect();
        let mut counts = || often.iter().map(|n| n * logs(unevenness).exp()).collect::<Vec<f64>>();
        let counts: Vec<Vec<f64>> = (0..bursts).map(|_| counts()).collect();
        let all: Vec<BurstOf> = counts.iter().map(|c| (logs(time_deviation).exp(), 0.0, &c[..])).collect();
        let timed = time(&mut shapes, &truth, &all);
        for (scale, truth) in scales(&shapes, &timed).iter().zip(&truth) {
            let interval = Interval::about(scale.factor, scale.deviation);
            let is_absolute = scale.kind == ScaleKind::Absolute;
            absolute += usize::from(is_absolute);
            within += usize::from(is_absolute && interval.min < *truth && *truth < interval.max);
        }
    }
    (absolute as f64 / (PROGRAMS * PROCEDURES) as f64, within as f64 / absolute.max(1) as f64)
}

#[test]
fn intervals_of_simulated_programs_contain_the_truth() {
    let check = |bursts, unevenness, time_deviation, absolute_min, absolute_max| {
        let (absolute, within) = simulate(bursts, unevenness, time_deviation);
        let what = format!("{bursts} bursts: {absolute:.2} absolute, {within:.3} of them within");
        assert!(within > 0.85 && (absolute_min..=absolute_max).contains(&absolute), "{what}");
    };
    check(5, 0.3, 0.15, 0.0, 1.0);
    check(10, 0.3, 0.15, 0.8, 1.0);
    check(20, 0.3, 0.15, 0.95, 1.0);
    check(40, 0.3, 0.05, 0.95, 1.0);
    // Times that differ far more than they should, so that all may be wrong alike, and bursts that each go through another part of the
    // program.
    check(20, 0.3, 0.4, 0.3, 0.7);
    check(20, 0.3, 0.25, 0.8, 1.0);
    check(20, 1.0, 0.15, 0.0, 0.4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the numbers are, factors are finite; with sound ones the time of each burst is what the factors make of it.
    #[test]
    fn any_timed_bursts_give_finite_factors(
        counts in prop::collection::vec(prop::collection::vec(0..200_000_u32, 4), 0..12),
        cycles in prop::collection::vec(prop_oneof![1e3..1e8, Just(0.0), Just(f64::MAX), Just(f64::INFINITY)], 12),
        foreign in 0..400_000_u32,
        transfers in prop::collection::vec(prop_oneof![1e-3..1e6, Just(0.0), Just(1e300)], 4),
    ) {
        let mut shapes: Vec<Shape> = transfers.iter().map(|t| sampled(100.0, *t)).collect();
        let mut timed = Bursts::default();
        for (burst, (counts, cycles)) in counts.iter().zip(cycles).enumerate() {
            for (shape, &stepped) in shapes.iter_mut().zip(counts) {
                let (stepped, transfers) = (f64::from(stepped), f64::from(stepped));
                shape.stepped += stepped;
                shape.parts.push(BurstPart { burst, stepped, transfers });
            }
            let transfers = counts.iter().map(|n| f64::from(*n)).sum::<f64>() + f64::from(foreign);
            timed.all.push(Burst { cycles: Some(cycles), transfers });
        }
        for scale in scales(&shapes, &timed) {
            prop_assert!(scale.factor.is_finite() && scale.factor > 0.0 && !scale.deviation.is_nan());
            prop_assert!(scale.kind == ScaleKind::Absolute || scale.deviation == f64::INFINITY);
        }
    }

    #[test]
    fn true_factors_are_recovered(
        truth in prop::collection::vec(-1.5..1.5_f64, 5),
        mixes in prop::collection::vec(prop::collection::vec(0.7..1.3_f64, 5), 12..30),
        errors in prop::collection::vec(-0.15..0.15_f64, 30),
    ) {
        let truth: Vec<f64> = truth.iter().map(|log| log.exp()).collect();
        let mut shapes: Vec<Shape> = truth.iter().map(|f| sampled(300.0, 100.0 / f)).collect();
        let counts: Vec<Vec<f64>> = mixes.iter().map(|mix| mix.iter().map(|m| m * 4e4).collect()).collect();
        let bursts: Vec<BurstOf> =
            counts.iter().zip(&errors).map(|(counts, error)| (error.exp(), 0.0, &counts[..])).collect();
        let timed = time(&mut shapes, &truth, &bursts);
        for (scale, truth) in scales(&shapes, &timed).iter().zip(&truth) {
            prop_assert_eq!(scale.kind, ScaleKind::Absolute);
            let error = (scale.factor / truth).ln().abs();
            prop_assert!(error < 0.2 && error < 4.0 * scale.deviation, "{:?} for {}", scale, truth);
        }
    }
}
