//! Compiles a block of another program's code.
//!
//! Enters: decoded instructions that follow each other. Leaves: code that does the same on the registers of the processor and on
//! copies of the memory, and the exits of that code. Never here: what is behind an exit.
//!
//! An instruction without memory is taken as it is, and one with memory, too, except that its operand is in the window
//! ([`crate::sys::native::window`]). Where more is needed, it changes no flag, and registers for that are saved and restored. The stack
//! is memory as any other.

use iced_x86::{
    Code, IcedError, Instruction, InstructionInfoFactory, MemoryOperand as Operand, OpKind, Register,
};
use rustc_hash::FxHashMap;

use super::{
    instruction::{Access, Kind, access, interpreted},
    pieces::{ENTRY, Piece, TAKEN},
};
use crate::{
    sys::native::{
        area::{Area, Places},
        assemble::{Assembler, place},
        encode::{self, Vectors},
    },
    x86::{MemoryOperand, Segment, register_number},
};

/// Registers for addresses, those first that can be used together with `ah` to `dh`.
const SCRATCH: [Register; 14] = [
    Register::RDX,
    Register::RAX,
    Register::RSI,
    Register::RDI,
    Register::RBX,
    Register::RBP,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Where an instruction accesses memory.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    Operand(MemoryOperand),
    /// This far from the stack pointer.
    Stack(i64),
    /// At the frame pointer.
    Frame,
}

/// A way to leave a block.
#[derive(Clone, Copy, Debug)]
pub enum Exit {
    /// To the block at an address. The branch at `patch` can lead there directly.
    To { pc: u64, patch: u64 },
    /// To the address that the area holds.
    Indirect,
    /// The instruction at `pc` must be interpreted. It is the first one that was not executed.
    Interpret { pc: u64 },
    /// The registers of the block at `pc`, which has not begun, are to be looked at.
    Look { pc: u64 },
}

/// What the code at `at` accesses for the instruction at `pc`.
#[derive(Clone, Copy, Debug)]
pub struct MemoryAccess {
    pub at: u64,
    pub pc: u64,
    pub target: Target,
    pub access: Access,
}

/// A general register, by its number, that has a value. Not rcx.
pub type Value = (usize, u64);

/// An instruction that a block can contain.
pub struct Compilable {
    pub instruction: Instruction,
    /// `None`: it is taken as it is.
    kind: Option<Kind>,
    /// How it accesses the memory operand that it names.
    access: Option<Access>,
    /// The general registers that it needs, by number.
    used: [bool; 16],
}

/// Compiles blocks for one [`Area`].
pub struct Translator {
    places: Places,
    leave: u64,
    vectors: Vectors,
    factory: InstructionInfoFactory,
    /// Code that is the same in many places.
    known: FxHashMap<Piece, Vec<u8>>,
}

/// Code of a block, and what it accesses.
pub struct Compiled {
    pub bytes: Vec<u8>,
    pub accesses: Vec<MemoryAccess>,
}

/// A block being compiled.
struct Block<'t> {
    code: Assembler,
    translator: &'t mut Translator,
    exits: &'t mut Vec<Exit>,
    accesses: Vec<MemoryAccess>,
    /// Indirect jumps whose target is not known: the branch to be patched, and the exit's number.
    misses: Vec<(u64, u32)>,
}

impl Translator {
    pub fn new(area: &Area) -> Translator {
        Translator {
            places: area.places(),
            leave: area.leave(),
            vectors: Vectors::of_this_machine(),
            factory: InstructionInfoFactory::new(),
            known: FxHashMap::default(),
        }
    }

    /// Returns the instruction if a block can contain it.
    pub fn compilable(&mut self, instruction: Instruction) -> Option<Compilable> {
        let kind = interpreted(&instruction);
        let (mut access_of, mut used) = (None, [false; 16]);
        match kind {
            Some(Kind::Lea) if instruction.op0_register().size() < 4 => return None,
            Some(Kind::Pop) if instruction.op0_register() == Register::RSP => return None,
            Some(
                Kind::Lea
                | Kind::Pop
                | Kind::Nothing
                | Kind::Jump
                | Kind::Branch(_)
                | Kind::Call
                | Kind::Return
                | Kind::Leave,
            ) => {}
            Some(Kind::Push | Kind::JumpTo | Kind::CallTo) => {
                for register in
                    [instruction.op0_register(), instruction.memory_base(), instruction.memory_index()]
                {
                    if let Some(number) = register_number(register) {
                        used[usize::from(number)] = true;
                    }
                }
            }
            Some(_) => return None,
            None => {
                used = encode::beside_others(&instruction, self.vectors, &mut self.factory)?;
                access_of = access(&instruction, &mut self.factory).ok()?;
            }
        }
        Some(Compilable { instruction, kind, access: access_of, used })
    }

