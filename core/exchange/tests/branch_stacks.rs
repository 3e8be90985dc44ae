//! Tests perf.data files with branch stacks. The test writes them in the formats of several versions of perf, because few
//! machines can record them. The frequencies must follow the branches of the stacks.

use std::{fs, path::Path, process::Command};

use dwell_exchange::{ImportFile, Imported, import_perf_data};
use dwell_image::{Flow, Image};
use dwell_profile::Database;
use dwell_query::{Cancel, Options, Query};
use jiff::Timestamp;

/// A program with a loop whose branch is taken in seven of eight iterations.
const SOURCE: &str = "\
.text
.globl spin
.type spin, @function
spin:
  mov $0, %eax
1: test $7, %dil
  jne 2f
  add $3, %rax
  imul %rax, %rax
2: dec %rdi
  jnz 1b
  ret
.size spin, . - spin
.globl main
.type main, @function
main:
  mov $1000, %edi
  call spin
  ret
.size main, . - main
.section .note.GNU-stack,\"\",@progbits
";

const BASE: u64 = 0x5555_0000_0000;
const CYCLES_WITH_STACKS: u64 = 1 | 2 | 4 | 1 << 8 | 1 << 11;

struct Scene {
    folder: tempfile::TempDir,
    image: Image,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("spin.s"), folder.path().join("spin"));
        fs::write(&source, SOURCE).unwrap();
        let gcc = Command::new("gcc").arg("-Wl,--build-id").arg(&source).arg("-o").arg(&program).status();
        assert!(gcc.unwrap().success());
        Scene { image: Image::open(&program).unwrap(), folder }
    }

    /// Returns the virtual addresses of the instructions of `spin` in the process.
    fn addresses(&self) -> (Vec<u64>, Vec<Flow>) {
        let spin = self.image.procedures().iter().find(|p| p.name() == "spin").unwrap();
        let code = self.image.instructions(spin.address, spin.size_bytes);
        let address = |i: &dwell_image::Instruction| BASE + self.image.offset_of(i.address).unwrap().0;
        (code.iter().map(address).collect(), code.iter().map(|i| i.flow).collect())
    }

    /// Returns samples of the running loop, each with the 16 branches that were taken before it.
    fn samples(&self) -> Vec<(u64, Vec<(u64, u64)>)> {
        let (at, flows) = self.addresses();
        assert!(matches!((flows[2], flows[6]), (Flow::Branch { .. }, Flow::Branch { .. })), "{flows:?}");
        let (mut stack, mut samples) = (Vec::new(), Vec::new());
        for turn in (0..4000_u64).rev() {
            if turn & 7 != 0 {
                stack.insert(0, (at[2], at[5]));
            }
            // The slow instruction of the rare block takes most of the time.
            let pc = if turn % 3 == 0 { at[6] } else { at[5] };
            stack.truncate(16);
            if turn % 5 == 0 {
                samples.push((pc, stack.clone()));
            }
            stack.insert(0, (at[6], at[1]));
        }
        samples
    }

    fn import(&self, bytes: &[u8]) -> Imported {
        let path = self.folder.path().join("perf.data");
        fs::write(&path, bytes).unwrap();
        let database = Database::open(self.folder.path().join("db")).unwrap();
        import_perf_data(&database, &ImportFile { path, ..ImportFile::default() }, Timestamp::now()).unwrap()
    }

    /// Returns the frequency of the rare block divided by that of the end of the loop.
    fn rare_share(&self) -> f64 {
        let query = Query::open(Options::for_database(self.folder.path().join("db"))).unwrap();
        let listing = query.listing(&[], "spin", &Cancel::new()).unwrap();
        let frequency = |nth: usize| {
            let address = listing.instructions[nth].address;
            listing.blocks.iter().rev().find(|b| b.address <= address).unwrap().frequency.unwrap()
        };
        frequency(3) / frequency(5)
    }
}

/// The format in which a version of perf writes its files.
struct Style {
    attribute_bytes: u32,
    big_endian: bool,
    mmap2: bool,
    pipe: bool,
}

struct Writer<'s> {
    style: &'s Style,
    bytes: Vec<u8>,
}

