//! Simple loops cost on each out-of-order core what its model says.

use dwell_analysis::{
    MachineModel,
    machine::{OpcodeClass, Order},
};
use dwell_image::Arch;

use crate::{asm::assemble, show::Case};

/// Cycles of one iteration of a loop, its counter and branch included.
fn loop_cycles(model: &MachineModel, arch: Arch, body: &[String]) -> f64 {
    let (count, again) = match arch {
        Arch::X86_64 => ("dec rcx", "jne loop"),
        _ => ("sub x9, x9, 1", "cbnz x9, loop"),
    };
    let text = format!("loop:\n{}\n{count}\n{again}\nret", body.join("\n"));
    let analysis = Case::new(model.name(), arch, assemble(arch, &text)).analyze();
    analysis.blocks[0].best_case_cpi * (body.len() + 2) as f64
}

fn out_of_order() -> impl Iterator<Item = (&'static MachineModel, Arch)> {
    let models = MachineModel::names().filter_map(MachineModel::named);
    models.filter(|m| m.order == Order::OutOfOrder).map(|m| match m.arch.as_deref() {
        Some("x86_64") => (m, Arch::X86_64),
        _ => (m, Arch::Aarch64),
    })
}

fn line(arch: Arch, x86: &str, a64: &str) -> String {
    if arch == Arch::X86_64 { x86.to_owned() } else { a64.to_owned() }
}

fn near(model: &MachineModel, what: &str, cycles: f64, expected: f64) {
    assert!((cycles - expected).abs() < 0.01, "{}: {what} takes {cycles}, not {expected}", model.name());
}

#[test]
fn chains_take_their_latencies() {
    for (model, arch) in out_of_order() {
        let latency = |class| model.cost(class).latency;
        let add = line(arch, "add rax, rbx", "add x0, x0, x1");
        near(model, "8 additions", loop_cycles(model, arch, &vec![add; 8]), 8.0 * latency(OpcodeClass::Alu));
        let multiply = line(arch, "imul rax, rbx", "mul x0, x0, x1");
        let cycles = loop_cycles(model, arch, &vec![multiply; 4]);
        near(model, "4 multiplications", cycles, 4.0 * latency(OpcodeClass::Multiply));
        let chase = line(arch, "mov rax, [rax]", "ldr x0, [x0]");
        near(model, "a pointer chase", loop_cycles(model, arch, &[chase]), model.memory.l1_cycles);
    }
}

#[test]
fn independent_additions_are_bound_by_units_or_by_the_front_end() {
    for (model, arch) in out_of_order() {
        let registers = [0, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14];
        let x86 = ["rax", "rdx", "rbx", "rbp", "rsi", "rdi", "r8", "r10", "r11", "r12", "r13", "r14"];
        let body: Vec<String> = registers
            .iter()
            .zip(x86)
            .map(|(n, name)| line(arch, &format!("add {name}, r15"), &format!("add x{n}, x{n}, x1")))
            .collect();
        // The loop's counter adds one instruction; on x86 its branch is fused with it.
        let operations = body.len() as f64 + 1.0;
        let slots = if model.fuses_compare_branch { operations } else { operations + 1.0 };
        let units = operations / f64::from(model.units["alu"]);
        let expected = units.max(slots / f64::from(model.issue_width));
        near(model, "12 independent additions", loop_cycles(model, arch, &body), expected);
    }
}

#[test]
fn divisions_take_their_unit_or_their_latency() {
    for (model, arch) in out_of_order() {
        let cost = model.cost(OpcodeClass::Divide);
        let chained = line(arch, "div rdi", "sdiv x0, x0, x1");
        let cycles = loop_cycles(model, arch, &vec![chained; 2]);
        near(model, "2 dependent divisions", cycles, 2.0 * cost.latency);
        let independent =
            |n: u32| line(arch, &format!("divsd xmm{n}, xmm8"), &format!("fdiv d{n}, d{n}, d8"));
        let cycles = loop_cycles(model, arch, &[independent(0), independent(1), independent(2)]);
        let cost = model.cost(OpcodeClass::FpDivide);
        let busy = 3.0 * cost.busy / f64::from(model.units["fp-divider"]);
        near(model, "3 independent FP divisions", cycles, busy.max(cost.latency));
    }
}
