//! Debug information that is in several files: split units and their packages, and what `dwz` moves to a file that others
//! share. The same program with all of it in one file says what is right.

use std::fs;
use std::path::{Path, PathBuf};

use dwell_image::{DebugSearch, DebugState, Frame, Image, ImageAddress, fuzz_elf, fuzz_image};

use crate::built::run;

const COMMON: &str = "
#include <cstdint>
struct Accumulator {
    uint64_t sum = 1;
    template <class T> __attribute__((always_inline)) inline void step(T value) {
        for (int i = 0; i < 3; i++)
            mix(value + i);
    }
    __attribute__((always_inline)) inline void mix(uint64_t value) { sum = sum * 31 + (value ^ sum >> 7); }
};
";
const FIRST: &str = "
#include \"common.h\"
uint64_t second(unsigned n);
static __attribute__((noinline)) uint64_t first(unsigned n) {
    Accumulator a;
    for (unsigned i = 0; i < n; i++)
        if (i % 7 == 2) a.step(i * 3u); else a.mix(n);
    return a.sum;
}
int main(int argc, char **) { return first(argc) + second(argc); }
";
const SECOND: &str = "
#include \"common.h\"
namespace other {
    struct Pair { int left, right; };
    static inline uint64_t both(Pair p) { Accumulator a; a.step(p.left); a.step((long)p.right); return a.sum; }
}
__attribute__((noinline)) uint64_t second(unsigned n) { return other::both({ (int)n, (int)n + 1 }); }
";

/// Compilers with the formats that they write split debug information in, and a tool that packages it. (GNU's `dwp` 2.40
/// crashes at DWARF 5; `llvm-dwp` 14 does not decompress.)
const SPLITS: [(&str, &str); 7] = [
    ("g++ -gdwarf-5", "llvm-dwp"),
    ("g++ -gdwarf-4", "dwp"),
    ("g++ -gdwarf-4", "llvm-dwp"),
    ("g++ -gdwarf-5 -fdebug-types-section", "llvm-dwp"),
    ("g++ -gdwarf-4 -gz", "dwp"),
    ("clang++-14 -gdwarf-5", "llvm-dwp"),
    ("clang++-14 -gdwarf-4", "llvm-dwp"),
];

fn write_sources(folder: &Path) {
    for (name, text) in [("common.h", COMMON), ("first.cc", FIRST), ("second.cc", SECOND)] {
        fs::write(folder.join(name), text).unwrap();
    }
}

/// Compiles and links `name` from objects in the folder of that name.
fn build(folder: &Path, compiler: &str, name: &str) -> Result<PathBuf, String> {
    run(folder, &format!("command -v {} >/dev/null", compiler.split(' ').next().unwrap()))?;
    fs::create_dir(folder.join(name)).unwrap();
    for unit in ["first", "second"] {
        run(folder, &format!("{compiler} -O2 -c {unit}.cc -o {name}/{unit}.o"))?;
    }
    run(folder, &format!("{compiler} {name}/first.o {name}/second.o -o {name}/program"))?;
    Ok(folder.join(name).join("program"))
}

/// Every call at every instruction of the program's own procedures.
fn answers(image: &Image) -> Vec<(ImageAddress, Vec<Frame>)> {
    let own = ["main", "_ZL5firstj", "_Z6secondj"];
    let procedures = image.procedures().iter().filter(|p| own.contains(&&*p.name()));
    let all = procedures.flat_map(|p| image.instructions(p.address, p.size_bytes));
    all.map(|i| (i.address, image.frames(i.address))).collect()
}

fn attached(path: &Path, debug_dirs: Vec<PathBuf>) -> Image {
    let mut image = Image::open(path).unwrap();
    image.attach_debug(&DebugSearch { debug_dirs });
    image
}

fn assert_same(image: &Image, whole: &[(ImageAddress, Vec<Frame>)], what: &str) {
    let ours = answers(image);
    assert!(
        whole.iter().filter(|(_, frames)| frames.len() > 2).count() > 10,
        "{what}: there are inlined calls"
    );
    assert_eq!(ours.len(), whole.len(), "{what}: the same code");
    for (ours, whole) in ours.iter().zip(whole) {
        assert_eq!(ours, whole, "{what}");
    }
}

const PARTS: [&str; 2] = ["first.dwo", "second.dwo"];

fn rename_parts(from: &Path, to: &Path) {
    for part in PARTS {
        fs::rename(from.join(part), to.join(part)).unwrap();
    }
}

fn incomplete(image: &Image) -> String {
    match image.debug_state() {
        DebugState::Incomplete(why) => why,
        state => panic!("{state:?}"),
    }
}

