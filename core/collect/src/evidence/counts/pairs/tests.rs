//! Tests pairs on simulated threads: for each shape of loop, the estimate is right or absent.

use super::*;
use crate::{evidence::counts::loops::RegisterSet, random::Random};

const RSI: usize = 4;
const RDI: usize = 5;
const RSP: usize = 7;

/// Returns a counter of a loop of four instructions that counts in rdi and writes no other register.
fn counter(step: i64, width_bits: u32) -> Counter {
    let rdi = Register::of_number(7).unwrap();
    Counter {
        writer: 4,
        register: rdi,
        step: Step::Constant(step),
        parts: 1,
        width_bits,
        body: std::iter::once(0..16).collect(),
        exits: vec![16],
        invariants: RegisterSet::all().without([rdi].into_iter().collect()),
        has_calls: false,
        instructions_min: 4,
    }
}

fn registers(rdi: u64, rsi: u64, rsp: u64) -> Registers {
    let mut registers = Registers([0; crate::registers::REGISTER_COUNT]);
    (registers.0[RDI], registers.0[RSI], registers.0[RSP]) = (rdi, rsi, rsp);
    registers
}

#[test]
fn pairs_are_exact_or_refused() {
    let check =
        |counter: &Counter, before: Registers, after: Registers| executions(counter, &before, &after, 1_000);
    let by = |step, bits| counter(step, bits);
    assert_eq!(check(&by(8, 64), registers(80, 1, 9), registers(880, 1, 9)), Ok(100));
    assert_eq!(check(&by(8, 64), registers(80, 1, 9), registers(80, 1, 9)), Ok(0));
    assert_eq!(check(&by(-8, 64), registers(880, 1, 9), registers(80, 1, 9)), Ok(100));
    assert_eq!(check(&by(8, 64), registers(880, 1, 9), registers(80, 1, 9)), Err(Mismatch::Backward));
    assert_eq!(check(&by(8, 64), registers(80, 1, 9), registers(84, 1, 9)), Err(Mismatch::Step));
    assert_eq!(check(&by(8, 64), registers(80, 1, 9), registers(800_080, 1, 9)), Err(Mismatch::Fast));
    assert_eq!(check(&by(8, 64), registers(80, 1, 9), registers(880, 2, 9)), Err(Mismatch::Activation));
    assert_eq!(check(&by(8, 64), registers(80, 1, 9), registers(880, 1, 8)), Err(Mismatch::Activation));
    // The counter wraps at 32 bits, and the upper half is ignored.
    assert_eq!(check(&by(1, 32), registers(0xffff_fff0, 1, 9), registers(0x10, 1, 9)), Ok(0x20));
    assert_eq!(check(&by(-1, 32), registers(0x10, 1, 9), registers(0xffff_fff0, 1, 9)), Ok(0x20));
    let of_register = Counter { step: Step::Negated(Register::of_number(6).unwrap()), ..by(1, 64) };
    assert_eq!(check(&of_register, registers(500, 5, 9), registers(0, 5, 9)), Ok(100));
    assert_eq!(check(&of_register, registers(500, 0, 9), registers(0, 0, 9)), Err(Mismatch::Step));
    let of_two = Counter { parts: 2, step: Step::Constant(2), ..by(2, 64) };
    assert_eq!(check(&of_two, registers(1, 5, 9), registers(100, 5, 9)), Ok(49));
}

/// The behaviour of a simulated thread, with times in ns.
#[derive(Clone, Copy)]
struct Shape {
    /// Duration of an iteration of the loop.
    iteration_ns: f64,
    /// Mean duration of an activation.
    activation_ns: f64,
    varies: bool,
    /// Time that the thread spends outside of the loop between two activations.
    elsewhere_ns: f64,
    /// `None` if the counter begins each activation at the same value; otherwise its distance from the last value.
    goes_on: Option<u64>,
    /// Whether another register changes with each activation.
    has_witness: bool,
}

