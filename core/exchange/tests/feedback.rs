//! Tests the way from samples to an optimized program: the test compiles a program, invents counts, and checks what the
//! compiler makes of them.

use std::{fs, path::PathBuf, process::Command};

use dwell_exchange::{Counts, Optimizer, feedback};
use dwell_image::{Image, Instruction};
use dwell_profile::{Database, Unit};
use dwell_query::{Cancel, ImportRequest, Options, Query, answer::Feedback, import_counts};
use jiff::Timestamp;

/// A program that does extra work for large numbers, which are rare.
const SOURCE: &str = "\
#include <stdint.h>
static inline uint64_t mix(uint64_t x) {
  return x * 31 + 7;
}
__attribute__((noinline)) static uint64_t seldom(uint64_t x) {
  return x / 3;
}
__attribute__((noinline)) uint64_t walk(const uint64_t *p, uint64_t n) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < n; i++) {
    if (p[i] > 1000000)
      sum ^= seldom(p[i]); // SELDOM
    sum = mix(sum) ^ p[i];
  }
  return sum;
}
int main(int argc, char **argv) {
  (void)argv;
  uint64_t a[4] = {1, 2, 3, 4};
  return (int)walk(a, argc);
}
";

/// The command line of clang with the options that profiles by position need.
const CLANG: &[&str] =
    &["clang-14", "-O2", "-gline-tables-only", "-fdebug-info-for-profiling", "-fno-unroll-loops"];
const GCC: &[&str] = &["gcc-12", "-O2", "-g"];

struct Scene {
    folder: tempfile::TempDir,
    compiler: &'static [&'static str],
}

