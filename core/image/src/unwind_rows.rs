//! How the caller of each instruction is found, from `.eh_frame`, as plain data.
//!
//! Input: an image of x86-64. Output: rows by ascending address. Rules that no row can express are `Unknown`. Never here: a
//! stack. A panic on any input is a bug.
//!
//! Complexity: linear in the entries, and O(n log n) if they are not in order.

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, Expression, LittleEndian, Operation, Register,
    RegisterRule, UnwindContext, UnwindSection, UnwindTableRow, X86_64,
};

use crate::{ImageAddress, elf_file::ElfFile, unwind};

/// A part of a section.
pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Largest number of rows for which memory is reserved before they are read.
const ROWS_GUESSED_MAX: usize = 1 << 20;

/// Where the canonical frame address is: the stack pointer after the return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// It is the stack pointer plus this.
    StackPointer(i32),
    /// It is the register rbp plus this.
    FramePointer(i32),
    /// It is stored at the register rbp plus this: the function aligned its stack.
    StoredAtFramePointer(i32),
    /// It is `plus` more than what is stored at the stack pointer plus `at`: assembly that aligned its stack and saved the old one.
    StoredAtStackPointer {
        /// Distance from the stack pointer.
        at: i32,
        /// What is added to the stored value.
        plus: i32,
    },
    /// A stub of the procedure linkage table: the stack pointer plus 8, and plus 16 from this byte of each 16 bytes of code on.
    LinkageStub(u8),
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
    all_rows(&frames, &bases, bytes.len())
}

/// Reads all rows of a section of this many bytes, as [`read`] does.
pub(crate) fn all_rows<'a, S: UnwindSection<Slice<'a>>>(
    frames: &S,
    bases: &BaseAddresses,
    section_bytes: usize,
) -> Vec<UnwindRow> {
    let mut context = UnwindContext::new();
    let mut rows: Vec<UnwindRow> = Vec::with_capacity((section_bytes / 8).min(ROWS_GUESSED_MAX));
    let mut entries = frames.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(|_, _, offset| frames.cie_from_offset(bases, offset)) else { continue };
        let Ok(mut table) = fde.rows(frames, bases, &mut context) else { continue };
        let is_signal = fde.cie().is_signal_trampoline();
        let mut end = fde.initial_address();
        while let Ok(Some(row)) = table.next_row() {
            let (caller, rbp) =
                if is_signal { (Caller::Signal, CallerRbp::Unchanged) } else { rule(row, frames) };
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

/// Returns how the caller is found by a row.
pub(crate) fn rule<'a, S: UnwindSection<Slice<'a>>>(
    row: &UnwindTableRow<usize>,
    frames: &S,
) -> (Caller, CallerRbp) {
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
        CfaRule::Expression(expression) => match expression.get(frames).ok().and_then(computed) {
            Some(caller) => caller,
            None => return unknown,
        },
    };
    match row.register(X86_64::RBP) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => (caller, CallerRbp::Unchanged),
        Some(RegisterRule::Offset(offset)) => match i32::try_from(offset) {
            Ok(offset) => (caller, CallerRbp::Saved(offset)),
            _ => unknown,
        },
        Some(RegisterRule::Expression(expression)) => {
            match (caller, expression.get(frames).ok().and_then(address)) {
                (Caller::StoredAtFramePointer(_), Some((X86_64::RBP, 0))) => {
                    (caller, CallerRbp::SavedAtFramePointer)
                }
                _ => unknown,
            }
        }
        Some(_) => unknown,
    }
}

/// Parses the expressions for a canonical frame address that compilers, linkers and assembly write.
fn computed(expression: Expression<Slice>) -> Option<Caller> {
    let mut operations = expression.operations(ENCODING);
    let mut next = || operations.next().ok().flatten();
    let (register, at) = register_offset(next()?)?;
    match (register, next()?) {
        (X86_64::RBP, Operation::Deref { size: 8, .. }) => {
            next().is_none().then_some(Caller::StoredAtFramePointer(at))
        }
        (X86_64::RSP, Operation::Deref { size: 8, .. }) => {
            let plus = match next() {
                None => 0,
                Some(Operation::PlusConstant { value }) => i32::try_from(value).ok()?,
                Some(_) => return None,
            };
            next().is_none().then_some(Caller::StoredAtStackPointer { at, plus })
        }
        // The linker's expression: rsp + 8 + ((rip & 15) >= from) * 8.
        (X86_64::RSP, Operation::RegisterOffset { register: X86_64::RA, offset: 0, .. }) if at == 8 => {
            let mask = constant(next()?)?;
            let (and, from) = (next()?, constant(next()?)?);
            let (ge, shift, shl, plus) = (next()?, constant(next()?)?, next()?, next()?);
            let is_stub = matches!(
                (and, ge, shl, plus),
                (Operation::And, Operation::Ge, Operation::Shl, Operation::Plus)
            );
            let is_whole = (mask, shift) == (15, 3) && next().is_none();
            (is_stub && is_whole).then_some(Caller::LinkageStub(u8::try_from(from).ok()?))
        }
        _ => None,
    }
}

/// Parses "register + offset".
fn address(expression: Expression<Slice>) -> Option<(Register, i32)> {
    let mut operations = expression.operations(ENCODING);
    let address = register_offset(operations.next().ok()??)?;
    operations.next().ok()?.is_none().then_some(address)
}

fn constant(operation: Operation<Slice>) -> Option<u64> {
    match operation {
        Operation::UnsignedConstant { value } => Some(value),
        Operation::SignedConstant { value } => u64::try_from(value).ok(),
        _ => None,
    }
}

fn register_offset(operation: Operation<Slice>) -> Option<(Register, i32)> {
    match operation {
        Operation::RegisterOffset { register, offset, .. } => Some((register, i32::try_from(offset).ok()?)),
        _ => None,
    }
}

const ENCODING: gimli::Encoding =
    gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
