//! The paper, reproduced: the copy loop of DCPI's Figures 2 and 7.
//!
//! No disassembler of ours knows Alpha, so the thirteen instructions are written down as plain data. Their texts are the
//! paper's; their mnemonics are those of AArch64's operations of the same kind, since a class follows from a mnemonic.
//! The imiss event, which DCPI samples by default, is given with no sample in the loop.
//!
//! Deviations from the figures:
//! - M of 009810 is 1 as in Figure 7, though 2 is right, as the paper says itself: a load cannot issue two cycles after
//!   the store at 009838. Neither the paper's scheduler nor our model of the 21164 knows that hazard, so one cycle of
//!   009810 counts as dynamic (`pD`), as in Figure 2.
//! - The half cycle of 00981c is measured, not scheduled: both figures show its samples with M = 0.
//! - Figure 2 prints CPI in half cycles; so do we. What it prints as a bubble's length is the instruction's whole CPI.
//! - Above the loop's head the paper has `pD`. We have `D`: where nothing was sampled before and after the loop, its
//!   branch goes back all but always and cannot be mispredicted often enough. Where that is unknown, `p` stays
//!   ([`without_samples_around_it_the_loop_may_be_mispredicted`]).
//! - DTB misses are ruled out at 009834: the store's page was touched at 009828, the load's at 009810.
//! - The best case is ΣM; [`best_case_cpi`](dwell_analysis::Block::best_case_cpi) counts slots and is 7.25 cycles, since
//!   three slots of the last cycle are left to what follows.

use std::{collections::BTreeMap, fmt::Write};

use dwell_analysis::{
    Cause, MachineModel, Stall, StallKind,
    cfg::Cfg,
    equivalence::Equivalence,
    frequency::{self, Evidence, cluster},
    schedule::Schedule,
};
use dwell_image::{Arch, Flow, ImageAddress, Instruction, MemoryOperand, Operand, Register, RegisterSet};
use dwell_profile::Event;
use expect_test::expect;

use crate::show::Case;

/// Text, mnemonic of the class, samples, registers read, registers written.
type Row = (&'static str, &'static str, u64, &'static [&'static str], &'static [&'static str]);

const LOOP: [Row; 13] = [
    ("ldq    t4, 0(t1)", "ldr", 3126, &["t1"], &["t4"]),
    ("addq   t0, 0x4, t0", "add", 0, &["t0"], &["t0"]),
    ("ldq    t5, 8(t1)", "ldr", 1636, &["t1"], &["t5"]),
    ("ldq    t6, 16(t1)", "ldr", 390, &["t1"], &["t6"]),
    ("ldq    a0, 24(t1)", "ldr", 1482, &["t1"], &["a0"]),
    ("lda    t1, 32(t1)", "add", 0, &["t1"], &["t1"]),
    ("stq    t4, 0(t2)", "str", 27766, &["t4", "t2"], &[]),
    ("cmpult t0, v0, t4", "add", 0, &["t0", "v0"], &["t4"]),
    ("stq    t5, 8(t2)", "str", 1493, &["t5", "t2"], &[]),
    ("stq    t6, 16(t2)", "str", 174_727, &["t6", "t2"], &[]),
    ("stq    a0, 24(t2)", "str", 1548, &["a0", "t2"], &[]),
    ("lda    t2, 32(t2)", "add", 0, &["t2"], &["t2"]),
    ("bne    t4, 0x009810", "cbnz", 1586, &["t4"], &[]),
];

const START: u64 = 0x9810;
/// The loop's first and last instruction in the procedure.
const FIRST: usize = 1;
const LAST: usize = 13;
const TRUE_FREQUENCY: f64 = 1575.1;

fn register(name: &str) -> Register {
    const NAMES: [&str; 7] = ["t0", "t1", "t2", "t4", "t5", "t6", "a0"];
    Register(NAMES.iter().position(|n| *n == name).map_or(0, |n| n as u8 + 1))
}

