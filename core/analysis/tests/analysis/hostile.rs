//! Whatever comes in, an answer comes out.

use std::collections::BTreeMap;

use dwell_analysis::{
    MachineModel, OuterScale, ProcedureInput, analyze, recover_jump_targets, verify_analysis,
};
use dwell_image::{Arch, Flow, ImageAddress, Instruction, MemoryOperand, Operand, Register, RegisterSet};
use expect_test::expect;
use proptest::prelude::*;

use crate::{
    asm::x86,
    show::{Case, listing},
};

pub fn any_instruction() -> impl Strategy<Value = (u64, u8, usize, u8, u8, u64)> {
    (0u64..4, 1u8..16, 0usize..14, any::<u8>(), any::<u8>(), 0u64..200)
}

/// Instructions that overlap or leave gaps, with arbitrary targets.
pub fn build(parts: &[(u64, u8, usize, u8, u8, u64)]) -> Vec<Instruction> {
    const MNEMONICS: [&str; 8] = ["mov", "add", "div", "lea", "nop", "mfence", "movsxd", "cmp"];
    let mut address = 0x1000;
    let one = |&(gap, length, flow, read, write, target): &(u64, u8, usize, u8, u8, u64)| {
        address += gap;
        let target = ImageAddress(0x1000 + target);
        let memory = MemoryOperand {
            base: Some(Register(read)),
            index: Some(Register(write)),
            scale: 8,
            read: read % 2 == 0,
            written: write % 3 == 0,
            ..MemoryOperand::default()
        };
        Instruction {
            address: ImageAddress(address),
            length,
            mnemonic: MNEMONICS[usize::from(read) % 8].into(),
            text: "hostile".into(),
            reads: RegisterSet::from_iter([Register(read)]),
            writes: RegisterSet::from_iter([Register(write)]),
            operands: [
                Operand::Register { register: Register(write), width_bits: 64 },
                Operand::Memory(memory),
            ]
            .into_iter()
            .collect(),
            flow: match flow {
                0 | 1 => Flow::Branch { target },
                2 => Flow::Jump { target },
                3 => Flow::IndirectJump,
                4 => Flow::Call { target: Some(target) },
                5 => Flow::Return,
                6 => Flow::Stop,
                _ => Flow::Next,
            },
        }
    };
    parts.iter().map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_input_panics(
        parts in prop::collection::vec(any_instruction(), 0..60),
        samples in prop::collection::vec(prop_oneof![Just(0u64), 0u64..5000, Just(u64::MAX / 2)], 0..60),
        directions in prop::collection::vec((0u64..100, prop_oneof![0u64..100, Just(u64::MAX)]), 0..60),
        machine in 0..MachineModel::names().count(),
        targets in prop::collection::vec((0usize..60, prop::collection::vec(0u64..300, 0..5)), 0..3),
    ) {
        let instructions = build(&parts);
        let jump_targets: BTreeMap<_, _> = targets
            .iter()
            .map(|(i, to)| (*i, to.iter().map(|t| ImageAddress(0x1000 + t)).collect()))
            .collect();
        let name = MachineModel::names().nth(machine).unwrap();
        let model = MachineModel::named(name).unwrap();
        for arch in [Arch::X86_64, Arch::Aarch64, Arch::Riscv64] {
            let input = ProcedureInput {
                arch,
                instructions: &instructions,
                jump_targets: &jump_targets,
                time_samples: &samples,
                period_cycles: Some(1e6),
                event_samples: &BTreeMap::new(),
                branch_directions: &directions,
                transfers: &[], counted: &[],
                absolute: &[],
            outer: OuterScale::default(),
            };
            let analysis = analyze(&input, model);
            prop_assert_eq!(verify_analysis(&analysis, instructions.len()), Ok(()));
            prop_assert_eq!(&analysis, &analyze(&input, model), "the same input gives the same output");
            recover_jump_targets(arch, &instructions, &|a, bytes| { bytes.fill(a.0 as u8); true });
        }
    }
}

#[test]
fn no_instructions() {
    let case = Case::new("amd-zen4", Arch::X86_64, Vec::new());
    expect![[r#"
        note: no estimate: the function has no instructions
    "#]]
    .assert_eq(&listing(&case));
}

#[test]
fn no_samples() {
    let case = Case::new("amd-zen4", Arch::X86_64, x86("mov rax, rdi\nret"));
    expect![[r#"
        frequency - Low, cpi -, best 0.17
               - 1 mov rax, rdi
               - 0 ret
        note: no estimate: the function has no samples
    "#]]
    .assert_eq(&listing(&case));
}

#[test]
fn one_sample() {
    let mut case = Case::new("amd-zen4", Arch::X86_64, x86("ret"));
    case.samples = vec![1];
    expect![[r#"
        frequency 3 Low, cpi 0.33, best 0.17
             0.3 1 ret
        note: frequencies rest on cycles alone, which say little about them on an out-of-order processor
        note: a guess: the function has 1 sample
    "#]]
    .assert_eq(&listing(&case));
}
