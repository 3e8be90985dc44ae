//! What is recorded when a superblock runs, and how its instructions and addresses are regenerated from that.
//!
//! Enters: a path, and the registers whose values are known when it begins. Leaves: actions in the order of execution. The recorder
//! turns them into code, the reader executes them. Both get the same plan from the same path, so a trace contains only code.
//!
//! Method: Larus, "Abstract Execution: A Technique for Efficiently Tracing Programs" (1990), sections 3 and 4. A backward pass finds
//! the registers that addresses depend on (the *slice*); a definition that cannot be computed is recorded behind its instruction.
//! Cost: linear in the number of instructions.

use iced_x86::{InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory};

use super::{
    compute::{Compute, computations},
    path::{Next, Path},
    registers::{General, RegisterSet},
};

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detail {
    /// The way taken: all instructions.
    Control,
    /// Also what the addresses of all references depend on.
    Addresses,
    /// Also every address itself, to check those that are regenerated.
    Check,
}

/// The form in which a register's value is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Number of bytes in the stream: 1, 2, 4, 6 or 8.
    pub bytes: u8,
    /// Whether they are extended by the sign rather than by zeros.
    pub is_signed: bool,
    /// Whether the upper 32 bits are zero whatever the sign is.
    pub is_32: bool,
}

/// The whole register.
const WHOLE: Stored = Stored { bytes: 8, is_signed: false, is_32: false };
/// An address, whose upper 17 bits are equal.
const ADDRESS: Stored = Stored { bytes: 6, is_signed: true, is_32: false };

/// Whether a reference reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// It reads.
    Load,
    /// It writes.
    Store,
    /// A load, and a store of as many bytes at the same address.
    Modify,
}

/// A reference to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    pub access: Access,
    pub bytes: u32,
    pub base: Option<General>,
    pub index: Option<General>,
    /// Whether the index is only the lowest byte of its register (`xlat`).
    pub index_is_byte: bool,
    pub scale: u8,
    pub displacement: i64,
    /// Whether the base of the fs segment is added.
    pub is_fs: bool,
    /// Whether the address has 32 bits.
    pub is_32: bool,
}

impl Reference {
    /// Returns the address.
    pub fn address(&self, registers: &[u64; 16], fs_base: u64) -> u64 {
        let get = |register: Option<General>| register.map_or(0, |r| registers[usize::from(r.0)]);
        let index = if self.index_is_byte { get(self.index) & 0xff } else { get(self.index) };
        let sum = get(self.base).wrapping_add(index.wrapping_mul(u64::from(self.scale)));
        let sum = sum.wrapping_add(self.displacement as u64);
        let sum = if self.is_32 { sum & 0xffff_ffff } else { sum };
        if self.is_fs { sum.wrapping_add(fs_base) } else { sum }
    }
}

/// A string instruction, which refers to memory at `rsi`, at `rdi` or at both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringOperation {
    pub bytes: u32,
    pub loads_rsi: bool,
    pub rdi: Option<Access>,
    /// Whether it repeats, and until which value of the zero flag, if it looks at it.
    pub repeat: Repeat,
}

/// How often a string instruction executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    Once,
    /// As often as rcx says.
    Count,
    /// As often as rcx says, or until the zero flag differs from this. Behind it, rcx (8 bytes) and the flag (1) are recorded.
    While(bool),
}

/// A step of recording and regenerating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The instruction of the path with this number executes.
    Instruction(u16),
    /// The value of a register is in the stream.
    Record(General, Stored),
    Reference(Reference),
    /// The address of the last reference is in the stream (8 bytes), without the base of its segment.
    Check,
    String(StringOperation),
    Compute(Compute),
    /// The direction flag is set to this.
    Direction(bool),
    /// The superblock is left here if the byte that begins its run is this number.
    Leave(u8),
}

/// Where a superblock is left to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This address.
    Direct(u64),
    /// A number of a superblock is in the stream (4 bytes).
    Indirect,
    /// The instruction at this address is executed outside superblocks.
    Alone(u64),
}

/// A way out of a superblock.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    pub target: Target,
    /// Number of bytes of a run that ends here, without the superblock's number of an indirect target.
    pub bytes: u32,
    /// Registers whose values are known behind it.
    pub known: RegisterSet,
}

/// The plan of a superblock.
#[derive(Clone, Debug)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub exits: Vec<Exit>,
    /// For each instruction of the path, the number of the exit at it.
    pub exit_at: Vec<Option<u8>>,
    /// For each instruction, the number of bytes of a run that are in the stream when it begins.
    pub bytes_at: Vec<u32>,
    /// Number of references that cannot be regenerated: gathers, whole sets of registers, bit strings.
    pub untraced: u32,
}

