//! Jump tables: where an indirect jump of a `switch` can go (DCPI §6.1.1).
//!
//! Input: a procedure's instructions and its image's bytes. Output: possible targets by the jump's index; a jump whose
//! table was not understood is absent, and its graph then has missing edges. Complexity: linear in the instructions
//! looked back at (at most [`LOOK_BACK`] for each jump) and in the tables.
//!
//! Understood are what gcc, clang and rustc make for x86-64: `lea tbl(%rip), B; movslq (B, I, 4), R; add B, R; jmp *R`
//! (entries relative to the table), and `jmp *tbl(, I, 8)` with or without a load into a register (absolute entries). The
//! number of entries comes from the `cmp`/`ja` or `and` that guards the index; without one, entries count as long as they
//! name instructions of the procedure.

use std::collections::BTreeMap;

use dwell_image::{Arch, Flow, ImageAddress, Instruction, MemoryOperand, Operand, Register};

/// Reads bytes of the image; false where there are none.
type Read<'a> = &'a dyn Fn(ImageAddress, &mut [u8]) -> bool;

/// Instructions looked back at from a jump.
const LOOK_BACK: usize = 48;
/// The longest table.
const ENTRIES_MAX: u64 = 4096;

/// The targets of a procedure's indirect jumps, ascending and distinct; those of cold parts lie outside it.
pub fn recover_jump_targets(
    arch: Arch,
    instructions: &[Instruction],
    read: &dyn Fn(ImageAddress, &mut [u8]) -> bool,
) -> BTreeMap<usize, Vec<ImageAddress>> {
    let is_jump = |i: &usize| instructions[*i].flow == Flow::IndirectJump;
    if arch != Arch::X86_64 {
        return BTreeMap::new();
    }
    let search = Search { instructions, read };
    let recovered =
        (0..instructions.len()).filter(is_jump).filter_map(|jump| Some((jump, search.targets(jump)?)));
    let targets = recovered.collect();
    debug_assert_eq!(verify_jump_targets(instructions, &targets), Ok(()));
    targets
}

/// Checks that only indirect jumps have targets, each ascending and at least one inside the procedure.
pub fn verify_jump_targets(
    instructions: &[Instruction],
    targets: &BTreeMap<usize, Vec<ImageAddress>>,
) -> Result<(), String> {
    for (jump, to) in targets {
        let is_indirect = instructions.get(*jump).is_some_and(|i| i.flow == Flow::IndirectJump);
        let lands = to.iter().any(|&t| starts_instruction(instructions, t));
        if !is_indirect || !lands || !to.is_sorted_by(|a, b| a < b) {
            return Err(format!("instruction {jump} cannot go to {to:?}"));
        }
    }
    Ok(())
}

/// How a table is laid out.
#[derive(Clone, Copy, Debug)]
struct Table {
    address: ImageAddress,
    /// What relative entries count from: the table, or a label that the compiler chose.
    origin: ImageAddress,
    entry: Entry,
    index: Register,
    /// Where the index is used: its bound is looked for before that.
    used_at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    /// Four bytes, relative to the origin.
    Relative,
    /// Eight bytes.
    Absolute,
}

struct Search<'a> {
    instructions: &'a [Instruction],
    read: Read<'a>,
}

