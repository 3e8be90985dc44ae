//! Tests mappings of every kind in real processes: which image their samples belong to.
//!
//! The tests build the programs, some of them without build IDs, so that only the file itself identifies them.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use dwell_collect::{CollectError, Rate, RecordOptions, Stop, Target, record};
use dwell_profile::{Database, ImageKind, ImageRecord, Writer};

/// A program that spins for a third of a second of CPU time in `spin`, which has pages of its own.
const SPIN: &str = r#"
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <time.h>
static volatile unsigned long sink;
__attribute__((noinline, section(".text.spin"), aligned(4096))) void spin(void) {
    for (unsigned long i = 0; i < 200000; i++) sink = sink * 3 + VARIANT;
}
__attribute__((noinline, section(".text.spin_end"), aligned(4096))) void spin_end(void) { sink++; }
static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
#ifdef REMAP
/* As programs do that move their text to huge pages. */
static int remap(void) {
    char *start = (char *)spin, *end = (char *)spin_end;
    unsigned long bytes = end - start;
    char *copy = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) return 1;
    memcpy(copy, start, bytes);
    if (mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != start) return 1;
    memcpy(start, copy, bytes);
    return mprotect(start, bytes, PROT_READ | PROT_EXEC);
}
#endif
int main(int argc, char **argv) {
#ifdef REMAP
    if (remap()) return 1;
#endif
#ifdef CLOCK
    struct timespec t;
    while (cpu() < 0.33) for (int i = 0; i < 100000; i++) clock_gettime(CLOCK_MONOTONIC, &t);
#endif
    while (cpu() < 0.33) spin();
    return 0;
}
"#;

struct Bench {
    folder: tempfile::TempDir,
    database: Database,
}

