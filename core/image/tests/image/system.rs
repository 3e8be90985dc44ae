//! Files of this machine: the running vdso, the C library, this test itself; against objdump where installed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use dwell_image::{Flow, Image, ImageAddress, Instruction};

use crate::{fixtures, frames};

#[test]
fn the_running_vdso_is_an_image() {
    let Some(bytes) = vdso() else {
        println!("SKIPPED the_running_vdso_is_an_image: this process has none that can be read");
        return;
    };
    let image = Image::parse(bytes).unwrap();
    assert!(image.procedures().iter().any(|p| p.name().contains("vdso") || p.name().contains("gettime")));
    assert!(image.build_id().is_some());
}

fn vdso() -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|l| l.ends_with("[vdso]"))?;
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut bytes = vec![0; (end - start) as usize];
    std::fs::File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

/// This test is Rust with its library inlined, hundreds of units; a sample of its addresses.
#[test]
fn frames_of_this_test_agree_with_addr2line() {
    let path = std::env::current_exe().unwrap();
    let image = Image::open(&path).unwrap();
    assert!(image.procedures().iter().filter(|p| p.demangled().contains("dwell_image::dwarf")).count() > 5);
    let some = image.procedures().iter().step_by(7);
    let addresses = some.flat_map(|p| image.instructions(p.address, p.size_bytes.min(64))).map(|i| i.address);
    let (checked, different) = frames::differences(&image, &std::fs::read(&path).unwrap(), addresses);
    println!("{checked} addresses, {} differ", different.len());
    assert!(checked > 1000);
    // Where ranges of functions overlap (folded duplicates), readers choose different functions.
    let first = different.iter().take(3).collect::<Vec<_>>();
    assert!(different.len() * 200 <= checked, "{} of {checked}: {first:#?}", different.len());
}

#[test]
fn instructions_agree_with_objdump() {
    let names = ["c-dwarf5.elf", "c-shared.so", "c-static-pie.elf", "cpp-tree.so", "rust-words.so"];
    for name in names {
        let image = fixtures::image(name);
        let Some(expected) = objdump(&fixtures::folder().join(name)) else {
            println!("SKIPPED instructions_agree_with_objdump: objdump is not installed");
            return;
        };
        let (equal, different) = compare(&image, &expected);
        assert!(equal > 0 && different.is_empty(), "{name}: {different:?}");
    }
}

/// Hand-written assembly, every vector extension: a few encodings differ in length between disassemblers.
#[test]
fn instructions_of_the_c_library_agree_with_objdump() {
    let paths = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"];
    let Some(path) = paths.iter().map(Path::new).find(|p| p.exists()) else {
        println!("SKIPPED instructions_of_the_c_library_agree_with_objdump: no x86-64 libc here");
        return;
    };
    let Some(expected) = objdump(path) else {
        println!("SKIPPED instructions_of_the_c_library_agree_with_objdump: objdump is not installed");
        return;
    };
    let image = Image::open(path).unwrap();
    let (equal, different) = compare(&image, &expected);
    println!("{equal} procedures equal, {} different: {different:?}", different.len());
    assert!(equal > 1000);
    assert!(different.len() * 200 < equal, "{} of {equal} differ: {different:?}", different.len());
}

/// Address → mnemonic and what follows it.
type Listing = BTreeMap<u64, String>;

fn objdump(path: &Path) -> Option<Listing> {
    let mut command = Command::new("objdump");
    let output = command.args(["-d", "-M", "intel", "--no-show-raw-insn"]).arg(path).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |line: &str| {
        let (address, text) = line.trim_start().split_once(":\t")?;
        Some((u64::from_str_radix(address, 16).ok()?, text.trim().to_owned()))
    };
    Some(text.lines().filter_map(line).collect())
}

/// Returns the number of procedures with equal addresses and targets, and the names of the others.
fn compare(image: &Image, expected: &Listing) -> (usize, Vec<String>) {
    let mut different = Vec::new();
    let mut equal = 0;
    for procedure in image.procedures().iter() {
        let expected: Vec<(u64, &String)> =
            expected.range(procedure.address.0..procedure.end().0).map(|(a, t)| (*a, t)).collect();
        let ours = image.instructions(procedure.address, procedure.size_bytes);
        match first_difference(&ours, &expected) {
            None => equal += 1,
            Some(what) => different.push(format!("{}: {what}", procedure.name())),
        }
    }
    (equal, different)
}

fn first_difference(ours: &[Instruction], expected: &[(u64, &String)]) -> Option<String> {
    for (i, (address, text)) in ours.iter().zip(expected) {
        if i.address.0 != *address || kind(i) != expected_kind(text) {
            return Some(format!("{:x} {} is not {address:x} {text}", i.address.0, i.text));
        }
    }
    (ours.len() != expected.len()).then(|| format!("{} instructions, not {}", ours.len(), expected.len()))
}

type Kind = (&'static str, Option<ImageAddress>);

fn kind(i: &Instruction) -> Kind {
    match i.flow {
        Flow::Next | Flow::Stop => ("next", None),
        Flow::Branch { target } => ("branch", Some(target)),
        Flow::Jump { target } => ("jump", Some(target)),
        Flow::IndirectJump => ("jump", None),
        Flow::Call { target } => ("call", target),
        Flow::Return => ("return", None),
    }
}

fn expected_kind(text: &str) -> Kind {
    let words: Vec<&str> = text.split_whitespace().skip_while(|w| PREFIXES.contains(w)).collect();
    let target = words.get(1).and_then(|w| u64::from_str_radix(w, 16).ok()).map(ImageAddress);
    match words.first().copied().unwrap_or_default() {
        "jmp" => ("jump", target),
        "call" => ("call", target),
        "ret" | "iretq" => ("return", None),
        m if m.starts_with('j') || m.starts_with("loop") || m == "xbegin" => ("branch", target),
        _ => ("next", None),
    }
}

const PREFIXES: [&str; 10] =
    ["bnd", "notrack", "repz", "rep", "repnz", "lock", "data16", "cs", "ds", "xrelease"];
