//! Reads the code of functions from their image.
//!
//! Enters: an image, where it is mapped, and procedures of it. Leaves: [`FunctionCode`] with process addresses. What the image
//! knows of indirect jumps, landing pads and split functions comes together here.

use std::{collections::BTreeSet, ops::Range};

use dwell_analysis::{cfg::is_tail_call, recover_jump_targets};
use dwell_image::{Flow, Image, ImageAddress, Procedure};

use super::{
    function_code::{FunctionCode, Part},
    incoming::{Jump, far_jumps_into},
    plan::Refusal,
};

/// Number of parts of a function. Compilers make two.
const PARTS_MAX: usize = 8;
/// Number of bytes behind a part that are read in search of padding.
const PADDING_BYTES_MAX: u64 = 16;
/// The farthest that a jump with an 8-bit displacement leads, with its own length.
const NEAR_BYTES: u64 = 130;

/// Reads the code of functions. `bias` is added to an image address to get the address in the process.
pub fn function_codes(
    image: &Image,
    procedures: &[Procedure],
    bias: u64,
) -> Vec<Result<FunctionCode, Refusal>> {
    let mut codes: Vec<Result<FunctionCode, Refusal>> =
        procedures.iter().map(|procedure| function_code(image, procedure, bias)).collect();
    let mut ranges: Vec<Range<u64>> = codes.iter().flatten().flat_map(FunctionCode::ranges).collect();
    ranges.sort_by_key(|range| range.start);
    ranges.dedup();
    let mut jumps: Vec<Jump> = Vec::new();
    for (address, bytes) in image.code() {
        jumps.extend(far_jumps_into(bytes, address.0.wrapping_add(bias), &ranges));
    }
    for code in codes.iter_mut().flatten() {
        for range in code.ranges().collect::<Vec<_>>() {
            let from_neighbours = near_jumps_into(image, &range, bias);
            let from_afar = jumps.iter().copied().filter(|jump| range.contains(&jump.to));
            for jump in from_afar.chain(from_neighbours) {
                code.add_jump_from_outside(jump);
            }
        }
    }
    codes
}

/// Reads the code of one function, without what other functions do.
fn function_code(image: &Image, procedure: &Procedure, bias: u64) -> Result<FunctionCode, Refusal> {
    let mut extents = vec![Extent { start: procedure.address, size_bytes: procedure.size_bytes }];
    let mut jumps = IndirectJumps::default();
    let mut at = 0;
    while let Some(&Extent { start, size_bytes }) = extents.get(at) {
        let mut leads_to = image.landing_pads(start).ok_or(Refusal::UnknownLandingPads)?;
        jumps.targets.extend(leads_to.iter().map(|pad| pad.0.wrapping_add(bias)));
        let instructions = image.instructions(start, size_bytes);
        let read = |address, into: &mut [u8]| image.read(address, into);
        let tables = recover_jump_targets(image.arch(), &instructions, &read);
        for (index, instruction) in instructions.iter().enumerate() {
            let address = instruction.address.0.wrapping_add(bias);
            match (instruction.flow, tables.get(&index)) {
                (Flow::IndirectJump, Some(to)) => {
                    jumps.resolved.insert(address);
                    jumps.targets.extend(to.iter().map(|to| to.0.wrapping_add(bias)));
                    leads_to.extend(to);
                }
                (Flow::IndirectJump, None) if is_tail_call(&instructions, index) => {
                    jumps.tail_calls.insert(address);
                }
                (Flow::Jump { target } | Flow::Branch { target }, _) => leads_to.push(target),
                _ => {}
            }
        }
        leads_to.into_iter().for_each(|to| add_part(image, &mut extents, to));
        if extents.len() > PARTS_MAX {
            return Err(Refusal::Scattered);
        }
        at += 1;
    }
    let parts: Option<Vec<Part>> = extents.iter().map(|extent| read_part(image, extent, bias)).collect();
    FunctionCode::decode(parts.ok_or(Refusal::NoCode)?, jumps)
}

/// What is known about a function's indirect jumps, by process addresses.
#[derive(Clone, Debug, Default)]
pub struct IndirectJumps {
    /// Where they and the unwinder may lead.
    pub targets: BTreeSet<u64>,
    /// The jumps whose targets are all among `targets`.
    pub resolved: BTreeSet<u64>,
    /// The jumps that leave the function.
    pub tail_calls: BTreeSet<u64>,
}

#[derive(Clone, Copy)]
struct Extent {
    start: ImageAddress,
    size_bytes: u64,
}

impl Extent {
    fn contains(&self, address: ImageAddress) -> bool {
        address.0.checked_sub(self.start.0).is_some_and(|distance| distance < self.size_bytes)
    }
}

/// Adds the procedure around `to` if it belongs to the function: it is a cold part by its name, or its middle is jumped to.
fn add_part(image: &Image, extents: &mut Vec<Extent>, to: ImageAddress) {
    if extents.len() > PARTS_MAX || extents.iter().any(|extent| extent.contains(to)) {
        return;
    }
    if let Some(procedure) = image.procedure_at(to)
        && (procedure.address != to || is_cold_part(&procedure.name()))
    {
        extents.push(Extent { start: procedure.address, size_bytes: procedure.size_bytes });
    }
}

/// Returns whether a symbol names the cold part of a split function: `NAME.cold` (gcc, LLVM) or `NAME.cold.N` (older gcc, BOLT).
fn is_cold_part(name: &str) -> bool {
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('.');
    name.ends_with(".cold")
}

fn read_part(image: &Image, extent: &Extent, bias: u64) -> Option<Part> {
    let end = extent.start.0.checked_add(extent.size_bytes)?;
    let next = image.procedures().next_after(ImageAddress(end - 1));
    let room = next.0.saturating_sub(end).min(PADDING_BYTES_MAX);
    let length = usize::try_from(extent.size_bytes).ok()?;
    let mut bytes = vec![0; length + room as usize];
    if !image.read(extent.start, &mut bytes) {
        bytes.truncate(length);
        image.read(extent.start, &mut bytes).then_some(())?;
    }
    Some(Part { address: extent.start.0.wrapping_add(bias), bytes, length })
}

/// Returns jumps of the functions just before and after a range that lead into it.
fn near_jumps_into(image: &Image, range: &Range<u64>, bias: u64) -> Vec<Jump> {
    let [start, end] = [range.start, range.end].map(|address| address.wrapping_sub(bias));
    let mut found = Vec::new();
    let mut at = start.saturating_sub(NEAR_BYTES);
    while at < end + NEAR_BYTES {
        let procedure = image.procedure_at(ImageAddress(at));
        let Some(procedure) = procedure.filter(|p| !(start..end).contains(&p.address.0)) else {
            at = if (start..end).contains(&at) {
                end
            } else {
                image.procedures().next_after(ImageAddress(at)).0
            };
            continue;
        };
        for instruction in image.instructions(procedure.address, procedure.size_bytes) {
            if let Flow::Jump { target } | Flow::Branch { target } = instruction.flow
                && (start..end).contains(&target.0)
            {
                let [from, to] = [instruction.address, target].map(|a| a.0.wrapping_add(bias));
                found.push(Jump { from, to });
            }
        }
        at = procedure.end().0;
    }
    found
}
