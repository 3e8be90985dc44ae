//! Which way a conditional branch was about to go, told from a sample's registers (DCPI §7, "interpretation").
//!
//! Enters: the bytes at a sampled pc, and the registers of a sample there. Leaves: the branch and its direction.
//! Never here: memory of the sampled process, state, I/O. x86-64 only.
//!
//! A branch is decided where the sample is on a `jcc` itself, or on a `cmp` or `test` of registers and constants that a
//! `jcc` follows at once: such a pair is macro-fused, so that the `jcc` alone is hardly ever sampled (3 of 50,044
//! samples). Operands in memory are not in the sample: no observation. Samples elsewhere are for [`Ahead`].
//!
//! The bytes are decoded here rather than by `dwell-image`: these few forms take 20 ns, the disassembler 10 µs, and on
//! a build of a C project every second sample is at a pc never seen before. A test holds the two to each other.

pub mod a64;
mod ahead;

pub use ahead::{AHEAD_BYTES, Ahead};

/// How many registers a sample carries: on x86-64 the general ones, pc and flags; on AArch64 x0 to x30, sp and pc.
pub const REGISTER_COUNT: usize = if cfg!(target_arch = "aarch64") { 33 } else { 18 };
/// Those that a program of ours in the kernel tells beside the pc.
pub const REGISTERS_TOLD: usize = REGISTER_COUNT - 1;
/// Where the user's pc is among them.
const PC: usize = if cfg!(target_arch = "aarch64") { 32 } else { 8 };
const FLAGS: usize = 9;

/// A sample's registers, in the order of `sys::event::REGISTER_MASK`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers(pub [u64; REGISTER_COUNT]);

impl Registers {
    /// Of a sample in user mode at `pc`, from the others in their order, as the module and the BPF program tell them.
    pub fn of_user(pc: u64, others: &[u64]) -> Self {
        let mut values = [0; REGISTER_COUNT];
        let (before, after) = others.split_at(PC.min(others.len()));
        let all = before.iter().chain(std::iter::once(&pc)).chain(after);
        values.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
        Registers(values)
    }

    /// A general register of x86-64, by its hardware number (0 rax, 1 rcx, 2 rdx, 3 rbx, 4 rsp, 5 rbp, 6 rsi, 7 rdi, 8… r8…).
    pub fn general(&self, number: u8) -> u64 {
        self.0[position(number)]
    }

    /// Sets a general register of x86-64.
    #[cfg(test)]
    pub fn set_general(&mut self, number: u8, value: u64) {
        self.0[position(number)] = value;
    }

    /// Of a sample in the kernel: the user's instruction that faulted, made a system call or was interrupted. On x86-64
    /// `syscall` leaves its successor in rcx and the flags in r11, which tells it from the others; on AArch64 a system call
    /// shows as its successor.
    pub fn entered_from(&self) -> u64 {
        const RCX: usize = 2;
        const R11: usize = 13;
        const SYSCALL_BYTES: u64 = 2;
        let (pc, values) = (self.0[PC], &self.0);
        let is_call = cfg!(target_arch = "x86_64") && values[RCX] == pc && values[R11] == values[FLAGS];
        if is_call { pc.wrapping_sub(SYSCALL_BYTES) } else { pc }
    }
}

/// How to decide a branch from registers; what is remembered of a pc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Bytes from the sampled pc to the `jcc`.
    pub branch_distance: u8,
    condition: u8,
    flags: FlagsSource,
}

/// Where the flags that the branch reads come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlagsSource {
    /// The sample's own: it is on the branch.
    Sampled,
    /// The comparison that is about to run: `left − right`.
    Compare(Operands),
    /// The test that is about to run: `left & right`.
    Test(Operands),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operands {
    left: Source,
    right: Source,
    width_bits: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// By hardware number (0 rax, 1 rcx, 2 rdx, 3 rbx, 4 rsp, 5 rbp, 6 rsi, 7 rdi, 8… r8…).
    Register(u8),
    /// Bits 8 to 15 of one (`ah`, `ch`, `dh`, `bh`).
    HighByte(u8),
    Constant(i32),
}