    /// Compiles instructions that follow each other; at most the last one changes the control flow. Returns the code for the address
    /// `at`; `None` if an instruction cannot be encoded. `number` is the block's, and `then_interpret` says that the instruction
    /// after the last one must be interpreted.
    pub fn block(
        &mut self,
        at: u64,
        number: u32,
        instructions: &[Compilable],
        then_interpret: bool,
        exits: &mut Vec<Exit>,
    ) -> Option<Compiled> {
        let known = exits.len();
        let mut block = Block {
            code: Assembler::new(at),
            translator: self,
            exits,
            accesses: Vec::new(),
            misses: Vec::new(),
        };
        block.pass(number);
        let mut is_open = true;
        for compilable in instructions {
            is_open = block.instruction(compilable);
        }
        if let Some(last) = instructions.last().filter(|_| is_open) {
            let pc = last.instruction.next_ip();
            if then_interpret { block.leave_by(Exit::Interpret { pc }) } else { block.go_to(pc) }
        }
        block.add_misses();
        let (code, accesses) = (block.code, block.accesses);
        if code.is_sound {
            return Some(Compiled { bytes: code.take(), accesses });
        }
        exits.truncate(known);
        None
    }
}

impl Translator {
    /// Returns code for the address `at` that takes an exit; `None` if it cannot be made.
    pub fn way_out(&mut self, at: u64, exit: Exit, exits: &mut Vec<Exit>) -> Option<Vec<u8>> {
        let mut block = Block {
            code: Assembler::new(at),
            translator: self,
            exits,
            accesses: Vec::new(),
            misses: Vec::new(),
        };
        block.leave_by(exit);
        block.code.is_sound.then(|| block.code.take())
    }

    /// Returns code for the address `at` that takes an exit if one of `values` is there, and otherwise continues with the block whose
    /// code is at `block`; and where it begins. `None` if it cannot be made.
    pub fn look(
        &mut self,
        at: u64,
        exit: Exit,
        values: &[Value],
        block: u64,
        exits: &mut Vec<Exit>,
    ) -> Option<(Vec<u8>, u64)> {
        let [saved, ..] = self.places.saved.map(place);
        let mut look = Block {
            code: Assembler::new(at),
            translator: self,
            exits,
            accesses: Vec::new(),
            misses: Vec::new(),
        };
        look.code.load(Register::RCX, saved);
        look.leave_by(exit);
        let begin = look.code.at;
        // That is what each block begins with.
        look.code.store(saved, Register::RCX);
        let block = block + (look.code.at - begin);
        for (number, value) in values {
            look.code.constant(Register::RCX, value.wrapping_neg());
            look.code
                .lea(Register::RCX, Operand::with_base_index(Register::RAX + *number as u32, Register::RCX));
            look.code.branch(Code::Jrcxz_rel8_64, at);
        }
        look.code.branch(Code::Jmp_rel32_64, block);
        look.code.is_sound.then(|| (look.code.take(), begin))
    }
}

