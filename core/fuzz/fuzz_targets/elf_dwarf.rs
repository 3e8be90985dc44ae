//! Any bytes as an image: symbols, instructions and source lines of all its code. Must not panic, hang or eat memory.
#![no_main]

use dwell_image::{Image, ImageAddress};
use libfuzzer_sys::fuzz_target;

/// What one input may look up, so that it stays fast.
const PROCEDURES_MAX: usize = 16;
const BYTES_MAX: u64 = 256;

fuzz_target!(|bytes: &[u8]| {
    let Ok(image) = Image::parse(bytes) else { return };
    image.arch();
    image.build_id();
    for procedure in image.procedures().iter().take(PROCEDURES_MAX) {
        for instruction in image.instructions(procedure.address, procedure.size_bytes.min(BYTES_MAX)) {
            image.frames(instruction.address);
            image.offset_of(instruction.address).and_then(|offset| image.address_of(offset));
        }
    }
    let mut word = [0; 8];
    for address in [0, 1, u64::MAX / 2, u64::MAX] {
        image.read(ImageAddress(address), &mut word);
        image.procedure_at(ImageAddress(address));
        image.frames(ImageAddress(address));
    }
});