impl Search<'_> {
    fn targets(&self, jump: usize) -> Option<Vec<ImageAddress>> {
        let table = match self.instructions[jump].operands.first()? {
            Operand::Memory(m) => self.absolute_table(m, jump)?,
            Operand::Register { register, .. } => self.table_behind(*register, jump)?,
            Operand::Immediate(_) => return None,
        };
        self.read_table(table)
    }

    /// `[tbl + idx*8]` or `[base + idx*8]` with the table's address in the base.
    fn absolute_table(&self, m: &MemoryOperand, at: usize) -> Option<Table> {
        let index = m.index.filter(|_| m.scale == 8)?;
        let address = match m.base {
            None => ImageAddress(m.displacement as u64),
            Some(base) => self.address_in(base, at)?.offset(m.displacement as u64),
        };
        Some(Table { address, origin: address, entry: Entry::Absolute, index, used_at: at })
    }

    fn table_behind(&self, register: Register, jump: usize) -> Option<Table> {
        let at = self.last_write(register, jump)?;
        let definition = &self.instructions[at];
        match &*definition.mnemonic {
            "mov" => self.absolute_table(definition.load()?, at),
            "add" => self.relative_table(definition, at),
            _ => None,
        }
    }

    /// `add R, B` where one is the loaded entry and the other the table's address.
    fn relative_table(&self, add: &Instruction, at: usize) -> Option<Table> {
        let [a, b] = registers_of(add)?;
        [(a, b), (b, a)].into_iter().find_map(|(entry, base)| {
            let load_at = self.last_write(entry, at)?;
            let load = &self.instructions[load_at];
            let m = load.load().filter(|m| matches!(&*load.mnemonic, "movsxd" | "movslq") && m.scale == 4)?;
            let origin = self.address_in(base, at)?;
            let address = match m.base {
                Some(load_base) => self.address_in(load_base, load_at)?.offset(m.displacement as u64),
                None => ImageAddress(m.displacement as u64),
            };
            Some(Table { address, origin, entry: Entry::Relative, index: m.index?, used_at: load_at })
        })
    }

    /// The constant address that a register holds at `at`: from the nearest `lea` before it or, as loops keep it in a
    /// register that is set far away, from the only one that writes it.
    fn address_in(&self, register: Register, at: usize) -> Option<ImageAddress> {
        let is_write = |i: &&Instruction| i.writes.contains(register) && !matches!(i.flow, Flow::Call { .. });
        let constant = |i: &Instruction| match &*i.mnemonic {
            "lea" => i.memory().next()?.address,
            "mov" | "movabs" => match i.operands.get(1) {
                Some(Operand::Immediate(value)) => Some(ImageAddress(*value as u64)),
                _ => None,
            },
            _ => None,
        };
        let near = self.instructions[..at].iter().rev().take(LOOK_BACK).find(is_write).and_then(constant);
        near.or_else(|| {
            let mut all = self.instructions.iter().filter(is_write).filter_map(constant);
            let first = all.next()?;
            all.all(|a| a == first).then_some(first)
        })
    }

    fn last_write(&self, register: Register, before: usize) -> Option<usize> {
        let from = before.saturating_sub(LOOK_BACK);
        (from..before).rev().find(|&i| self.instructions[i].writes.contains(register))
    }

    /// How many entries the guard before the table's use leaves possible.
    fn bound(&self, table: &Table) -> Option<u64> {
        let mut aliases = vec![table.index];
        let from = table.used_at.saturating_sub(LOOK_BACK);
        for i in (from..table.used_at).rev() {
            let instruction = &self.instructions[i];
            let first = match instruction.operands.first() {
                Some(Operand::Register { register, .. }) => *register,
                _ => continue,
            };
            let constant = instruction.operands.iter().find_map(|o| match o {
                Operand::Immediate(value) => u64::try_from(*value).ok(),
                _ => None,
            });
            let is_index = aliases.contains(&first);
            match (&*instruction.mnemonic, constant) {
                ("cmp", Some(limit)) if is_index => {
                    if let Some(entries) = self.guarded(i, limit) {
                        return Some(entries);
                    }
                }
                ("and", Some(mask)) if is_index => return mask.checked_add(1),
                ("mov" | "movzx" | "movsx" | "movsxd", None) if is_index => {
                    aliases.extend(copied_from(instruction))
                }
                _ => {}
            }
        }
        None
    }

    /// `cmp index, limit` and the branch that leaves when the index is beyond.
    fn guarded(&self, compare: usize, limit: u64) -> Option<u64> {
        let mut next = self.instructions[compare + 1..].iter().take(4);
        let branch = next.find(|i| matches!(i.flow, Flow::Branch { .. }))?;
        match &*branch.mnemonic {
            "ja" | "jbe" | "jg" | "jle" => limit.checked_add(1),
            "jae" | "jb" | "jge" | "jl" => Some(limit),
            _ => None,
        }
    }

    fn read_table(&self, table: Table) -> Option<Vec<ImageAddress>> {
        let bound = self.bound(&table).filter(|&b| (1..=ENTRIES_MAX).contains(&b));
        let mut targets = Vec::new();
        for k in 0..bound.unwrap_or(ENTRIES_MAX) {
            match (self.entry(&table, k), bound) {
                (Some(target), None) if !starts_instruction(self.instructions, target) => break,
                (Some(target), _) => targets.push(target),
                (None, None) => break,
                (None, Some(_)) => return None,
            }
        }
        targets.sort_unstable();
        targets.dedup();
        // With a bound, entries may lead to a cold part elsewhere, but not all of them, nor into an instruction.
        let inside = targets.iter().filter(|&&t| starts_instruction(self.instructions, t)).count();
        let astray = targets.iter().any(|&t| self.splits_instruction(t));
        (inside > 0 && !astray).then_some(targets)
    }

    fn entry(&self, table: &Table, k: u64) -> Option<ImageAddress> {
        match table.entry {
            Entry::Relative => {
                let mut bytes = [0; 4];
                (self.read)(table.address.offset(4 * k), &mut bytes)
                    .then(|| table.origin.offset(i64::from(i32::from_le_bytes(bytes)) as u64))
            }
            Entry::Absolute => {
                let mut bytes = [0; 8];
                (self.read)(table.address.offset(8 * k), &mut bytes)
                    .then(|| ImageAddress(u64::from_le_bytes(bytes)))
            }
        }
    }

    fn splits_instruction(&self, target: ImageAddress) -> bool {
        let (first, last) = (&self.instructions[0], &self.instructions[self.instructions.len() - 1]);
        let is_inside = target >= first.address && target < last.end();
        is_inside && !starts_instruction(self.instructions, target)
    }
}

fn starts_instruction(instructions: &[Instruction], address: ImageAddress) -> bool {
    instructions.binary_search_by_key(&address, |i| i.address).is_ok()
}

fn registers_of(instruction: &Instruction) -> Option<[Register; 2]> {
    match instruction.operands[..] {
        [Operand::Register { register: a, .. }, Operand::Register { register: b, .. }] => Some([a, b]),
        _ => None,
    }
}

fn copied_from(instruction: &Instruction) -> Option<Register> {
    registers_of(instruction).map(|[_, from]| from)
}
