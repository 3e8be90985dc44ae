//! Jump tables: the targets of the indirect jump of a `switch` (DCPI §6.1.1).
//!
//! Input: a procedure's instructions and its image's bytes. Output: possible targets by the jump's index. A jump whose
//! table was not recognized is absent, and the graph then has missing edges. Complexity: linear in the procedure
//! ([`reach`] bounds the searches) and in the tables.
//!
//! The jump's target is evaluated backwards ([`value`]). Two forms are recognized: `entry` (eight bytes, or four) and
//! `origin + entry × 2^k` (one, two or four bytes), where the entry is loaded from `table + index × its size`. These are
//! the forms that gcc, clang and rustc generate for x86-64, AArch64 and RISC-V, position-independent or not, and the
//! tables of labels that interpreters use. The number of entries comes from the guard of the index ([`bound`]); without
//! one, entries of four and eight bytes count as long as they are addresses of instructions of the procedure.

mod bound;
mod reach;
mod step;
mod value;

use std::{cell::RefCell, collections::BTreeMap};

use dwell_image::{Arch, Flow, ImageAddress, Instruction, Operand, Register};

use self::{
    bound::Bound,
    reach::Reach,
    value::{Evaluator, Term, Value},
};

/// Reads bytes of the image. Returns false if there are none.
type Read<'a> = &'a dyn Fn(ImageAddress, &mut [u8]) -> bool;

/// Greatest number of entries of a table.
const ENTRIES_MAX: u64 = 4096;
/// Number of passes: blocks that only a recovered table leads to may contain further jumps.
const ROUNDS_MAX: usize = 4;

/// Returns the targets of a procedure's indirect jumps, ascending and distinct. Those of cold parts are outside of the
/// procedure.
pub fn recover_jump_targets(
    arch: Arch,
    instructions: &[Instruction],
    read: &dyn Fn(ImageAddress, &mut [u8]) -> bool,
) -> BTreeMap<usize, Vec<ImageAddress>> {
    let is_jump = |i: &usize| instructions[*i].flow == Flow::IndirectJump;
    let mut missing: Vec<usize> = (0..instructions.len()).filter(is_jump).collect();
    let mut targets = BTreeMap::new();
    for _ in 0..ROUNDS_MAX {
        if missing.is_empty() {
            break;
        }
        let evaluator = Evaluator {
            arch,
            instructions,
            reach: Reach::new(arch, instructions, &targets),
            known: RefCell::default(),
        };
        let search = Search { evaluator, read };
        let known = targets.len();
        targets.extend(missing.iter().filter_map(|&jump| Some((jump, search.targets(jump)?))));
        missing.retain(|jump| !targets.contains_key(jump));
        if targets.len() == known {
            break;
        }
    }
    debug_assert_eq!(verify_jump_targets(instructions, &targets), Ok(()));
    targets
}

/// Checks that only indirect jumps have targets, which ascend and include at least one inside the procedure.
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

/// The layout of a table.
#[derive(Clone, Copy, Debug)]
struct Table {
    address: ImageAddress,
    /// The address that relative entries are added to: the table, or a label that the compiler chose; `None` for absolute
    /// entries.
    origin: Option<ImageAddress>,
    entry_bytes: u8,
    is_signed: bool,
    /// Relative entries count in units of `2^scale` bytes.
    scale: u8,
    index: Register,
    /// The index is the value of the register before this instruction.
    index_at: usize,
    load_at: usize,
}

struct Search<'a> {
    evaluator: Evaluator<'a>,
    read: Read<'a>,
}

