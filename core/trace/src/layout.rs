//! Where things are in the memory that a traced thread has for itself, at the base of its gs segment.

/// The program's r15, since that register holds the place in the stream.
pub const R15: u32 = 0x00;
/// A register that an instruction's copy uses in place of r15.
pub const SPILL: u32 = 0x08;
/// The program's rax and rcx, while a target is looked up.
pub const RAX: u32 = 0x10;
pub const RCX: u32 = 0x18;
/// The code that a lookup found.
pub const JUMP: u32 = 0x20;
/// A byte for each number of a system call (16 bits): whether the tracer must see it.
pub const SYSTEM_CALLS: u32 = 0x1_0000;
/// The table of targets of indirect jumps: negative keys (8 bytes each), code (8) and numbers of superblocks (4).
pub const KEYS: u32 = 0x2_0000;
pub const CODES: u32 = 0xa_0000;
pub const NUMBERS: u32 = 0x12_0000;
/// The stream, and the guard behind it, which cannot be written.
pub const STREAM: u32 = 0x20_0000;
pub const STREAM_BYTES: u32 = 0x40_0000;
pub const GUARD_BYTES: u32 = 0x1_0000;
/// Size of all of it.
pub const BYTES: u32 = STREAM + STREAM_BYTES + GUARD_BYTES;

/// Returns the place in the table of a target with this key, whose upper 16 bits are the known registers.
pub fn place_in_table(key: u64) -> u64 {
    (key as u32).wrapping_add(mixed(key >> 48)) as u64 & 0xffff
}

/// Returns what is added to addresses before they become places in the table.
pub fn mixed(known: u64) -> u32 {
    (known as u32).wrapping_mul(0x9e3)
}
