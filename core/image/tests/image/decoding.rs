//! Instructions: one listing for each architecture, checked once by hand against its manual.

use std::fmt::Write;

use dwell_image::{Arch, Flow, Image, Instruction, MemoryOperand, RegisterSet};
use expect_test::{ExpectFile, expect_file};

use crate::fixtures;

#[test]
fn x86_64_forms() {
    check("x86-forms.elf", expect_file!["listings/x86-forms.txt"]);
}

#[test]
fn aarch64_forms() {
    check("aarch64-forms.elf", expect_file!["listings/aarch64-forms.txt"]);
}

#[test]
fn riscv64_forms() {
    check("riscv64-forms.elf", expect_file!["listings/riscv64-forms.txt"]);
}

#[test]
fn undecodable_bytes_do_not_stop_decoding() {
    let image = fixtures::image("x86-forms.elf");
    let forms = image.procedures().iter().find(|p| p.name() == "forms").unwrap();
    // Decoding from every start within the procedure, even from the middle of an instruction, covers all bytes.
    for skip in 0..forms.size_bytes {
        let instructions = image.instructions(forms.address.offset(skip), forms.size_bytes - skip);
        let bytes: u64 = instructions.iter().map(|i| u64::from(i.length)).sum();
        assert_eq!(bytes, forms.size_bytes - skip);
    }
}

fn check(fixture: &str, expected: ExpectFile) {
    let image = fixtures::image(fixture);
    let forms = image.procedures().iter().find(|p| p.name() == "forms").unwrap();
    let mut listing = String::new();
    for instruction in image.instructions(forms.address, forms.size_bytes) {
        writeln!(listing, "{}", line(&image, &instruction)).unwrap();
    }
    expected.assert_eq(&listing);
}

fn line(image: &Image, i: &Instruction) -> String {
    let arch = image.arch();
    let mut line = format!("{:x} {:2} {:44}", i.address.0, i.length, &*i.text);
    for (label, set) in [("reads", i.reads), ("writes", i.writes)] {
        if !set.is_empty() {
            write!(line, " {label} {}", names(arch, set)).unwrap();
        }
    }
    for memory in i.memory() {
        write!(line, "; {}", memory_text(arch, memory)).unwrap();
    }
    if i.flow != Flow::Next {
        write!(line, "; {:x?}", i.flow).unwrap();
    }
    line.replace("ImageAddress(", "(").trim_end().to_owned()
}

fn names(arch: Arch, set: RegisterSet) -> String {
    set.iter().map(|r| r.name(arch).into_owned()).collect::<Vec<_>>().join(" ")
}

fn memory_text(arch: Arch, m: &MemoryOperand) -> String {
    let access = match (m.read, m.written) {
        (true, true) => "load+store",
        (true, false) => "load",
        (false, true) => "store",
        (false, false) => "address",
    };
    let mut text = format!("{access} {} [", m.width_bytes);
    if let Some(base) = m.base {
        write!(text, "{} ", base.name(arch)).unwrap();
    }
    if let Some(index) = m.index {
        write!(text, "+ {}*{} ", index.name(arch), m.scale).unwrap();
    }
    write!(text, "{:+}]", m.displacement).unwrap();
    if let Some(address) = m.address {
        write!(text, " = {address}").unwrap();
    }
    text
}
