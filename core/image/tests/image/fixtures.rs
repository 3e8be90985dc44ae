//! The fixtures, and whether they are what their recipe made.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use dwell_image::Image;

pub fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../test-fixtures/images"))
}

pub fn bytes(name: &str) -> Vec<u8> {
    fs::read(folder().join(name)).unwrap_or_else(|e| panic!("fixture {name}: {e}"))
}

pub fn image(name: &str) -> Image {
    Image::open(folder().join(name)).unwrap_or_else(|e| panic!("fixture {name}: {e}"))
}

/// The names of all binaries.
pub fn binaries() -> Vec<String> {
    let names = manifest().into_keys().filter(|n| !n.starts_with("src/") && n != "build.sh");
    names.collect()
}

/// Name → CRC-32 and size.
fn manifest() -> BTreeMap<String, (u32, usize)> {
    let text = String::from_utf8(bytes("MANIFEST")).unwrap();
    let entry = |line: &str| {
        let mut words = line.split(' ');
        let crc = u32::from_str_radix(words.next()?, 16).ok()?;
        let size = words.next()?.parse().ok()?;
        Some((words.next()?.to_owned(), (crc, size)))
    };
    text.lines().filter_map(entry).collect()
}

#[test]
fn fixtures_are_what_their_recipe_made() {
    let manifest = manifest();
    assert!(manifest.len() > 20, "the manifest can be read");
    for (name, (crc, size)) in &manifest {
        let bytes = bytes(name);
        let found = (crc32fast::hash(&bytes), bytes.len());
        assert_eq!(
            found,
            (*crc, *size),
            "{name} drifted: run test-fixtures/images/build.sh and commit its result"
        );
        assert!(*size < 100_000, "{name} is too large for a repository");
    }
    let known = |name: &str| manifest.contains_key(name) || name == "MANIFEST" || name == "src";
    for entry in fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(known(&name), "{name} is in no manifest");
    }
}
