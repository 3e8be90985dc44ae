//! Compiles instructions that use the stack, and those that take the address of the next instruction from memory.
//!
//! Enters: decoded instructions. Leaves: code in a block. Never here: what leads out of a block.

use iced_x86::{Code, IcedError, Instruction, MemoryOperand as Operand, OpKind, Register};

use super::{Block, Compilable, SCRATCH, Target};
use crate::{
    emulate::instruction::Access,
    sys::native::{assemble::place, encode},
};

const WORD_READ: Access = Access { bytes: 8, is_read: true, is_written: false, is_partial: false };
const WORD_WRITTEN: Access = Access { bytes: 8, is_read: false, is_written: true, is_partial: false };

/// The word that is pushed next.
fn below_stack() -> Operand {
    Operand::with_base_displ(Register::RSP, -8)
}

impl Block<'_> {
    /// Appends a load from the stack, or a store to it, at a distance from the stack pointer.
    fn on_stack(
        &mut self,
        pc: u64,
        distance: i64,
        access: Access,
        instruction: Result<Instruction, IcedError>,
    ) {
        match instruction {
            Ok(instruction) => {
                self.access(pc, Target::Stack(distance), access, &encode::in_window(&instruction))
            }
            Err(_) => self.code.is_sound = false,
        }
    }

    fn load_from_stack(&mut self, pc: u64, register: Register) {
        let instruction = Instruction::with2(Code::Mov_r64_rm64, register, Operand::with_base(Register::RSP));
        self.on_stack(pc, 0, WORD_READ, instruction);
    }

    fn store_to_stack(&mut self, pc: u64, register: Register) {
        let instruction = Instruction::with2(Code::Mov_rm64_r64, below_stack(), register);
        self.on_stack(pc, -8, WORD_WRITTEN, instruction);
    }

    fn move_stack(&mut self, distance: i64) {
        self.code.lea(Register::RSP, Operand::with_base_displ(Register::RSP, distance));
    }

    pub(super) fn push(&mut self, compilable: &Compilable) {
        let instruction = &compilable.instruction;
        let pc = instruction.ip();
        match instruction.op0_kind() {
            OpKind::Register => self.store_to_stack(pc, instruction.op0_register()),
            OpKind::Memory => {
                self.take_target(compilable);
                let (saved, taken) = (place(self.places().saved[0]), place(self.places().pc));
                self.code.store(saved, Register::RCX);
                self.code.load(Register::RCX, taken);
                self.store_to_stack(pc, Register::RCX);
                self.code.load(Register::RCX, saved);
            }
            _ => match i32::try_from(instruction.try_immediate(0).unwrap_or(0) as i64) {
                Ok(value) => self.store_number_to_stack(pc, value),
                Err(_) => self.code.is_sound = false,
            },
        }
        self.move_stack(-8);
    }

    fn store_number_to_stack(&mut self, pc: u64, value: i32) {
        let instruction = Instruction::with2(Code::Mov_rm64_imm32, below_stack(), value);
        self.on_stack(pc, -8, WORD_WRITTEN, instruction);
    }

    pub(super) fn pop(&mut self, instruction: &Instruction) {
        self.load_from_stack(instruction.ip(), instruction.op0_register());
        self.move_stack(8);
    }

    pub(super) fn leave(&mut self, instruction: &Instruction) {
        let (stack, frame) = (Register::RSP, Register::RBP);
        match Instruction::with2(Code::Mov_r64_rm64, frame, Operand::with_base(frame)) {
            Ok(load) => {
                // The frame pointer is needed after it was loaded.
                let saved = place(self.places().saved[1]);
                self.code.store(saved, frame);
                self.access(instruction.ip(), Target::Frame, WORD_READ, &encode::in_window(&load));
                self.code.load(stack, saved);
                self.move_stack(8);
            }
            Err(_) => self.code.is_sound = false,
        }
    }

    /// Pushes a return address.
    pub(super) fn push_constant(&mut self, pc: u64, value: u64) {
        match i32::try_from(value as i64) {
            Ok(value) => self.store_number_to_stack(pc, value),
            Err(_) => {
                let saved = place(self.places().saved[0]);
                self.code.store(saved, Register::RCX);
                self.code.constant(Register::RCX, value);
                self.store_to_stack(pc, Register::RCX);
                self.code.load(Register::RCX, saved);
            }
        }
        self.move_stack(-8);
    }

    /// Stores the first operand, an address, in the area.
    pub(super) fn take_target(&mut self, compilable: &Compilable) {
        let instruction = &compilable.instruction;
        let taken = place(self.places().pc);
        if instruction.op0_kind() == OpKind::Register {
            self.code.store(taken, instruction.op0_register());
            return;
        }
        let Some(register) = SCRATCH.into_iter().rev().find(|r| !compilable.used[r.number()]) else {
            self.code.is_sound = false;
            return;
        };
        // `push [rsp]` and the like: the operand alone, in a load.
        let mut load = *instruction;
        load.set_code(Code::Mov_r64_rm64);
        load.set_op1_kind(OpKind::Memory);
        load.set_op0_kind(OpKind::Register);
        load.set_op0_register(register);
        let saved = place(self.places().saved[2]);
        let mut used = compilable.used;
        used[register.number()] = true;
        self.code.store(saved, register);
        self.with_operand(instruction, &load, WORD_READ, &used);
        self.code.store(taken, register);
        self.code.load(register, saved);
    }

    pub(super) fn return_(&mut self, instruction: &Instruction) {
        let arguments = if instruction.op_count() > 0 { i64::from(instruction.immediate16()) } else { 0 };
        let saved = place(self.places().saved[0]);
        self.code.store(saved, Register::RCX);
        self.load_from_stack(instruction.ip(), Register::RCX);
        self.code.store(place(self.places().pc), Register::RCX);
        self.code.load(Register::RCX, saved);
        self.move_stack(8 + arguments);
        self.go_to_taken();
    }
}