/// Simulates threads for some seconds, with a sample each millisecond. Returns the ratio of the estimate to the true
/// executions, or the reason why there is no estimate.
fn simulate(shape: Shape, seed: u64, jitter: f64) -> Result<f64, &'static str> {
    let counters = [counter(8, 64)];
    let (id, execution) = (CounterId(0), ExecutionId(1));
    let mut random = Random::new(seed);
    let (mut pairs, mut exits, mut truth, mut total) = (Pairs::default(), Exits::default(), 0.0, 0);
    for tid in 0..3 {
        let (mut now, mut sample_at, mut rdi, mut witness) = (0.0, 1e6 * random.uniform(), 4096.0, 0);
        let mut window_at = 5e6;
        while now < 1e9 {
            let length = shape.activation_ns * if shape.varies { random.delay(1.0) } else { 1.0 };
            let begin = now;
            while sample_at < begin + length {
                let value = rdi + 8.0 * ((sample_at - begin) / shape.iteration_ns).floor();
                let registers = registers(value as u64, witness, 99);
                total += 1;
                let seen =
                    Seen { tid: Tid(tid), execution, time_ns: sample_at as u64, registers: &registers };
                pairs.sample(&counters, &[id], seen);
                sample_at += 1e6 * (1.0 + jitter * (random.uniform() - 0.5));
            }
            now = begin + length;
            let iterations = (length / shape.iteration_ns).floor();
            truth += iterations;
            rdi = shape.goes_on.map_or(4096.0, |further| rdi + 8.0 * (iterations + further as f64));
            witness += u64::from(shape.has_witness);
            if begin > window_at {
                // A window of 3 ms begins at a moment of this activation.
                let left = length * random.uniform();
                let round = shape.activation_ns + shape.elsewhere_ns;
                let times = if left > 3e6 { 0.0 } else { 1.0 + ((3e6 - left) / round).floor() };
                exits.add(&counters[0], 3_000_000, times as u64);
                window_at = begin + 20e6;
            }
            let until = now + shape.elsewhere_ns;
            while sample_at < until {
                total += 1;
                let registers = registers(1, 1, 50);
                let seen =
                    Seen { tid: Tid(tid), execution, time_ns: sample_at as u64, registers: &registers };
                pairs.sample(&counters, &[], seen);
                sample_at += 1e6 * (1.0 + jitter * (random.uniform() - 0.5));
            }
            now = until;
        }
    }
    let tally = pairs.take(&|_| true).remove(&(id, execution)).unwrap_or_default();
    tally.judge(&counters[0], &exits, total).map(|(executions, _)| executions / truth)
}

const LONG: Shape = Shape {
    iteration_ns: 3.7,
    activation_ns: 20e6,
    varies: true,
    elsewhere_ns: 0.0,
    goes_on: None,
    has_witness: false,
};

#[test]
fn long_activations_are_counted() {
    let shapes = [
        LONG,
        Shape { varies: false, has_witness: true, ..LONG },
        Shape { elsewhere_ns: 5e6, goes_on: Some(100), ..LONG },
        Shape { iteration_ns: 300.0, activation_ns: 200e6, ..LONG },
    ];
    for (number, shape) in shapes.into_iter().enumerate() {
        for seed in 1..8 {
            let over_true = simulate(shape, seed, 0.04);
            assert!(over_true.is_ok_and(|over| (over - 1.0).abs() < 0.05), "{number} {seed}: {over_true:?}");
        }
    }
}

#[test]
fn unreliable_estimates_are_absent() {
    let shapes = [
        // Activations last nearly as long as a sampling period, so each sample finds the counter slightly further (aliasing).
        Shape { activation_ns: 0.97e6, varies: false, ..LONG },
        Shape { activation_ns: 0.3233e6, varies: false, ..LONG },
        // Activations are short and continue from the pointer that other code has advanced.
        Shape { activation_ns: 2_000.0, goes_on: Some(300), ..LONG },
        Shape { activation_ns: 2_000.0, goes_on: Some(300), elsewhere_ns: 40.0, ..LONG },
        Shape { activation_ns: 0.2e6, goes_on: Some(30_000), elsewhere_ns: 1_000.0, ..LONG },
        Shape { activation_ns: 5_000.0, ..LONG },
        Shape { activation_ns: 0.5e6, elsewhere_ns: 10e6, ..LONG },
    ];
    for (number, shape) in shapes.into_iter().enumerate() {
        for (seed, jitter) in (1..5).flat_map(|seed| [(seed, 0.0), (seed, 0.04)]) {
            let over_true = simulate(shape, seed, jitter);
            assert!(over_true.is_err(), "{number} {seed} {jitter}: {over_true:?}");
        }
    }
}

