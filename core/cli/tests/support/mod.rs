//! What the end-to-end tests share: a scratch database, the `dwell` that was just built, the workloads and their hot
//! lines. Nothing of Dwell's libraries is used here: what a user sees is what is tested.
#![allow(dead_code)] // Each test program uses only a part.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::{fs, str};

use serde_json::Value;
use tempfile::TempDir;

/// A folder of its own with a database in it.
pub struct Scratch {
    folder: TempDir,
}

/// The outcome of a run of `dwell`.
#[derive(Debug)]
pub struct Ended {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch { folder: TempDir::new().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a command that runs `dwell` on this database.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
        command.args(arguments).env("DWELL_DB", self.path("database")).env_remove("XDG_DATA_HOME");
        command.stdin(Stdio::null());
        command
    }

    pub fn dwell(&self, arguments: &[&str]) -> Ended {
        Ended::from(self.command(arguments).output().unwrap())
    }

    /// What a `dwell` that must succeed prints.
    pub fn text(&self, arguments: &[&str]) -> String {
        let ended = self.dwell(arguments);
        assert_eq!(ended.status, Some(0), "dwell {arguments:?}: {ended:?}");
        ended.stdout
    }

    /// The one object that a `dwell` with `--json` prints.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.text(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("dwell {arguments:?}: {error}: {text}"))
    }

    /// Samples a program with the clock that every machine has.
    pub fn record(&self, program: &Path, repetitions: &str) -> Ended {
        let program = program.to_str().unwrap();
        self.dwell(&["record", "-e", "cpu-clock", "-F", "2000", "--", program, repetitions])
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ended { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../test-fixtures/programs").canonicalize().unwrap()
}

/// Returns the path of a workload's source.
pub fn source(file: &str) -> PathBuf {
    programs().join(file)
}

/// A workload, built if it is not.
pub fn workload(name: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let built = Command::new(programs().join("build.sh")).output().unwrap();
        assert!(built.status.success(), "build.sh: {}", String::from_utf8_lossy(&built.stderr));
    });
    programs().join("build").join(name)
}

/// The line that is marked as the hottest, from 1.
pub fn hot_line(file: &str) -> u64 {
    let text = fs::read_to_string(source(file)).unwrap();
    let mut marked = (1..).zip(text.lines()).filter(|(_, line)| line.ends_with("// HOT"));
    let (number, _) = marked.next().unwrap();
    assert!(marked.next().is_none(), "{file} has two hot lines");
    number
}

/// The text of a line, from 1, without its indentation.
pub fn line_text(file: &str, line: u64) -> String {
    let text = fs::read_to_string(source(file)).unwrap();
    text.lines().nth(line as usize - 1).unwrap().trim().to_owned()
}

/// Whether this machine lets us sample at all; else says so, for `npm test` to count.
pub fn can_sample(test: &str) -> bool {
    let ended = Scratch::new().dwell(&["record", "-e", "cpu-clock", "--", "true"]);
    if ended.status != Some(0) {
        println!("SKIPPED {test}: {}", ended.stderr.trim());
    }
    ended.status == Some(0)
}

/// Returns whether this process runs as root.
pub fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    str::from_utf8(&output.stdout).unwrap().trim() == "0"
}
