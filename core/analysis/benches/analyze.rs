//! Instructions analysed per second, on procedures of several sizes with nested loops.

use std::{collections::BTreeMap, hint::black_box};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dwell_analysis::{Counted, MachineModel, OuterScale, ProcedureInput, Transfer, analyze};
use dwell_image::{Arch, Flow, ImageAddress, Instruction, MemoryOperand, Operand, Register, RegisterSet};
use dwell_profile::Event;

/// Loops of three blocks, in nests of four.
fn procedure(instructions: usize) -> Vec<Instruction> {
    let at = |i: usize| ImageAddress(0x1000 + 4 * i as u64);
    let make = |i: usize| {
        let (mnemonic, flow): (&str, Flow) = match i % 20 {
            6 => ("jne", Flow::Branch { target: at(i + 7) }),
            12 => ("jmp", Flow::Jump { target: at(i + 3) }),
            19 => ("jne", Flow::Branch { target: at(i.saturating_sub(if i % 80 == 79 { 75 } else { 15 })) }),
            _ if i + 1 == instructions => ("ret", Flow::Return),
            k if k % 3 == 0 => ("mov", Flow::Next),
            _ => ("add", Flow::Next),
        };
        let (a, b) = (Register((i % 7) as u8), Register((i % 5 + 8) as u8));
        let is_load = mnemonic == "mov";
        let memory =
            MemoryOperand { base: Some(b), scale: 1, width_bytes: 8, read: true, ..MemoryOperand::default() };
        let source =
            if is_load { Operand::Memory(memory) } else { Operand::Register { register: b, width_bits: 64 } };
        Instruction {
            address: at(i),
            length: 4,
            mnemonic: mnemonic.into(),
            text: mnemonic.into(),
            reads: RegisterSet::from_iter(if is_load { vec![b] } else { vec![a, b] }),
            writes: RegisterSet::from_iter([a, Register(16)]),
            operands: [Operand::Register { register: a, width_bits: 64 }, source].into_iter().collect(),
            flow,
        }
    };
    (0..instructions).map(make).collect()
}

/// Each conditional branch both ways.
fn transfers(instructions: &[Instruction]) -> Vec<Transfer> {
    let both = |(i, instruction): (usize, &Instruction)| {
        let Flow::Branch { target } = instruction.flow else { return Vec::new() };
        let there = instructions.binary_search_by_key(&target, |i| i.address).ok();
        vec![
            Transfer { from: i, to: there, count: 700.0 },
            Transfer { from: i, to: Some(i + 1), count: 300.0 },
        ]
    };
    instructions.iter().enumerate().flat_map(both).collect()
}

/// A place in forty, in three groups.
fn counted(instructions: usize) -> Vec<Counted> {
    let place = |at: usize| Counted { at, executions: 1e3, deviation: 0.05, group: at / 40 % 3 };
    (0..instructions).step_by(40).map(place).collect()
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("analyze");
    for size in [500, 8_764, 20_000] {
        let instructions = procedure(size);
        let samples: Vec<u64> = (0..size).map(|i| (i * 7919 % 1000) as u64).collect();
        let directions: Vec<(u64, u64)> = (0..size).map(|i| ((i % 13) as u64, (i % 7) as u64)).collect();
        let retired = BTreeMap::from([(Event::INSTRUCTIONS, (vec![100; size], 1_000_000))]);
        let all = (transfers(&instructions), counted(size), retired);
        let none = (Vec::new(), Vec::new(), BTreeMap::new());
        let jump_targets = BTreeMap::new();
        let cases = [
            ("amd-zen4", "", &none),
            ("generic-inorder-2", "", &none),
            ("generic-inorder-2", ", counted", &all),
        ];
        for (machine, help, (transfers, counted, event_samples)) in cases {
            let model = MachineModel::named(machine).expect("a model");
            let input = ProcedureInput {
                arch: Arch::X86_64,
                instructions: &instructions,
                jump_targets: &jump_targets,
                time_samples: &samples,
                period_cycles: Some(1e6),
                event_samples,
                branch_directions: &directions,
                transfers,
                counted,
                absolute: &[],
                outer: OuterScale::default(),
            };
            group.throughput(Throughput::Elements(size as u64));
            group.sample_size(20).bench_function(BenchmarkId::new(format!("{machine}{help}"), size), |b| {
                b.iter(|| black_box(analyze(black_box(&input), model)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
