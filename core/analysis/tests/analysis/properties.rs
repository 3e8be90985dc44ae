//! What holds of every answer, whatever code and counts come in: nothing negative, flow conserved, a reason wherever
//! something is missing, the same figures at other addresses and for other numbers of samples.

use std::collections::BTreeMap;

use dwell_analysis::{
    AbsoluteCount, Confidence, Counted, MachineModel, OuterScale, ProcedureAnalysis, ProcedureInput,
    ScaleKind, Transfer, analyze,
    cfg::Cfg,
    equivalence::Equivalence,
    frequency::{self, Evidence, Retired},
    machine::Order,
    recover_jump_targets,
    schedule::Schedule,
    verify_analysis,
};
use dwell_image::{Arch, ImageAddress, Instruction};
use dwell_profile::Event;
use expect_test::expect;
use proptest::prelude::*;

use crate::{
    asm::{a64, x86},
    evidence::DIAMOND,
    hostile::{any_instruction, build},
    show::{Case, listing},
    truth::Random,
};

const ARCHES: [Arch; 3] = [Arch::X86_64, Arch::Aarch64, Arch::Riscv64];
const MACHINES: [(&str, Arch); 4] = [
    ("amd-zen4", Arch::X86_64),
    ("generic-inorder-2", Arch::Aarch64),
    ("arm-neoverse-v1", Arch::Aarch64),
    ("sifive-u74", Arch::Riscv64),
];

/// As many samples as a counter of 63 bits can represent, a few, or none.
fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0u64..5000, Just((1 << 63) - 1), Just(1 << 63), Just(u64::MAX)]
}

fn any_counts() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any_count(), 0..80)
}

fn analysed(machine: &str, arch: Arch, code: &[Instruction], samples: &[u64]) -> ProcedureAnalysis {
    let input = ProcedureInput {
        arch,
        instructions: code,
        jump_targets: &BTreeMap::new(),
        time_samples: samples,
        period_cycles: Some(1e6),
        event_samples: &BTreeMap::new(),
        branch_directions: &[],
        transfers: &[],
        counted: &[],
        absolute: &[],
        outer: OuterScale::default(),
    };
    analyze(&input, MachineModel::named(machine).expect("a model"))
}

/// Steps between any two instructions of a procedure of `n`, or out of it.
fn any_transfers(n: usize) -> impl Strategy<Value = Vec<Transfer>> {
    let one = (0..n, prop::option::of(0..n), 0.0..1e6);
    prop::collection::vec(one.prop_map(|(from, to, count)| Transfer { from, to, count }), 0..20)
}

/// Places of three groups, counted well or badly.
fn any_counted(n: usize) -> impl Strategy<Value = Vec<Counted>> {
    let one = (0..n, 1e-3..1e6, 0.01..1.0, 0usize..3);
    let counted = |(at, executions, deviation, group)| Counted { at, executions, deviation, group };
    prop::collection::vec(one.prop_map(counted), 0..10)
}

/// Nothing retired that was counted, or so many samples, each of so many executions.
fn any_retired(n: usize) -> impl Strategy<Value = Option<(Vec<u64>, f64)>> {
    prop::option::of((prop::collection::vec(0u64..5000, n), 1e-3..1e3))
}

