//! Pieces of compiled code that are the same in many places.
//!
//! Enters: the registers that a piece uses. Leaves: code that means the same at each address, so it is made once. Never here:
//! instructions of the program.

use iced_x86::{Code, Instruction, MemoryOperand as Operand, Register};

use crate::sys::native::{
    area::Places,
    assemble::{Assembler, narrow, place},
};

/// Code that depends on little.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Piece {
    /// Saves rcx, the pointer and the index.
    Save([Register; 2]),
    /// Restores rcx, the pointer and the index.
    Restore([Register; 2]),
    /// Notes a jump to the address in the area, before and after the number of the block; finds the code there, and goes there.
    BeforeNumber,
    FindCode,
    GoToCode,
}

/// The registers of an indirect jump: its target, and the entry of the table.
pub const TAKEN: Register = Register::RDX;
pub const ENTRY: Register = Register::RAX;

impl Piece {
    /// Appends the piece to code.
    pub fn add_to(self, code: &mut Assembler, places: Places) {
        let rcx = Register::RCX;
        let [saved, pointer_saved, index_saved] = places.saved.map(place);
        let entry =
            |index: Register, table: u64| Operand::with_index_scale_displ_size(index, 8, table as i64, 8);
        // Skips the jump that follows, of five bytes, if rcx is zero.
        let skip_if_found = |code: &mut Assembler| code.branch(Code::Jrcxz_rel8_64, code.at + 2 + 5);
        match self {
            Piece::Save([pointer, index]) => {
                code.store(saved, rcx);
                code.store(pointer_saved, pointer);
                code.store(index_saved, index);
            }
            Piece::Restore([pointer, index]) => {
                code.load(rcx, saved);
                code.load(pointer, pointer_saved);
                code.load(index, index_saved);
            }
            Piece::BeforeNumber => {
                Piece::Save([TAKEN, ENTRY]).add_to(code, places);
                code.load(TAKEN, place(places.pc));
                // Where the list ends, the code begins again here.
                code.load(rcx, place(places.jumps));
                code.store(Operand::with_base(rcx), TAKEN);
            }
            Piece::FindCode => {
                code.lea(rcx, Operand::with_base_displ(rcx, 16));
                code.store(place(places.jumps), rcx);
                code.built(Instruction::with2(Code::Movzx_r32_rm16, narrow(ENTRY), half(TAKEN)));
                code.load(rcx, entry(ENTRY, places.block));
                code.lea(rcx, Operand::with_base_index(rcx, TAKEN));
                skip_if_found(code);
            }
            Piece::GoToCode => {
                code.load(ENTRY, entry(ENTRY, places.code));
                code.store(place(places.target), ENTRY);
                Piece::Restore([TAKEN, ENTRY]).add_to(code, places);
                code.built(Instruction::with1(Code::Jmp_rm64, place(places.target)));
            }
        }
    }
}

/// Returns the low 16 bits of a register.
fn half(register: Register) -> Register {
    Register::AX + register.number() as u32
}