impl Search<'_> {
    fn targets(&self, jump: usize) -> Option<Vec<ImageAddress>> {
        let evaluator = &self.evaluator;
        match evaluator.instructions[jump].operands.first()? {
            Operand::Memory(memory) => self.targets_of(&evaluator.loaded(memory, 8, jump)?),
            Operand::Register { register, .. } => {
                let value = evaluator.register(*register, jump);
                self.targets_of(&value).or_else(|| self.joined_targets(*register, jump))
            }
            Operand::Immediate(_) => None,
        }
    }

    /// Combines the results of several places that look their target up and share the jump.
    fn joined_targets(&self, register: Register, jump: usize) -> Option<Vec<ImageAddress>> {
        let evaluator = &self.evaluator;
        let definitions = evaluator.reach.definitions(register, jump).at;
        let tables = definitions.iter().map(|&at| self.targets_of(&evaluator.result(register, at)?));
        let all = tables.collect::<Option<Vec<_>>>()?.concat();
        (!all.is_empty()).then(|| distinct(all))
    }

    /// Returns a table's targets, or the one label that the jump always goes to.
    fn targets_of(&self, target: &Value) -> Option<Vec<ImageAddress>> {
        if let Value { constant: Some(address), term: None } = *target {
            let label = ImageAddress(address);
            return starts_instruction(self.evaluator.instructions, label).then(|| vec![label]);
        }
        self.read_table(table_of(target)?)
    }

    /// Returns how many entries the index can select. A comparison may stand between the computation of the index and its
    /// use, as long as the register is not written in between.
    fn bound(&self, table: &Table) -> Option<Bound> {
        let evaluator = &self.evaluator;
        let early = bound::entries(evaluator, table.index, table.index_at);
        let entries = early.or_else(|| {
            let mut between = table.index_at.min(table.load_at)..table.load_at;
            let is_kept = !between.any(|i| evaluator.reach.is_write(i, table.index));
            bound::entries(evaluator, table.index, table.load_at).filter(|_| is_kept)
        });
        entries.filter(|&(Bound::Exact(n) | Bound::AtMost(n))| (1..=ENTRIES_MAX).contains(&n))
    }

    fn read_table(&self, table: Table) -> Option<Vec<ImageAddress>> {
        match self.bound(&table) {
            Some(Bound::Exact(entries)) => self.whole(&table, entries, 1),
            // Any small number is a valid offset, so such a table has no recognizable end.
            _ if table.entry_bytes < 4 => None,
            Some(Bound::AtMost(entries)) => {
                self.whole(&table, entries, entries.div_ceil(2)).or_else(|| self.beginning(&table, entries))
            }
            None => self.beginning(&table, ENTRIES_MAX),
        }
    }

    /// Reads a table of known length. Some entries may lead to a cold part elsewhere, but at least `inside_min` of them
    /// lead to instructions of the procedure, and none into the middle of one.
    fn whole(&self, table: &Table, entries: u64, inside_min: u64) -> Option<Vec<ImageAddress>> {
        let instructions = self.evaluator.instructions;
        let all = (0..entries).map(|k| self.entry(table, k));
        let targets: Vec<ImageAddress> = all.collect::<Option<_>>()?;
        let inside = targets.iter().filter(|&&t| starts_instruction(instructions, t)).count() as u64;
        let astray = targets.iter().any(|&t| self.splits_instruction(t));
        (inside >= inside_min && !astray).then(|| distinct(targets))
    }

    /// Reads the entries of a table of unknown length, as far as they are addresses of instructions of the procedure.
    fn beginning(&self, table: &Table, entries_max: u64) -> Option<Vec<ImageAddress>> {
        let all = (0..entries_max).map_while(|k| self.entry(table, k));
        let targets: Vec<ImageAddress> =
            all.take_while(|&t| starts_instruction(self.evaluator.instructions, t)).collect();
        (!targets.is_empty()).then(|| distinct(targets))
    }

    fn entry(&self, table: &Table, k: u64) -> Option<ImageAddress> {
        let mut bytes = [0; 8];
        let size = usize::from(table.entry_bytes);
        if !(self.read)(table.address.offset(k * size as u64), &mut bytes[..size]) {
            return None;
        }
        let unused_bits = 64 - 8 * u32::from(table.entry_bytes);
        let shifted = u64::from_le_bytes(bytes) << unused_bits;
        let value =
            if table.is_signed { ((shifted as i64) >> unused_bits) as u64 } else { shifted >> unused_bits };
        Some(match table.origin {
            Some(origin) => origin.offset(value << table.scale),
            None => ImageAddress(value),
        })
    }

    fn splits_instruction(&self, target: ImageAddress) -> bool {
        let instructions = self.evaluator.instructions;
        let (first, last) = (&instructions[0], &instructions[instructions.len() - 1]);
        let is_inside = target >= first.address && target < last.end();
        is_inside && !starts_instruction(instructions, target)
    }
}

/// Returns the table that a jump's target is loaded from, if it has a recognized form.
fn table_of(target: &Value) -> Option<Table> {
    let (Term::Load { address, bytes, signed, at }, scale) = target.term.as_ref()? else { return None };
    let (Term::Unknown { register, at: index_at }, index_scale) = address.term.as_ref()? else { return None };
    let is_array = matches!(bytes, 1 | 2 | 4 | 8) && 1i64 << index_scale.clamp(&0, &4) == i64::from(*bytes);
    let fits = match target.constant {
        None => *bytes >= 4 && *scale == 0,
        Some(_) => *bytes <= 4 && (0..=3).contains(scale),
    };
    (is_array && fits).then_some(())?;
    Some(Table {
        address: ImageAddress(address.constant?),
        origin: target.constant.map(ImageAddress),
        entry_bytes: *bytes,
        is_signed: *signed,
        scale: *scale as u8,
        index: *register,
        index_at: *index_at,
        load_at: *at,
    })
}

fn distinct(mut targets: Vec<ImageAddress>) -> Vec<ImageAddress> {
    targets.sort_unstable();
    targets.dedup();
    targets
}

fn starts_instruction(instructions: &[Instruction], address: ImageAddress) -> bool {
    index_of(instructions, address).is_some()
}

fn index_of(instructions: &[Instruction], address: ImageAddress) -> Option<usize> {
    instructions.binary_search_by_key(&address, |i| i.address).ok()
}