/// The longest look needed: a prefixed comparison with a 32-bit constant and a long `jcc`.
pub const CODE_BYTES: usize = 16;

impl Recipe {
    /// The recipe for a sample whose pc has these bytes (x86-64), if a branch can be decided there.
    pub fn decode(code: &[u8]) -> Option<Recipe> {
        if let Some(condition) = decode_branch(code) {
            return Some(Recipe { branch_distance: 0, condition, flags: FlagsSource::Sampled });
        }
        let (flags, length) = decode_flag_writer(code)?;
        let condition = decode_branch(code.get(length..)?)?;
        Some(Recipe { branch_distance: length as u8, condition, flags })
    }

    /// Whether the branch was about to be taken.
    pub fn taken(&self, registers: &Registers) -> bool {
        let flags = match self.flags {
            FlagsSource::Sampled => Flags::from_register(registers.0[FLAGS]),
            FlagsSource::Compare(o) => o.values(registers).compare(),
            FlagsSource::Test(o) => o.values(registers).test(),
        };
        flags.satisfy(self.condition)
    }
}

/// The condition of the `jcc` at the start of `code`.
fn decode_branch(code: &[u8]) -> Option<u8> {
    match *code {
        [op @ 0x70..=0x7f, _, ..] => Some(op & 15),
        [0x0f, op @ 0x80..=0x8f, _, _, _, _, ..] => Some(op & 15),
        // A branch hint (0x2e, 0x3e) or BND (0xf2) before a jcc: same branch, one byte on. Rare, so left undecided.
        _ => None,
    }
}

/// The comparison or test of registers and constants at the start of `code`, and its length.
fn decode_flag_writer(code: &[u8]) -> Option<(FlagsSource, usize)> {
    let operand16 = code.first() == Some(&0x66);
    let at = usize::from(operand16);
    let rex = code.get(at).copied().filter(|b| b & 0xf0 == 0x40);
    let at = at + usize::from(rex.is_some());
    let opcode = *code.get(at)?;
    let size = Size { rex: rex.unwrap_or(0), has_rex: rex.is_some(), operand16, byte: opcode & 1 == 0 };
    let rest = code.get(at + 1..)?;
    let (make, left, right, used): (fn(Operands) -> FlagsSource, _, _, _) = match opcode {
        0x38 | 0x39 => (FlagsSource::Compare, size.rm(rest)?, size.reg(rest)?, 1),
        0x3a | 0x3b => (FlagsSource::Compare, size.reg(rest)?, size.rm(rest)?, 1),
        0x84 | 0x85 => (FlagsSource::Test, size.rm(rest)?, size.reg(rest)?, 1),
        0x3c | 0x3d => {
            (FlagsSource::Compare, Source::Register(0), size.constant(rest)?, size.constant_bytes())
        }
        0xa8 | 0xa9 => (FlagsSource::Test, Source::Register(0), size.constant(rest)?, size.constant_bytes()),
        0x80 | 0x81 if extension(rest)? == 7 => {
            (FlagsSource::Compare, size.rm(rest)?, size.constant(&rest[1..])?, 1 + size.constant_bytes())
        }
        0x83 if extension(rest)? == 7 => {
            (FlagsSource::Compare, size.rm(rest)?, Source::Constant(i32::from(*rest.get(1)? as i8)), 2)
        }
        0xf6 | 0xf7 if extension(rest)? <= 1 => {
            (FlagsSource::Test, size.rm(rest)?, size.constant(&rest[1..])?, 1 + size.constant_bytes())
        }
        _ => return None,
    };
    Some((make(Operands { left, right, width_bits: size.width_bits() }), at + 1 + used))
}

/// The opcode extension in the ModRM byte.
fn extension(rest: &[u8]) -> Option<u8> {
    rest.first().map(|m| m >> 3 & 7)
}

/// What prefixes and opcode say about the operands' size.
struct Size {
    rex: u8,
    has_rex: bool,
    operand16: bool,
    byte: bool,
}

