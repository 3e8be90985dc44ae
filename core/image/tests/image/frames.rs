//! Lines and inlined calls, against addr2line (the crate; and binutils' where installed).

use std::{collections::BTreeMap, process::Command};

use dwell_image::{Frame, Image, ImageAddress, demangle};
use gimli::{EndianSlice, LittleEndian};
use object::{Object, ObjectSection};

use crate::fixtures;

/// Fixtures with debug information of their own that needs no relocation.
const WITH_LINES: [&str; 14] = [
    "c-dwarf5.elf",
    "c-dwarf4.elf",
    "c-shared.so",
    "c-static-pie.elf",
    "c-clang-md5.elf",
    "c-zlib.elf",
    "c-zlib-gnu.elf",
    "c-zstd.elf",
    "cpp-tree.so",
    "rust-words.so",
    "aarch64-bare.elf",
    "aarch64-shared.so",
    "riscv64-bare.elf",
    "riscv64-shared.so",
];

type Place = (Option<String>, Option<String>, Option<u32>, Option<u32>);

#[test]
fn frames_agree_with_addr2line() {
    for name in WITH_LINES {
        let checked = compare(&fixtures::image(name), &fixtures::bytes(name), name);
        assert!(checked > 10, "{name}: {checked} addresses with lines");
    }
}

/// Compares every instruction; how many have a line.
fn compare(image: &Image, bytes: &[u8], name: &str) -> usize {
    let procedures = image.procedures().iter();
    let all = procedures.flat_map(|p| image.instructions(p.address, p.size_bytes)).map(|i| i.address);
    let (checked, different) = differences(image, bytes, all);
    assert!(different.is_empty(), "{name}: {different:#?}");
    checked
}

/// Returns the number of addresses with a line, and the addresses for which we differ from addr2line.
pub fn differences(
    image: &Image,
    bytes: &[u8],
    addresses: impl Iterator<Item = ImageAddress>,
) -> (usize, Vec<String>) {
    let file = object::File::parse(bytes).unwrap();
    let section = |id: gimli::SectionId| {
        let section = file.section_by_name(id.name());
        let data = section.and_then(|s| s.uncompressed_data().ok()).unwrap_or_default();
        Ok::<_, gimli::Error>(data.into_owned())
    };
    let sections = gimli::DwarfSections::load(section).unwrap();
    let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
    let context = addr2line::Context::from_dwarf(dwarf).unwrap();
    let mut checked = 0;
    let mut different = Vec::new();
    for address in addresses {
        let expected = reference(&context, address);
        let mut ours: Vec<Place> = image.frames(address).iter().map(place).collect();
        // If the debug information does not name the function, the symbol's name is used.
        if let (Some((None, ..)), Some((name, ..))) = (expected.last(), ours.last_mut()) {
            *name = None;
        }
        checked += usize::from(!expected.is_empty());
        if !expected.is_empty() && ours != expected {
            different.push(format!("{address}: {ours:?} is not {expected:?}"));
        }
    }
    (checked, different)
}

fn reference(context: &addr2line::Context<EndianSlice<'_, LittleEndian>>, at: ImageAddress) -> Vec<Place> {
    let mut frames = context.find_frames(at.0).skip_all_loads().unwrap();
    let mut places = Vec::new();
    while let Some(frame) = frames.next().unwrap() {
        let function = frame.function.map(|f| demangle(&f.raw_name().unwrap()));
        let location = frame.location;
        let file = location.as_ref().and_then(|l| l.file).map(normal);
        let line = location.as_ref().and_then(|l| l.line).filter(|l| *l > 0);
        let column = location.as_ref().and_then(|l| l.column).filter(|c| *c > 0);
        places.push((function, file, line, column));
    }
    places
}

fn place(frame: &Frame) -> Place {
    (frame.function.clone(), frame.file.as_deref().map(str::to_owned), frame.line, frame.column)
}

/// What the standard library makes of the path, which is not our way.
fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in std::path::Path::new(path).components() {
        match part {
            std::path::Component::ParentDir => _ = parts.pop(),
            std::path::Component::Normal(part) => parts.push(part.to_str().unwrap()),
            _ => {}
        }
    }
    format!("/{}", parts.join("/"))
}

#[test]
fn frames_agree_with_binutils() {
    for name in ["c-dwarf5.elf", "c-dwarf4.elf", "c-shared.so", "cpp-tree.so"] {
        let image = fixtures::image(name);
        let names = ["sum_squares", "main", "trees::Node<long> const* trees::find<long>"];
        for procedure in
            image.procedures().iter().filter(|p| names.iter().any(|n| p.demangled().starts_with(n)))
        {
            let addresses = image.instructions(procedure.address, procedure.size_bytes);
            let addresses: Vec<ImageAddress> = addresses.iter().map(|i| i.address).collect();
            let Some(expected) = binutils(name, &addresses) else {
                println!("SKIPPED frames_agree_with_binutils: addr2line is not installed");
                return;
            };
            let ours: Vec<String> =
                addresses.iter().flat_map(|a| image.frames(*a)).map(|f| text(&f)).collect();
            assert_eq!(ours, expected, "{name}: {}", procedure.name());
        }
    }
}

