//! Chooses the places of a function that are overwritten: its entry and its exits.
//!
//! Enters: [`FunctionCode`]. Leaves: [`Region`]s, each of at least five bytes, of whole instructions and the padding behind
//! them, that do not overlap. Each begins at an instruction, and nobody jumps or returns into its middle.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use super::function_code::{DecodedPart, Exit, FunctionCode, is_call, is_movable};

/// Size in bytes of the jump that replaces a region's first bytes.
pub const JUMP_BYTES: usize = 5;

/// Why a function cannot be patched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There are no bytes.
    #[error("it has no code")]
    NoCode,
    /// Its bytes are not all instructions.
    #[error("the bytes at {address:#x} are no instruction (data between code?)")]
    Undecodable {
        /// Address of the first byte that belongs to no instruction.
        address: u64,
    },
    /// A loop of the function begins at its entry, where each pass would look like a call.
    #[error("its entry is also the beginning of a loop (jump at {address:#x})")]
    EntryInLoop {
        /// Address of the jump.
        address: u64,
    },
    /// The first instructions cannot be moved.
    #[error("its first instructions cannot be moved: {reason}")]
    Entry {
        /// What is in the way.
        reason: Obstacle,
    },
    /// An exit cannot be patched.
    #[error("its exit at {address:#x} cannot be patched: {reason}")]
    Exit {
        /// Address of the instruction that leaves the function.
        address: u64,
        /// What is in the way.
        reason: Obstacle,
    },
    /// An indirect jump might leave the function.
    #[error("the targets of its jump at {address:#x} are not known")]
    UnknownJump {
        /// Address of the jump.
        address: u64,
    },
    /// Its exception tables cannot be read.
    #[error("its exception tables cannot be read")]
    UnknownLandingPads,
    /// The kernel restarts a part of it if the thread is switched there, which a moved instruction would not be part of.
    #[error("it has a restartable sequence (rseq)")]
    Restartable,
    /// It jumps into too many others.
    #[error("its code is in too many pieces")]
    Scattered,
    /// There is no number left for it.
    #[error("too many functions are probed")]
    TooMany,
    /// The code that it would jump to is too far away.
    #[error("there is no free memory within 2 GiB of it")]
    TooFar,
}

impl Refusal {
    /// Returns the refusal without an address, by which refusals are counted.
    pub fn cause(&self) -> &'static str {
        match self {
            Refusal::NoCode => "no code",
            Refusal::Undecodable { .. } => "data between code",
            Refusal::EntryInLoop { .. } => "entry in a loop",
            Refusal::Entry { .. } | Refusal::Exit { .. } => "code that cannot be moved",
            Refusal::UnknownJump { .. } => "jump with unknown targets",
            Refusal::UnknownLandingPads => "unreadable exception tables",
            Refusal::Restartable => "restartable sequence",
            Refusal::Scattered => "too many pieces",
            Refusal::TooMany => "too many counters",
            Refusal::TooFar => "no memory near",
        }
    }
}

/// What is in the way of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// Too few bytes.
    #[error("there are fewer than {JUMP_BYTES} bytes")]
    Short,
    /// Somebody jumps into the middle.
    #[error("there is a jump to {0:#x}")]
    Target(u64),
    /// An instruction must stay where it is.
    #[error("the instruction at {0:#x} must stay where it is")]
    Unmovable(u64),
    /// Another region is there.
    #[error("it is too close to another place that is patched")]
    Overlap,
}

/// A place that is overwritten by a jump to its trampoline.
#[derive(Clone, Debug)]
pub struct Region {
    /// Address of the first instruction, where the jump is written.
    pub address: u64,
    /// The instructions that move, in order.
    pub instructions: Vec<Instruction>,
    /// How each of them leaves the function.
    pub exits: Vec<Exit>,
    /// Whether the function is entered here.
    pub is_entry: bool,
    /// The bytes that the jump overwrites.
    pub original: [u8; JUMP_BYTES],
}

impl Region {
    /// Returns the address behind the last instruction that moves.
    pub fn end(&self) -> u64 {
        self.instructions.last().map_or(self.address, Instruction::next_ip)
    }
}

/// Chooses the regions of a function: the entry first, and the exits if `with_exits`.
pub fn plan(code: &FunctionCode, with_exits: bool) -> Result<Vec<Region>, Refusal> {
    if let Some(address) = code.jump_to_entry {
        return Err(Refusal::EntryInLoop { address });
    }
    if with_exits && let Some(address) = code.unknown_jump {
        return Err(Refusal::UnknownJump { address });
    }
    let entry = entry_region(code)?;
    let mut taken: Vec<Range<u64>> = vec![span(&entry)];
    let entry_end = entry.end();
    let mut regions = vec![entry];
    if with_exits {
        for part in &code.parts {
            for (at, exit) in part.exits.iter().enumerate() {
                let ip = part.instructions[at].ip();
                let is_in_entry = (code.entry()..entry_end).contains(&ip);
                if *exit == Exit::None || is_in_entry || taken.iter().any(|range| range.contains(&ip)) {
                    continue;
                }
                let region = exit_region(code, part, at, &taken)
                    .map_err(|reason| Refusal::Exit { address: ip, reason })?;
                taken.push(span(&region));
                regions.push(region);
            }
        }
    }
    debug_assert_eq!(verify_regions(code, &regions), Ok(()));
    Ok(regions)
}