impl Bench {
    /// Creates a folder for programs. Returns `None` and prints a message if nothing can be built or sampled here.
    fn new(test: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path().join("db")).unwrap();
        let bench = Bench { folder, database };
        if let Err(error) = Command::new("cc").arg("--version").output() {
            println!("SKIPPED {test}: no C compiler: {error}");
            return None;
        }
        match bench.try_record(&["true"]) {
            Err(error @ (CollectError::Denied { .. } | CollectError::Open { .. })) => {
                println!("SKIPPED {test}: {error}");
                None
            }
            _ => Some(bench),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds the program without a build ID.
    fn build(&self, name: &str, defines: &[&str]) -> PathBuf {
        let (source, program) = (self.path("spin.c"), self.path(name));
        fs::write(&source, SPIN).unwrap();
        let mut command = Command::new("cc");
        command.args(["-O1", "-Wl,--build-id=none", "-o"]).arg(&program).arg(&source).args(defines);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    fn try_record(&self, words: &[&str]) -> Result<dwell_profile::Epoch, CollectError> {
        let target = Target::Command(words.iter().map(OsString::from).collect());
        let options = RecordOptions { rate: Rate::Frequency(1000), ..RecordOptions::new(target) };
        record(options, &self.writer(), &Stop::new(), &mut |_| ()).map(|recorded| recorded.epoch)
    }

    /// Locks the database. This is retried, because a child of another test may hold a copy of the lock until its exec.
    fn writer(&self) -> Writer {
        loop {
            match self.database.writer() {
                Ok(writer) => return writer,
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        }
    }

    /// Records a command. Returns its samples by application and image.
    fn record(&self, words: &[&str]) -> Sampled {
        let epoch = self.try_record(words).unwrap();
        let profile = self.database.read(&epoch.id).unwrap();
        let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
        for (key, count) in profile.counts.iter().filter(|(key, _)| !key.event.is_derived()) {
            *counts.entry((key.app.to_string(), key.image.to_string())).or_default() += count;
        }
        Sampled { counts, images: profile.images }
    }

    fn shell(&self, script: &str) -> Sampled {
        self.record(&["sh", "-ec", &format!("cd {}\n{script}", self.folder.path().display())])
    }
}

struct Sampled {
    counts: BTreeMap<(String, String), u64>,
    images: Vec<ImageRecord>,
}

impl Sampled {
    /// Returns the images of an application that have samples of at least a tenth of a second.
    fn images_of(&self, app: &str) -> Vec<(&str, u64)> {
        let of_app = self.counts.iter().filter(|((of, _), n)| of == app && **n >= 100);
        of_app.map(|((_, image), n)| (image.as_str(), *n)).collect()
    }

    fn image(&self, id: &str) -> &ImageRecord {
        self.images.iter().find(|i| i.id.as_str() == id).unwrap()
    }
}

fn file_id(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let m = fs::metadata(path).unwrap();
    format!("file:{}:{}:{}:{}", m.dev(), m.ino(), m.size(), m.mtime() * 1_000_000_000 + m.mtime_nsec())
}

#[test]
fn a_rewritten_file_is_another_image() {
    let Some(bench) = Bench::new("a_rewritten_file_is_another_image") else { return };
    let program = bench.build("program", &["-DVARIANT=1"]);
    bench.build("next", &["-DVARIANT=2"]);
    let before = file_id(&program);
    let sampled = bench.shell("./program; cat next > program; ./program");
    let after = file_id(&program);
    let images: Vec<&str> = sampled.images_of("program").into_iter().map(|i| i.0).collect();
    assert_eq!(before.split(':').nth(2), after.split(':').nth(2), "the inode stays");
    let mut expected = [before.as_str(), after.as_str()];
    expected.sort_unstable();
    assert_eq!(images, expected, "{:?}", sampled.counts);
}

#[test]
fn a_program_replaced_by_another_is_another_image() {
    let Some(bench) = Bench::new("a_program_replaced_by_another_is_another_image") else { return };
    let program = bench.build("program", &["-DVARIANT=1"]);
    let next = bench.build("next", &["-DVARIANT=2"]);
    let mut expected = [file_id(&program), file_id(&next)];
    let sampled = bench.shell("./program & sleep 0.1; mv next program; ./program; wait");
    expected.sort_unstable();
    let images: Vec<&str> = sampled.images_of("program").into_iter().map(|i| i.0).collect();
    assert_eq!(images, expected, "{:?}", sampled.counts);
}

#[test]
fn a_program_deleted_while_it_runs_is_found() {
    let Some(bench) = Bench::new("a_program_deleted_while_it_runs_is_found") else { return };
    let expected = file_id(&bench.build("program", &["-DVARIANT=1"]));
    let sampled = bench.shell("./program & sleep 0.1; rm program; wait");
    let images: Vec<&str> = sampled.images_of("program").into_iter().map(|i| i.0).collect();
    assert_eq!(images, [expected], "{:?}", sampled.counts);
}

#[test]
fn files_in_a_container_are_identified() {
    let test = "files_in_a_container_are_identified";
    let Some(bench) = Bench::new(test) else { return };
    let can = Command::new("unshare").args(["-m", "-p", "-f", "true"]).status().is_ok_and(|s| s.success());
    if !can {
        println!("SKIPPED {test}: unshare cannot make namespaces here");
        return;
    }
    let size = fs::metadata(bench.build("program", &["-DVARIANT=1"])).unwrap().len();
    // The file system is visible in its own namespaces only, and the process has number 1 there.
    let inside = "mkdir in; mount -t tmpfs dwell-test in; cp program in/contained; exec in/contained";
    let sampled = bench.shell(&format!("exec unshare -m -p -f sh -ec '{inside}'"));
    let images = sampled.images_of("contained");
    assert_eq!(images.len(), 1, "{:?}", sampled.counts);
    let image = sampled.image(images[0].0);
    assert!(image.id.as_str().starts_with("file:"), "{image:?}");
    assert_eq!(image.size_bytes, Some(size), "{image:?}");
    assert!(image.path.ends_with("in/contained") && !bench.path("in/contained").exists());
}

#[test]
fn text_in_huge_pages_belongs_to_its_file() {
    let Some(bench) = Bench::new("text_in_huge_pages_belongs_to_its_file") else { return };
    let expected = file_id(&bench.build("program", &["-DVARIANT=1", "-DREMAP"]));
    let sampled = bench.shell("./program");
    let images: Vec<&str> = sampled.images_of("program").into_iter().map(|i| i.0).collect();
    assert_eq!(images, [expected], "{:?}", sampled.counts);
    assert!(!sampled.counts.keys().any(|(_, image)| image.starts_with("jit:")), "{:?}", sampled.counts);
}

#[test]
fn the_vdso_is_an_image() {
    let test = "the_vdso_is_an_image";
    let Some(bench) = Bench::new(test) else { return };
    let clock = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if !clock.as_ref().is_ok_and(|c| c.trim() == "tsc" || c.trim() == "arch_sys_counter") {
        println!("SKIPPED {test}: the clock {clock:?} is read by a system call");
        return;
    }
    bench.build("program", &["-DVARIANT=1", "-DCLOCK"]);
    let sampled = bench.shell("./program");
    let images = sampled.images_of("program");
    assert!(images.iter().any(|(image, _)| image.starts_with("vdso:")), "{:?}", sampled.counts);
}

/// `--perf-basic-prof` writes a perf map, `--perf-prof` a jitdump.
#[test]
fn functions_of_node_have_names() {
    let test = "functions_of_node_have_names";
    let Some(bench) = Bench::new(test) else { return };
    if Command::new("node").arg("--version").output().is_err() {
        println!("SKIPPED {test}: no node");
        return;
    }
    fs::write(bench.path("hot.js"), "function hotHotHot(n) { let x = 0; for (let i = 0; i < n; i++) x = (x * 31 + i) | 0; return x; }\n\
        let total = 0; const end = process.cpuUsage().user + 700000;\n\
        while (process.cpuUsage().user < end) total += hotHotHot(100000);\nif (total === 1.5) console.log(total);\n").unwrap();
    for flag in ["--perf-basic-prof", "--perf-prof"] {
        let sampled = bench.shell(&format!("node {flag} hot.js"));
        let images =
            sampled.images.iter().filter(|i| i.kind == ImageKind::Jit && i.id.as_str() == "jit:node");
        let names: Vec<&str> = images.flat_map(|i| i.symbols.iter().map(|s| s.name.as_str())).collect();
        assert!(names.iter().any(|name| name.contains("hotHotHot")), "{flag}: {names:?}");
    }
}

/// Debian packages no agent that writes jitdumps, but a JDK from 17 on writes a perf map itself, as it ends or when `jcmd` asks.
#[test]
fn methods_of_java_have_names() {
    let test = "methods_of_java_have_names";
    let Some(bench) = Bench::new(test) else { return };
    let options = "-XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit";
    let mut asked = Command::new("java");
    let possible =
        asked.args(options.split(' ')).arg("-version").stderr(std::process::Stdio::null()).status();
    if !possible.is_ok_and(|status| status.success()) {
        println!("SKIPPED {test}: no java that writes a perf map (JDK 17)");
        return;
    }
    fs::write(bench.path("Hot.java"), "public class Hot {\n\
        static long hotHotHot(long x) { for (int i = 0; i < 100000; i++) x = x * 6364136223846793005L + i; return x; }\n\
        public static void main(String[] a) {\n\
            var cpu = java.lang.management.ManagementFactory.getThreadMXBean();\n\
            long x = 1, end = cpu.getCurrentThreadCpuTime() + 700000000L;\n\
            while (cpu.getCurrentThreadCpuTime() < end) x = hotHotHot(x);\n\
            System.out.println(x);\n\
        }\n}\n").unwrap();
    let sampled = bench.shell(&format!("java {options} Hot.java"));
    let images = sampled.images.iter().filter(|i| i.kind == ImageKind::Jit && i.id.as_str() == "jit:java");
    let names: Vec<&str> = images.flat_map(|i| i.symbols.iter().map(|s| s.name.as_str())).collect();
    assert!(names.iter().any(|name| name.contains("hotHotHot")), "{names:?}");
}
