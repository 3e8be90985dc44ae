//! How the caller of each instruction is found, from `.eh_frame`, as plain data.
//!
//! Input: an image of x86-64. Output: rows by ascending address. Rules that no row can express are `Unknown`. Never here: a
//! stack. A panic on any input is a bug.
//!
//! Complexity: linear in the entries, and O(n log n) if they are not in order.

use gimli::{
    CfaRule, CieOrFde, EhFrame, EndianSlice, LittleEndian, Operation, Register, RegisterRule, UnwindContext,
    UnwindExpression, UnwindSection, UnwindTableRow, X86_64,
};

use crate::{ImageAddress, elf_file::ElfFile, unwind};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Where the canonical frame address is: the stack pointer after the return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// It is the stack pointer plus this.
    StackPointer(i32),
    /// It is the register rbp plus this.
    FramePointer(i32),
    /// It is stored at the register rbp plus this: the function aligned its stack.
    StoredAtFramePointer(i32),
    /// A signal interrupted the caller, whose registers are on the stack.
    Signal,
    /// There is none.
    Outermost,
    /// It is not known.
    Unknown,
}

/// How the caller is found from a range of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnwindRow {
    /// Where the range begins; it ends at the next row.
    pub start: ImageAddress,
    /// How the canonical frame address is found. The return address is just below it.
    pub caller: Caller,
    /// Where the caller's rbp is.
    pub rbp: CallerRbp,
}

/// Where the caller's rbp is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallerRbp {
    /// In rbp.
    Unchanged,
    /// Saved at this distance from the canonical frame address.
    Saved(i32),
    /// Saved where rbp points.
    SavedAtFramePointer,
}

/// Reads all rows of an image, ascending, with an `Unknown` row behind each range that has unwind information.
pub(crate) fn read(file: &ElfFile) -> Vec<UnwindRow> {
    let Some(section) = unwind::frames(&file.elf) else { return Vec::new() };
    let bytes = file.section(section);
    let bases = unwind::bases(&file.elf, section);
    let frames = EhFrame::from(EndianSlice::new(&bytes, LittleEndian));
    let mut context = UnwindContext::new();
    let mut rows: Vec<UnwindRow> = Vec::with_capacity(bytes.len() / 8);
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(|_, _, offset| frames.cie_from_offset(&bases, offset)) else { continue };
        let Ok(mut table) = fde.rows(&frames, &bases, &mut context) else { continue };
        let is_signal = fde.cie().is_signal_trampoline();
        let mut end = fde.initial_address();
        while let Ok(Some(row)) = table.next_row() {
            let (caller, rbp) =
                if is_signal { (Caller::Signal, CallerRbp::Unchanged) } else { rule(row, &frames) };
            rows.push(UnwindRow { start: ImageAddress(row.start_address()), caller, rbp });
            end = row.end_address();
        }
        rows.push(UnwindRow { start: ImageAddress(end), caller: Caller::Unknown, rbp: CallerRbp::Unchanged });
    }
    // Where a range ends and another begins, the one with information wins: it comes first.
    rows.sort_by_key(|row| (row.start, row.caller == Caller::Unknown));
    rows.dedup_by_key(|row| row.start);
    rows.dedup_by(|next, row| (next.caller, next.rbp) == (row.caller, row.rbp));
    rows
}

fn rule(row: &UnwindTableRow<usize>, frames: &EhFrame<Slice>) -> (Caller, CallerRbp) {
    let unknown = (Caller::Unknown, CallerRbp::Unchanged);
    match row.register(X86_64::RA) {
        Some(RegisterRule::Offset(-8)) => {}
        Some(RegisterRule::Undefined) => return (Caller::Outermost, CallerRbp::Unchanged),
        _ => return unknown,
    }
    let caller = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => match (*register, i32::try_from(*offset)) {
            (X86_64::RSP, Ok(offset)) => Caller::StackPointer(offset),
            (X86_64::RBP, Ok(offset)) => Caller::FramePointer(offset),
            _ => return unknown,
        },
        CfaRule::Expression(expression) => match load_of(expression, frames) {
            Some((X86_64::RBP, offset)) => Caller::StoredAtFramePointer(offset),
            _ => return unknown,
        },
    };
    match row.register(X86_64::RBP) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => (caller, CallerRbp::Unchanged),
        Some(RegisterRule::Offset(offset)) => match i32::try_from(offset) {
            Ok(offset) => (caller, CallerRbp::Saved(offset)),
            _ => unknown,
        },
        Some(RegisterRule::Expression(expression)) => match (caller, address_of(&expression, frames)) {
            (Caller::StoredAtFramePointer(_), Some((X86_64::RBP, 0))) => {
                (caller, CallerRbp::SavedAtFramePointer)
            }
            _ => unknown,
        },
        Some(_) => unknown,
    }
}

/// Parses "load from register + offset".
fn load_of(expression: &UnwindExpression<usize>, frames: &EhFrame<Slice>) -> Option<(Register, i32)> {
    let expression = expression.get(frames).ok()?;
    let mut operations = expression.operations(ENCODING);
    let address = register_offset(operations.next().ok()??)?;
    let is_load = matches!(operations.next().ok()??, Operation::Deref { size: 8, .. });
    (is_load && operations.next().ok()?.is_none()).then_some(address)
}

/// Parses "register + offset".
fn address_of(expression: &UnwindExpression<usize>, frames: &EhFrame<Slice>) -> Option<(Register, i32)> {
    let expression = expression.get(frames).ok()?;
    let mut operations = expression.operations(ENCODING);
    let address = register_offset(operations.next().ok()??)?;
    operations.next().ok()?.is_none().then_some(address)
}

fn register_offset(operation: Operation<Slice>) -> Option<(Register, i32)> {
    match operation {
        Operation::RegisterOffset { register, offset, .. } => Some((register, i32::try_from(offset).ok()?)),
        _ => None,
    }
}

const ENCODING: gimli::Encoding =
    gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