fn instruction(address: u64, &(text, mnemonic, _, reads, writes): &Row) -> Instruction {
    let set = |names: &[&str]| names.iter().map(|n| register(n)).collect::<RegisterSet>();
    // In `8(t1)`, 8 is a displacement and t1 is a base.
    let memory = text.split_once('(').filter(|_| mnemonic != "add").map(|(before, base)| MemoryOperand {
        base: Some(register(base.trim_end_matches(')'))),
        displacement: before.rsplit(' ').next().and_then(|d| d.parse().ok()).unwrap_or(0),
        scale: 1,
        width_bytes: 8,
        read: mnemonic == "ldr",
        written: mnemonic == "str",
        ..MemoryOperand::default()
    });
    let value = reads.iter().chain(writes).find(|r| text.contains(&format!(" {r},")));
    let value = value.map(|r| Operand::Register { register: register(r), width_bits: 64 });
    Instruction {
        address: ImageAddress(address),
        length: 4,
        mnemonic: mnemonic.into(),
        text: text.into(),
        reads: set(reads),
        writes: set(writes),
        operands: value.into_iter().chain(memory.map(Operand::Memory)).collect(),
        flow: if mnemonic == "cbnz" { Flow::Branch { target: ImageAddress(START) } } else { Flow::Next },
    }
}

/// The loop between what is executed once: without samples, since it is not in the figures.
fn copy_loop() -> Case<'static> {
    let before = ("clr    t0", "mov", 0, &[][..], &["t0"][..]);
    let after = ("ret    (ra)", "ret", 0, &[][..], &[][..]);
    let rows = [before].into_iter().chain(LOOP).chain([after]);
    let rows: Vec<Row> = rows.collect();
    let mut instructions: Vec<Instruction> =
        rows.iter().enumerate().map(|(i, row)| instruction(START + 4 * i as u64 - 4, row)).collect();
    instructions[LAST + 1].flow = Flow::Return;
    let mut case = Case::new("alpha-21164", Arch::Aarch64, instructions);
    case.samples = rows.iter().map(|row| row.2).collect();
    case.period_cycles = Some(62_000.0);
    case.events = BTreeMap::from([(Event::named("L1-icache-load-misses"), (vec![0; LAST + 2], 62_000))]);
    case
}

/// M of each instruction, the issue points, and what the clusters find.
fn clusters(case: &Case) -> (Schedule, cluster::Points, cluster::Found) {
    let model = MachineModel::named(case.machine).unwrap();
    let cfg = Cfg::build(&case.instructions, &case.jump_targets);
    let schedule = Schedule::new(model, case.arch, &case.instructions, &cfg);
    let samples: Vec<f64> = case.samples.iter().map(|&s| s as f64).collect();
    let points = cluster::Points::new(&schedule, &samples, std::iter::once(FIRST..LAST + 1));
    let found = cluster::estimate(&points, model);
    let evidence = Evidence {
        model,
        cfg: &cfg,
        equivalence: &Equivalence::new(&cfg),
        schedule: &schedule,
        samples: &case.samples,
        directions: &case.directions,
        transfers: &[],
        counted: &[],
        retired: None,
        absolute: &[],
        is_anchored: false,
    };
    let whole = frequency::by_clusters(&evidence).blocks[1].unwrap().frequency;
    assert_eq!(whole, found.frequency, "the loop is one class");
    (schedule, points, found)
}