/// `addr2line -fi`, file and line only: names it takes from elsewhere.
fn binutils(name: &str, addresses: &[ImageAddress]) -> Option<Vec<String>> {
    let mut command = Command::new("addr2line");
    command.arg("-i").arg("-e").arg(fixtures::folder().join(name));
    let output = command.args(addresses.iter().map(|a| format!("{:x}", a.0))).output().ok()?;
    let lines = String::from_utf8(output.stdout).unwrap();
    Some(lines.lines().map(|l| l.split(" (discriminator").next().unwrap().to_owned()).collect())
}

fn text(frame: &Frame) -> String {
    let file = frame.file.as_deref().unwrap_or("??");
    frame.line.map_or(format!("{file}:?"), |line| format!("{file}:{line}"))
}

#[test]
fn clang_records_the_md5_of_sources() {
    let image = fixtures::image("c-clang-md5.elf");
    let md5 = image.source_md5("/dwell/images/src/calc.c").expect("clang writes MD5s");
    let hex: String = md5.iter().map(|b| format!("{b:02x}")).collect();
    let Ok(output) = Command::new("md5sum").arg(fixtures::folder().join("src/calc.c")).output() else {
        println!("SKIPPED clang_records_the_md5_of_sources: md5sum is not installed");
        return;
    };
    assert!(String::from_utf8(output.stdout).unwrap().starts_with(&hex));
    assert_eq!(image.source_md5("/no/such/file.c"), None);
    assert_eq!(fixtures::image("c-dwarf5.elf").source_md5("/dwell/images/src/calc.c"), None);
}

#[test]
fn many_threads_can_query_one_image() {
    let image = fixtures::image("c-dwarf5.elf");
    let addresses: Vec<_> = image.procedures().iter().map(|p| p.address).collect();
    let alone: Vec<_> = addresses.iter().map(|a| image.frames(*a)).collect();
    let fresh = fixtures::image("c-dwarf5.elf");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let together: Vec<_> = addresses.iter().map(|a| fresh.frames(*a)).collect();
                assert_eq!(together, alone);
            });
        }
    });
}

/// The rows of all line tables: the last discriminator and line of each address.
fn rows(bytes: &[u8]) -> BTreeMap<u64, (u64, u64)> {
    let file = object::File::parse(bytes).unwrap();
    let section = |id: gimli::SectionId| {
        let section = file.section_by_name(id.name());
        Ok::<_, gimli::Error>(
            section.and_then(|s| s.uncompressed_data().ok()).unwrap_or_default().into_owned(),
        )
    };
    let sections = gimli::DwarfSections::load(section).unwrap();
    let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
    let mut rows = BTreeMap::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next().unwrap() {
        let Some(program) = dwarf.unit(header).unwrap().line_program else { continue };
        let mut program = program.rows();
        while let Some((_, row)) = program.next_row().unwrap() {
            let at = (row.discriminator(), row.line().map_or(0, |l| l.get()));
            if !row.end_sequence() {
                rows.insert(row.address(), at);
            }
        }
    }
    rows
}

#[test]
fn compiled_frames_have_the_discriminators_of_the_line_table() {
    let mut discriminators = 0;
    for name in WITH_LINES {
        let image = fixtures::image(name);
        for (address, (discriminator, line)) in rows(&fixtures::bytes(name)) {
            let frames = image.compiled_frames(ImageAddress(address));
            let Some(innermost) = frames.first() else { continue };
            assert_eq!(
                (u64::from(innermost.discriminator), u64::from(innermost.line)),
                (discriminator, line),
                "{name} at {address:#x}"
            );
            discriminators += usize::from(discriminator > 0);
        }
    }
    assert!(discriminators > 10, "{discriminators} rows with a discriminator");
}

#[test]
fn compiled_frames_name_functions_by_linkage_and_their_first_lines() {
    // These are the lines on which calc.c and tree.cpp declare the functions.
    let calc = [("square", 6), ("sum_squares", 10), ("choose", 17), ("main", 31)];
    let tree = [("lookup", 17), ("_ZN5trees4findIlEEPKNS_4NodeIT_EES4_RKS2_", 10)];
    let mut inlined = 0;
    for (name, expected) in [
        ("c-dwarf5.elf", &calc[..]),
        ("c-dwarf4.elf", &calc),
        ("c-clang-md5.elf", &calc),
        ("aarch64-shared.so", &calc),
        ("cpp-tree.so", &tree),
    ] {
        let image = fixtures::image(name);
        for p in image.procedures().iter() {
            for i in image.instructions(p.address, p.size_bytes) {
                let frames = image.compiled_frames(i.address);
                inlined += usize::from(frames.len() > 1);
                for frame in frames {
                    let function = frame.function.as_deref().unwrap_or("?");
                    let Some((_, line)) = expected.iter().find(|(n, _)| *n == function) else { continue };
                    assert_eq!(frame.start_line, *line, "{name}: {function} at {}", i.address);
                }
            }
        }
    }
    assert!(inlined > 20, "{inlined} instructions of inlined calls");
}
