//! Traces real programs, and compares what is regenerated with what was recorded beside it, and with what is known of the programs.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use dwell_trace::{Access, Detail, Item, Recording, Totals, Trace, TraceError, record};

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        Scene { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds one of the programs beside this file.
    fn build(&self, name: &str, options: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(format!("{name}.c"));
        let program = self.path(name);
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-pthread"]).args(options).arg("-o").arg(&program).arg(source);
        assert!(gcc.status().unwrap().success());
        program
    }

    /// Records a command, whose output goes to a file. Returns its status and the trace.
    fn record(&self, name: &str, detail: Detail, command: &[&str]) -> (ExitStatus, Trace) {
        let output = self.path(&format!("{name}.out"));
        let script = format!("exec \"$@\" > {}", output.display());
        let shell = ["sh", "-c", &script, "sh"];
        let words = shell.iter().chain(command).map(OsString::from);
        let folder = self.path(name);
        let recorded =
            record(&Recording { folder: folder.clone(), detail, command: words.collect() }).unwrap();
        (ExitStatus::from_raw(recorded.status), Trace::open(&folder).unwrap())
    }

    fn output(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.out"))).unwrap()
    }
}

fn totals(trace: &Trace) -> Totals {
    let mut all = Totals::default();
    for number in 0..trace.manifest.threads.len() as u32 {
        let mut stream = trace.stream(number).unwrap();
        stream.each(&mut |_| {}).unwrap_or_else(|broken| panic!("thread {number}: {broken}"));
        assert_eq!(stream.warnings, [""; 0]);
        all.add(stream.totals);
    }
    all
}

/// Threads are traced from one thread of ours, so tests that trace must not run beside each other in one process.
fn one_at_a_time() -> std::sync::MutexGuard<'static, ()> {
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    LOCK.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[test]
fn addresses_are_right_whatever_a_program_does() {
    let _alone = one_at_a_time();
    let scene = Scene::new();
    for (name, options) in
        [("pie", &["-fPIE", "-pie"][..]), ("fixed", &["-no-pie"]), ("static", &["-static"])]
    {
        let program = scene.build("mixed", options);
        let native = Command::new(&program).output().unwrap();
        let (status, trace) = scene.record(name, Detail::Check, &[program.to_str().unwrap()]);
        assert_eq!(status.code(), native.status.code(), "{name}");
        assert_eq!(scene.output(name), String::from_utf8_lossy(&native.stdout), "{name}");
        let totals = totals(&trace);
        assert!(totals.checked > 500_000 && totals.wrong == 0, "{name}: {totals:?}");
        // Three threads, three children, the shell and its program.
        assert!(trace.manifest.threads.len() >= 9, "{name}: {:?}", trace.manifest.threads);
    }
}

#[test]
fn instructions_and_references_are_counted_exactly() {
    let _alone = one_at_a_time();
    let scene = Scene::new();
    let program = scene.build("counted", &["-no-pie"]);
    let symbols = Command::new("nm").arg(&program).output().unwrap().stdout;
    let symbols = String::from_utf8(symbols).unwrap();
    let address = |name: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        u64::from_str_radix(line.split_once(' ').unwrap().0, 16).unwrap()
    };
    let (body, table) = (address("body"), address("table"));
    let (status, trace) = scene.record("trace", Detail::Addresses, &[program.to_str().unwrap(), "1000"]);
    assert_eq!((status.code(), scene.output("trace").as_str()), (Some(0), "0\n"));
    let counts = trace.counts().unwrap();
    let own = counts.images.iter().find(|image| image.path == program.to_str().unwrap()).unwrap();
    let executions: Vec<u64> = own.counts.range(body..body + 23).map(|(_, n)| *n).collect();
    assert_eq!(executions, [1, 1, 1000, 1000, 1000, 1000, 1000, 1]);
    let mut of_table: BTreeMap<Access, u64> = BTreeMap::new();
    let number = trace.manifest.threads.len() as u32 - 1;
    let keep = &mut |item| {
        if let Item::Reference { access, address, bytes: 8 } = item
            && address.0 == table
        {
            *of_table.entry(access).or_default() += 1;
        }
    };
    trace.stream(number).unwrap().each(keep).unwrap();
    assert_eq!(of_table, BTreeMap::from([(Access::Load, 1000), (Access::Store, 1000)]));
    // The way alone is the same.
    let (_, control) = scene.record("control", Detail::Control, &[program.to_str().unwrap(), "1000"]);
    let again = control.counts().unwrap();
    let own = again.images.iter().find(|image| image.path == program.to_str().unwrap()).unwrap();
    assert_eq!(own.counts.range(body..body + 23).map(|(_, n)| *n).collect::<Vec<_>>(), executions);
}

#[test]
fn what_cannot_be_traced_or_read_is_said() {
    let _alone = one_at_a_time();
    let scene = Scene::new();
    let of = |folder: &str, command: &str| {
        let command = vec![command.into()];
        record(&Recording { folder: scene.path(folder), detail: Detail::Control, command })
    };
    let error = of("missing", "/nowhere/program").unwrap_err();
    assert!(
        matches!(&error, TraceError::Command { .. }) && error.to_string().contains("/nowhere/program"),
        "{error}"
    );
    assert!(!scene.path("missing").exists());
    of("twice", "/bin/true").unwrap();
    assert!(
        of("twice", "/bin/true").unwrap_err().to_string().contains("twice"),
        "a trace is not overwritten"
    );
    // A trace that was cut off is read up to there.
    let stream = scene.path("twice").join("stream-0.zst");
    let bytes = fs::read(&stream).unwrap();
    fs::write(&stream, &bytes[..bytes.len() / 2]).unwrap();
    let trace = Trace::open(&scene.path("twice")).unwrap();
    let mut cut = trace.stream(0).unwrap();
    let _ = cut.each(&mut |_| {});
    assert!(
        cut.warnings.iter().any(|warning| warning.contains("stream-0.zst: damaged or cut off")),
        "{:?}",
        cut.warnings
    );
    fs::write(scene.path("twice").join("trace.json"), "{\"version\": 99}").unwrap();
    let error = Trace::open(&scene.path("twice")).err().unwrap().to_string();
    assert!(error.contains("trace.json"), "{error}");
    assert!(Trace::open(&scene.path("nothing")).err().unwrap().to_string().contains("nothing/trace.json"));
}