#[test]
fn estimates_are_right_or_absent_for_any_shape() {
    let mut random = Random::new(77);
    for seed in 1..60 {
        let mut among = |low: f64, high: f64| low * (high / low).powf(random.uniform());
        let shape = Shape {
            iteration_ns: among(0.3, 500.0),
            activation_ns: among(3e3, 100e6),
            elsewhere_ns: among(10.0, 10e6),
            varies: among(1.0, 4.0) > 2.0,
            goes_on: (among(1.0, 4.0) > 2.0).then_some(among(1.0, 1e4) as u64),
            has_witness: among(1.0, 4.0) > 2.0,
        };
        if let Ok(over) = simulate(shape, seed, 0.04) {
            assert!((over - 1.0).abs() < 0.1, "{seed}: {over}");
        }
    }
}

#[test]
fn without_windows_no_counter_is_believed() {
    let tally =
        Tally { samples: 1000, pairs: 990, executions: 1 << 30, apart_ns: 1 << 30, ..Tally::default() };
    let mut exits = Exits::default();
    let counter = counter(1, 64);
    assert_eq!(tally.judge(&counter, &exits, 1000), Err("exits not watched"));
    (0..2).for_each(|_| exits.add(&counter, 5_000_000, 0));
    assert_eq!(tally.judge(&counter, &exits, 1000), Err("exits not watched"));
    exits.add(&counter, 5_000_000, 0);
    assert!(tally.judge(&counter, &exits, 1000).is_ok());
    assert_eq!(tally.judge(&counter, &exits, 1_000_000), Err("little time"));
    let endless = Counter { exits: Vec::new(), ..counter.clone() };
    assert!(tally.judge(&endless, &Exits::default(), 1000).is_ok());
    let many = Counter { exits: (100..120).collect(), ..counter };
    assert_eq!(tally.judge(&many, &exits, 1000), Err("many exits"));
}

#[test]
fn executions_of_dropped_samples_are_extrapolated_with_an_error() {
    let endless = Counter { exits: Vec::new(), ..counter(1, 64) };
    let judge = |dropped| {
        let tally = Tally { samples: 1000, dropped, pairs: 1000, executions: 5_000_000, ..Tally::default() };
        tally.judge(&endless, &Exits::default(), 1000).unwrap()
    };
    let (all, certain) = judge(0);
    let (with_dropped, less_certain) = judge(20);
    assert!((all - 5e6).abs() < 1.0 && (with_dropped / all - 1.02).abs() < 1e-6);
    // That the loop stood still in the time of these samples is not excluded.
    assert!(certain < less_certain && 2.0 * less_certain > 0.02, "{less_certain}");

    let mut pairs = Pairs::default();
    pairs.dropped(CounterId(0), ExecutionId(1));
    pairs.dropped(CounterId(0), ExecutionId(1));
    let tally = pairs.take(&|_| true).remove(&(CounterId(0), ExecutionId(1))).unwrap();
    assert_eq!(tally, Tally { dropped: 2, ..Tally::default() });
}

#[test]
fn a_call_is_not_an_exit_of_the_loop() {
    let counters = [Counter { has_calls: true, ..counter(8, 64) }];
    let (id, execution) = (CounterId(0), ExecutionId(1));
    let mut pairs = Pairs::default();
    let at = |pairs: &mut Pairs, time_ns, within: &[CounterId], registers: Registers| {
        pairs.sample(&counters, within, Seen { tid: Tid(1), execution, time_ns, registers: &registers });
    };
    at(&mut pairs, 0, &[id], registers(8, 1, 100));
    at(&mut pairs, 1_000, &[], registers(0, 0, 60));
    at(&mut pairs, 2_000, &[id], registers(88, 1, 100));
    at(&mut pairs, 3_000, &[], registers(0, 0, 180));
    at(&mut pairs, 4_000, &[id], registers(168, 1, 100));
    let tally = pairs.take(&|_| true).remove(&(id, execution)).unwrap();
    assert_eq!((tally.samples, tally.pairs, tally.executions), (3, 1, 10));
    assert_eq!(tally.mismatches, BTreeMap::from([(Mismatch::Left, 1)]));
}
