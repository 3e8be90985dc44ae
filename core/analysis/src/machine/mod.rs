//! Machine models: the costs of instructions on a core, as data. Each core has a file in `machines/`, which names the
//! sources of its figures.

mod class;
mod class_a64;
mod class_riscv;
mod class_x86;
mod source;

use std::{collections::BTreeMap, sync::LazyLock};

use dwell_image::{Arch, Instruction};
use dwell_profile::Cpu;
use serde::Deserialize;

pub use class::{Opcode, OpcodeClass};
pub use source::Source;

/// The properties of a core that the analysis needs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineModel {
    name: String,
    /// A description for people.
    pub description: String,
    /// The sources of the figures, by key: document, number and section, or the command that prints them.
    pub sources: BTreeMap<String, String>,
    /// The source of each figure for which no class below names another.
    pub source: Source,
    /// LLVM's name for the core. `xtask machines` compares the figures with llvm-mca's.
    #[serde(default)]
    pub llvm: Option<Llvm>,
    /// The instruction set; `None` if the model fits any.
    pub arch: Option<String>,
    /// The processors that it describes; empty for fallbacks and simulated cores.
    pub cpus: Vec<CpuMatch>,
    /// The order of issue.
    pub order: Order,
    /// Number of instructions per cycle that the front end delivers (in order: that issue).
    pub issue_width: u32,
    /// Number of instructions per cycle that retire (in order: that issue).
    pub retire_width: u32,
    /// The instruction that a sample names.
    pub skid: SkidRule,
    /// Pools of units by name: the number of operations per cycle that each starts.
    pub units: BTreeMap<String, u32>,
    /// The cost of each class; that of absent ones is [`ClassCost::default`].
    pub classes: BTreeMap<OpcodeClass, ClassCost>,
    /// Whether a compare and the conditional branch after it count as one instruction.
    pub fuses_compare_branch: bool,
    /// Whether register moves take no unit and no time.
    pub eliminates_moves: bool,
    /// Cycles from a mispredicted branch to the right instruction.
    pub mispredict_cycles: f64,
    /// The same at worst (another kind of branch, instructions that must be decoded again); `None` if no source says.
    #[serde(default)]
    pub mispredict_cycles_max: Option<f64>,
    /// Caches and TLBs.
    pub memory: Memory,
    /// Number of stores that can wait after retirement.
    pub store_buffer_entries: u32,
    /// The greatest number of cycles that a load waits for an older store that holds only a part of its bytes; `None` if
    /// no source says.
    #[serde(default)]
    pub partial_forward_cycles: Option<f64>,
    /// Number of instructions between issue to the back end and retirement (out of order).
    #[serde(default)]
    pub reorder_buffer_entries: Option<u32>,
    /// Number of loads among them.
    #[serde(default)]
    pub load_queue_entries: Option<u32>,
}

/// How llvm-mca models the core.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Llvm {
    /// The value of `-mtriple`.
    pub triple: String,
    /// The value of `-mcpu`.
    pub cpu: String,
}

/// The order of issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Instructions issue in the program's order.
    InOrder,
    /// Instructions issue when their operands are ready, and retire in order.
    OutOfOrder,
}

/// The instruction that a sample names, given the oldest that has not issued (in order) or retired (out of order).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkidRule {
    /// The oldest instruction itself.
    Head,
    /// The instruction executed after it (docs/measured.md).
    AfterNextToRetire,
}

/// Processors, identified by CPUID or the identification register.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuMatch {
    /// The value of [`Cpu::vendor`] (AArch64 and RISC-V: the implementer's number).
    pub vendor: String,
    /// The value of [`Cpu::family`].
    pub family: u32,
    /// Ranges of [`Cpu::model`], including both ends.
    pub models: Vec<(u32, u32)>,
}

