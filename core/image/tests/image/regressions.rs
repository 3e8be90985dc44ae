//! Inputs that the fuzzer found, each kept for good.

use std::fs;

#[test]
fn inputs_found_by_fuzzing_cause_no_panic() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/regressions/elf_dwarf");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        dwell_image::fuzz_elf(&fs::read(path).unwrap());
    }
}