/// An estimate has a confidence; where there is none, a note says why.
fn assert_reasoned(analysis: &ProcedureAnalysis) {
    if analysis.instructions.iter().any(|i| i.frequency.is_none()) {
        assert!(!analysis.notes.is_empty(), "no estimate and no reason");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Data between code, code read from its middle: whatever the decoder makes of bytes, with counts of any event.
    #[test]
    fn bytes_that_are_not_code(
        bytes in prop::collection::vec(any::<u8>(), 0..160),
        samples in any_counts(),
        others in any_counts(),
        seen in prop::collection::vec((any_count(), any_count()), 0..80),
        period in any_count(),
    ) {
        let names = ["cache-misses", "branch-misses", "instructions", "page-faults", "kernel-time"];
        let events: BTreeMap<Event, _> =
            names.iter().map(|name| (Event::named(name), (others.clone(), period))).collect();
        for (machine, arch) in MACHINES {
            let instructions = dwell_image::instructions(arch, &bytes, ImageAddress(0x1000));
            let targets = recover_jump_targets(arch, &instructions, &|_, out| { out.fill(0); true });
            let input = ProcedureInput {
                arch,
                instructions: &instructions,
                jump_targets: &targets,
                time_samples: &samples,
                period_cycles: Some(1e6),
                event_samples: &events,
                branch_directions: &seen,
                transfers: &[], counted: &[],
                absolute: &[],
            outer: OuterScale::default(),
            };
            let analysis = analyze(&input, MachineModel::named(machine).expect("a model"));
            prop_assert_eq!(verify_analysis(&analysis, instructions.len()), Ok(()));
            assert_reasoned(&analysis);
        }
    }

    /// What enters a block leaves it, the outside included, unless a note says that it is not so.
    #[test]
    fn flow_is_conserved(
        parts in prop::collection::vec(any_instruction(), 1..60),
        samples in prop::collection::vec(prop_oneof![Just(0u64), 0u64..5000], 60),
        seen in prop::collection::vec((0u64..100, 0u64..100), 60),
        transfers in any_transfers(60),
        counted in any_counted(60),
        retired in any_retired(60),
    ) {
        let instructions = build(&parts);
        let n = instructions.len();
        let retired = retired.as_ref().map(|(samples, frequency)| Retired { samples, frequency: *frequency });
        let cfg = Cfg::build(&instructions, &BTreeMap::new());
        let equivalence = Equivalence::new(&cfg);
        for (machine, arch) in MACHINES {
            let model = MachineModel::named(machine).expect("a model");
            let schedule = Schedule::new(model, arch, &instructions, &cfg);
            let evidence = Evidence {
                model, cfg: &cfg, equivalence: &equivalence, schedule: &schedule,
                samples: &samples[..n], directions: &seen[..n],
                transfers: &transfers, counted: &counted, retired, absolute: &[], is_anchored: false,
            };
            let estimates = frequency::estimate(&evidence);
            prop_assert_eq!(estimates.verify(), Ok(()));
            let notes = |text: &str| estimates.notes.iter().any(|note| note.contains(text));
            let is_excused = cfg.missing_edges || notes("not conserved");
            for (b, block) in estimates.blocks.iter().enumerate().filter(|_| !is_excused) {
                let Some(block) = block else { continue };
                let sum = |edges: &[usize]| -> f64 {
                    edges.iter().filter_map(|&e| estimates.edges[e]).map(|e| e.frequency).sum()
                };
                let (into, out) = (sum(&cfg.predecessors[b]), sum(&cfg.successors[b]));
                let slack = 1e-6 * block.frequency.max(1e-9);
                prop_assert!((out - block.frequency).abs() <= slack, "{}: block {} leaves {}: {:?}", machine, b, out, block);
                // Control may come from a jump of another procedure, which is not in the graph.
                let least = if notes("control seems to enter the middle") { 0.0 } else { block.frequency - slack };
                prop_assert!(into >= least && into <= block.frequency + slack, "{}: block {} is entered {}: {:?}", machine, b, into, block);
            }
        }
    }

    /// Where code is loaded changes nothing. By whole pages: cache lines are where they were.
    #[test]
    fn addresses_do_not_matter(
        parts in prop::collection::vec(any_instruction(), 1..40),
        samples in prop::collection::vec(0u64..5000, 40),
        pages in 1u64..1000,
    ) {
        use dwell_image::Flow;
        let here = build(&parts);
        let moved = |a: ImageAddress| ImageAddress(a.0 + pages * 0x1000);
        let there: Vec<Instruction> = here.iter().cloned().map(|mut i| {
            i.address = moved(i.address);
            i.flow = match i.flow {
                Flow::Branch { target } => Flow::Branch { target: moved(target) },
                Flow::Jump { target } => Flow::Jump { target: moved(target) },
                Flow::Call { target } => Flow::Call { target: target.map(moved) },
                other => other,
            };
            i
        }).collect();
        for (machine, arch) in MACHINES {
            let samples = &samples[..here.len()];
            prop_assert_eq!(analysed(machine, arch, &here, samples), analysed(machine, arch, &there, samples));
        }
    }

    /// The paper's clusters know nothing but ratios: exactly twice.
    #[test]
    fn clusters_scale_with_samples(
        parts in prop::collection::vec(any_instruction(), 1..40),
        samples in prop::collection::vec(100_000u64..5_000_000, 40),
    ) {
        let code = build(&parts);
        let cfg = Cfg::build(&code, &BTreeMap::new());
        let equivalence = Equivalence::new(&cfg);
        let model = MachineModel::named("generic-inorder-2").expect("a model");
        let schedule = Schedule::new(model, Arch::Aarch64, &code, &cfg);
        let estimate = |samples: &[u64]| frequency::by_clusters(&Evidence {
            model, cfg: &cfg, equivalence: &equivalence, schedule: &schedule,
            samples, directions: &vec![(0, 0); samples.len()], transfers: &[], counted: &[], retired: None,
            absolute: &[], is_anchored: false,
        });
        let once = &samples[..code.len()];
        let twice: Vec<u64> = once.iter().map(|s| 2 * s).collect();
        for (a, b) in estimate(once).blocks.iter().zip(&estimate(&twice).blocks) {
            let (Some(a), Some(b)) = (a, b) else { prop_assert_eq!(a.is_some(), b.is_some()); continue };
            prop_assert!((b.frequency - 2.0 * a.frequency).abs() <= 1e-9 * a.frequency, "{:?} {:?}", a, b);
        }
    }
}

/// Twice the samples, twice every frequency: where there are enough that chance has no part in them.
#[test]
fn out_of_order_frequencies_scale_with_samples() {
    let mut random = Random(7);
    let code = x86(DIAMOND);
    for round in 0..50 {
        let once: Vec<u64> = code.iter().map(|_| 100_000 + random.below(5_000_000) as u64).collect();
        let twice: Vec<u64> = once.iter().map(|s| 2 * s).collect();
        let of = |samples: &[u64]| analysed("amd-zen4", Arch::X86_64, &code, samples);
        for (one, two) in of(&once).blocks.iter().zip(&of(&twice).blocks) {
            let ratio = two.frequency.expect("sampled") / one.frequency.expect("sampled");
            assert!((ratio / 2.0 - 1.0).abs() < 0.01, "round {round}: {one:?} {two:?}");
        }
    }
}

/// Every instruction unknown to the model and to the interpreters: it issues, and takes a slot.
#[test]
fn unknown_opcodes() {
    for arch in ARCHES {
        let mut code = build(&[(0, 4, 7, 1, 2, 0); 6]);
        code.iter_mut().for_each(|i| i.mnemonic = "frobnicate".into());
        for machine in MachineModel::names() {
            let analysis = analysed(machine, arch, &code, &[70; 6]);
            assert_eq!(verify_analysis(&analysis, 6), Ok(()));
            assert!(analysis.blocks[0].frequency.is_some_and(|f| f > 0.0), "{machine}");
        }
    }
}

/// A loop with two entries has no header; its flow is conserved as that of others.
#[test]
fn an_irreducible_loop() {
    let text = "\
        test rdi, rdi
        je second
        first:
        add rax, 1
        cmp rax, rcx
        je out
        second:
        imul rbx, rbx
        cmp rbx, rdx
        jne first
        out:
        ret";
    let mut case = Case::new("amd-zen4", Arch::X86_64, x86(text));
    case.samples = vec![0, 5, 5, 300, 300, 300, 300, 900, 300, 10];
    case.samples.truncate(case.instructions.len());
    let analysis = case.analyze();
    let frequency = |b: usize| analysis.blocks[b].frequency.expect("sampled");
    assert_eq!(verify_analysis(&analysis, case.instructions.len()), Ok(()));
    assert!(frequency(1) > 5.0 * frequency(0) && frequency(2) > 5.0 * frequency(0), "{:?}", analysis.blocks);
}

/// Nothing enters it, nothing leaves it, and yet it runs.
#[test]
fn an_infinite_loop() {
    let mut case =
        Case::new("generic-inorder-2", Arch::Aarch64, a64("loop:\nadd x1, x1, x2\neor x3, x3, x1\nb loop"));
    case.samples = vec![1000, 1000, 1000];
    let analysis = case.analyze();
    assert_eq!(verify_analysis(&analysis, 3), Ok(()));
    assert!(
        analysis.blocks[0].frequency.is_some_and(|f| (500.0..2000.0).contains(&f)),
        "{:?}",
        analysis.blocks
    );
}

/// A jump to nobody knows where: a reason, and what can still be said.
#[test]
fn missing_edges_have_a_reason() {
    let text = "lea rdx, [rip + 0x5000]
         movsxd rax, [rdx + rdi*4]
         add rax, rdx
         jmp rax
         mov rax, 1
         ret";
    for machine in ["amd-zen4", "generic-inorder-2"] {
        let mut case = Case::new(machine, Arch::X86_64, x86(text));
        case.samples = vec![400; 6];
        let analysis = case.analyze();
        assert!(analysis.missing_edges, "{machine}");
        assert!(
            analysis.notes.iter().any(|note| note.contains("targets of an indirect jump are unknown")),
            "{:?}",
            analysis.notes
        );
        assert!(analysis.blocks.iter().all(|b| b.frequency.is_some()), "{:?}", analysis.blocks);
    }
}

/// Counts that 64 bits can hold but their sums cannot.
#[test]
fn counts_near_the_largest() {
    for (machine, arch) in MACHINES {
        let code =
            if arch == Arch::X86_64 { x86("mov rax, rdi\nret") } else { build(&[(0, 4, 7, 1, 2, 0); 2]) };
        let analysis = analysed(machine, arch, &code, &[(1 << 63) - 1, u64::MAX]);
        assert_eq!(verify_analysis(&analysis, 2), Ok(()));
        assert!(analysis.blocks[0].frequency.is_some_and(|f| f > 1e18), "{machine}: {:?}", analysis.blocks);
    }
}

#[test]
fn one_sample_in_order_is_a_guess() {
    let mut case = Case::new("generic-inorder-2", Arch::Aarch64, a64("add x1, x1, x2\nret"));
    case.samples = vec![1, 0];
    assert!(case.analyze().blocks.iter().all(|b| b.confidence == Confidence::Low));
    expect![[r#"
        frequency 1 Low, cpi 0.50, best 0.50
             1.0 1 add x1, x1, x2
               - 0 ret
        note: a guess: the function has 1 sample
    "#]]
    .assert_eq(&listing(&case));
}

/// Counts of any instructions, right or wrong.
fn any_absolute(n: usize) -> impl Strategy<Value = Vec<AbsoluteCount>> {
    let one = (0..n, -2.0f64..4.5, 0.01..0.12, any::<bool>());
    let count =
        |(at, log, deviation, in_code)| AbsoluteCount { at, frequency: 10f64.powf(log), deviation, in_code };
    prop::collection::vec(one.prop_map(count), 0..3)
}

/// What the rest of a program may say of a procedure's scale.
fn any_outer() -> impl Strategy<Value = OuterScale> {
    let kind = prop_oneof![Just(ScaleKind::Procedure), Just(ScaleKind::Program), Just(ScaleKind::Absolute)];
    (kind, -1.5f64..1.5, 0.01..0.13).prop_map(|(kind, log, deviation)| {
        let deviation = if kind == ScaleKind::Absolute { deviation } else { f64::INFINITY };
        OuterScale { factor: 10f64.powf(log), kind, deviation, evidence: Vec::new() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Nothing is said to have run more often than the processor can do in the time that was sampled, whatever was counted: the
    /// procedure, and each block whose executions were counted, with the error of sampling allowed for; and no CPI is below
    /// what an instruction takes to retire.
    #[test]
    fn impossible_numbers_are_never_reported(
        (code, samples, absolute, transfers) in prop::collection::vec(any_instruction(), 1..60)
            .prop_map(|mut parts| {
                // Most instructions do not branch, because little is claimed about a graph that is hardly known.
                parts.iter_mut().filter(|part| part.3 % 6 != 0).for_each(|part| part.2 = 13);
                build(&parts)
            })
            .prop_flat_map(|code| {
                let n = code.len();
                (Just(code), prop::collection::vec(0u64..5000, n), any_absolute(n), any_transfers(n))
            }),
        outer in any_outer(),
        retired in prop::option::weighted(0.2, prop::collection::vec(0u64..5000, 60)),
        machine in prop_oneof![Just("amd-zen4"), Just("intel-skylake"), Just("generic-x86-64"), Just("generic-inorder-2")],
    ) {
        let model = MachineModel::named(machine).expect("a model");
        // In order, and where retired instructions were sampled, a block's samples may belong to the one before it.
        let is_by_block = model.order == Order::OutOfOrder && retired.is_none();
        let event_samples = retired.map(|samples| (Event::INSTRUCTIONS, (samples, 1_000_000))).into_iter().collect();
        let input = ProcedureInput {
            arch: Arch::X86_64,
            instructions: &code,
            jump_targets: &BTreeMap::new(),
            time_samples: &samples,
            period_cycles: Some(1e6),
            event_samples: &event_samples,
            branch_directions: &[],
            transfers: &transfers,
            counted: &[],
            absolute: &absolute,
            outer,
        };
        let analysis = analyze(&input, model);
        let is_absolute = analysis.scale.kind == ScaleKind::Absolute;
        let slot = 1.0 / f64::from(model.issue_width.min(model.retire_width));
        let cfg = Cfg::build(&code, &BTreeMap::new());
        let schedule = Schedule::new(model, Arch::X86_64, &code, &cfg);
        // A number of samples may be three standard errors below its mean.
        let most = |samples: f64| ((samples + 0.75).sqrt() + 1.5).powi(2);
        let mut least_of_all = 0.0;
        let mut all = 0.0;
        for block in &analysis.blocks {
            let own = block.instructions.clone();
            let samples: f64 = own.clone().map(|i| analysis.instructions[i].head_samples).sum();
            let slots = own.filter(|i| !schedule.is_fused[*i]).count() as f64;
            let least = block.frequency.unwrap_or(0.0) * slots * slot;
            all += samples;
            prop_assert!(block.cpi.is_none_or(|cpi| cpi * (block.instructions.len() as f64) >= slots * slot - 1e-9));
            if is_absolute {
                least_of_all += least;
            }
            if is_absolute && is_by_block {
                prop_assert!(least <= most(samples) * (1.0 + 1e-9), "{least} in {samples}: {block:?}");
                let interval = block.frequency_interval;
                prop_assert_eq!(interval.is_some(), block.frequency.is_some());
                prop_assert!(interval.is_none_or(|i| i.max * slots * slot <= most(samples) * (1.0 + 1e-9)));
            } else if !is_absolute {
                prop_assert!(block.frequency_interval.is_none() && block.cpi_interval.max.is_infinite());
            }
        }
        prop_assert!(least_of_all <= most(all) * (1.0 + 1e-9), "{least_of_all} in {all}");
        for cost in &analysis.instructions {
            prop_assert!(cost.cpi.is_none_or(|cpi| cpi >= slot - 1e-12), "{cost:?}");
            prop_assert!(cost.cpi_interval.min <= cost.cpi_interval.max);
        }
    }
}