/// The cost of an operation of a class, in cycles.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassCost {
    /// Cycles from issue until a result can be used. If it varies, the least.
    pub latency: f64,
    /// Cycles from issue until a memory operand's address can use the result, if that differs (in order).
    pub address_latency: Option<f64>,
    /// Cycles after issue at which it needs its operands other than addresses: an instruction that waits for a result
    /// waits that much less (in order; forwarding paths, late ALUs, LLVM's `ReadAdvance`).
    pub late: f64,
    /// The pool of units that it needs.
    pub unit: Option<String>,
    /// Cycles during which it occupies one of them.
    pub busy: f64,
    /// A pool of which it occupies one unit in its first cycle only, besides `unit` (in order: an issue port).
    pub slot: Option<String>,
    /// Whether it issues in a cycle of its own (in order).
    pub alone: bool,
    /// Whether nothing earlier issues in its cycle (in order).
    pub starts_group: bool,
    /// Whether nothing later issues in its cycle (in order).
    pub ends_group: bool,
    /// The source of these figures, if it is not the model's own.
    pub source: Option<Source>,
    /// The instruction that llvm-mca is given for this class, in the assembler's syntax.
    pub example: Option<String>,
}

/// Caches and TLBs. Latencies are in cycles from use to result.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Size of a cache line in bytes.
    pub line_bytes: u64,
    /// Size of the smallest page in bytes.
    pub page_bytes: u64,
    /// Latency of the first-level cache.
    pub l1_cycles: f64,
    /// Latency of the second-level cache.
    pub l2_cycles: f64,
    /// Latency of the last-level cache.
    pub last_level_cycles: f64,
    /// Latency of main memory.
    pub memory_cycles: f64,
    /// Cycles of a data access whose page is in no TLB.
    pub dtlb_miss_cycles: f64,
    /// Cycles of an instruction fetch whose page is in no TLB.
    pub itlb_miss_cycles: f64,
}

/// The figures outside of the classes.
const FIGURES: [&str; 17] = [
    "order",
    "issue_width",
    "retire_width",
    "skid",
    "units",
    "fuses_compare_branch",
    "eliminates_moves",
    "mispredict_cycles",
    "mispredict_cycles_max",
    "store_buffer_entries",
    "memory.line_bytes",
    "memory.l1_cycles",
    "memory.l2_cycles",
    "memory.last_level_cycles",
    "memory.memory_cycles",
    "memory.dtlb_miss_cycles",
    "memory.itlb_miss_cycles",
];

/// The ratio of the worst misprediction to the usual one where no source says: the greatest that a source reports, Zen
/// 5's.
const MISPREDICT_MAX_TIMES: f64 = 18.0 / 12.0;

const FILES: [&str; 20] = [
    include_str!("../../machines/amd-zen5.json"),
    include_str!("../../machines/amd-zen4.json"),
    include_str!("../../machines/amd-zen3.json"),
    include_str!("../../machines/amd-zen2.json"),
    include_str!("../../machines/intel-redwood-cove.json"),
    include_str!("../../machines/intel-golden-cove.json"),
    include_str!("../../machines/intel-sunny-cove.json"),
    include_str!("../../machines/intel-skylake.json"),
    include_str!("../../machines/arm-neoverse-v2.json"),
    include_str!("../../machines/arm-neoverse-v1.json"),
    include_str!("../../machines/arm-neoverse-n1.json"),
    include_str!("../../machines/arm-cortex-a510.json"),
    include_str!("../../machines/arm-cortex-a55.json"),
    include_str!("../../machines/arm-cortex-a53.json"),
    include_str!("../../machines/sifive-u74.json"),
    include_str!("../../machines/alpha-21164.json"),
    include_str!("../../machines/generic-x86-64.json"),
    include_str!("../../machines/generic-aarch64.json"),
    include_str!("../../machines/generic-riscv64.json"),
    include_str!("../../machines/generic-inorder-2.json"),
];

/// A file that does not parse is our bug; a test parses all of them.
static MODELS: LazyLock<Vec<MachineModel>> =
    LazyLock::new(|| FILES.iter().map(|f| serde_json::from_str(f).expect("a machine's own file")).collect());

