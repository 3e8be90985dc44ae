//! Calls every function of this crate on one file, for fuzzing and for the replay of damaged fixtures.

use crate::{DebugState, Image, ImageAddress, ImageOffset, UnwindRules};

/// Largest number of procedures, of addresses in each, and of bytes of each that are examined.
const PROCEDURES_MAX: usize = 48;
const ADDRESSES_MAX: usize = 6;
const PROCEDURE_BYTES_MAX: u64 = 2048;

/// Reads `bytes` as an image, calls all functions and checks that their answers are consistent. Entry point for fuzzers:
/// whatever the bytes are, it returns within bounded time, and a panic is a bug.
pub fn fuzz_elf(bytes: &[u8]) {
    let rules = UnwindRules::parse(bytes.to_vec());
    let Ok(mut image) = Image::parse(bytes) else { return };
    if let Ok(rules) = rules {
        for procedure in image.procedures().iter().take(PROCEDURES_MAX) {
            let offset = image.offset_of(procedure.address).unwrap_or(ImageOffset(procedure.address.0));
            (0..16).for_each(|at| _ = rules.at(ImageOffset(offset.0.wrapping_add(at))));
        }
        [0, 0x1000, u64::MAX].into_iter().for_each(|offset| _ = rules.at(ImageOffset(offset)));
    }
    fuzz_image(&image);
    if image.attach_itself() {
        fuzz_image(&image);
    }
}

/// Calls all functions of an image, as [`fuzz_elf`] does.
pub fn fuzz_image(image: &Image) {
    let procedures = image.procedures();
    assert!(
        procedures.iter().is_sorted_by(|a, b| a.address < b.address),
        "one procedure for each address, sorted"
    );
    for procedure in procedures.iter().take(PROCEDURES_MAX) {
        assert!(procedure.size_bytes > 0 && procedure.demangled().len() < 1 << 20);
        assert!(image.procedure_at(procedure.address).is_some());
        image.landing_pads(procedure.address);
        check_instructions(image, procedure.address, procedure.size_bytes.min(PROCEDURE_BYTES_MAX));
    }
    for address in [0, 0x1000, u64::MAX - 8, u64::MAX] {
        check_instructions(image, ImageAddress(address), 64);
        image.procedure_at(ImageAddress(address));
        image.data_at(address, 1);
        image.data_at(address, 4096);
    }
    if let DebugState::Incomplete(missing) = image.debug_state() {
        assert!(!missing.is_empty() && missing.len() < 1 << 20);
    }
    assert!(image.unwind_rows().is_sorted_by(|a, b| a.start <= b.start));
    image.restartable_sequences();
    image.source_md5("/dwell/images/src/calc.c");
}

fn check_instructions(image: &Image, start: ImageAddress, size_bytes: u64) {
    let instructions = image.instructions(start, size_bytes);
    let mut expected = start;
    for instruction in &instructions {
        assert_eq!(instruction.address, expected, "instructions follow each other without a gap");
        assert!(instruction.length > 0);
        expected = instruction.end();
    }
    assert!(expected.0.wrapping_sub(start.0) <= size_bytes);
    for instruction in instructions.iter().take(ADDRESSES_MAX) {
        image.frames(instruction.address);
        if let Some(offset) = image.offset_of(instruction.address) {
            image.address_of(offset);
        }
    }
}
