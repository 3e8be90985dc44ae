//! Outlines answer as whole images do, of fixtures, of this machine's files, and of damaged ones.

use std::path::{Path, PathBuf};

use dwell_image::{DebugSearch, Image, ImageAddress, Outline};

use crate::fixtures;

/// Addresses at which the two disagree, of those where a procedure begins, ends or is left.
fn differences(path: &Path) -> Option<(usize, Vec<String>)> {
    let mut image = Image::open(path).ok()?;
    image.attach_debug(&DebugSearch::default());
    let outline = Outline::open(path, &DebugSearch::default()).unwrap()?;
    let ends = |p: &dwell_image::Procedure| {
        [p.address, p.address.offset(p.size_bytes / 2), p.address.offset(p.size_bytes - 1), p.end()]
    };
    let addresses: Vec<ImageAddress> = image.procedures().iter().flat_map(ends).collect();
    let mut different = Vec::new();
    for address in &addresses {
        let whole = image.procedure_at(*address).map(|p| (p.address, p.size_bytes));
        let span = outline.at(*address);
        if span.map(|s| (s.address, s.size_bytes)) != whole {
            different.push(format!("{address}: {whole:?} and {span:?}"));
        }
    }
    for p in image.procedures().iter().step_by(17) {
        let name = outline.at(p.address).map(|span| outline.name(&span));
        if name.as_deref() != Some(&*p.name) {
            different.push(format!("{}: {} and {name:?}", p.address, p.name));
        }
    }
    Some((addresses.len(), different))
}

#[test]
fn outlines_answer_as_images_do() {
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
fn damaged_files_give_an_error_or_some_outline() {
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
            // The section headers are at the end.
            2 => damaged[bytes.len() - 1 - at % 2000] = 0xff,
            _ => damaged[at % bytes.len()] ^= 1 << (random >> 29 & 7),
        }
        let path = folder.path().join("damaged");
        std::fs::write(&path, &damaged).unwrap();
        if let Ok(Some(outline)) = Outline::open(&path, &DebugSearch { debug_dirs: Vec::new() }) {
            for address in [0, 0x1000, 0x1040, 0x1100, 0x1200, u64::MAX] {
                if let Some(span) = outline.at(ImageAddress(address)) {
                    assert!(span.size_bytes > 0);
                    outline.demangled(&span);
                }
            }
        }
    }
}