impl Size {
    fn width_bits(&self) -> u8 {
        match (self.byte, self.rex & 8 != 0, self.operand16) {
            (true, _, _) => 8,
            (_, true, _) => 64,
            (_, _, true) => 16,
            _ => 32,
        }
    }

    fn reg(&self, rest: &[u8]) -> Option<Source> {
        rest.first().map(|m| self.register(m >> 3 & 7, self.rex & 4))
    }

    /// The ModRM operand, where it is a register.
    fn rm(&self, rest: &[u8]) -> Option<Source> {
        rest.first().filter(|m| **m >= 0xc0).map(|m| self.register(m & 7, self.rex & 1))
    }

    fn register(&self, low: u8, extension: u8) -> Source {
        if self.byte && !self.has_rex && low >= 4 {
            return Source::HighByte(low - 4);
        }
        Source::Register(low | if extension != 0 { 8 } else { 0 })
    }

    fn constant_bytes(&self) -> usize {
        match self.width_bits() {
            8 => 1,
            16 => 2,
            _ => 4,
        }
    }

    fn constant(&self, rest: &[u8]) -> Option<Source> {
        let bytes = rest.get(..self.constant_bytes())?;
        Some(Source::Constant(match *bytes {
            [b] => i32::from(b as i8),
            [a, b] => i32::from(i16::from_le_bytes([a, b])),
            [a, b, c, d] => i32::from_le_bytes([a, b, c, d]),
            _ => return None,
        }))
    }
}

impl Operands {
    fn values(&self, registers: &Registers) -> Values {
        let mask = u64::MAX >> (64 - u32::from(self.width_bits));
        let sign = 1 << (self.width_bits - 1);
        Values {
            left: self.left.value(registers) & mask,
            right: self.right.value(registers) & mask,
            mask,
            sign,
        }
    }
}

impl Source {
    fn value(self, registers: &Registers) -> u64 {
        match self {
            Source::Register(r) => registers.0[position(r)],
            Source::HighByte(r) => registers.0[position(r)] >> 8,
            Source::Constant(c) => i64::from(c) as u64,
        }
    }
}

/// Where the kernel dumps the register of that hardware number.
fn position(number: u8) -> usize {
    const LOW: [usize; 8] = [0, 2, 3, 1, 7, 6, 4, 5]; // rax rcx rdx rbx rsp rbp rsi rdi
    match number {
        0..=7 => LOW[usize::from(number)],
        _ => usize::from(number & 15) + 2, // r8 follows pc and flags
    }
}

struct Values {
    left: u64,
    right: u64,
    mask: u64,
    sign: u64,
}

impl Values {
    fn compare(&self) -> Flags {
        let result = self.left.wrapping_sub(self.right) & self.mask;
        let overflow = (self.left ^ self.right) & (self.left ^ result) & self.sign != 0;
        Flags { carry: self.left < self.right, overflow, ..self.of_result(result) }
    }

    fn test(&self) -> Flags {
        self.of_result(self.left & self.right)
    }

    fn of_result(&self, result: u64) -> Flags {
        let parity = (result as u8).count_ones().is_multiple_of(2);
        Flags { carry: false, overflow: false, zero: result == 0, sign: result & self.sign != 0, parity }
    }
}

#[derive(Clone, Copy, Debug)]
struct Flags {
    carry: bool,
    parity: bool,
    zero: bool,
    sign: bool,
    overflow: bool,
}

impl Flags {
    fn from_register(rflags: u64) -> Self {
        let bit = |n: u32| rflags >> n & 1 == 1;
        Flags { carry: bit(0), parity: bit(2), zero: bit(6), sign: bit(7), overflow: bit(11) }
    }

    /// The low four bits of a `jcc` opcode: eight conditions, each followed by its negation.
    fn satisfy(&self, condition: u8) -> bool {
        let holds = match condition >> 1 {
            0 => self.overflow,
            1 => self.carry,
            2 => self.zero,
            3 => self.carry || self.zero,
            4 => self.sign,
            5 => self.parity,
            6 => self.sign != self.overflow,
            _ => self.zero || self.sign != self.overflow,
        };
        holds != (condition & 1 == 1)
    }
}