impl MachineModel {
    /// Returns the model of a sampled processor: the one that the user named, else by vendor, family and model, else the
    /// generic one of its instruction set.
    pub fn for_cpu(cpu: &Cpu) -> &'static MachineModel {
        if let Some(model) = cpu.machine_model.as_deref().and_then(Self::named) {
            return model;
        }
        let describes = |m: &MachineModel| {
            m.cpus.iter().any(|c| {
                c.vendor == cpu.vendor
                    && c.family == cpu.family
                    && c.models.iter().any(|&(low, high)| (low..=high).contains(&cpu.model))
            })
        };
        let generic = match cpu.arch.as_str() {
            "aarch64" => "generic-aarch64",
            "riscv64" => "generic-riscv64",
            _ => "generic-x86-64",
        };
        let known = MODELS.iter().find(|m| describes(m));
        known.or_else(|| Self::named(generic)).expect("the generic models are built in")
    }

    /// Returns the model of that name.
    pub fn named(name: &str) -> Option<&'static MachineModel> {
        MODELS.iter().find(|m| m.name == name)
    }

    /// Returns the names of all models.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MODELS.iter().map(|m| m.name.as_str())
    }

    /// Returns its name, such as `amd-zen4` or `generic-x86-64`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Checks that every figure names a source, and that all named pools and sources exist.
    pub fn verify(&self) -> Result<(), String> {
        let wrong = |what: String| Err(format!("{}: {what}", self.name));
        for figure in FIGURES {
            if !self.source.of_figure(figure).is_some_and(|key| self.sources.contains_key(key)) {
                return wrong(format!("{figure} has no source"));
            }
        }
        for (class, cost) in &self.classes {
            let source = cost.source.as_ref().unwrap_or(&self.source);
            let unsourced = ["latency", "unit", "busy"]
                .iter()
                .find(|figure| !source.of_figure(figure).is_some_and(|key| self.sources.contains_key(key)));
            if let Some(figure) = unsourced {
                return wrong(format!("{class:?}: {figure} has no source"));
            }
            let unknown = source.keys().find(|key| !self.sources.contains_key(*key));
            if let Some(key) = unknown {
                return wrong(format!("{class:?}: no source is called {key}"));
            }
            let pools = [&cost.unit, &cost.slot].into_iter().flatten();
            if let Some(pool) = pools.into_iter().find(|pool| !self.units.contains_key(*pool)) {
                return wrong(format!("{class:?} names an unknown unit, {pool}"));
            }
            if ![cost.latency, cost.busy, cost.late].iter().all(|cycles| *cycles >= 0.0) {
                return wrong(format!("{class:?} costs less than nothing"));
            }
        }
        Ok(())
    }

    /// Returns the cost of an operation of a class.
    pub fn cost(&self, class: OpcodeClass) -> &ClassCost {
        static DEFAULT: LazyLock<ClassCost> =
            LazyLock::new(|| ClassCost { latency: 1.0, ..ClassCost::default() });
        self.classes.get(&class).unwrap_or(&DEFAULT)
    }

    /// Returns the cycles from an instruction's operands to its result. A load within it hits the first level.
    pub fn latency(&self, opcode: Opcode) -> f64 {
        if opcode.class == OpcodeClass::Move && self.eliminates_moves {
            return 0.0;
        }
        let own = self.cost(opcode.class).latency;
        if opcode.load && opcode.class != OpcodeClass::Load { own + self.memory.l1_cycles } else { own }
    }

    /// Returns the greatest cost in cycles of a mispredicted branch, from its execution on.
    pub fn mispredict_cycles_at_most(&self) -> f64 {
        self.mispredict_cycles_max.unwrap_or(MISPREDICT_MAX_TIMES * self.mispredict_cycles)
    }

    /// Whether `first` and `second`, neighbours in memory, count as one instruction.
    pub fn fuses(&self, arch: Arch, first: &Instruction, second: &Instruction) -> bool {
        self.fuses_compare_branch
            && matches!(arch, Arch::X86_64 | Arch::X86)
            && class_x86::fuse(first, second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_model_is_valid() {
        for model in MODELS.iter() {
            assert_eq!(model.verify(), Ok(()));
            assert!(model.units.values().all(|&count| count > 0), "{}", model.name);
            assert!(model.issue_width > 0 && model.retire_width > 0, "{}", model.name);
            assert!(model.mispredict_cycles_at_most() >= model.mispredict_cycles, "{}", model.name);
            let m = &model.memory;
            assert!(m.line_bytes.is_power_of_two() && m.page_bytes.is_power_of_two(), "{}", model.name);
            assert!(
                m.l1_cycles <= m.l2_cycles
                    && m.l2_cycles <= m.last_level_cycles
                    && m.last_level_cycles < m.memory_cycles
            );
        }
    }

    #[test]
    fn the_worst_misprediction_is_documented_or_half_above_the_mean() {
        let worst = |name| MachineModel::named(name).expect("a model").mispredict_cycles_at_most();
        let names = ["amd-zen4", "amd-zen5", "intel-skylake", "generic-inorder-2", "arm-neoverse-n1"];
        assert_eq!(names.map(worst), [18.0, 18.0, 20.0, 8.0, 16.5]);
    }

    fn cpu(arch: &str, vendor: &str, family: u32, model: u32) -> Cpu {
        Cpu {
            arch: arch.into(),
            vendor: vendor.into(),
            model_name: String::new(),
            family,
            model,
            stepping: 0,
            count: 1,
            clock_hz: None,
            clock_hz_range: None,
            machine_model: None,
        }
    }

    #[test]
    fn a_processor_finds_its_model() {
        let name = |c: &Cpu| MachineModel::for_cpu(c).name();
        assert_eq!(name(&cpu("x86_64", "AuthenticAMD", 25, 17)), "amd-zen4");
        assert_eq!(name(&cpu("x86_64", "AuthenticAMD", 25, 1)), "amd-zen3");
        assert_eq!(name(&cpu("x86_64", "AuthenticAMD", 23, 49)), "amd-zen2");
        assert_eq!(name(&cpu("x86_64", "AuthenticAMD", 26, 2)), "amd-zen5");
        assert_eq!(name(&cpu("x86_64", "AuthenticAMD", 23, 1)), "generic-x86-64");
        assert_eq!(name(&cpu("x86_64", "GenuineIntel", 6, 173)), "intel-redwood-cove");
        assert_eq!(name(&cpu("x86_64", "GenuineIntel", 6, 143)), "intel-golden-cove");
        assert_eq!(name(&cpu("x86_64", "GenuineIntel", 6, 106)), "intel-sunny-cove");
        assert_eq!(name(&cpu("x86_64", "GenuineIntel", 6, 85)), "intel-skylake");
        assert_eq!(name(&cpu("x86_64", "GenuineIntel", 6, 63)), "generic-x86-64");
        assert_eq!(name(&cpu("x86_64", "CentaurHauls", 7, 1)), "generic-x86-64");
        let arm = |part| name(&cpu("aarch64", "0x41", 0x41, part));
        let parts = [0xd0c, 0xd40, 0xd4f, 0xd03, 0xd02, 0xd04, 0xd05, 0xd46, 0xd80, 0xd41];
        let models = [
            "arm-neoverse-n1",
            "arm-neoverse-v1",
            "arm-neoverse-v2",
            "arm-cortex-a53",
            "arm-cortex-a53",
            "arm-cortex-a53",
            "arm-cortex-a55",
            "arm-cortex-a510",
            "arm-cortex-a510",
            "generic-aarch64",
        ];
        assert_eq!(parts.map(arm), models);
        assert_eq!(name(&cpu("aarch64", "0x61", 0x61, 0xd0c)), "generic-aarch64");
        assert_eq!(name(&cpu("riscv64", "0x489", 0x489, 7)), "sifive-u74");
        assert_eq!(name(&cpu("riscv64", "0x5b7", 0x5b7, 0)), "generic-riscv64");
        let chosen = Cpu { machine_model: Some("generic-inorder-2".into()), ..cpu("aarch64", "", 0, 0) };
        assert_eq!(name(&chosen), "generic-inorder-2");
    }
}