#[test]
fn split_units_are_read_where_they_are() {
    let mut checked = 0;
    for (compiler, tool) in SPLITS {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write_sources(folder);
        let built = build(folder, compiler, "whole")
            .and_then(|whole| Ok((whole, build(folder, &format!("{compiler} -gsplit-dwarf"), "split")?)));
        let (whole, split) = match built {
            Ok(built) => built,
            Err(why) => {
                println!("SKIPPED split_units_are_read_where_they_are: {why}");
                continue;
            }
        };
        let whole = answers(&attached(&whole, Vec::new()));
        let image = attached(&split, Vec::new());
        assert_same(&image, &whole, compiler);
        assert_eq!(image.debug_state(), DebugState::Present, "{compiler}");
        moved(folder, &split, &whole, compiler);
        packaged(folder, &split, &whole, (compiler, tool));
        checked += 1;
    }
    assert!(checked >= 5 || checked == 0, "a compiler that is here builds all of its formats: {checked}");
}

/// The files that the compiler left are moved: beside the program, to a debug folder, and away.
fn moved(folder: &Path, split: &Path, whole: &[(ImageAddress, Vec<Frame>)], what: &str) {
    let away = folder.join("away");
    fs::create_dir_all(away.join("debug")).unwrap();
    let program = away.join("program");
    fs::copy(split, &program).unwrap();
    rename_parts(split.parent().unwrap(), &away);
    assert_same(&attached(&program, Vec::new()), whole, &format!("{what}: beside"));
    rename_parts(&away, &away.join("debug"));
    assert_same(&attached(&program, vec![away.join("debug")]), whole, &format!("{what}: debug folder"));
    let missing = attached(&program, Vec::new());
    let why = incomplete(&missing);
    assert!(why.starts_with("split debug information is missing for 2 of 2 units: "), "{why}");
    assert!(why.contains("first.dwo, ") && why.matches("second.dwo").count() == 1, "{why}");
    assert!(why.contains("looked for: ") && why.len() < 1000, "{why}");
    let frames = missing.frames(missing.procedures().iter().find(|p| p.name() == "main").unwrap().address);
    assert!(frames.last().is_some_and(|f| f.line.is_some() && f.function.as_deref() == Some("main")));
    // The file of another build has another id.
    fs::copy(away.join("debug/first.dwo"), away.join("second.dwo")).unwrap();
    fs::copy(away.join("debug/first.dwo"), away.join("first.dwo")).unwrap();
    let mixed = attached(&program, Vec::new());
    answers(&mixed);
    let why = incomplete(&mixed);
    assert!(why.starts_with("split debug information is missing for 1 of 2 units: "), "{why}");
    assert!(why.contains("away/second.dwo belongs to another build"), "{why}");
    PARTS.iter().for_each(|part| fs::remove_file(away.join(part)).unwrap());
    rename_parts(&away.join("debug"), split.parent().unwrap());
    damaged(&away, split, what);
    fs::remove_dir_all(away).unwrap();
}

/// Whatever a file beside the program holds, questions are answered.
fn damaged(away: &Path, split: &Path, what: &str) {
    let part = split.with_file_name("first.dwo");
    let bytes = fs::read(&part).unwrap();
    let place = away.join("first.dwo");
    let mut random = 3_u64;
    for round in 0..24 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (random >> 33) as usize % bytes.len();
        let mut damaged = bytes.clone();
        match round % 3 {
            0 => damaged.truncate(at),
            1 => damaged[at] ^= 0xff,
            _ => damaged[at..].iter_mut().step_by(97).for_each(|byte| *byte ^= 0x81),
        }
        fs::write(&place, &damaged).unwrap();
        let answer = std::panic::catch_unwind(|| fuzz_image(&attached(&away.join("program"), Vec::new())));
        assert!(answer.is_ok(), "{what}: round {round} panicked");
    }
}

/// The split units are in a package beside the program or in a debug folder.
fn packaged(
    folder: &Path,
    split: &Path,
    whole: &[(ImageAddress, Vec<Frame>)],
    (compiler, tool): (&str, &str),
) {
    let made = run(folder, &format!("command -v {tool} >/dev/null && {tool} -e split/program -o packed.dwp"));
    if let Err(why) = made {
        return println!("SKIPPED split_units_are_read_where_they_are: {compiler}: {why}");
    }
    let (away, hidden) = (folder.join("packed"), folder.join("hidden"));
    fs::create_dir_all(away.join("debug")).unwrap();
    fs::create_dir_all(&hidden).unwrap();
    rename_parts(split.parent().unwrap(), &hidden);
    let program = away.join("program");
    fs::copy(split, &program).unwrap();
    let package = folder.join("packed.dwp");
    fs::copy(&package, away.join("program.dwp")).unwrap();
    let image = attached(&program, Vec::new());
    assert_same(&image, whole, &format!("{compiler}: {tool}"));
    assert_eq!(image.debug_state(), DebugState::Present, "{compiler}: {tool}");
    fs::rename(away.join("program.dwp"), away.join("debug/program.dwp")).unwrap();
    let image = attached(&program, vec![away.join("debug")]);
    assert_same(&image, whole, &format!("{compiler}: {tool} in a debug folder"));
    let bytes = fs::read(&package).unwrap();
    for at in (0..bytes.len()).step_by(bytes.len().div_ceil(24)) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x7f;
        fs::write(away.join("program.dwp"), &damaged).unwrap();
        fuzz_image(&attached(&program, Vec::new()));
    }
}

