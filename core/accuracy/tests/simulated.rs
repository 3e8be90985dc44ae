//! The assembly kernels of the simulated core, one for each cause: what the analysis says must be what the comments beside their
//! code do (`core/accuracy/kernels/README.md`).

use std::{
    path::Path,
    process::{Command, Stdio},
};

use dwell_accuracy::{Capture, capture, program::Program, verdict};

/// What simulating a set of kernels takes beside gcc.
const ARCHITECTURES: [(&str, [&str; 3]); 2] = [
    ("aarch64", ["node", "qemu-aarch64", "aarch64-linux-gnu-gcc"]),
    ("riscv64", ["node", "qemu-riscv64", "riscv64-linux-gnu-gcc"]),
];

/// Its jump's targets are in no table, so each block behind it is estimated alone, and the only issue points there stall: many
/// executions look the same. What is not told there must be of low confidence.
const AMBIGUOUS: &str = "kernel-mispredict-indirect";

fn is_here(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Simulates the kernels of an architecture.
fn simulate(arch: &str, into: &Path) {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let out = Command::new("node")
        .args(["scripts/accuracy/inorder.mjs", "--arch", arch, "--out"])
        .arg(into)
        .arg("kernel-")
        .current_dir(top)
        .env("CARGO_TARGET_DIR", into)
        .output()
        .unwrap();
    let said = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(out.status.success(), "inorder.mjs: {said}");
}

#[test]
fn kernels_stall_for_the_causes_in_their_comments() {
    for (arch, programs) in ARCHITECTURES {
        if let Some(missing) = programs.into_iter().find(|p| !is_here(p)) {
            eprintln!("SKIPPED kernels of the simulated core ({arch}): {missing} is not installed");
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        simulate(arch, folder.path());
        let captures = capture::find(&folder.path().join(format!("inorder-{arch}"))).unwrap();
        assert!(!captures.is_empty(), "{arch}: no captures");
        let mut unmet = Vec::new();
        for capture in captures.iter().map(|folder| Capture::read(folder).unwrap()) {
            let name = &capture.meta.name;
            let said = verdict::expected(&Program::load(&capture).unwrap());
            let wrong = said
                .into_iter()
                .flat_map(|s| s.unmet)
                .filter(|what| name != AMBIGUOUS || !what.ends_with("Low"));
            unmet.extend(wrong.map(|what| format!("{name}: {what}")));
        }
        assert!(unmet.is_empty(), "{arch}: {unmet:#?}");
    }
}
