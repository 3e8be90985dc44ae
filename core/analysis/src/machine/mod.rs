//! Machine models: what a core does with instructions, as data. One file for each core in `machines/`, with the
//! source of its figures.

mod class;
mod class_a64;
mod class_riscv;
mod class_x86;

use std::{collections::BTreeMap, sync::LazyLock};

use dwell_image::{Arch, Instruction};
use dwell_profile::Cpu;
use serde::Deserialize;

pub use class::{Opcode, OpcodeClass};

/// A core, as far as the analysis needs to know it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineModel {
    name: String,
    /// What it is, for people.
    pub description: String,
    /// Where the figures come from.
    pub sources: Vec<String>,
    /// The instruction set; `None` where the model fits any.
    pub arch: Option<String>,
    /// The processors it describes; empty for fallbacks and simulated cores.
    pub cpus: Vec<CpuMatch>,
    /// In which order it issues.
    pub order: Order,
    /// Instructions a cycle that the front end delivers (in order: that issue).
    pub issue_width: u32,
    /// Instructions a cycle that retire (in order: as issue).
    pub retire_width: u32,
    /// Where samples land.
    pub skid: SkidRule,
    /// Pools of units by name: how many operations a cycle each starts.
    pub units: BTreeMap<String, u32>,
    /// By class; absent ones cost as [`ClassCost::default`].
    pub classes: BTreeMap<OpcodeClass, ClassCost>,
    /// A compare and the conditional branch after it count as one instruction.
    pub fuses_compare_branch: bool,
    /// Register moves take no unit and no time.
    pub eliminates_moves: bool,
    /// From a mispredicted branch to the right instruction.
    pub mispredict_cycles: f64,
    /// Caches and translation.
    pub memory: Memory,
    /// Stores that wait behind retirement.
    pub store_buffer_entries: u32,
}

/// The order of issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// As in the program.
    InOrder,
    /// As operands allow; retirement is in order.
    OutOfOrder,
}

/// Which instruction a sample names, given the oldest that has not issued (in order) or retired (out of order).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkidRule {
    /// That one.
    Head,
    /// The one executed after it (DESIGN.md §5).
    AfterNextToRetire,
}

/// Processors by what CPUID or the identification register says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuMatch {
    /// As [`Cpu::vendor`].
    pub vendor: String,
    /// As [`Cpu::family`].
    pub family: u32,
    /// Ranges of [`Cpu::model`], ends included.
    pub models: Vec<(u32, u32)>,
}

/// What an operation of a class costs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassCost {
    /// Cycles until a result can be used; for what varies, the least of it.
    pub latency: f64,
    /// The pool of units it needs.
    pub unit: Option<String>,
    /// Cycles during which it keeps one of them.
    pub busy: f64,
    /// It issues in a cycle of its own (in order).
    pub alone: bool,
    /// Nothing later issues in its cycle (in order).
    pub ends_group: bool,
}

/// Caches and translation, in cycles from use to result.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Bytes of a cache line.
    pub line_bytes: u64,
    /// Bytes of the smallest page.
    pub page_bytes: u64,
    /// First level.
    pub l1_cycles: f64,
    /// Second level.
    pub l2_cycles: f64,
    /// The last level before memory.
    pub last_level_cycles: f64,
    /// Memory.
    pub memory_cycles: f64,
    /// A data page that no TLB holds.
    pub dtlb_miss_cycles: f64,
    /// A code page that no TLB holds.
    pub itlb_miss_cycles: f64,
}

const FILES: [&str; 9] = [
    include_str!("../../machines/amd-zen4.json"),
    include_str!("../../machines/amd-zen3.json"),
    include_str!("../../machines/amd-zen2.json"),
    include_str!("../../machines/intel-golden-cove.json"),
    include_str!("../../machines/intel-skylake.json"),
    include_str!("../../machines/generic-x86-64.json"),
    include_str!("../../machines/generic-aarch64.json"),
    include_str!("../../machines/generic-riscv64.json"),
    include_str!("../../machines/generic-inorder-2.json"),
];

/// The files are ours: one that does not parse is a bug, and a test parses them all.
static MODELS: LazyLock<Vec<MachineModel>> =
    LazyLock::new(|| FILES.iter().map(|f| serde_json::from_str(f).expect("a machine's own file")).collect());

impl MachineModel {
    /// The model of a sampled processor: the one a user named, else by vendor, family and model, else the generic one
    /// of its instruction set.
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

    /// The model of that name.
    pub fn named(name: &str) -> Option<&'static MachineModel> {
        MODELS.iter().find(|m| m.name == name)
    }

    /// Names of all models.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MODELS.iter().map(|m| m.name.as_str())
    }

    /// Its name: `amd-zen4`, `generic-x86-64`, …
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What an operation of a class costs here.
    pub fn cost(&self, class: OpcodeClass) -> &ClassCost {
        static DEFAULT: LazyLock<ClassCost> =
            LazyLock::new(|| ClassCost { latency: 1.0, ..ClassCost::default() });
        self.classes.get(&class).unwrap_or(&DEFAULT)
    }

    /// Cycles from an instruction's operands to its result, a load within it hitting the first level.
    pub fn latency(&self, opcode: Opcode) -> f64 {
        if opcode.class == OpcodeClass::Move && self.eliminates_moves {
            return 0.0;
        }
        let own = self.cost(opcode.class).latency;
        if opcode.load && opcode.class != OpcodeClass::Load { own + self.memory.l1_cycles } else { own }
    }

    /// Whether `first` and `second`, neighbours in memory, count as one instruction.
    pub fn fuses(&self, arch: Arch, first: &Instruction, second: &Instruction) -> bool {
        self.fuses_compare_branch && arch == Arch::X86_64 && class_x86::fuse(first, second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_sound() {
        for model in MODELS.iter() {
            assert!(!model.sources.is_empty(), "{}", model.name);
            for (class, cost) in &model.classes {
                let known = cost.unit.as_ref().is_none_or(|u| model.units.contains_key(u));
                assert!(known, "{}: {class:?} names an unknown unit", model.name);
                assert!(cost.latency >= 0.0 && cost.busy >= 0.0, "{}: {class:?}", model.name);
            }
            assert!(model.units.values().all(|&count| count > 0), "{}", model.name);
            assert!(model.issue_width > 0 && model.retire_width > 0, "{}", model.name);
            let m = &model.memory;
            assert!(m.line_bytes.is_power_of_two() && m.page_bytes.is_power_of_two(), "{}", model.name);
            assert!(
                m.l1_cycles <= m.l2_cycles
                    && m.l2_cycles <= m.last_level_cycles
                    && m.last_level_cycles < m.memory_cycles
            );
        }
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
        assert_eq!(name(&cpu("x86_64", "GenuineIntel", 6, 173)), "intel-golden-cove");
        assert_eq!(name(&cpu("x86_64", "GenuineIntel", 6, 85)), "intel-skylake");
        assert_eq!(name(&cpu("x86_64", "CentaurHauls", 7, 1)), "generic-x86-64");
        assert_eq!(name(&cpu("aarch64", "ARM", 0x41, 0xd0c)), "generic-aarch64");
        let chosen = Cpu { machine_model: Some("generic-inorder-2".into()), ..cpu("aarch64", "", 0, 0) };
        assert_eq!(name(&chosen), "generic-inorder-2");
    }
}