/// Largest number of exits; larger numbers mark runs that were cut.
pub const EXITS_MAX: usize = 200;
/// The byte of a run that was cut, since a signal came or an instruction failed.
pub const CUT: u8 = 255;

/// What is known of the instructions of a path.
struct Facts {
    computations: Vec<Compute>,
    written: RegisterSet,
    references: Vec<Reference>,
    string: Option<StringOperation>,
    /// Registers that are addresses but for a constant.
    addressing: RegisterSet,
    /// Registers that addresses are sums of.
    summed: RegisterSet,
    untraced: u32,
}

impl Plan {
    /// Plans a superblock. `known` must contain the stack pointer unless only the way is recorded.
    pub fn new(path: &Path, known: RegisterSet, detail: Detail) -> Plan {
        let mut factory = InstructionInfoFactory::new();
        let facts: Vec<Facts> = path.steps.iter().map(|step| Facts::of(step, &mut factory)).collect();
        let with_addresses = detail != Detail::Control;
        let needs = if with_addresses { Needs::of(&facts) } else { Needs::none(facts.len()) };
        let mut planner = Planner { actions: Vec::new(), exits: Vec::new(), bytes: 1, known };
        for register in needs.before.registers().without(known).iter() {
            planner.record(register, needs.before.stored(register));
        }
        let (mut exit_at, mut bytes_at, mut untraced) = (Vec::new(), Vec::new(), 0);
        for (at, (step, facts)) in path.steps.iter().zip(&facts).enumerate() {
            bytes_at.push(planner.bytes);
            planner.actions.push(Action::Instruction(at as u16));
            if with_addresses {
                untraced += facts.untraced;
                planner.refer(facts, detail);
            }
            match step.instruction.mnemonic() {
                Mnemonic::Std => planner.actions.push(Action::Direction(true)),
                Mnemonic::Cld => planner.actions.push(Action::Direction(false)),
                _ => {}
            }
            planner.define(facts);
            let target = match step.next {
                Next::Branch { leave, .. } => Some(Target::Direct(leave)),
                Next::ReturnTo(_) | Next::Indirect => Some(Target::Indirect),
                Next::SystemCall => Some(Target::Direct(path.end)),
                _ => None,
            };
            exit_at.push(target.map(|target| planner.leave(target)));
            for register in needs.after[at].registers().iter() {
                let instruction = &step.instruction;
                planner
                    .record(register, stored_behind(instruction, register, needs.after[at].stored(register)));
            }
        }
        let is_open = path.steps.last().is_none_or(|s| !matches!(s.next, Next::Indirect | Next::SystemCall));
        if is_open {
            let is_full = path.steps.len() == super::path::INSTRUCTIONS_MAX;
            planner.leave(if is_full { Target::Direct(path.end) } else { Target::Alone(path.end) });
        }
        Plan { actions: planner.actions, exits: planner.exits, exit_at, bytes_at, untraced }
    }
}

/// Registers that addresses depend on, and how much of them.
#[derive(Clone, Copy, Default)]
struct Need {
    addresses: RegisterSet,
    whole: RegisterSet,
}

impl Need {
    fn registers(self) -> RegisterSet {
        self.addresses.union(self.whole)
    }

    fn stored(self, register: General) -> Stored {
        if self.whole.contains(register) { WHOLE } else { ADDRESS }
    }
}

/// Which registers must be recorded: before the first instruction unless known, and behind each.
struct Needs {
    before: Need,
    after: Vec<Need>,
}

impl Needs {
    fn none(instructions: usize) -> Needs {
        Needs { before: Need::default(), after: vec![Need::default(); instructions] }
    }

    fn of(facts: &[Facts]) -> Needs {
        // The stack pointer is always known, so that few versions of a superblock exist.
        let stack = RegisterSet::one(General::RSP);
        let mut need = Need { addresses: stack, whole: RegisterSet::default() };
        let mut after = vec![Need::default(); facts.len()];
        for (facts, after) in facts.iter().zip(&mut after).rev() {
            let (before, defined) = (need, need.registers().0 & facts.written.0);
            need.addresses = need.addresses.without(facts.written);
            need.whole = need.whole.without(facts.written);
            for register in RegisterSet(defined).iter() {
                let is_whole = before.whole.contains(register);
                match facts.computations.iter().find(|compute| compute.to == register) {
                    Some(compute) => {
                        let keeps = !is_whole && !compute.is_32 && compute.value.keeps_addresses();
                        let set = if keeps { &mut need.addresses } else { &mut need.whole };
                        *set = set.union(compute.value.sources());
                    }
                    None if facts.string.is_some_and(|s| s.changes().contains(register)) => {}
                    None if is_whole => after.whole.insert(register),
                    None => after.addresses.insert(register),
                }
            }
            need.addresses = need.addresses.union(facts.addressing);
            need.whole = need.whole.union(facts.summed);
            if facts.string.is_some_and(|string| string.repeat != Repeat::Once) {
                need.whole.insert(General::RCX);
            }
        }
        Needs { before: need, after }
    }
}

