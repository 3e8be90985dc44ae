//! Ground truth by simulation: random programs whose frequencies and stalls are known, seeded samples, a bound on the
//! error.

use std::{collections::BTreeMap, fmt::Write};

use dwell_analysis::{
    MachineModel, ProcedureAnalysis, Transfer, cfg::Cfg, cfg::EdgeKind, schedule::Schedule,
};
use dwell_image::{Arch, Flow, Instruction};

use crate::{asm::assemble, pipeline, show::Case};

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): small, and the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Poisson: exact for small means, normal for large.
    pub fn poisson(&mut self, mean: f64) -> u64 {
        if mean > 50.0 {
            let normal =
                (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
            return (mean + mean.sqrt() * normal).round().max(0.0) as u64;
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.unit(), 0);
        while product > limit {
            product *= self.unit();
            count += 1;
        }
        count
    }
}

/// A structured program with each instruction's executions and each branch's probability to be taken.
pub struct Program<'r> {
    random: &'r mut Random,
    arch: Arch,
    pub text: String,
    executions: Vec<f64>,
    pub taken: BTreeMap<usize, f64>,
    labels: usize,
}

impl Program<'_> {
    pub fn generate(random: &mut Random, arch: Arch, entries: f64) -> Program<'_> {
        let mut program = Program {
            random,
            arch,
            text: String::new(),
            executions: vec![],
            taken: BTreeMap::new(),
            labels: 0,
        };
        program.region(entries, 3);
        program.emit("ret", entries);
        program
    }

    fn emit(&mut self, line: &str, executions: f64) {
        writeln!(self.text, "{line}").unwrap();
        self.executions.push(executions);
    }

    fn label(&mut self) -> String {
        self.labels += 1;
        format!("l{}", self.labels)
    }

    fn straight(&mut self, executions: f64) {
        const A64: [&str; 6] = [
            "add x1, x2, x3",
            "eor x4, x1, x5",
            "ldr x6, [x7]",
            "str x6, [x8]",
            "sub x9, x6, x1",
            "mul x2, x4, x9",
        ];
        const X86: [&str; 6] = [
            "add rax, rbx",
            "mov rsi, [rdi]",
            "mov [rdx], rax",
            "sub r8, rax",
            "imul r9, r8",
            "lea rbx, [rax + 8]",
        ];
        let lines = if self.arch == Arch::X86_64 { X86 } else { A64 };
        for _ in 0..2 + self.random.below(8) {
            let line = lines[self.random.below(6)];
            self.emit(line, executions);
        }
    }

    fn branch(&mut self, to: &str, executions: f64, p: f64) {
        let (compare, branch) =
            if self.arch == Arch::X86_64 { ("cmp r14, r15", "jne") } else { ("cmp x20, x21", "b.ne") };
        self.emit(compare, executions);
        self.taken.insert(self.executions.len(), p);
        self.emit(&format!("{branch} {to}"), executions);
    }

    fn region(&mut self, executions: f64, depth: usize) {
        for _ in 0..1 + self.random.below(3) {
            self.straight(executions);
            match if depth == 0 { 9 } else { self.random.below(4) } {
                0 | 1 => self.diamond(executions, depth),
                2 => self.repeat(executions, depth),
                _ => {}
            }
        }
    }

    fn diamond(&mut self, executions: f64, depth: usize) {
        let (other, join) = (self.label(), self.label());
        let p = [0.02, 0.3, 0.5, 0.8, 0.97][self.random.below(5)];
        self.branch(&other, executions, p);
        self.region(executions * (1.0 - p), depth - 1);
        let jump = if self.arch == Arch::X86_64 { "jmp" } else { "b" };
        self.emit(&format!("{jump} {join}"), executions * (1.0 - p));
        writeln!(self.text, "{other}:").unwrap();
        self.region(executions * p, depth - 1);
        writeln!(self.text, "{join}:").unwrap();
    }

    fn repeat(&mut self, executions: f64, depth: usize) {
        let head = self.label();
        let trips = [2.0, 5.0, 20.0][self.random.below(3)];
        writeln!(self.text, "{head}:").unwrap();
        self.region(executions * trips, depth - 1);
        self.branch(&head, executions * trips, 1.0 - 1.0 / trips);
    }
}

/// A program that a pipeline executed.
struct Executed {
    case: Case<'static>,
    run: pipeline::Run,
    random: Random,
}