impl Block<'_> {
    fn places(&self) -> Places {
        self.translator.places
    }

    /// Appends code that depends on nothing but `piece`.
    fn piece(&mut self, piece: Piece) {
        if !self.translator.known.contains_key(&piece) {
            let mut code = Assembler::new(self.code.at);
            piece.add_to(&mut code, self.places());
            if !code.is_sound {
                self.code.is_sound = false;
                return;
            }
            self.translator.known.insert(piece, code.take());
        }
        self.code.bytes(&self.translator.known[&piece]);
    }

    /// Notes that the block begins.
    fn pass(&mut self, number: u32) {
        self.piece(Piece::BeforeNumber);
        self.code.store_number(Operand::with_base(Register::RCX), number);
        self.piece(Piece::AfterNumber);
    }

    /// Appends an instruction. Returns whether the one after it may follow.
    fn instruction(&mut self, compilable: &Compilable) -> bool {
        let instruction = &compilable.instruction;
        let (pc, next) = (instruction.ip(), instruction.next_ip());
        match compilable.kind {
            None => self.plain(compilable),
            Some(Kind::Nothing) => {}
            Some(Kind::Lea) => self.lea(instruction),
            Some(Kind::Push) => self.push(compilable),
            Some(Kind::Pop) => self.pop(instruction),
            Some(Kind::Leave) => self.leave(instruction),
            Some(Kind::Jump) => {
                self.go_to(instruction.near_branch_target());
                return false;
            }
            Some(Kind::Branch(_)) => {
                let code = instruction.condition_code();
                let patch = self.code.open_branch(jump_if(code));
                self.go_to(next);
                self.end_branch(patch, instruction.near_branch_target());
                return false;
            }
            Some(Kind::Call) => {
                self.push_constant(pc, next);
                self.go_to(instruction.near_branch_target());
                return false;
            }
            Some(Kind::JumpTo) => {
                self.take_target(compilable);
                self.go_to_taken();
                return false;
            }
            Some(Kind::CallTo) => {
                self.take_target(compilable);
                self.push_constant(pc, next);
                self.go_to_taken();
                return false;
            }
            Some(Kind::Return) => {
                self.return_(instruction);
                return false;
            }
            Some(_) => self.code.is_sound = false,
        }
        true
    }

    /// Appends an instruction without control flow, with its memory operand in the window.
    fn plain(&mut self, compilable: &Compilable) {
        let Compilable { instruction, access, used, .. } = compilable;
        match access {
            Some(access) => self.with_operand(instruction, instruction, *access, used),
            None => self.code.add(instruction),
        }
    }

    /// Appends `twin`, whose memory operand is that of an instruction, with this operand in the window. `used` are the general registers
    /// that it needs.
    fn with_operand(
        &mut self,
        instruction: &Instruction,
        twin: &Instruction,
        access: Access,
        used: &[bool; 16],
    ) {
        let Some(operand) = MemoryOperand::from_instruction(instruction) else {
            self.code.is_sound = false;
            return;
        };
        let (pc, target) = (instruction.ip(), Target::Operand(operand));
        let segment = match operand.segment {
            Segment::Flat => {
                self.access(pc, target, access, &encode::in_window(twin));
                return;
            }
            Segment::Fs => self.places().segments[0],
            Segment::Gs => self.places().segments[1],
        };
        let Some(pointer) = SCRATCH.into_iter().find(|r| !used[r.number()]) else {
            self.code.is_sound = false;
            return;
        };
        let [rcx_saved, pointer_saved, _] = self.places().saved.map(place);
        self.code.store(pointer_saved, pointer);
        self.code.store(rcx_saved, Register::RCX);
        self.address(pointer, instruction);
        self.code.load(Register::RCX, place(segment));
        self.code.lea(pointer, Operand::with_base_index(pointer, Register::RCX));
        self.code.load(Register::RCX, rcx_saved);
        self.access(pc, target, access, &encode::in_window(&encode::at_pointer(twin, pointer)));
        self.code.load(pointer, pointer_saved);
    }

    /// Appends an instruction with an operand in the window, for the one at `pc`.
    fn access(&mut self, pc: u64, target: Target, access: Access, instruction: &Instruction) {
        self.accesses.push(MemoryAccess { at: self.code.at, pc, target, access });
        self.code.add(instruction);
    }

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

    fn lea(&mut self, instruction: &Instruction) {
        let register = instruction.op0_register();
        if !instruction.is_ip_rel_memory_operand() {
            let mut twin = *instruction;
            twin.set_segment_prefix(Register::None);
            self.code.add(&twin);
            return;
        }
        let address = instruction.ip_rel_memory_address();
        let full = register.full_register();
        self.code.constant(full, if register.size() == 4 { address & 0xffff_ffff } else { address });
    }

    fn push(&mut self, compilable: &Compilable) {
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

    fn pop(&mut self, instruction: &Instruction) {
        self.load_from_stack(instruction.ip(), instruction.op0_register());
        self.move_stack(8);
    }

    fn leave(&mut self, instruction: &Instruction) {
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
    fn push_constant(&mut self, pc: u64, value: u64) {
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
    fn take_target(&mut self, compilable: &Compilable) {
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

    fn return_(&mut self, instruction: &Instruction) {
        let arguments = if instruction.op_count() > 0 { i64::from(instruction.immediate16()) } else { 0 };
        let saved = place(self.places().saved[0]);
        self.code.store(saved, Register::RCX);
        self.load_from_stack(instruction.ip(), Register::RCX);
        self.code.store(place(self.places().pc), Register::RCX);
        self.code.load(Register::RCX, saved);
        self.move_stack(8 + arguments);
        self.go_to_taken();
    }

    /// Computes the address of an operand, without its segment.
    fn address(&mut self, to: Register, instruction: &Instruction) {
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        if instruction.is_ip_rel_memory_operand() {
            self.code.constant(to, instruction.ip_rel_memory_address());
        } else if base == Register::None && index == Register::None {
            self.code.constant(to, instruction.memory_displacement64());
        } else {
            let scale = instruction.memory_index_scale();
            let displacement = instruction.memory_displacement64() as i64;
            let is_narrow = base.is_gpr32() || index.is_gpr32();
            let size = match (base, is_narrow) {
                (Register::None, false) => 8,
                (Register::None, true) => 4,
                _ => 1,
            };
            let displacement = if is_narrow { i64::from(displacement as i32) } else { displacement };
            self.code.lea(to, Operand::new(base, index, scale, displacement, size, false, Register::None));
        }
    }

    /// Appends the branches out of indirect jumps that found nothing.
    fn add_misses(&mut self) {
        for (patch, exit) in std::mem::take(&mut self.misses) {
            self.code.patch(patch);
            self.piece(Piece::Restore([TAKEN, ENTRY]));
            self.leave_with(exit);
        }
    }

    /// Continues at an address of the program.
    fn go_to(&mut self, pc: u64) {
        let patch = self.code.open_branch(Code::Jmp_rel32_64);
        self.end_branch(patch, pc);
    }

    /// Appends the exit that an open branch leads to until its block is known.
    fn end_branch(&mut self, patch: u64, pc: u64) {
        self.code.patch(patch);
        self.leave_by(Exit::To { pc, patch });
    }

    /// Continues at the address in the area.
    fn go_to_taken(&mut self) {
        self.piece(Piece::FindCode);
        let patch = self.code.open_branch(Code::Jmp_rel32_64);
        self.misses.push((patch, self.exits.len() as u32));
        self.exits.push(Exit::Indirect);
        self.piece(Piece::GoToCode);
    }

    fn leave_by(&mut self, exit: Exit) {
        self.exits.push(exit);
        self.leave_with(self.exits.len() as u32 - 1);
    }

    fn leave_with(&mut self, exit: u32) {
        let (to, leave) = (self.places().exit, self.translator.leave);
        self.code.store_number(place(to), exit);
        self.code.branch(Code::Jmp_rel32_64, leave);
    }
}

/// The word that is pushed next.
fn below_stack() -> Operand {
    Operand::with_base_displ(Register::RSP, -8)
}

const WORD_READ: Access = Access { bytes: 8, is_read: true, is_written: false, is_partial: false };
const WORD_WRITTEN: Access = Access { bytes: 8, is_read: false, is_written: true, is_partial: false };

/// Returns the conditional branch with a distance of 32 bits.
fn jump_if(condition: iced_x86::ConditionCode) -> Code {
    use iced_x86::ConditionCode as C;
    match condition {
        C::o => Code::Jo_rel32_64,
        C::no => Code::Jno_rel32_64,
        C::b => Code::Jb_rel32_64,
        C::ae => Code::Jae_rel32_64,
        C::e => Code::Je_rel32_64,
        C::ne => Code::Jne_rel32_64,
        C::be => Code::Jbe_rel32_64,
        C::a => Code::Ja_rel32_64,
        C::s => Code::Js_rel32_64,
        C::ns => Code::Jns_rel32_64,
        C::p => Code::Jp_rel32_64,
        C::np => Code::Jnp_rel32_64,
        C::l => Code::Jl_rel32_64,
        C::ge => Code::Jge_rel32_64,
        C::le => Code::Jle_rel32_64,
        C::g => Code::Jg_rel32_64,
        C::None => Code::INVALID,
    }
}
