//! Programs that the tests of imports compile.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// A program whose function `spin` loops as often as the first argument says.
#[allow(dead_code, reason = "not every test wants this one")]
pub const SPIN: &str = "\
#include <stdint.h>
#include <stdlib.h>
__attribute__((noinline)) uint64_t spin(uint64_t n) {
  uint64_t x = 1;
  for (uint64_t i = 0; i < n; i++)
    x = x * 31 + i;
  return x;
}
int main(int argc, char **argv) {
  (void)argc;
  return spin(strtoull(argv[1], 0, 10)) == 7;
}
";

/// Compiles the source as `spin` in the folder, with debug information and a build ID.
pub fn compile(folder: &Path, source: &str, options: &[&str]) -> PathBuf {
    let (file, program) = (folder.join("spin.c"), folder.join("spin"));
    std::fs::write(&file, source).unwrap();
    let mut gcc = Command::new("gcc");
    run(gcc.args(["-O1", "-g", "-Wl,--build-id"]).args(options).arg(&file).arg("-o").arg(&program));
    program
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) {
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
}