impl StringOperation {
    /// Returns the registers whose new values the reader computes.
    fn changes(self) -> RegisterSet {
        let repeats = self.repeat != Repeat::Once;
        let all =
            [(General::RSI, self.loads_rsi), (General::RDI, self.rdi.is_some()), (General::RCX, repeats)];
        all.into_iter().filter(|(_, is)| *is).map(|(register, _)| register).collect()
    }
}

struct Planner {
    actions: Vec<Action>,
    exits: Vec<Exit>,
    bytes: u32,
    known: RegisterSet,
}

impl Planner {
    fn record(&mut self, register: General, stored: Stored) {
        self.actions.push(Action::Record(register, stored));
        self.bytes += u32::from(stored.bytes);
        self.known.insert(register);
    }

    fn refer(&mut self, facts: &Facts, detail: Detail) {
        if let Some(string) = facts.string {
            self.actions.push(Action::String(string));
            if matches!(string.repeat, Repeat::While(_)) {
                self.bytes += 9;
            }
        }
        for reference in &facts.references {
            self.actions.push(Action::Reference(*reference));
            if detail == Detail::Check && (reference.base.is_some() || reference.index.is_some()) {
                self.actions.push(Action::Check);
                self.bytes += 8;
            }
        }
    }

    /// Computes what can be computed, and forgets what was overwritten.
    fn define(&mut self, facts: &Facts) {
        let is_known = |compute: &&Compute| compute.value.sources().is_subset_of(self.known);
        let computed: Vec<Compute> = facts.computations.iter().filter(is_known).copied().collect();
        let by_string = facts.string.map_or(RegisterSet::default(), |string| string.changes());
        self.known = self.known.without(facts.written.without(by_string));
        for compute in computed {
            self.actions.push(Action::Compute(compute));
            self.known.insert(compute.to);
        }
    }

    fn leave(&mut self, target: Target) -> u8 {
        let number = self.exits.len() as u8;
        self.actions.push(Action::Leave(number));
        self.exits.push(Exit { target, bytes: self.bytes, known: self.known });
        number
    }
}

/// Returns the shortest form of a value that the instruction has just defined.
fn stored_behind(instruction: &iced_x86::Instruction, register: General, wanted: Stored) -> Stored {
    let is_first = instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && General::of(instruction.op0_register()) == Some(register);
    if !is_first {
        return wanted;
    }
    let is_32 = instruction.op0_register().size() == 4;
    let from_memory = instruction.op_count() == 2 && instruction.op1_kind() == OpKind::Memory;
    let bytes = instruction.memory_size().size() as u8;
    match instruction.mnemonic() {
        Mnemonic::Movzx if from_memory && bytes <= 2 => Stored { bytes, is_signed: false, is_32: false },
        Mnemonic::Movsx | Mnemonic::Movsxd if from_memory && matches!(bytes, 1 | 2 | 4) => {
            Stored { bytes, is_signed: true, is_32 }
        }
        _ if is_32 => Stored { bytes: 4, is_signed: false, is_32: false },
        _ => wanted,
    }
}

impl Facts {
    fn of(step: &super::path::Step, factory: &mut InstructionInfoFactory) -> Facts {
        let instruction = &step.instruction;
        let info = factory.info(instruction);
        let writes = |access| {
            matches!(
                access,
                OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
            )
        };
        let registers = info.used_registers().iter().filter(|used| writes(used.access()));
        let mut written: RegisterSet = registers.filter_map(|used| General::of(used.register())).collect();
        let memory: Vec<UsedMemory> = info.used_memory().to_vec();
        let mut computations = computations(instruction);
        if step.next == Next::SystemCall {
            // The kernel overwrites these.
            written = written.union([General::RAX, General::RCX, General::R11].into_iter().collect());
        }
        written = written.union(computations.iter().map(|compute| compute.to).collect());
        let mut facts = Facts {
            computations: Vec::new(),
            written,
            references: Vec::new(),
            string: None,
            addressing: RegisterSet::default(),
            summed: RegisterSet::default(),
            untraced: 0,
        };
        if is_string(instruction.mnemonic()) && instruction.is_string_instruction() {
            computations.clear();
            let string = string_operation(instruction, &memory);
            let ends = [(General::RSI, string.loads_rsi), (General::RDI, string.rdi.is_some())];
            facts.addressing = ends.into_iter().filter(|(_, is)| *is).map(|(register, _)| register).collect();
            facts.string = Some(string);
        } else {
            facts.refer(instruction, &memory);
        }
        facts.computations = computations;
        facts
    }