impl Executed {
    fn new(seed: u64) -> Executed {
        let mut random = Random(seed ^ 0x5eed);
        let program = Program::generate(&mut random, Arch::Aarch64, 1.0);
        let (text, taken) = (program.text, program.taken);
        let case = Case::new("generic-inorder-2", Arch::Aarch64, assemble(Arch::Aarch64, &text));
        let run = pipeline::execute(&case.instructions, &taken, &mut random, 60_000);
        Executed { case, run, random }
    }

    /// Parts of the samples whose frequency is within 5, 10 and 15% of the truth, for so many samples an instruction.
    fn shares(&mut self, samples_each: f64) -> [f64; 3] {
        let cycles: f64 = self.run.head_cycles.iter().sum();
        let period = cycles / (samples_each * self.case.instructions.len() as f64);
        self.case.samples = self.run.head_cycles.iter().map(|c| self.random.poisson(c / period)).collect();
        let total: u64 = self.case.samples.iter().sum();
        let mut shares = [0.0; 3];
        let analysis = self.case.analyze();
        for (i, cost) in
            analysis.instructions.iter().enumerate().filter(|(i, _)| self.run.executions[*i] > 0.0)
        {
            let error = (cost.frequency.unwrap_or(0.0) * period / self.run.executions[i] - 1.0).abs();
            for (share, limit) in shares.iter_mut().zip([0.05, 0.1, 0.15]) {
                *share += if error <= limit { self.case.samples[i] as f64 / total as f64 } else { 0.0 };
            }
        }
        shares
    }
}

#[test]
fn executed_programs_are_near_the_truth() {
    const PROGRAMS: u64 = 40;
    let mut means = [[0.0; 3]; 2];
    for seed in 0..PROGRAMS {
        let mut executed = Executed::new(seed);
        for (mean, samples_each) in means.iter_mut().zip([1000.0, 100.0]) {
            let shares = executed.shares(samples_each);
            mean.iter_mut().zip(shares).for_each(|(m, s)| *m += s / PROGRAMS as f64);
        }
    }
    println!("executed, many samples and a tenth: {means:.3?}");
    assert!(means[0][0] > 0.88 && means[0][1] > 0.93 && means[1][1] > 0.88, "{means:.3?}");
}

struct Trial {
    analysis: ProcedureAnalysis,
    truth: Vec<f64>,
    samples: Vec<u64>,
}

const PERIOD_CYCLES: f64 = 100_000.0;

/// Evidence in addition to samples of time.
#[derive(Clone, Copy, PartialEq)]
enum Help {
    None,
    Directions,
    Steps,
}

fn steps(
    random: &mut Random,
    instructions: &[Instruction],
    branch: usize,
    seen: f64,
    p: f64,
) -> [Transfer; 2] {
    let Flow::Branch { target } = instructions[branch].flow else { panic!("instruction {branch} branches") };
    let to = instructions.iter().position(|i| i.address == target).expect("inside");
    let mut transfer =
        |to, mean: f64| Transfer { from: branch, to: Some(to), count: random.poisson(mean) as f64 };
    [transfer(to, 10.0 * seen * p), transfer(branch + 1, 10.0 * seen * (1.0 - p))]
}

fn run(machine: &'static str, arch: Arch, seed: u64, help: Help) -> Trial {
    let mut random = Random(seed);
    let entries = 2e7 * 10f64.powf(1.5 * random.unit());
    let program = Program::generate(&mut random, arch, entries);
    let (text, truth, taken) = (program.text, program.executions, program.taken);
    let mut case = Case::new(machine, arch, assemble(arch, &text));
    let model = MachineModel::named(machine).unwrap();
    let cfg = Cfg::build(&case.instructions, &case.jump_targets);
    let schedule = Schedule::new(model, arch, &case.instructions, &cfg);
    // Cycles at the head: the number that the model expects, and for some instructions a dynamic stall with a
    // log-uniform length.
    let is_out_of_order = model.name().contains("amd");
    let cycles: Vec<f64> = (0..truth.len())
        .map(|i| {
            let expected =
                if is_out_of_order { schedule.expected_cycles(i) } else { schedule.issue_cycles_min[i] };
            let stalls = random.unit() < 0.25 && expected > 0.0;
            expected + if stalls { 100f64.powf(random.unit()) - 0.9 } else { 0.0 }
        })
        .collect();
    let heads: Vec<f64> = truth.iter().zip(&cycles).map(|(f, c)| f * c / PERIOD_CYCLES).collect();
    let landed = if is_out_of_order { skid(&cfg, &truth, &taken, &schedule, &heads) } else { heads };
    case.samples = landed.iter().map(|&mean| random.poisson(mean)).collect();
    for (&branch, &p) in &taken {
        let seen = truth[branch] / PERIOD_CYCLES * 0.3;
        match help {
            Help::None => {}
            Help::Directions => {
                // Samples favour the slower direction, so their odds are distorted, as was measured on native programs.
                let odds = p / (1.0 - p) * (1.4 * (random.unit() - 0.5)).exp();
                let p = odds / (1.0 + odds);
                case.directions[branch] = (random.poisson(seen * p), random.poisson(seen * (1.0 - p)));
            }
            Help::Steps => case.transfers.extend(steps(&mut random, &case.instructions, branch, seen, p)),
        }
    }
    Trial { analysis: case.analyze(), truth, samples: case.samples }
}