/// A program with its split debug information in sections of its own, damaged: what fuzzing begins with.
#[test]
fn a_damaged_file_that_is_its_own_other_part_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_sources(folder);
    let built = build(folder, "g++ -gdwarf-5 -gsplit-dwarf", "split").and_then(|_| {
        for section in ["info", "abbrev", "str", "str_offsets"] {
            run(
                folder,
                &format!("objcopy --dump-section .debug_{section}.dwo=part split/first.dwo /dev/null"),
            )?;
            run(folder, &format!("objcopy --add-section .debug_{section}.dwo=part split/program"))?;
        }
        Ok(())
    });
    if let Err(why) = built {
        return println!("SKIPPED a_damaged_file_that_is_its_own_other_part_does_no_harm: {why}");
    }
    let bytes = fs::read(folder.join("split/program")).unwrap();
    fuzz_elf(&bytes);
    let debug = bytes.len() / 2;
    for nth in 0..80 {
        let mut damaged = bytes.clone();
        let at = debug + nth * (bytes.len() - debug) / 80;
        damaged[at..].iter_mut().step_by(1 << (nth % 12)).take(nth % 5 + 1).for_each(|b| *b ^= 0xa5);
        fuzz_elf(&damaged);
    }
}

#[test]
fn debug_information_that_dwz_moved_to_a_shared_file_is_found() {
    let mut checked = 0;
    for (compiler, flags) in [("g++ -gdwarf-4", ""), ("g++ -gdwarf-5", ""), ("g++ -gdwarf-5", "-5 --dwarf-5")]
    {
        let folder = tempfile::tempdir().unwrap();
        match shared(folder.path(), compiler, flags) {
            Ok(()) => checked += 1,
            Err(why) => println!(
                "SKIPPED debug_information_that_dwz_moved_to_a_shared_file_is_found: {compiler}: {why}"
            ),
        }
    }
    assert!(checked != 1, "dwz of this machine writes DWARF 4 alone");
}

fn shared(folder: &Path, compiler: &str, flags: &str) -> Result<(), String> {
    run(folder, "command -v dwz >/dev/null")?;
    write_sources(folder);
    let whole = build(folder, compiler, "whole")?;
    let expected = answers(&attached(&whole, Vec::new()));
    run(folder, "mkdir -p usr/lib/.dwz && cp whole/program usr/lib/one && cp whole/program usr/lib/two")?;
    run(folder, "printf X >>usr/lib/two")?;
    run(folder, &format!("cd usr/lib && dwz {flags} -m .dwz/common.debug -M .dwz/common.debug one two"))?;
    let link = run(folder, "readelf -SW usr/lib/one | grep -q -e gnu_debugaltlink -e debug_sup");
    link.map_err(|_| "dwz found nothing to share".to_owned())?;
    let one = folder.join("usr/lib/one");
    let image = attached(&one, Vec::new());
    assert_same(&image, &expected, "beside");
    assert_eq!(image.debug_state(), DebugState::Present);

    // Distributions put the shared file below the debug folder.
    let dir = folder.join("debug");
    fs::create_dir_all(dir.join(".dwz")).unwrap();
    fs::rename(folder.join("usr/lib/.dwz/common.debug"), dir.join(".dwz/common.debug")).unwrap();
    assert_same(&attached(&one, vec![dir.clone()]), &expected, "debug folder");

    let missing = attached(&one, Vec::new());
    assert!(missing.missing_shared_debug().is_some());
    assert_eq!(image.missing_shared_debug(), None);
    fuzz_image(&missing);
    let why = incomplete(&missing);
    assert!(why.starts_with("debug information that several files share is missing: "), "{why}");
    assert!(why.contains("common.debug with build id ") && why.contains("looked for: "), "{why}");

    // Another file with this name is not accepted.
    fs::copy(&whole, dir.join(".dwz/common.debug")).unwrap();
    let why = incomplete(&attached(&one, vec![dir.clone()]));
    assert!(why.contains(".dwz/common.debug has another id"), "{why}");
    Ok(())
}

#[test]
fn a_damaged_shared_file_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if let Err(why) = shared(folder, "g++ -gdwarf-5", "") {
        return println!("SKIPPED a_damaged_shared_file_does_no_harm: {why}");
    }
    run(folder, "cd usr/lib && cp ../../whole/program one && cp one two && printf X >>two").unwrap();
    run(folder, "cd usr/lib && dwz -m .dwz/common.debug -M .dwz/common.debug one two").unwrap();
    let place = folder.join("usr/lib/.dwz/common.debug");
    let bytes = fs::read(&place).unwrap();
    for nth in 0..60 {
        let mut damaged = bytes.clone();
        let at = nth * bytes.len() / 60;
        if nth % 4 == 0 {
            damaged.truncate(at)
        } else {
            damaged[at..].iter_mut().step_by(61).for_each(|b| *b ^= 0xff)
        }
        fs::write(&place, &damaged).unwrap();
        fuzz_image(&attached(&folder.join("usr/lib/one"), Vec::new()));
    }
}