impl Scene {
    /// Compiles the program. Returns `None` and prints a message if the compiler is missing.
    fn new(test: &str, compiler: &'static [&'static str]) -> Option<Scene> {
        let scene = Scene { folder: tempfile::tempdir().unwrap(), compiler };
        fs::write(scene.path("walk.c"), SOURCE).unwrap();
        match scene.compile(&["-fno-pie", "-no-pie", "-Wl,--build-id,-q", "-o", "walk"]) {
            Ok(_) => {
                scene.import();
                Some(scene)
            }
            Err(why) => {
                println!("SKIPPED {test}: {}: {why}", compiler[0]);
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles the source with more options. Returns the output of the compiler.
    fn compile(&self, more: &[&str]) -> std::io::Result<String> {
        let mut command = Command::new(self.compiler[0]);
        command.args(&self.compiler[1..]).arg("walk.c").args(more).current_dir(self.folder.path());
        let ended = command.output()?;
        assert!(ended.status.success(), "{more:?}: {}", String::from_utf8_lossy(&ended.stderr));
        Ok(String::from_utf8(ended.stderr).unwrap())
    }

    /// Imports 900 samples of each instruction of the loop, but only 3 of the line that is rarely executed.
    fn import(&self) {
        let image = Image::open(self.path("walk")).unwrap();
        let walk = image.procedures().iter().find(|p| p.name() == "walk").unwrap();
        let seldom = 1 + SOURCE.lines().position(|l| l.ends_with("SELDOM")).unwrap() as u32;
        let count = |i: &Instruction| match image.frames(i.address).last().and_then(|f| f.line) {
            Some(line) if line == seldom => 3,
            Some(line) if (seldom - 2..seldom + 2).contains(&line) => 900,
            _ => 0,
        };
        let rows = image.instructions(walk.address, walk.size_bytes);
        let rows = rows.iter().map(|i| format!("walk\t{:x}\t{}\n", i.address.0, count(i)));
        fs::write(self.path("counts.tsv"), rows.collect::<String>()).unwrap();
        let request = ImportRequest {
            counts: self.path("counts.tsv"),
            images: vec![self.path("walk")],
            machine: "generic-inorder-2".to_owned(),
            event: "cycles".to_owned(),
            period: 1000,
            unit: Unit::Cycles,
            clock_hz: None,
            name: None,
        };
        import_counts(&Database::open(self.path("db")).unwrap(), &request, Timestamp::now()).unwrap();
    }

    fn feedback_of_walk(&self) -> Feedback {
        let query = Query::open(Options::for_database(self.path("db"))).unwrap();
        query.feedback(&[], &Some("walk".to_owned()), &Cancel::new()).unwrap()
    }

    fn write(&self, optimizer: Optimizer, name: &str) -> String {
        let bytes = feedback(&self.feedback_of_walk(), optimizer, Counts::Executions);
        fs::write(self.path(name), &bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Returns the count at a position in `walk`, without inlined calls.
fn body(profile: &str, position: &str) -> u64 {
    let prefix = format!(" {position}: ");
    let line = profile.lines().find_map(|l| l.strip_prefix(&prefix));
    line.unwrap_or_else(|| panic!("no {position}: {profile}")).split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn clang_accepts_our_executions() {
    let Some(scene) = Scene::new("clang_accepts_our_executions", CLANG) else { return };
    let profile = scene.write(Optimizer::Clang, "walk.prof");
    assert!(profile.starts_with("walk:"), "{profile}");
    // The call is counted at its line, relative to the first line of `walk`; inlined code is counted at the line of its
    // call.
    assert!(body(&profile, "4") < body(&profile, "3") / 20, "{profile}");
    assert!(profile.contains(" seldom:"), "the call's target: {profile}");
    let mut inlined = profile.lines().skip_while(|l| !l.starts_with(" 5: mix:"));
    assert!(inlined.nth(1).is_some_and(|l| l.starts_with("  1: ")), "{profile}");
    scene.compile(&["-fprofile-sample-use=walk.prof", "-S", "-emit-llvm", "-o", "walk.ll"]).unwrap();
    let code = fs::read_to_string(scene.path("walk.ll")).unwrap();
    let entries = code.lines().any(|l| l.contains("\"function_entry_count\""));
    assert!(entries, "a profile was found for no function: {code}");
    let weights: Vec<(u64, u64)> = code.lines().filter_map(branch_weights).collect();
    let is_lopsided = |(a, b): &(u64, u64)| *a.max(b) > 20 * a.min(b).max(&1);
    assert!(weights.iter().any(is_lopsided), "{weights:?} of {code}");
}

/// Parses a line such as `!12 = !{!"branch_weights", i32 1, i32 99}`.
fn branch_weights(line: &str) -> Option<(u64, u64)> {
    let (_, list) = line.split_once("!\"branch_weights\", ")?;
    let mut numbers =
        list.trim_end_matches('}').split(", ").map(|n| n.trim_start_matches("i32 ").parse().ok());
    numbers.next().flatten().zip(numbers.next().flatten())
}

#[test]
fn bolt_accepts_every_block() {
    let Some(scene) = Scene::new("bolt_accepts_every_block", CLANG) else { return };
    for (optimizer, name) in [(Optimizer::Bolt, "walk.fdata"), (Optimizer::BoltBlocks, "walk.blocks")] {
        scene.write(optimizer, name);
        let mut command = Command::new("llvm-bolt-19");
        command.args(["walk", "-data", name, "-o", "walk.bolt", "-reorder-blocks=ext-tsp"]);
        let ended = match command.current_dir(scene.folder.path()).output() {
            Ok(ended) => ended,
            Err(error) => {
                println!("SKIPPED bolt_accepts_every_block: llvm-bolt-19: {error}");
                return;
            }
        };
        let said =
            [ended.stdout, ended.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(ended.status.success(), "{said}");
        assert!(said.contains("1 out of ") && said.contains("have non-empty execution profile"), "{said}");
        assert!(!said.contains("invalid (possibly stale) profile"), "{said}");
        // BOLT only moves blocks, so the program still behaves as before.
        let status = Command::new(scene.path("walk.bolt")).status().unwrap();
        assert_eq!(status.code(), Command::new(scene.path("walk")).status().unwrap().code());
    }
}

#[test]
fn gcc_accepts_our_executions() {
    let Some(scene) = Scene::new("gcc_accepts_our_executions", GCC) else { return };
    scene.write(Optimizer::Gcc { version: 2 }, "walk.afdo");
    scene
        .compile(&["-fauto-profile=walk.afdo", "-S", "-o", "walk.s", "-fdump-tree-optimized-blocks-details"])
        .unwrap();
    let mut files = fs::read_dir(scene.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let dump = files.find(|path| path.extension().is_some_and(|e| e == "optimized")).unwrap();
    let dump = fs::read_to_string(dump).unwrap();
    // `succ: 4 [2.0% (auto FDO)]`
    let percents =
        dump.split("% (auto FDO)]").filter_map(|text| text.rsplit('[').next()?.parse::<f64>().ok());
    assert!(percents.clone().any(|p| p < 5.0), "{:?} in {dump}", percents.collect::<Vec<_>>());
}
