//! Compiles a block of another program's code.
//!
//! Enters: decoded instructions that follow each other. Leaves: code that does the same on the registers of the processor and on
//! copies of the memory, and the exits of that code. Never here: what is behind an exit.
//!
//! An instruction without memory is taken as it is, and one with memory, too, except that its operand is in the window
//! ([`crate::sys::native::window`]). Where more is needed, it changes no flag, and registers for that are saved and restored. The stack
//! is memory as any other.

mod stack;

use iced_x86::{Code, Instruction, InstructionInfoFactory, MemoryOperand as Operand, Register};
use rustc_hash::FxHashMap;

use super::{
    instruction::{Access, Kind, access, interpreted},
    pieces::{ENTRY, Piece, TAKEN},
};
use crate::{
    sys::native::{
        area::{Area, EDGES_MAX, JUMP_BYTES, Places},
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
    /// To the block at an address, after as many loops as were wanted.
    Turns { pc: u64 },
    /// The registers of the block at `pc`, which has not begun, are to be looked at.
    Look { pc: u64 },
}

/// A way from the end of one block to the beginning of another, which the code itself counts.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// The last instruction before, and the first one after.
    pub from: u64,
    pub to: u64,
    /// Number of instructions of the block before.
    pub steps: u8,
}

/// This is what is known of all blocks together: what leads from one to another.
#[derive(Default)]
pub struct Ways {
    pub exits: Vec<Exit>,
    pub edges: Vec<Edge>,
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
    ways: &'t mut Ways,
    /// Whether nothing at an address needs the flags as they are.
    has_dead_flags: &'t dyn Fn(u64) -> bool,
    /// The number of the block, its last instruction, and how many it has.
    number: u32,
    last: u64,
    steps: u8,
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
    /// after the last one must be interpreted. `has_dead_flags` returns whether nothing at an address needs the flags as they are.
    pub fn block(
        &mut self,
        at: u64,
        number: u32,
        instructions: &[Compilable],
        then_interpret: bool,
        ways: &mut Ways,
        has_dead_flags: &dyn Fn(u64) -> bool,
    ) -> Option<Compiled> {
        let last = instructions.last()?.instruction;
        let (exits, edges) = (ways.exits.len(), ways.edges.len());
        let mut block = self.begin(at, ways);
        (block.number, block.last, block.steps) = (number, last.ip(), instructions.len() as u8);
        block.has_dead_flags = has_dead_flags;
        // A jump can replace it.
        block.code.bytes(&NOTHING);
        let mut is_open = true;
        for compilable in instructions {
            is_open = block.instruction(compilable);
        }
        let pc = last.next_ip();
        match (is_open, then_interpret) {
            (true, true) => {
                block.has_dead_flags = &|_| false;
                block.count(pc, false);
                block.leave_by(Exit::Interpret { pc });
            }
            (true, false) => block.go_to(pc),
            _ => {}
        }
        block.add_misses();
        let (code, accesses) = (block.code, block.accesses);
        if code.is_sound && ways.edges.len() <= EDGES_MAX {
            return Some(Compiled { bytes: code.take(), accesses });
        }
        ways.exits.truncate(exits);
        ways.edges.truncate(edges);
        None
    }

    fn begin<'t>(&'t mut self, at: u64, ways: &'t mut Ways) -> Block<'t> {
        let (code, accesses, misses) = (Assembler::new(at), Vec::new(), Vec::new());
        let has_dead_flags = &|_| false;
        Block { code, translator: self, ways, has_dead_flags, number: 0, last: 0, steps: 0, accesses, misses }
    }
}

