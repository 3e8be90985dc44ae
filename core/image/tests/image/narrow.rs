//! Programs of 32 bits, built here by `gcc -m32`, which needs no libraries for what has none.

use std::{path::PathBuf, process::Command};

use dwell_image::{Arch, Image, ImageOffset, build_id_of_file, fuzz_elf};

const SOURCE: &str = "\
static inline __attribute__((always_inline)) unsigned mix(unsigned x) { return x * 31 + 7; }
__attribute__((noinline)) unsigned work(unsigned n) {
  unsigned x = 1;
  for (unsigned i = 0; i < n; i++)
    x = mix(x) + i;
  return x;
}
void _start(void) {
  volatile unsigned sum = work(9);
  (void)sum;
  for (;;)
    ;
}
";

/// Builds the program with these options; `None` where gcc cannot.
fn build(folder: &tempfile::TempDir, test: &str, options: &[&str]) -> Option<PathBuf> {
    let (source, program) = (folder.path().join("narrow.c"), folder.path().join("narrow"));
    std::fs::write(&source, SOURCE).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-m32", "-O1", "-g", "-nostdlib", "-Wl,--build-id"]).args(options);
    match gcc.arg(&source).arg("-o").arg(&program).output() {
        Ok(ended) if ended.status.success() => Some(program),
        other => {
            println!("SKIPPED {test}: gcc -m32: {other:?}");
            None
        }
    }
}

#[test]
fn programs_of_32_bits_have_procedures_lines_and_instructions() {
    for options in [
        &["-static", "-fno-pie", "-no-pie"][..],
        &["-shared", "-fpic"],
        &["-static", "-no-pie", "-fno-pie", "-gz=zlib"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let Some(program) = build(&folder, "programs of 32 bits", options) else { return };
        let image = Image::open(&program).unwrap();
        assert_eq!(image.arch(), Arch::X86);
        assert!(image.build_id().is_some());
        assert_eq!(build_id_of_file(&program).as_ref(), image.build_id());
        let work = image.procedures().iter().find(|p| p.name() == "work").expect("its symbol is read");
        let offset = image.offset_of(work.address).unwrap();
        let bytes = std::fs::read(&program).unwrap();
        let instructions = image.instructions(work.address, work.size_bytes);
        let code: usize = instructions.iter().map(|i| usize::from(i.length)).sum();
        assert_eq!(code as u64, work.size_bytes);
        let mut read = vec![0; code];
        assert!(image.read(work.address, &mut read));
        assert_eq!(read, bytes[offset.0 as usize..][..code], "offsets are the file's own");
        assert!(instructions.iter().all(|i| !i.text.contains("(bad)") && !i.text.contains("rax")));
        let inlined: Vec<_> =
            instructions.iter().map(|i| image.frames(i.address)).find(|f| f.len() > 1).unwrap();
        assert_eq!(inlined[0].function.as_deref(), Some("mix"), "{options:?}");
        assert_eq!(image.procedure_line(work.address).map(|(_, line)| line), Some(2));
        assert_eq!(image.address_of(ImageOffset(offset.0)), Some(work.address));
    }
}

#[test]
fn damaged_files_of_32_bits_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(&folder, "damaged files of 32 bits", &["-static"]) else { return };
    let bytes = std::fs::read(program).unwrap();
    let headers = 0..52 + 32 * 10;
    let tables = bytes.len() - 1000..bytes.len();
    for at in headers.chain(tables).step_by(3) {
        for value in [0, 0x7f, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            fuzz_elf(&damaged);
        }
    }
    (0..200).for_each(|length| fuzz_elf(&bytes[..length]));
}

#[test]
fn other_machines_of_32_bits_are_named_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(&folder, "other machines of 32 bits", &["-static"]) else { return };
    let id = build_id_of_file(&program);
    let mut bytes = std::fs::read(&program).unwrap();
    bytes[18] = 40; // EM_ARM
    std::fs::write(&program, bytes).unwrap();
    let error = Image::open(&program).unwrap_err().to_string();
    assert!(error.contains("32-bit ARM programs are not supported"), "{error}");
    assert_eq!(build_id_of_file(&program), id, "it is still known which file it is");
}
