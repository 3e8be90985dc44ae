//! Decodes the code between the branches of stacks, to find which conditional branches were not taken.
//!
//! Enters: the images that stacks led through, and sums of branches by target. Leaves: evidence of executions. Never here:
//! a frequency. Cost: one decoding for each run of code.

use std::collections::BTreeMap;

use dwell_image::{Image, ImageAddress, fall_throughs};
use dwell_profile::{BranchSums, ExecutionEvidence, ImageKind, ImageOffset, ImageRecord};

/// Limit of the code that is decoded, in bytes.
const DECODED_BYTES_MAX: u64 = 64 << 20;

/// Returns the evidence of all stacks; `records` are the images of the targets.
pub fn evidence(stacks: BranchSums<u32>, records: &BTreeMap<u32, ImageRecord>) -> Option<ExecutionEvidence> {
    let file = |target: u32| records.get(&target).filter(|r| r.kind == ImageKind::File);
    let mut room = DECODED_BYTES_MAX;
    let mut opened: Option<(u32, Option<Image>)> = None;
    let decode = |target: u32, start: u64, end: u64| {
        if opened.as_ref().is_none_or(|(last, _)| *last != target) {
            opened = Some((target, file(target).and_then(open)));
        }
        match &opened {
            Some((_, Some(image))) if room >= end - start => {
                room -= end - start;
                not_taken(image, start, end)
            }
            _ => Vec::new(),
        }
    };
    stacks.evidence(decode, |target| file(target).map(|r| r.id.clone()))
}

/// Opens the image if it is the one that was sampled.
fn open(record: &ImageRecord) -> Option<Image> {
    let image = Image::open(&record.path).ok()?;
    let id = record.id.build_id();
    (id.is_none() || image.build_id() == id.as_ref()).then_some(image)
}

/// Returns the offset of each conditional branch from `start` to `end` (exclusive), with the offset of the instruction
/// after it.
fn not_taken(image: &Image, start: u64, end: u64) -> Vec<(u64, u64)> {
    let Some(address) = image.address_of(ImageOffset(start)) else { return Vec::new() };
    let offset = |a: ImageAddress| start + (a.0 - address.0);
    let code = image.instructions(address, end - start);
    fall_throughs(&code).map(|(from, to)| (offset(from), offset(to))).collect()
}