/// Checks that regions do not overlap and that nobody jumps or returns into their middle.
pub fn verify_regions(code: &FunctionCode, regions: &[Region]) -> Result<(), String> {
    let mut spans: Vec<Range<u64>> = regions.iter().map(span).collect();
    spans.sort_by_key(|span| span.start);
    if let Some(pair) = spans.windows(2).find(|pair| pair[0].end > pair[1].start) {
        return Err(format!("{:x?} overlaps {:x?}", pair[0], pair[1]));
    }
    for (region, span) in regions.iter().map(|region| (region, span(region))) {
        if let Some(target) = code.targets.range(span.start + 1..span.end).next() {
            return Err(format!("{target:#x} is jumped to, within {span:x?}"));
        }
        let last = region.instructions.len() - 1;
        if region.instructions[..last].iter().any(is_call) {
            return Err(format!("a call returns into {span:x?}"));
        }
        if !region.instructions.iter().all(is_movable) {
            return Err(format!("an instruction of {span:x?} must stay"));
        }
    }
    Ok(())
}

/// Returns the bytes that nobody may jump into: those of the moved instructions and those of the jump.
fn span(region: &Region) -> Range<u64> {
    region.address..region.end().max(region.address + JUMP_BYTES as u64)
}

fn entry_region(code: &FunctionCode) -> Result<Region, Refusal> {
    let part = &code.parts[0];
    // `endbr64` must stay where indirect calls arrive. It only matters with CET, but costs nothing.
    let first = usize::from(part.instructions[0].mnemonic() == Mnemonic::Endbr64);
    let refuse = |reason| Refusal::Entry { reason };
    let mut last = first;
    loop {
        let instruction = part.instructions.get(last).ok_or(refuse(Obstacle::Short))?;
        let bytes = (instruction.next_ip() - part.instructions[first].ip()) as usize;
        if bytes >= JUMP_BYTES {
            break;
        }
        if !falls_through(instruction) {
            if bytes + padding(code, part, last) < JUMP_BYTES {
                return Err(refuse(Obstacle::Short));
            }
            break;
        }
        last += 1;
    }
    region(code, part, first..last + 1, true).map_err(refuse)
}

/// Returns the region of an exit: the instruction, as many before it as are needed, and padding behind it.
fn exit_region(
    code: &FunctionCode,
    part: &DecodedPart,
    exit: usize,
    taken: &[Range<u64>],
) -> Result<Region, Obstacle> {
    let instructions = &part.instructions;
    let end = instructions[exit].next_ip();
    let room = if part.exits[exit] == Exit::Always { padding(code, part, exit) } else { 0 };
    let mut first = exit;
    while (end - instructions[first].ip()) as usize + room < JUMP_BYTES {
        // To move the instruction before, nobody may jump or return to this one.
        if code.targets.contains(&instructions[first].ip()) {
            return Err(Obstacle::Target(instructions[first].ip()));
        }
        let before = first.checked_sub(1).ok_or(Obstacle::Short)?;
        if is_call(&instructions[before]) {
            return Err(Obstacle::Target(instructions[first].ip()));
        }
        if !falls_through(&instructions[before]) {
            return Err(Obstacle::Short);
        }
        first = before;
    }
    let start = instructions[first].ip();
    if taken.iter().any(|range| range.start < end && start < range.end) {
        return Err(Obstacle::Overlap);
    }
    region(code, part, first..exit + 1, false)
}

/// Returns the region of a range of instructions, if they can be moved and nobody jumps or returns into the middle.
pub fn region(
    code: &FunctionCode,
    part: &DecodedPart,
    range: Range<usize>,
    is_entry: bool,
) -> Result<Region, Obstacle> {
    let instructions = part.instructions[range.clone()].to_vec();
    let exits = part.exits[range].to_vec();
    let address = instructions[0].ip();
    if let Some(stays) = instructions.iter().find(|instruction| !is_movable(instruction)) {
        return Err(Obstacle::Unmovable(stays.ip()));
    }
    let is_odd = |at: &usize| exits[*at] == Exit::IfTaken && !instructions[*at].is_jcc_short_or_near();
    if let Some(at) = (0..exits.len()).find(is_odd) {
        return Err(Obstacle::Unmovable(instructions[at].ip()));
    }
    // The return address of a call within a region would be in its middle.
    if let Some(call) = instructions[..instructions.len() - 1].iter().find(|i| is_call(i)) {
        return Err(Obstacle::Unmovable(call.ip()));
    }
    let at = (address - part.part.address) as usize;
    let original = part.part.bytes.get(at..at + JUMP_BYTES).and_then(|bytes| bytes.try_into().ok());
    let region =
        Region { address, instructions, exits, is_entry, original: original.ok_or(Obstacle::Short)? };
    let span = span(&region);
    match code.targets.range(span.start + 1..span.end).next() {
        Some(target) => Err(Obstacle::Target(*target)),
        None => Ok(region),
    }
}

fn falls_through(instruction: &Instruction) -> bool {
    !matches!(
        instruction.flow_control(),
        FlowControl::Return
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Exception
    )
}

/// Returns the number of bytes behind an instruction that are padding: no-ops or `int3` that nothing jumps to.
fn padding(code: &FunctionCode, part: &DecodedPart, last: usize) -> usize {
    let end = part.instructions[last].next_ip();
    let at = (end - part.part.address) as usize;
    let mut length = 0;
    while length < JUMP_BYTES && !code.targets.contains(&(end + length as u64)) {
        let rest = part.part.bytes.get(at + length..).unwrap_or_default();
        let next = Decoder::with_ip(64, rest, end + length as u64, DecoderOptions::NONE).decode();
        if !matches!(next.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) || next.is_invalid() {
            break;
        }
        length += next.len();
    }
    length
}