#[test]
fn figure_7() {
    let case = copy_loop();
    let (schedule, points, found) = clusters(&case);
    let mut ratios: Vec<f64> = points.issue_points.iter().map(|p| p.samples / p.cycles).collect();
    ratios.sort_by(f64::total_cmp);
    let chosen = &ratios[..found.points];
    let mut text = String::from("Addr    Instruction             S_i   M_i   S_i/M_i\n");
    for (i, row) in LOOP.iter().enumerate() {
        let m = schedule.issue_cycles_min[FIRST + i];
        let ratio = if m > 0.0 { format!("{:.0}", row.2 as f64 / m) } else { String::new() };
        let is_chosen = m > 0.0 && chosen.contains(&(row.2 as f64 / m));
        let mark = if is_chosen { " *" } else { "" };
        let line =
            format!("{:06x}  {:20} {:>6}   {m:>3}   {ratio:>7}{mark}", START + 4 * i as u64, row.0, row.2);
        writeln!(text, "{}", line.trim_end()).unwrap();
    }
    writeln!(text, "frequency {:.0}, truly {TRUE_FREQUENCY}", found.frequency).unwrap();
    writeln!(text, "by the mixture {:.0}", case.analyze().blocks[1].frequency.unwrap()).unwrap();
    expect![[r#"
        Addr    Instruction             S_i   M_i   S_i/M_i
        009810  ldq    t4, 0(t1)       3126     1      3126
        009814  addq   t0, 0x4, t0        0     0
        009818  ldq    t5, 8(t1)       1636     1      1636
        00981c  ldq    t6, 16(t1)       390     0
        009820  ldq    a0, 24(t1)      1482     1      1482 *
        009824  lda    t1, 32(t1)         0     0
        009828  stq    t4, 0(t2)      27766     1     27766
        00982c  cmpult t0, v0, t4         0     0
        009830  stq    t5, 8(t2)       1493     1      1493 *
        009834  stq    t6, 16(t2)    174727     1    174727
        009838  stq    a0, 24(t2)      1548     1      1548 *
        00983c  lda    t2, 32(t2)         0     0
        009840  bne    t4, 0x009810    1586     1      1586 *
        frequency 1527, truly 1575.1
        by the mixture 1548
    "#]]
    .assert_eq(&text);
}

/// The paper's letters, in its order.
const LETTERS: [(Cause, char, &str); 6] = [
    (Cause::BranchMispredict, 'p', "branch mispredict"),
    (Cause::ICacheMiss, 'i', "I-cache miss"),
    (Cause::ItlbMiss, 'I', "ITB miss"),
    (Cause::DCacheMiss, 'd', "D-cache miss"),
    (Cause::WriteBuffer, 'w', "write-buffer overflow"),
    (Cause::DtlbMiss, 'D', "DTB miss"),
];

/// The lines of one bubble: one for each half cycle, a long one three with its length in the middle. Letters are
/// explained where they first appear.
fn bubble(stalls: &[Stall], excess: f64, cpi: f64, explained: &mut Vec<char>) -> Vec<String> {
    let accused =
        |l: &&(Cause, char, &str)| stalls.iter().any(|s| s.kind == StallKind::Dynamic && s.cause == l.0);
    let letters: Vec<_> = LETTERS.iter().filter(accused).collect();
    let name: String = letters.iter().map(|l| l.1).collect();
    let halves = (2.0 * excess).round() as usize;
    let is_long = halves > 4;
    let mut new = letters.iter().filter(|l| !explained.contains(&l.1)).collect::<Vec<_>>().into_iter();
    let lines = (0..if is_long { 3 } else { halves })
        .map(|k| match new.as_slice().first() {
            _ if is_long && k == 1 => format!("{name}  {cpi:.2}cy"),
            Some(_) => new.next().map_or(name.clone(), |l| format!("{name}  ({} = {})", l.1, l.2)),
            None => name.clone(),
        })
        .collect();
    explained.extend(letters.iter().map(|l| l.1));
    lines
}

/// Nothing around the loop was seen, so it may as well end each time.
#[test]
fn without_samples_around_it_the_loop_may_be_mispredicted() {
    let mut case = copy_loop();
    case.instructions = case.instructions[FIRST..=LAST].to_vec();
    case.samples = case.samples[FIRST..=LAST].to_vec();
    let analysis = case.analyze();
    let head = &analysis.instructions[0].stalls;
    let accused = |cause| head.iter().find(|s| s.cause == cause).map(|s| s.culprit);
    assert_eq!(accused(Cause::BranchMispredict), Some(Some(LAST - FIRST)), "p, by the bne: {head:?}");
    assert_eq!(accused(Cause::DtlbMiss), Some(Some(0)), "D, of its own page: {head:?}");
}

#[test]
fn figure_2() {
    let case = copy_loop();
    let (schedule, _, found) = clusters(&case);
    let analysis = case.analyze();
    let half_cycles = |cycles: f64| (2.0 * cycles).round() / 2.0;
    let best: f64 = schedule.issue_cycles_min[FIRST..=LAST].iter().sum();
    let actual = (case.samples.iter().sum::<u64>() as f64 / found.frequency).round();
    let n = LOOP.len() as f64;
    let mut text = format!("*** Best-case {best:>4}/13 = {:>5.2}CPI\n", best / n);
    writeln!(text, "*** Actual    {actual:>4}/13 = {:>5.2}CPI", actual / n).unwrap();
    writeln!(text, "Addr    Instruction          samples  CPI        Culprit").unwrap();
    let mut explained = Vec::new();
    for (i, row) in LOOP.iter().enumerate() {
        let m = schedule.issue_cycles_min[FIRST + i];
        let cpi = row.2 as f64 / found.frequency;
        let stalls = &analysis.instructions[FIRST + i].stalls;
        let is_alone = i > 0 && m > 0.0 && schedule.issue_cycles_min[FIRST + i - 1] > 0.0;
        if is_alone && stalls.iter().any(|s| s.cause == Cause::Slotting) {
            writeln!(text, "   s{}", if explained.contains(&'s') { "" } else { "  (s = slotting hazard)" })
                .unwrap();
            explained.push('s');
        }
        // A line stands for half a cycle; a shorter stall has no bubble.
        let excess = if cpi - m >= 0.5 { cpi - m } else { 0.0 };
        for line in bubble(stalls, excess, half_cycles(cpi), &mut explained) {
            writeln!(text, "   {line}").unwrap();
        }
        let cost = if row.2 == 0 { "(dual issue)".into() } else { format!("{:.1}cy", half_cycles(cpi)) };
        let load =
            stalls.iter().find(|s| excess > 0.0 && s.cause == Cause::DCacheMiss).and_then(|s| s.culprit);
        let culprit = load.map_or(String::new(), |c| format!("{:x}", START + 4 * (c - FIRST) as u64));
        let line = format!("{:06x}  {:20} {:>7}  {cost:10} {culprit}", START + 4 * i as u64, row.0, row.2);
        writeln!(text, "{}", line.trim_end()).unwrap();
    }
    expect![[r#"
        *** Best-case    8/13 =  0.62CPI
        *** Actual     140/13 = 10.77CPI
        Addr    Instruction          samples  CPI        Culprit
           D  (D = DTB miss)
           D
        009810  ldq    t4, 0(t1)        3126  2.0cy
        009814  addq   t0, 0x4, t0         0  (dual issue)
        009818  ldq    t5, 8(t1)        1636  1.0cy
        00981c  ldq    t6, 16(t1)        390  0.5cy
        009820  ldq    a0, 24(t1)       1482  1.0cy
        009824  lda    t1, 32(t1)          0  (dual issue)
           dwD  (d = D-cache miss)
           dwD  18.00cy
           dwD  (w = write-buffer overflow)
        009828  stq    t4, 0(t2)       27766  18.0cy     9810
        00982c  cmpult t0, v0, t4          0  (dual issue)
        009830  stq    t5, 8(t2)        1493  1.0cy
           s  (s = slotting hazard)
           dw
           dw  114.50cy
           dw
        009834  stq    t6, 16(t2)     174727  114.5cy    981c
           s
        009838  stq    a0, 24(t2)       1548  1.0cy
        00983c  lda    t2, 32(t2)          0  (dual issue)
        009840  bne    t4, 0x009810     1586  1.0cy
    "#]]
    .assert_eq(&text);
}
