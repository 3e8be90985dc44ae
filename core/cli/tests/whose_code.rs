//! Whose code it is, end to end: processes with code of their own at one address, programs in a root or mount namespace of their
//! own, programs without a file; and what `dwell` says where it may not look.
//!
//! The programs are built here, of portable C.

mod support;

use std::{fs, path::Path, process::Command};

use support::{Scratch, can_sample, is_root};

/// Spins for so many milliseconds of CPU time: in `hot_spot`, or in a copy of its code, named in a perf map.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
extern char **environ;
typedef long (*code)(long, long);
__attribute__((noinline, aligned(64))) long hot_spot(long x, long n) {
    for (long i = 0; i < n; i++) { x = x * 31 + i; __asm__ volatile("" : "+r"(x)); }
    return x;
}
static void spin(code run, long ms) {
    struct timespec t, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    long until = end.tv_sec * 1000000000L + end.tv_nsec + ms * 1000000L;
    volatile long sink = 0;
    do { sink += run(sink, 20000); clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); }
    while (t.tv_sec * 1000000000L + t.tv_nsec < until);
}
static void generate(char *room, const char *name, long ms) {
    char path[64];
    memcpy(room, (char *)hot_spot, 256);
    __builtin___clear_cache(room, room + 256);
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
    FILE *map = fopen(path, "a");
    fprintf(map, "%lx 100 %s\n", (unsigned long)room, name);
    fclose(map);
    spin((code)room, ms);
}
int main(int argc, char **argv) {
    char *room = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!strcmp(argv[1], "spin")) {
        spin(hot_spot, atol(argv[2]));
    } else if (!strcmp(argv[1], "workers")) {
        for (int i = 2; i + 1 < argc; i += 2)
            if (!fork()) { generate(room, argv[i], atol(argv[i + 1])); _exit(0); }
        while (wait(0) > 0) ;
    } else if (!strcmp(argv[1], "phases")) {
        for (int i = 2; i + 1 < argc; i += 2) generate(room, argv[i], atol(argv[i + 1]));
    } else if (!strcmp(argv[1], "memory")) {
        int memory = memfd_create("in-memory", MFD_CLOEXEC), file = open(argv[2], O_RDONLY);
        static char bytes[1 << 16];
        for (long n; (n = read(file, bytes, sizeof bytes)) > 0;) if (write(memory, bytes, n) != n) return 9;
        char *words[] = {"in-memory", "spin", argv[3], 0};
        fexecve(memory, words, environ);
        return 8;
    }
    return 0;
}
"#;

struct Bench {
    scratch: Scratch,
}

impl Bench {
    /// `None` where nothing can be built or sampled, which is said.
    fn new(test: &str) -> Option<Self> {
        let bench = Bench { scratch: Scratch::new() };
        fs::write(bench.scratch.path("program.c"), PROGRAM).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-static", "-o"]).arg(bench.program()).arg(bench.scratch.path("program.c"));
        match compiler.output() {
            Ok(output) if output.status.success() => {}
            other => {
                println!("SKIPPED {test}: no C compiler that links statically: {other:?}");
                return None;
            }
        }
        can_sample(test).then_some(bench)
    }

    fn program(&self) -> std::path::PathBuf {
        self.scratch.path("program")
    }

    /// Records words of a shell in the scratch folder; samples by procedure and image.
    fn record(&self, script: &str) -> Vec<(String, String, u64)> {
        let script = format!("cd {}; {script}", self.scratch.path("").display());
        let recording = ["record", "-e", "cpu-clock", "-F", "1000", "--", "sh", "-c", &script];
        let recorded = self.scratch.dwell(&recording);
        assert_eq!(recorded.status, Some(0), "{recorded:?}");
        let top = self.scratch.json(&["top", "-n", "0"]);
        let row = |row: &serde_json::Value| {
            let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
            (text("procedure"), text("image"), row["samples"]["cpu-clock"].as_u64().unwrap_or(0))
        };
        top["rows"].as_array().unwrap().iter().map(row).collect()
    }
}

/// The samples of all rows of a procedure.
fn samples(rows: &[(String, String, u64)], procedure: &str) -> u64 {
    rows.iter().filter(|(name, ..)| name == procedure).map(|(.., count)| count).sum()
}

/// Whether this machine gives us a root, namespaces and mounts.
fn can_have_a_root(test: &str) -> bool {
    let tried = Command::new("unshare").args(["-m", "-p", "-f", "chroot", "/", "true"]).status();
    let can = is_root() && tried.is_ok_and(|status| status.success());
    if !can {
        println!("SKIPPED {test}: it needs root, unshare and chroot");
    }
    can
}

