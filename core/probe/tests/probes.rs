//! Programs are probed while they run; what they counted themselves must be what was recorded.

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
};

use dwell_image::{Image, Procedure};
use dwell_probe::{
    Probes,
    patch::{from_image::function_codes, function_code::FunctionCode},
    shared_memory::{MappedTable, Metrics, PathEnd, Snapshot},
    target::procfs::mappings,
    unwind_table::UnwindTable,
};
use dwell_profile::Pid;

/// A program of `calls.c`.
struct Target {
    child: Child,
    output: BufReader<ChildStdout>,
    program: PathBuf,
    _folder: tempfile::TempDir,
}

impl Target {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("calls");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/calls.c");
        let built = Command::new("gcc")
            .args(["-O2", "-fomit-frame-pointer", "-pthread", "-Wall", "-Wextra", source, "-o"])
            .arg(&program)
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

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Lets it begin another round.
    fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    }

    /// Returns how many calls it has made, and how many of them longjmp ended, after the round.
    fn counts(&mut self) -> [u64; 2] {
        let line = self.line();
        let mut numbers = line.split(' ').map(|number| number.parse().unwrap());
        [numbers.next().unwrap(), numbers.next().unwrap()]
    }

    /// Returns the address that its image addresses are relative to.
    fn bias(&self) -> u64 {
        let path = self.program.to_str().unwrap();
        mappings(self.pid()).unwrap().iter().find(|mapping| mapping.path == path).unwrap().start
    }

    fn code(&self, image: &Image, name: &str) -> FunctionCode {
        let procedures: Vec<Procedure> = image.procedures().iter().filter(|p| p.name() == name).collect();
        function_codes(image, &procedures, self.bias()).pop().unwrap().unwrap()
    }

    /// Attaches with the unwind tables of all its images.
    fn attach(&self) -> Probes {
        let mut tables = Vec::new();
        for mapping in mappings(self.pid()).unwrap().iter().filter(|m| m.is_executable && m.file.is_some()) {
            let image = Image::open(&mapping.path).unwrap();
            let first = image.address_of(dwell_image::ImageOffset(mapping.offset)).unwrap().0;
            let table = UnwindTable::new(&image.unwind_rows(), first, mapping.end - mapping.start);
            tables.push((mapping.start, mapping.end, table));
        }
        let tables: Vec<MappedTable> = tables
            .iter()
            .map(|(start, end, table)| MappedTable { start: *start, end: *end, table })
            .collect();
        Probes::attach(self.pid(), &tables).unwrap()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const ALL: Metrics = Metrics { returns: true, wall: true, cpu: true };

fn totals(snapshot: &Snapshot) -> [u64; 4] {
    let sum = |of: fn(&dwell_probe::shared_memory::PathCounts) -> u64| snapshot.paths.iter().map(of).sum();
    [sum(|p| p.calls), sum(|p| p.returns), sum(|p| p.unwound), sum(|p| p.active())]
}

#[test]
fn calls_and_paths_are_exact() {
    let mut target = Target::start(&["1", "100000", "5"]);
    let image = Image::open(&target.program).unwrap();
    let code = target.code(&image, "hot");
    target.go();
    assert_eq!(target.counts(), [100_000, 0]);
    let mut probes = target.attach();
    assert_eq!(probes.add(&[(&code, ALL)]).unwrap(), [Ok(0)]);
    target.go();
    assert_eq!(target.counts(), [200_000, 0]);
    let snapshot = probes.snapshot();
    assert_eq!(totals(&snapshot), [100_000, 100_000, 0, 0]);
    let mut calls: Vec<u64> = snapshot.paths.iter().map(|path| path.calls).collect();
    calls.sort_unstable();
    assert_eq!(calls, [25_000, 25_000, 50_000], "{:x?}", snapshot.paths);
    for path in &snapshot.paths {
        assert_eq!(path.end, PathEnd::Complete);
        assert!(path.return_addresses.len() > 7, "{:x?}", path.return_addresses);
        assert!(path.wall.sum > 0 && path.wall.buckets.iter().sum::<u64>() == path.returns);
        assert!(path.cpu.max < 1_000_000_000);
    }
    assert!(snapshot.missed.iter().flatten().all(|missed| *missed == 0));
    let (snapshot, stopped) = probes.remove().unwrap();
    assert_eq!(totals(&snapshot), [100_000, 100_000, 0, 0]);
    println!("a thread was stopped for {stopped:?} at most");
    target.go();
    assert_eq!(target.counts(), [300_000, 0]);
    let is_left = mappings(target.pid()).unwrap().iter().any(|mapping| mapping.path.contains("dwell"));
    assert!(!is_left);
}
