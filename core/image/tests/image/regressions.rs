//! Inputs that the fuzzer found, each kept for good.

use std::fs;

#[test]
fn what_fuzzing_found_stays_found() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/regressions/elf_dwarf");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        dwell_image::exercise(&fs::read(path).unwrap());
    }
}