/// Samples land one instruction later, along the edges that are taken; a fused pair counts as one.
fn skid(
    cfg: &Cfg,
    truth: &[f64],
    taken: &BTreeMap<usize, f64>,
    schedule: &Schedule,
    heads: &[f64],
) -> Vec<f64> {
    let mut landed = vec![0.0; heads.len()];
    for range in &cfg.blocks {
        for i in range.clone() {
            let next = if schedule.is_fused.get(i + 1) == Some(&true) { i + 2 } else { i + 1 };
            if next < range.end {
                landed[next] += heads[i];
                continue;
            }
            let block = cfg.blocks.partition_point(|b| b.start <= i) - 1;
            for &e in &cfg.successors[block] {
                let p = match (cfg.edges[e].kind, taken.get(&(range.end - 1))) {
                    (EdgeKind::Taken, Some(p)) => *p,
                    (EdgeKind::NotTaken, Some(p)) => 1.0 - p,
                    _ => 1.0,
                };
                // Samples that skid out of the procedure belong to the caller; samples that skid in from the caller are
                // not simulated.
                if let Some(to) = cfg.blocks.get(cfg.edges[e].to) {
                    landed[to.start] += heads[i] * p;
                }
            }
        }
    }
    assert!(landed.len() == truth.len());
    landed
}

/// Parts of the samples whose frequency is within 10% and 15% of the truth, up to `scale`.
fn within(trial: &Trial, scale: f64) -> (f64, f64) {
    let (mut total, mut ten, mut fifteen) = (0.0, 0.0, 0.0);
    for (i, cost) in trial.analysis.instructions.iter().enumerate() {
        let samples = trial.samples[i] as f64;
        let estimate = cost.frequency.unwrap_or(0.0) * PERIOD_CYCLES * scale;
        let error = (estimate / trial.truth[i] - 1.0).abs();
        total += samples;
        ten += if error <= 0.10 { samples } else { 0.0 };
        fifteen += if error <= 0.15 { samples } else { 0.0 };
    }
    (ten / total, fifteen / total)
}

/// The best of some scales: what is judged then is the ratio between blocks.
fn within_up_to_scale(trial: &Trial) -> (f64, f64) {
    let scales = (0..350).map(|k| 10f64.powf(-2.5 + f64::from(k) * 0.01));
    scales.map(|s| within(trial, s)).fold((0.0, 0.0), |best, w| if w.0 > best.0 { w } else { best })
}

fn mean(values: impl ExactSizeIterator<Item = (f64, f64)>) -> (f64, f64) {
    let n = values.len() as f64;
    values.fold((0.0, 0.0), |sum, v| (sum.0 + v.0 / n, sum.1 + v.1 / n))
}

#[test]
fn in_order_frequencies_are_near_the_truth() {
    let (ten, fifteen) = mean(
        (0..60u32).map(|seed| within(&run("generic-inorder-2", Arch::Aarch64, seed.into(), Help::None), 1.0)),
    );
    println!("in order: {ten:.3} within 10%, {fifteen:.3} within 15%");
    assert!(ten > 0.95 && fifteen > 0.97, "{ten:.3} {fifteen:.3}");
}

