//! Holds the repository to its own rules (ARCHITECTURE.md): gathers crates and files, and reports what breaks a rule.

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};
use cargo_metadata::{Metadata, MetadataCommand};

use crate::{links, rooms, source};

/// Checks everything, and prints one line for each problem to standard error.
pub fn tidy() -> anyhow::Result<ExitCode> {
    let metadata = MetadataCommand::new().no_deps().exec().context("cargo metadata")?;
    let files = repository_files(&metadata)?;
    let mut problems = rooms::problems(&crates(&metadata));
    for path in &files {
        let bytes = fs::read(metadata.workspace_root.join(path)).with_context(|| path.clone())?;
        if let Ok(text) = String::from_utf8(bytes) {
            problems.extend(source::problems(path, &text));
            problems.extend(links::problems(path, &text, &files));
        }
    }
    problems.extend(source::stale_exceptions(&files));
    for problem in &problems {
        eprintln!("tidy: {problem}");
    }
    println!("tidy: {} files, {} problems", files.len(), problems.len());
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the relative paths of all files that git tracks or would track.
fn repository_files(metadata: &Metadata) -> anyhow::Result<Vec<String>> {
    let root = metadata.workspace_root.as_std_path();
    let listing = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    ensure!(listing.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listing.stderr).trim());
    let listing = String::from_utf8(listing.stdout).context("a file name that is not UTF-8")?;
    let mut paths: Vec<String> =
        listing.split('\0').filter(|path| root.join(path).is_file()).map(str::to_owned).collect();
    paths.sort_unstable();
    paths.dedup();
    Ok(paths)
}

/// Returns each crate of the workspace with all crates on which it depends, for any purpose.
fn crates(metadata: &Metadata) -> Vec<(String, Vec<String>)> {
    let names = |package: &cargo_metadata::Package| {
        package.dependencies.iter().map(|dependency| dependency.name.to_string()).collect()
    };
    metadata.workspace_packages().iter().map(|package| (package.name.to_string(), names(package))).collect()
}
