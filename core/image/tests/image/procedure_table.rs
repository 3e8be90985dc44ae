//! Tables of procedures that are read by themselves answer as whole images do, of fixtures, of this machine's files, and of damaged ones.

use std::path::{Path, PathBuf};

use dwell_image::{DebugSearch, Image, ImageAddress, Procedure, ProcedureTable};

use crate::fixtures;

/// Addresses at which the two disagree, of those where a procedure begins, ends or is left.
fn differences(path: &Path) -> Option<(usize, Vec<String>)> {
    let mut image = Image::open(path).ok()?;
    image.attach_debug(&DebugSearch::default());
    let table = ProcedureTable::open(path, &DebugSearch::default()).unwrap()?;
    let ends = |p: Procedure<'_>| {
        [p.address, p.address.offset(p.size_bytes / 2), p.address.offset(p.size_bytes - 1), p.end()]
    };
    let addresses: Vec<ImageAddress> = image.procedures().iter().flat_map(ends).collect();
    let mut different = Vec::new();
    for address in &addresses {
        let whole = image.procedure_at(*address).map(|p| (p.address, p.size_bytes));
        let span = table.at(*address);
        if span.map(|s| (s.address, s.size_bytes)) != whole {
            different.push(format!("{address}: {whole:?} and {span:?}"));
        }
    }
    for p in image.procedures().iter().step_by(17) {
        let name = table.at(p.address).map(|own| own.name());
        if name != Some(p.name()) {
            different.push(format!("{}: {} and {name:?}", p.address, p.name()));
        }
    }
    Some((addresses.len(), different))
}

#[test]
fn look_ups_agree_with_images() {
    let system =
        ["/usr/bin/perf", "/usr/bin/gcc", "/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6"].map(PathBuf::from);
    let fixtures = fixtures::binaries().into_iter().map(|name| fixtures::folder().join(name));
    let own = std::env::current_exe().unwrap();
    let mut checked = 0;
    for path in fixtures.chain(system).chain([own]) {
        let Some((addresses, different)) = differences(&path) else { continue };
        checked += addresses;
        assert!(
            different.is_empty(),
            "{}: {} of {addresses}: {:#?}",
            path.display(),
            different.len(),
            &different[..different.len().min(9)]
        );
    }
    assert!(checked > 10_000, "{checked}");
}

#[test]
fn damaged_files_give_an_error_or_some_table() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = fixtures::bytes("c-shared.so");
    let mut random = 5_u64;
    for nth in 0..400 {
        let mut damaged = bytes.clone();
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let at = (random >> 33) as usize;
        match nth % 4 {
            0 => damaged.truncate(at % bytes.len()),
            1 => damaged[at % 64] ^= 1 << (random >> 29 & 7),
            // The section headers are at the end of the file.
            2 => damaged[bytes.len() - 1 - at % 2000] = 0xff,
            _ => damaged[at % bytes.len()] ^= 1 << (random >> 29 & 7),
        }
        let path = folder.path().join("damaged");
        std::fs::write(&path, &damaged).unwrap();
        if let Ok(Some(table)) = ProcedureTable::open(&path, &DebugSearch { debug_dirs: Vec::new() }) {
            for address in [0, 0x1000, 0x1040, 0x1100, 0x1200, u64::MAX] {
                if let Some(span) = table.at(ImageAddress(address)) {
                    assert!(span.size_bytes > 0);
                    span.demangled();
                }
            }
        }
    }
}

/// A file of 4 GiB, all of it a hole that its section headers call symbols: no room is taken for so many.
#[test]
fn more_symbols_than_any_program_has_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hole");
    let mut bytes = fixtures::bytes("c-shared.so");
    let headers = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap()) as usize;
    let count = usize::from(u16::from_le_bytes(bytes[0x3c..0x3e].try_into().unwrap()));
    let is_symbols = |at: &usize| matches!(bytes[at + 4], 2 | 11); // SHT_SYMTAB, SHT_DYNSYM
    let table = (0..count).map(|n| headers + n * 64).find(is_symbols).expect("a table of symbols");
    let size: u64 = (4 << 30) - bytes.len() as u64;
    let start = bytes.len() as u64;
    bytes[table + 24..table + 32].copy_from_slice(&start.to_le_bytes());
    bytes[table + 32..table + 40].copy_from_slice(&size.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(4 << 30).unwrap();
    let error = ProcedureTable::open(&path, &DebugSearch { debug_dirs: Vec::new() }).err().expect("refused");
    assert!(error.to_string().contains("symbols, the limit is"), "{error}");
}

/// Tables that lie over each other are read no further than the file is long.
#[test]
fn a_table_that_is_named_many_times_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("named");
    let mut bytes = fixtures::bytes("c-shared.so");
    let headers = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap()) as usize;
    let count = usize::from(u16::from_le_bytes(bytes[0x3c..0x3e].try_into().unwrap()));
    let is_symbols = |at: &usize| matches!(bytes[at + 4], 2 | 11);
    let table = (0..count).map(|n| headers + n * 64).find(is_symbols).expect("a table of symbols");
    let header = bytes[table..table + 64].to_vec();
    let copies = 60_000_usize;
    let at = bytes.len() as u64;
    let sections = bytes[headers..headers + count * 64].to_vec();
    bytes.extend_from_slice(&sections);
    (count..copies).for_each(|_| bytes.extend_from_slice(&header));
    bytes[0x28..0x30].copy_from_slice(&at.to_le_bytes());
    bytes[0x3c..0x3e].copy_from_slice(&(copies as u16).to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let plain = ProcedureTable::open(&fixtures::folder().join("c-shared.so"), &DebugSearch::default())
        .unwrap()
        .unwrap();
    let table = ProcedureTable::open(&path, &DebugSearch::default()).unwrap().unwrap();
    let spans = |table: &ProcedureTable| {
        (0..0x4000).map(|a| table.at(ImageAddress(a)).map(|s| (s.address, s.size_bytes))).collect::<Vec<_>>()
    };
    assert!(spans(&table) == spans(&plain));
}

/// A pipe without a writer is refused at once, and so is a folder.
#[test]
fn special_files_are_refused_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    for path in [pipe.as_path(), folder.path(), Path::new("/dev/null")] {
        let table = ProcedureTable::open(path, &DebugSearch::default()).err().expect("refused");
        assert!(table.to_string().contains("not a regular file"), "{table}");
        let whole = Image::open(path).map(drop).expect_err("refused");
        assert!(whole.to_string().contains("not a regular file"), "{whole}");
    }
}