#[test]
fn out_of_order_seen_branches_give_ratios() {
    let of = |help| {
        mean((0..60u32).map(|seed| within_up_to_scale(&run("amd-zen4", Arch::X86_64, seed.into(), help))))
    };
    let (steps, directions, none) = (of(Help::Steps), of(Help::Directions), of(Help::None));
    println!(
        "out of order, up to scale: {steps:.3?} with steps, {directions:.3?} with directions, {none:.3?} without"
    );
    assert!(steps.0 > 0.85 && steps.0 > none.0 + 0.2, "{steps:.3?} {none:.3?}");
    assert!(directions.0 > none.0, "{directions:.3?} {none:.3?}");
}

#[test]
fn out_of_order_flow_is_conserved() {
    for seed in 0..40 {
        let trial = run("amd-zen4", Arch::X86_64, seed, if seed % 2 == 0 { Help::Steps } else { Help::None });
        let total: f64 = trial.analysis.instructions.iter().map(|i| i.head_samples).sum();
        let samples: u64 = trial.samples.iter().sum();
        assert!((total - samples as f64).abs() < 1e-6 * total, "no sample is lost to the skid");
        let blocks = &trial.analysis.blocks;
        let mut entering = vec![0.0; blocks.len()];
        trial.analysis.edges.iter().for_each(|e| entering[e.to] += e.frequency.unwrap());
        // The first block is also entered from outside of the procedure.
        for (b, block) in blocks.iter().enumerate().skip(1) {
            let frequency = block.frequency.unwrap();
            assert!((entering[b] - frequency).abs() <= 1e-6 * frequency, "seed {seed}, block {b}");
        }
    }
}

#[test]
fn high_confidence_is_usually_right() {
    let (mut high, mut right) = (0.0, 0.0);
    for seed in 100..160 {
        let trial = run("generic-inorder-2", Arch::Aarch64, seed, Help::None);
        for (i, cost) in trial.analysis.instructions.iter().enumerate() {
            if cost.confidence == dwell_analysis::Confidence::High {
                let error = (cost.frequency.unwrap() * PERIOD_CYCLES / trial.truth[i] - 1.0).abs();
                high += trial.samples[i] as f64;
                right += if error <= 0.15 { trial.samples[i] as f64 } else { 0.0 };
            }
        }
    }
    println!("of samples with high confidence {:.3} are within 15%", right / high);
    assert!(high > 0.0 && right / high > 0.95, "{right} of {high}");
}

/// Samples of time alone do not fix the scale, so no estimate may claim to know it.
#[test]
fn out_of_order_claims_are_modest() {
    for seed in 200..220 {
        let trial = run("amd-zen4", Arch::X86_64, seed, Help::Directions);
        let is_low = |c: &dwell_analysis::InstructionCost| c.confidence == dwell_analysis::Confidence::Low;
        assert!(trial.analysis.instructions.iter().all(is_low), "seed {seed}");
    }
}

/// In order as out of order: what enters a block leaves it, whatever was sampled.
#[test]
fn in_order_flow_is_conserved() {
    for seed in 0..40 {
        let trial = run("generic-inorder-2", Arch::Aarch64, seed, Help::None);
        let blocks = &trial.analysis.blocks;
        let mut entering = vec![0.0; blocks.len()];
        trial.analysis.edges.iter().for_each(|e| entering[e.to] += e.frequency.unwrap());
        for (b, block) in blocks.iter().enumerate().skip(1) {
            let frequency = block.frequency.unwrap();
            assert!((entering[b] - frequency).abs() <= 1e-6 * frequency, "seed {seed}, block {b}");
        }
    }
}

/// Ten times the samples are ten times the frequency, where an estimate is sure of itself.
#[test]
fn in_order_frequencies_scale_with_samples() {
    for seed in 0..10 {
        let mut executed = Executed::new(seed);
        executed.shares(3e4);
        let once = executed.case.analyze();
        executed.case.samples.iter_mut().for_each(|s| *s *= 10);
        let tenfold = executed.case.analyze();
        let sure = |b: &dwell_analysis::Block| b.confidence == dwell_analysis::Confidence::High;
        for (b, (one, ten)) in once.blocks.iter().zip(&tenfold.blocks).enumerate().filter(|(_, p)| sure(p.0))
        {
            let ratio = ten.frequency.unwrap() / one.frequency.unwrap();
            assert!((ratio / 10.0 - 1.0).abs() < 0.1, "seed {seed}, block {b}: {ratio}");
        }
    }
}