impl Translator {
    /// Returns code for the address `at` that takes an exit; `None` if it cannot be made.
    pub fn way_out(&mut self, at: u64, exit: Exit, ways: &mut Ways) -> Option<Vec<u8>> {
        let mut block = self.begin(at, ways);
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
        ways: &mut Ways,
    ) -> Option<(Vec<u8>, u64)> {
        let [saved, ..] = self.places.saved.map(place);
        let mut look = self.begin(at, ways);
        look.code.load(Register::RCX, saved);
        look.leave_by(exit);
        let begin = look.code.at;
        look.code.store(saved, Register::RCX);
        for (number, value) in values {
            look.code.constant(Register::RCX, value.wrapping_neg());
            look.code
                .lea(Register::RCX, Operand::with_base_index(Register::RAX + *number as u32, Register::RCX));
            look.code.branch(Code::Jrcxz_rel8_64, at);
        }
        look.code.load(Register::RCX, saved);
        look.code.branch(Code::Jmp_rel32_64, block + NOTHING.len() as u64);
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

    /// Counts the edge to an address. After as many loops as are wanted it leaves, if the edge is part of a loop.
    fn count(&mut self, pc: u64, is_loop: bool) {
        let places = self.places();
        let number = |address: u64| Operand::with_displ(address, 8);
        let edge = number(places.edges + 4 * self.ways.edges.len() as u64);
        let turns = number(places.turns);
        self.ways.edges.push(Edge { from: self.last, to: pc, steps: self.steps });
        if (self.has_dead_flags)(pc) {
            self.code.built(Instruction::with1(Code::Inc_rm32, edge));
            if is_loop {
                self.code.built(Instruction::with1(Code::Dec_rm32, turns));
                let patch = self.code.open_branch(Code::Jne_rel32_64);
                self.leave_by(Exit::Turns { pc });
                self.code.patch(patch);
            }
            return;
        }
        let saved = place(places.saved[0]);
        self.code.store(saved, Register::RCX);
        self.add_to(edge, 1);
        if is_loop {
            self.add_to(turns, -1);
            // Skips the jump.
            self.code.branch(Code::Jrcxz_rel8_64, self.code.at + 2 + JUMP_BYTES as u64);
            let patch = self.code.open_branch(Code::Jmp_rel32_64);
            self.code.load(Register::RCX, saved);
            self.leave_by(Exit::Turns { pc });
            self.code.patch(patch);
        }
        self.code.load(Register::RCX, saved);
    }

    /// Changes a number of 4 bytes, without flags. It is in rcx afterwards.
    fn add_to(&mut self, number: Operand, change: i64) {
        self.code.built(Instruction::with2(Code::Mov_r32_rm32, Register::ECX, number));
        let sum = Operand::with_base_displ(Register::RCX, change);
        self.code.built(Instruction::with2(Code::Lea_r32_m, Register::ECX, sum));
        self.code.built(Instruction::with2(Code::Mov_rm32_r32, number, Register::ECX));
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
                self.code.patch(patch);
                self.go_to(instruction.near_branch_target());
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
        self.count(pc, pc <= self.last);
        let patch = self.code.open_branch(Code::Jmp_rel32_64);
        // Until the block is known.
        self.code.patch(patch);
        self.leave_by(Exit::To { pc, patch });
    }

    /// Continues at the address in the area.
    fn go_to_taken(&mut self) {
        self.piece(Piece::BeforeNumber);
        self.code.store_number(Operand::with_base_displ(Register::RCX, 8), self.number);
        self.piece(Piece::FindCode);
        let patch = self.code.open_branch(Code::Jmp_rel32_64);
        self.misses.push((patch, self.ways.exits.len() as u32));
        self.ways.exits.push(Exit::Indirect);
        self.piece(Piece::GoToCode);
    }

    fn leave_by(&mut self, exit: Exit) {
        self.ways.exits.push(exit);
        self.leave_with(self.ways.exits.len() as u32 - 1);
    }

    fn leave_with(&mut self, exit: u32) {
        let (to, leave) = (self.places().exit, self.translator.leave);
        self.code.store_number(place(to), exit);
        self.code.branch(Code::Jmp_rel32_64, leave);
    }
}

/// Does nothing, and has the size of a jump.
const NOTHING: [u8; JUMP_BYTES] = [0x0f, 0x1f, 0x44, 0, 0];

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
