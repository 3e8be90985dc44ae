//! A probed program, which is built from a file of the folder above.

#![allow(dead_code, reason = "each test file uses a part")]

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
};

use dwell_image::{Image, Procedure};
use dwell_probe::{
    Probes,
    patch::{from_image::function_codes, function_code::FunctionCode},
    process::procfs::mappings,
    process_images::{MappedImage, process_images},
    shared_memory::{Metrics, PathCounts, Snapshot},
};
use dwell_profile::{Pid, VirtualAddress};

/// A program that runs.
pub struct Target {
    pub child: Child,
    pub output: BufReader<ChildStdout>,
    pub program: PathBuf,
    pub _folder: tempfile::TempDir,
}

impl Target {
    /// Starts `calls.c`.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_program("calls.c", arguments)
    }

    /// Builds a program of this folder, starts it and waits until it is ready.
    pub fn start_program(source: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
        let built = Command::new("g++")
            .args(["-x", if source.extension().unwrap() == "c" { "c" } else { "c++" }])
            .args(["-O2", "-fomit-frame-pointer", "-pthread", "-Wall", "-Wextra"])
            .args([&source, &PathBuf::from("-o"), &program])
            .status();
        assert!(built.unwrap().success());
        let child =
            Command::new(&program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut target = Target { child, output, program, _folder: folder };
        assert_eq!(target.line(), "ready");
        target
    }

    /// Returns its next line.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Lets it begin another round.
    pub fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    }

    /// Returns how many calls it has made, and how many of them longjmp ended, after the round.
    pub fn counts(&mut self) -> [u64; 2] {
        let line = self.line();
        let mut numbers = line.split(' ').map(|number| number.parse().unwrap());
        [numbers.next().unwrap(), numbers.next().unwrap()]
    }

    /// Returns the address that its image addresses are relative to.
    pub fn bias(&self) -> u64 {
        let path = self.program.to_str().unwrap();
        mappings(self.pid()).unwrap().iter().find(|mapping| mapping.path == path).unwrap().start.0
    }

    /// Returns the code of a function.
    pub fn code(&self, image: &Image, name: &str) -> FunctionCode {
        let procedures: Vec<Procedure> = image.procedures().iter().filter(|p| p.name() == name).collect();
        function_codes(image, &procedures, self.bias()).pop().unwrap().unwrap()
    }

    /// Attaches with the unwind tables of all its images.
    pub fn attach(&self) -> Probes {
        let images = process_images(self.pid()).unwrap();
        let tables: Vec<_> = images.iter().map(MappedImage::table).collect();
        Probes::attach(self.pid(), &tables).unwrap()
    }

    /// Returns where functions are in the process.
    pub fn addresses(&self, names: &[&str]) -> Vec<VirtualAddress> {
        let image = Image::open(&self.program).unwrap();
        let bias = self.bias();
        let address = |name: &&str| image.procedures().iter().find(|p| p.name() == **name).unwrap().address.0;
        names.iter().map(|name| VirtualAddress(address(name) + bias)).collect()
    }

    /// Returns whether anything of probes is mapped.
    pub fn has_probes(&self) -> bool {
        mappings(self.pid())
            .unwrap()
            .iter()
            .any(|mapping| mapping.path.contains("dwell") || mapping.path.contains("perf_event"))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Everything that can be measured.
pub const ALL: Metrics = Metrics { returns: true, wall: true, cpu: true, blocked: true };

/// Returns the calls, returns, unwound calls and calls in progress of all paths.
pub fn totals(snapshot: &Snapshot) -> [u64; 4] {
    let sum = |of: fn(&PathCounts) -> u64| snapshot.paths.iter().map(of).sum();
    [sum(|p| p.calls), sum(|p| p.returns), sum(|p| p.unwound), sum(|p| p.active())]
}