    fn refer(&mut self, instruction: &iced_x86::Instruction, memory: &[UsedMemory]) {
        use Mnemonic::*;
        if is_hint(instruction.mnemonic()) {
            return;
        }
        let is_bit_string = matches!(instruction.mnemonic(), Bt | Bts | Btr | Btc)
            && instruction.op0_kind() == OpKind::Memory
            && instruction.op1_kind() == OpKind::Register;
        for used in memory {
            let reference = reference_of(used).filter(|_| !is_bit_string);
            match reference {
                Some(reference) => {
                    let registers = reference.base.into_iter().chain(reference.index).collect();
                    let set = match reference.index {
                        None => &mut self.addressing,
                        Some(_) => &mut self.summed,
                    };
                    *set = set.union(registers);
                    self.references.push(reference);
                }
                None if used.access() == OpAccess::NoMemAccess => {}
                None => self.untraced += 1,
            }
        }
        // Loads come before stores; a load and a store of the same bytes are one reference.
        self.references.sort_by_key(|reference| reference.access == Access::Store);
        if let [first, second] = self.references[..]
            && first.access == Access::Load
            && second == (Reference { access: Access::Store, ..first })
        {
            self.references = vec![Reference { access: Access::Modify, ..first }];
        }
    }
}

fn reference_of(used: &UsedMemory) -> Option<Reference> {
    let access = match used.access() {
        OpAccess::Read | OpAccess::CondRead => Access::Load,
        OpAccess::Write | OpAccess::CondWrite => Access::Store,
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Access::Modify,
        OpAccess::None | OpAccess::NoMemAccess => return None,
    };
    let bytes = used.memory_size().size() as u32;
    let general = |register: Register| match register {
        Register::None | Register::RIP | Register::EIP => Some(None),
        register => General::of(register).map(Some),
    };
    let (base, index) = (general(used.base())?, general(used.index())?);
    let is_32 = used.base().size() == 4 || used.index().size() == 4;
    let is_known = bytes > 0 && used.segment() != Register::GS;
    is_known.then_some(Reference {
        access,
        bytes,
        base,
        index,
        index_is_byte: used.index().size() == 1,
        scale: used.scale() as u8,
        displacement: used.displacement() as i64,
        is_fs: used.segment() == Register::FS,
        is_32,
    })
}

/// Returns whether the instruction refers to memory only as a hint to the processor.
fn is_hint(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        Nop | Lea
            | Prefetch
            | Prefetchnta
            | Prefetcht0
            | Prefetcht1
            | Prefetcht2
            | Prefetchw
            | Prefetchwt1
            | Clflush
            | Clflushopt
            | Clwb
            | Cldemote
    )
}

fn is_string(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        Movsb
            | Movsw
            | Movsd
            | Movsq
            | Stosb
            | Stosw
            | Stosd
            | Stosq
            | Lodsb
            | Lodsw
            | Lodsd
            | Lodsq
            | Scasb
            | Scasw
            | Scasd
            | Scasq
            | Cmpsb
            | Cmpsw
            | Cmpsd
            | Cmpsq
    )
}

fn string_operation(instruction: &iced_x86::Instruction, memory: &[UsedMemory]) -> StringOperation {
    use Mnemonic::*;
    let at = |register| memory.iter().find(|used| General::of(used.base()) == Some(register));
    let rdi = at(General::RDI).map(|used| match used.access() {
        OpAccess::Write | OpAccess::CondWrite => Access::Store,
        _ => Access::Load,
    });
    let compares =
        matches!(instruction.mnemonic(), Scasb | Scasw | Scasd | Scasq | Cmpsb | Cmpsw | Cmpsd | Cmpsq);
    let repeat = match (instruction.has_rep_prefix(), instruction.has_repne_prefix()) {
        (false, false) => Repeat::Once,
        (is_equal, _) if compares => Repeat::While(is_equal),
        _ => Repeat::Count,
    };
    StringOperation {
        bytes: instruction.memory_size().size() as u32,
        loads_rsi: at(General::RSI).is_some(),
        rdi,
        repeat,
    }
}