impl Writer<'_> {
    fn word(&mut self, value: u64) {
        self.bytes.extend(if self.style.big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    fn words(&mut self, values: &[u64]) {
        values.iter().for_each(|value| self.word(*value));
    }

    fn half(&mut self, value: u32) {
        self.bytes.extend(if self.style.big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    fn short(&mut self, value: u16) {
        self.bytes.extend(if self.style.big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    fn text(&mut self, text: &str) {
        self.bytes.extend(text.as_bytes());
        self.bytes.resize((self.bytes.len() + 1).next_multiple_of(8), 0);
    }

    fn record(&mut self, kind: u32, misc: u16, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.half(kind);
        self.short(misc);
        self.short(0);
        body(self);
        let size = (self.bytes.len() - start) as u16;
        let size = if self.style.big_endian { size.to_be_bytes() } else { size.to_le_bytes() };
        self.bytes[start + 6..start + 8].copy_from_slice(&size);
    }

    /// Writes a `perf_event_attr` for a sample with a branch stack at every millionth cycle.
    fn attribute(&mut self) {
        let start = self.bytes.len();
        self.half(0);
        self.half(self.style.attribute_bytes);
        for value in [0, 1_000_000, CYCLES_WITH_STACKS, 0, 0] {
            self.word(value);
        }
        self.bytes.resize(start + 72, 0);
        self.word(1 | 1 << 3);
        self.bytes.resize(start + self.style.attribute_bytes as usize, 0);
        // Fields beyond the structure's size did not exist in that version of the kernel.
        self.bytes.truncate(start + self.style.attribute_bytes as usize);
    }

    fn records(&mut self, program: &Path, samples: &[(u64, Vec<(u64, u64)>)]) {
        self.record(3, 1 << 13, |w| {
            w.half(7);
            w.half(7);
            w.text("spin");
        });
        let (kind, mmap2) = if self.style.mmap2 { (10, true) } else { (1, false) };
        self.record(kind, 2, |w| {
            w.half(7);
            w.half(7);
            w.words(&[BASE, 0x10_0000, 0]);
            if mmap2 {
                w.words(&[0, 0, 0]);
                w.half(5);
                w.half(2);
            }
            w.text(&program.display().to_string());
        });
        for (nth, (pc, stack)) in samples.iter().enumerate() {
            self.record(9, 2, |w| {
                w.word(*pc);
                w.half(7);
                w.half(7);
                w.word(1000 + nth as u64);
                w.word(1_000_000);
                w.word(stack.len() as u64);
                for (from, to) in stack {
                    w.words(&[*from, *to, 2]);
                }
            });
        }
    }
}

fn perf_data(style: &Style, program: &Path, samples: &[(u64, Vec<(u64, u64)>)]) -> Vec<u8> {
    let mut writer = Writer { style, bytes: Vec::new() };
    writer.word(u64::from_le_bytes(*b"PERFILE2"));
    if style.pipe {
        writer.word(16);
        writer.record(64, 0, |w| w.attribute());
        writer.records(program, samples);
        return writer.bytes;
    }
    let (attribute, header) = (u64::from(style.attribute_bytes), 104);
    let attributes = header;
    let data = attributes + attribute + 16;
    let mut records = Writer { style, bytes: Vec::new() };
    records.records(program, samples);
    for value in [header, attribute + 16, attributes, attribute + 16, data, records.bytes.len() as u64] {
        writer.word(value);
    }
    writer.words(&[0; 6]);
    writer.attribute();
    writer.word(0);
    writer.word(0);
    writer.bytes.extend(records.bytes);
    writer.bytes
}

#[test]
fn frequencies_follow_branch_stacks_of_every_version() {
    let scene = Scene::new();
    let program = scene.folder.path().join("spin");
    let samples = scene.samples();
    let branches: usize = samples.iter().map(|(_, stack)| stack.len().saturating_sub(1)).sum();
    for (attribute_bytes, big_endian, mmap2, pipe) in [
        (80, false, false, false), // perf 3.4: the first with branch stacks
        (96, false, true, false),  // 3.16
        (104, false, true, true),  // 4.1
        (112, true, true, false),  // 4.8, of a big-endian machine
        (120, false, true, false), // 5.5
        (128, false, true, false), // 5.13
        (136, false, true, true),  // 6.3
    ] {
        let style = Style { attribute_bytes, big_endian, mmap2, pipe };
        let imported = scene.import(&perf_data(&style, &program, &samples));
        assert_eq!(imported.samples, samples.len() as u64, "{attribute_bytes}: {:?}", imported.notes);
        let note = imported.notes.iter().find(|n| n.contains("branch stacks")).unwrap();
        assert!(note.contains(&format!("{branches} branches")), "{note}");
        let share = scene.rare_share();
        assert!((share - 0.125).abs() < 0.01, "{attribute_bytes}: {share}");
    }
}

#[test]
fn without_stacks_branch_directions_are_unknown() {
    let scene = Scene::new();
    let bare: Vec<_> = scene.samples().into_iter().map(|(pc, _)| (pc, Vec::new())).collect();
    let style = Style { attribute_bytes: 112, big_endian: false, mmap2: true, pipe: false };
    let imported = scene.import(&perf_data(&style, &scene.folder.path().join("spin"), &bare));
    assert!(!imported.notes.iter().any(|n| n.contains("branch stacks")), "{:?}", imported.notes);
    assert!((scene.rare_share() - 0.125).abs() > 0.02, "{}", scene.rare_share());
}
