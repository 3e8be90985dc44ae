//! Programs whose symbols are packed in `.gnu_debugdata`, against the same program with all of its symbols.

use std::path::Path;

use dwell_image::{DebugSearch, DebugState, Image, ProcedureTable};

use crate::built::{self, run};

const NO_FOLDERS: DebugSearch = DebugSearch { debug_dirs: Vec::new() };

/// `full` and `mini`, the latter stripped as Fedora's find-debuginfo does it.
fn build(folder: &Path) -> Result<(), String> {
    built::source(folder, "calc.c");
    run(folder, "gcc -g -O2 -o full calc.c")?;
    run(folder, "nm -D full --format=posix --defined-only | awk '{ print $1 }' | sort >dynamic")?;
    run(folder, "nm full --format=posix --defined-only | awk '$2 ~ /[TtD]/ { print $1 }' | sort >functions")?;
    run(folder, "comm -13 dynamic functions >keep && objcopy --only-keep-debug full debug")?;
    run(folder, "objcopy -S --remove-section .comment --keep-symbols=keep debug symbols && xz -k symbols")?;
    run(
        folder,
        "strip --strip-all -o stripped full && objcopy --add-section .gnu_debugdata=symbols.xz stripped mini",
    )
}

#[test]
fn packed_symbols_name_what_the_whole_table_names() {
    let folder = tempfile::tempdir().unwrap();
    if let Err(why) = build(folder.path()) {
        return println!("SKIPPED packed_symbols_name_what_the_whole_table_names: {why}");
    }
    let full = Image::open(folder.path().join("full")).unwrap();
    let path = folder.path().join("mini");
    let mut mini = Image::open(&path).unwrap();
    mini.attach_debug(&NO_FOLDERS);
    let table = ProcedureTable::open(&path, &NO_FOLDERS).unwrap().unwrap();
    let stripped = Image::open(folder.path().join("stripped")).unwrap();
    let mut gained = 0;
    for p in full.procedures().iter().filter(|p| !p.name().starts_with('_')) {
        let ours = mini.procedure_at(p.address).unwrap();
        assert_eq!((ours.name(), ours.address, ours.size_bytes), (p.name(), p.address, p.size_bytes));
        let looked_up = table.at(p.address).unwrap();
        assert_eq!(
            (looked_up.name(), looked_up.address, looked_up.size_bytes),
            (p.name(), p.address, p.size_bytes)
        );
        gained += usize::from(stripped.procedure_at(p.address).is_none_or(|s| s.name() != p.name()));
    }
    assert!(gained >= 2, "{gained} procedures have a name by the packed symbols alone");
}

#[test]
fn damaged_packed_symbols_leave_the_others() {
    let folder = tempfile::tempdir().unwrap();
    if let Err(why) = build(folder.path()) {
        return println!("SKIPPED damaged_packed_symbols_leave_the_others: {why}");
    }
    let whole = std::fs::read(folder.path().join("mini")).unwrap();
    let packed = std::fs::read(folder.path().join("symbols.xz")).unwrap();
    let at = whole.windows(packed.len()).position(|w| w == packed).unwrap();
    let path = folder.path().join("damaged");
    let mut refused = 0;
    for nth in (0..packed.len()).step_by(packed.len().div_ceil(64)) {
        let mut damaged = whole.clone();
        damaged[at + nth] ^= 0x55;
        std::fs::write(&path, &damaged).unwrap();
        dwell_image::fuzz_elf(&damaged);
        let table = ProcedureTable::open(&path, &NO_FOLDERS).unwrap().unwrap();
        let image = Image::open(&path).unwrap();
        if let DebugState::Missing(why) = image.debug_state() {
            refused += usize::from(why.contains(".gnu_debugdata cannot be unpacked: "));
        }
        for p in image.procedures().iter() {
            assert_eq!(table.at(p.address).map(|s| s.address), Some(p.address));
        }
    }
    assert!(refused > 50, "{refused} of 64 say why there are no names");
}