#[test]
fn samples_of_generated_code_belong_to_its_own_process() {
    let test = "samples_of_generated_code_belong_to_its_own_process";
    let Some(bench) = Bench::new(test) else { return };
    let workers = "./program workers parse 300 render 100 query 200; rm -f /tmp/perf-$$.map";
    let check = |how: &str, script: &str| {
        let rows = bench.record(script);
        for (name, least, most) in [("parse", 210, 390), ("render", 60, 140), ("query", 130, 270)] {
            let found = samples(&rows, name);
            assert!((least..most).contains(&found), "{how}: {name} has {found}: {rows:?}");
        }
    };
    check("plain", workers);
    if can_have_a_root(test) {
        fs::create_dir_all(bench.scratch.path("root/tmp")).unwrap();
        fs::copy(bench.program(), bench.scratch.path("root/program")).unwrap();
        check("root", "chroot root /program workers parse 300 render 100 query 200");
        check("pids", "unshare -p -f ./program workers parse 300 render 100 query 200");
        let mounted =
            "mount -t tmpfs none root/tmp; exec chroot root /program workers parse 300 render 100 query 200";
        check("mounts", &format!("unshare -m sh -c '{mounted}'"));
    }
}

#[test]
fn replaced_code_never_gets_samples_of_other_code() {
    let Some(bench) = Bench::new("replaced_code_never_gets_samples_of_other_code") else { return };
    // Samples between the last reading of one name and the first of the other have no name; on a busy machine that is half a second.
    let rows = bench.record("exec ./program phases first 1200 second 1200");
    let found = ["first", "second"].map(|name| samples(&rows, name));
    assert!(found.iter().all(|count| (450..=1300).contains(count)), "{rows:?}");
}

#[test]
fn programs_without_a_path_have_names() {
    let test = "programs_without_a_path_have_names";
    let Some(bench) = Bench::new(test) else { return };
    let check = |how: &str, script: &str, image: &str| {
        let rows = bench.record(script);
        let row = rows.iter().find(|(name, ..)| name == "hot_spot");
        let (_, path, count) = row.unwrap_or_else(|| panic!("{how}: {rows:?}"));
        assert!(*count > 100, "{how}: {rows:?}");
        assert_eq!(Path::new(path).file_name().unwrap(), image, "{how}");
    };
    // The bytes must differ; otherwise the image at the path would be the same.
    let other = "cp program other; objcopy --remove-section .note.gnu.build-id other 2>/dev/null || true";
    check("memory", &format!("{other}; exec ./program memory other 300"), "memfd:in-memory");
    check("deleted", "cp program gone; ./gone spin 300 & sleep 0.1; rm gone; wait", "gone");
    check("deleted at last", "cp program late; ./late spin 300; rm late", "late");
    if can_have_a_root(test) {
        fs::create_dir(bench.scratch.path("root")).unwrap();
        fs::copy(bench.program(), bench.scratch.path("root/inner")).unwrap();
        check("root", "exec chroot root /inner spin 300", "inner");
        check(
            "bind",
            "exec unshare -m sh -c 'mkdir at; mount --bind root at; exec at/inner spin 300'",
            "inner",
        );
        let tmpfs =
            "mkdir own; mount -t tmpfs none own; cp program own/own-program; exec own/own-program spin 300";
        check("mount", &format!("exec unshare -m sh -c '{tmpfs}'"), "own-program");
    }
}

/// Denies perf_event_open, as containers do, then executes its words.
const FILTER: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {4, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 99;
    execv(argv[1], argv + 1);
    return 98;
}
"#;

#[test]
fn a_container_that_forbids_sampling_is_named() {
    let test = "a_container_that_forbids_sampling_is_named";
    let Some(bench) = Bench::new(test) else { return };
    let (source, filter) = (bench.scratch.path("filter.c"), bench.scratch.path("filter"));
    fs::write(&source, FILTER).unwrap();
    let built = Command::new("cc").arg("-o").args([&filter, &source]).output().unwrap();
    assert!(built.status.success(), "{built:?}");
    for arguments in [&["record", "--", "true"][..], &["record", "-a", "--", "true"]] {
        let dwell = bench.scratch.command(arguments);
        let output = Command::new(&filter)
            .arg(dwell.get_program())
            .args(dwell.get_args())
            .env("DWELL_DB", bench.scratch.path("database"))
            .output()
            .unwrap();
        if output.status.code() == Some(99) {
            println!("SKIPPED {test}: no seccomp here");
            return;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("a seccomp filter") && said.contains("--cap-add PERFMON"), "{said}");
        assert!(!is_root() || !said.contains("as root") && !said.contains("sysctl"), "{said}");
    }
}
