//! `dwell callpaths` on a program whose calls are known.

mod support;

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
};

use serde_json::Value;
use support::Scratch;

/// The program of `core/probe/tests/calls.c`.
struct Target {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Target {
    fn start(scratch: &Scratch, arguments: &[&str]) -> Self {
        let program = scratch.path("calls");
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../probe/tests/calls.c");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-g", "-fomit-frame-pointer", "-pthread", "-w", "-o"]).arg(&program).arg(&source);
        assert!(gcc.status().unwrap().success());
        let child =
            Command::new(&program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        Target { child, output }
    }

    fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    }

    fn calls(&mut self) -> u64 {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.split(' ').next().unwrap().parse().unwrap()
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn paths_are_exact_and_have_lines() {
    let scratch = Scratch::new();
    let mut target = Target::start(&scratch, &["2", "10000", "3"]);
    let pid = target.pid();
    let program = env!("CARGO_BIN_EXE_dwell");
    let arguments =
        ["callpaths", "-p", &pid, "-m", "calls,blocked", "--interval", "0.1", "--json", "hot", "calls:lib*"];
    let mut dwell = Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(dwell.stdout.take().unwrap()).lines();
    // The first answer comes when the probes are there.
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(first["functions"][0]["calls"], 0, "{first}");
    target.go();
    let calls = target.calls();
    // The target ends: so does the measurement, with its answer and status 0.
    drop(target.child.stdin.take());
    let last = lines.map(Result::unwrap).last().unwrap();
    let answer: Value = serde_json::from_str(&last).unwrap();
    assert!(dwell.wait().unwrap().success());
    assert_eq!(answer["schema"], 1);
    assert_eq!(answer["processes"][0].to_string(), pid);
    assert!(answer["elapsed_ns"].is_u64() && answer["stopped_ns"].is_u64());
    let hot = &answer["functions"][0];
    assert_eq!((hot["function"].as_str(), hot["method"].as_str()), (Some("hot"), Some("patch")));
    assert_eq!(
        [&hot["calls"], &hot["returns"], &hot["unwound"], &hot["missed"]].map(Value::as_u64),
        [Some(calls), Some(calls), Some(0), Some(0)]
    );
    assert_eq!(answer["functions"][1]["function"], "library");
    let paths = hot["paths"].as_array().unwrap();
    assert_eq!(paths.len(), 3);
    assert_eq!(paths.iter().map(|path| path["calls"].as_u64().unwrap()).sum::<u64>(), calls);
    for path in paths {
        let frames = path["frames"].as_array().unwrap();
        let site = frames.last().unwrap();
        assert!(["library", "path_c"].contains(&site["function"].as_str().unwrap()), "{site}");
        assert!(site["file"].as_str().unwrap().ends_with("calls.c") && site["line"].is_u64(), "{site}");
        assert_eq!(site["inlined"], false);
        let loops = frames.iter().filter(|frame| frame["function"] == "loop").count();
        assert_eq!(loops, 4);
        assert!(path["metrics"]["blocked"]["sum"].is_u64() && path["share"].is_number());
    }
}

#[test]
fn calls_alone_patch_no_exits() {
    let scratch = Scratch::new();
    let mut target = Target::start(&scratch, &["1", "1000", "2", "forever"]);
    target.go();
    let pid = target.pid();
    let answer = scratch.json(&["callpaths", "-p", &pid, "-m", "calls", "--duration", "0.3", "hot"]);
    let hot = &answer["functions"][0];
    assert!(hot["calls"].as_u64().unwrap() > 1000 && hot["returns"].is_null() && hot["unwound"].is_null());
    let text = scratch.dwell(&["callpaths", "-p", &pid, "--duration", "0.3", "hot"]);
    assert_eq!(text.status, Some(0), "{text:?}");
    assert!(text.stdout.contains("hot: ") && text.stdout.contains("loop ×3 → path_a → library"), "{text:?}");
}

#[test]
fn calls_are_kept_as_a_recording() {
    let scratch = Scratch::new();
    let mut target = Target::start(&scratch, &["1", "1000", "2", "forever"]);
    target.go();
    let pid = target.pid();
    let keep = ["callpaths", "-p", &pid, "-m", "calls,wall", "--duration", "0.3", "--keep", "--name", "kept"];
    let answer = scratch.json(&[&keep[..], &["hot", "calls:library"]].concat());
    let [hot, library] = [0, 1].map(|function| &answer["functions"][function]);
    // Each line is a stack and a number: of calls, or of ns without those of the counted functions that were called.
    let stacks = |event: &str| -> Vec<(String, u64)> {
        let folded = scratch.dwell(&["export", "--format", "folded", "--event", event, "--epoch", "kept"]);
        assert_eq!(folded.status, Some(0), "{folded:?}");
        let lines = folded.stdout.lines().map(|line| line.rsplit_once(' ').unwrap());
        lines.map(|(stack, number)| (stack.to_owned(), number.parse().unwrap())).collect()
    };
    let sum = |stacks: &[(String, u64)], is_one: &dyn Fn(&str) -> bool| -> u64 {
        stacks.iter().filter(|(stack, _)| is_one(stack)).map(|(_, number)| number).sum()
    };
    let calls = stacks("calls");
    assert_eq!(sum(&calls, &|stack| stack.ends_with(";hot")), hot["calls"].as_u64().unwrap());
    assert_eq!(sum(&calls, &|stack| stack.ends_with(";library")), library["calls"].as_u64().unwrap());
    assert!(calls.iter().any(|(stack, _)| stack.contains("loop;loop;loop;path_a;library;hot")), "{calls:?}");
    let times = stacks("calls-wall");
    let of_library = sum(&times, &|stack| stack.contains(";library")) as f64;
    let wall = library["metrics"]["wall"]["sum"].as_f64().unwrap();
    assert!((of_library / wall - 1.0).abs() < 0.01, "{of_library} of {wall}");
    let top = scratch.json(&["top", "--epoch", "kept"]);
    assert_eq!(top["total"]["calls"].as_u64(), Some(sum(&calls, &|_| true)), "{top}");

    // A name is used once, and a recording without calls is removed.
    for (name, function) in [("kept", "hot"), ("other", "no_such_function")] {
        let refused = scratch.dwell(&["callpaths", "-p", &pid, "--keep", "--name", name, function]);
        assert_eq!(refused.status, Some(1), "{refused:?}");
    }
    assert_eq!(scratch.json(&["epoch", "list"])["epochs"].as_array().unwrap().len(), 1);
}

#[test]
fn processes_are_added_up() {
    let scratch = Scratch::new();
    let mut targets = [(); 2].map(|()| Target::start(&scratch, &["2", "10000", "3"]));
    let other = Command::new("sleep").arg("60").spawn().unwrap();
    let pids = targets.each_ref().map(Target::pid).join(",") + "," + &other.id().to_string();
    let arguments = ["callpaths", "-p", &pids, "-m", "calls,wall", "--interval", "0.1", "--json", "hot"];
    let mut dwell =
        Command::new(env!("CARGO_BIN_EXE_dwell")).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(dwell.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    targets.iter_mut().for_each(Target::go);
    let calls: u64 = targets.iter_mut().map(Target::calls).sum();
    // One that ends early keeps its calls.
    let [first, second] = targets;
    drop(first);
    lines.nth(3).unwrap().unwrap();
    drop(second);
    let last = lines.map(Result::unwrap).last().unwrap();
    let answer: Value = serde_json::from_str(&last).unwrap();
    assert!(dwell.wait().unwrap().success());
    assert_eq!(answer["processes"].as_array().unwrap().len(), 2, "{answer}");
    let [hot] = &answer["functions"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!([&hot["calls"], &hot["returns"]].map(Value::as_u64), [Some(calls); 2]);
    assert_eq!(hot["paths"].as_array().unwrap().len(), 3);
    let mut other = other;
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn what_cannot_be_probed_is_one_clear_line() {
    let scratch = Scratch::new();
    let target = Target::start(&scratch, &["1", "1000", "2"]);
    let pid = target.pid();
    for (process, function, message) in [
        (pid.as_str(), "libary", "no function libary in the process; similar: library"),
        (&pid, "libc.so.6:*", "can be probed at once: be more specific"),
        ("4294967295", "hot", "process 4294967295 does not exist"),
        ("0", "hot", "process 0 does not exist"),
    ] {
        let failed = scratch.dwell(&["callpaths", "-p", process, "--duration", "1", function]);
        assert_eq!(failed.status, Some(1), "{failed:?}");
        assert!(failed.stderr.contains(message) && failed.stderr.lines().count() == 1, "{failed:?}");
    }
    // Line 36 is in hot(), 2 is a comment, and now() at 71 was inlined.
    let line = scratch.dwell(&["callpaths", "-p", &pid, "--duration", "0.1", "tests/calls.c:36"]);
    assert!(line.stdout.starts_with("hot: 0 calls"), "{line:?}");
    for (place, message) in [
        ("calls.c:2", "has no code"),
        ("calls.c:71", "is in now, which has no entry since it was inlined into run"),
    ] {
        let failed = scratch.dwell(&["callpaths", "-p", &pid, place]);
        assert!(failed.status == Some(1) && failed.stderr.contains(message), "{failed:?}");
    }
    for wrong in [
        &["callpaths", "hot"][..],
        &["callpaths", "-p", &pid],
        &["callpaths", "-p", &pid, "--duration", "0", "hot"],
    ] {
        assert_eq!(scratch.dwell(wrong).status, Some(2));
    }
}

/// Number of calls of fib() that fib(n) makes, with its own.
fn fib_calls(n: u32) -> u64 {
    if n < 2 { 1 } else { 1 + fib_calls(n - 1) + fib_calls(n - 2) }
}

#[test]
fn a_command_is_counted_from_its_first_call() {
    let scratch = Scratch::new();
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../probe/tests/command.c");
    let build = |name: &str, option: &str| {
        let program = scratch.path(name);
        let built = Command::new("gcc").args(["-O1", "-g", option, "-o"]).arg(&program).arg(&source).status();
        assert!(built.unwrap().success());
        program.to_str().unwrap().to_owned()
    };
    let (shared, fixed) = (build("shared", "-fPIE"), build("static", "-static"));
    let run = |options: &[&str], command: &[&str]| {
        let all = [&["callpaths", "-m", "calls,cpu", "--json"], options, &["--"], command].concat();
        scratch.dwell(&all)
    };
    let calls = |stdout: &str, number: usize| {
        let answer: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
        assert_eq!(answer["functions"][number]["missed"], 0);
        answer["functions"][number]["calls"].as_u64().unwrap()
    };
    // Many paths of a recursive function are counted together.
    for (program, n) in [(&shared, 20), (&fixed, 12)] {
        let done = run(&["fib", "early"], &[program, &n.to_string()]);
        assert_eq!(done.status, Some(3), "{done:?}");
        assert_eq!([0, 1].map(|number| calls(&done.stdout, number)), [fib_calls(n) + fib_calls(5), 1]);
    }
    // The program that is meant is executed by another one, and executes a third.
    let done = run(&["early"], &["env", "A=1", &shared, "3", "sh", "-c", "sleep 0.3; kill -TERM $$"]);
    assert_eq!((done.status, calls(&done.stdout, 0)), (Some(128 + 15), 1), "{done:?}");
    assert!(
        done.stderr.contains("env: no function early") && done.stderr.contains("executed another program")
    );
    for (words, status, message) in [
        (&["/no/such/program"][..], 127, "No such file"),
        (&["sh", "-c", "exit 4"], 125, "no program of the command has the functions"),
    ] {
        let failed = run(&["early"], words);
        assert_eq!(failed.status, Some(status), "{failed:?}");
        assert!(failed.stderr.contains(message), "{failed:?}");
    }
    // It is told before anything has run.
    let many = run(&["libc.so.6:*"], &[&shared]);
    assert_eq!((many.status, &many.stdout[..]), (Some(125), ""), "{many:?}");
    assert!(many.stderr.contains("be more specific"), "{many:?}");
}

#[test]
fn a_command_goes_on_after_the_duration() {
    let begin = std::time::Instant::now();
    let mut dwell = Command::new(env!("CARGO_BIN_EXE_dwell"));
    dwell.args(["callpaths", "--duration", "0.2", "nanosleep", "--", "sleep", "3"]);
    let status = dwell.stdout(Stdio::null()).status().unwrap();
    assert!(status.success() && begin.elapsed().as_secs() < 3);
}

#[test]
fn functions_of_libraries_that_are_loaded_later_are_counted() {
    let scratch = Scratch::new();
    let program = scratch.path("plugin");
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../probe/tests/plugin.c");
    assert!(Command::new("gcc").args(["-O1", "-o"]).args([&program, &source]).status().unwrap().success());
    let run = |function| {
        let done = scratch.dwell(&["callpaths", "--json", function, "--", program.to_str().unwrap()]);
        assert_eq!(done.status, Some(0), "{done:?}");
        let answer: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
        (answer["functions"][0].clone(), done.stderr)
    };
    let (root, notes) = run("cbrt");
    assert_eq!(root["calls"], 100);
    assert!(notes.contains("earlier calls are not counted"), "{notes}");
    // Paths go through such libraries too.
    let (allocate, notes) = run("allocate");
    assert!(allocate["calls"].as_u64() > Some(0) && notes.is_empty(), "{allocate} {notes}");
    for path in allocate["paths"].as_array().unwrap() {
        assert_eq!(path["is_complete"], true, "{path}");
        assert_eq!(path["frames"].as_array().unwrap().last().unwrap()["function"], "inflateInit2_");
    }
}

/// Builds a program of `core/probe/tests`.
fn build(scratch: &Scratch, name: &str) -> String {
    let program = scratch.path(name);
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../probe/tests/{name}.c"));
    let built = Command::new("gcc").args(["-O1", "-g", "-o"]).args([&program, &source]).arg("-ldl").status();
    assert!(built.unwrap().success());
    program.to_str().unwrap().to_owned()
}

/// Runs a command with `--follow-children`. Returns its answer with how it ended.
fn follow(scratch: &Scratch, options: &[&str], command: &[&str]) -> (Value, support::Ended) {
    let all = [&["callpaths", "--follow-children", "--json"], options, &["--"], command].concat();
    let done = scratch.dwell(&all);
    let answer = done.stdout.lines().last().map_or(Value::Null, |line| serde_json::from_str(line).unwrap());
    (answer, done)
}

fn process_ids(answer: &Value) -> Vec<u64> {
    let mut pids: Vec<u64> =
        answer["processes"].as_array().unwrap().iter().map(|pid| pid.as_u64().unwrap()).collect();
    pids.sort_unstable();
    pids
}

#[test]
fn processes_of_a_shell_are_added_up() {
    let scratch = Scratch::new();
    let program = build(&scratch, "command");
    // Three at the same time, one of them after a program without the function; the shell prints their process ids.
    let script = format!(
        "{program} 10 >/dev/null & echo $!; env A=1 nice {program} 10 >/dev/null & echo $!; \
         {program} 10 >/dev/null & echo $!; wait; ls / >/dev/null; exit 7"
    );
    let (answer, done) =
        follow(&scratch, &["-m", "calls,wall", "fib", "early", "none"], &["sh", "-c", &script]);
    assert_eq!(done.status, Some(7), "{done:?}");
    assert_eq!(answer["functions"][0]["function"], "fib");
    assert_eq!(answer["functions"][0]["calls"], 3 * (fib_calls(10) + fib_calls(5)));
    assert_eq!(answer["functions"][0]["returns"], 3 * (fib_calls(10) + fib_calls(5)));
    assert_eq!(answer["functions"][1]["calls"], 3);
    assert_eq!(answer["uncounted_processes"], 0);
    let mut printed: Vec<u64> = done.stdout.lines().take(3).map(|line| line.parse().unwrap()).collect();
    printed.sort_unstable();
    assert_eq!(process_ids(&answer), printed);
    // A process that executes one program after the other is counted in both.
    let twice = [&program[..], "3", &program, "4", "sh", "-c", &format!("{program} 5; kill -TERM $$")];
    let (answer, done) = follow(&scratch, &["-m", "calls", "fib"], &twice);
    assert_eq!(done.status, Some(128 + 15), "{done:?}");
    let calls = [3, 4, 5].map(|n| fib_calls(n) + fib_calls(5)).iter().sum::<u64>();
    assert_eq!((&answer["functions"][0]["calls"], process_ids(&answer).len()), (&Value::from(calls), 2));
}

#[test]
fn children_of_all_kinds_are_counted() {
    let scratch = Scratch::new();
    let (family, command) = (build(&scratch, "family"), build(&scratch, "command"));
    // They are forked from a program with probes, and execute nothing.
    let (answer, done) = follow(&scratch, &["-m", "calls,cpu", "work"], &[&family, "fork", "5"]);
    assert_eq!(done.status, Some(5), "{done:?}");
    let work = &answer["functions"][0];
    let calls = Value::from(2 * 10 + 5 * (100 + 1000));
    assert_eq!((&work["calls"], &work["returns"], &work["missed"]), (&calls, &calls, &Value::from(0)));
    assert_eq!((process_ids(&answer).len(), &answer["uncounted_processes"]), (11, &Value::from(0)));
    // Children of a program with probes, and of one without, that execute a program.
    for (function, processes) in [("fib", 6), ("libc.so.6:waitpid", 1), ("libc.so.6:puts", 7)] {
        let (answer, done) =
            follow(&scratch, &["-m", "calls", function], &[&family, "spawn", "3", &command, "4"]);
        assert_eq!(done.status, Some(5), "{done:?}");
        if function == "fib" {
            assert_eq!(answer["functions"][0]["calls"], 6 * (fib_calls(4) + fib_calls(5)));
        }
        assert!(process_ids(&answer).len() >= processes, "{answer}");
        assert_eq!(answer["uncounted_processes"], 0, "{done:?}");
    }
    // A signal that a program ignores does not end its system calls.
    for function in ["work", "libc.so.6:epoll_wait"] {
        let (_, done) = follow(&scratch, &["-m", "calls", function], &[&family, "quiet"]);
        assert_eq!(done.status, Some(5), "{done:?}");
    }
}

#[test]
fn what_is_not_counted_in_children_is_reported() {
    let scratch = Scratch::new();
    let (family, command) = (build(&scratch, "family"), build(&scratch, "command"));
    let (_, done) = follow(&scratch, &["no_such_function"], &["sh", "-c", "ls / >/dev/null; exit 4"]);
    assert_eq!((done.status, &done.stdout[..]), (Some(125), ""), "{done:?}");
    assert!(done.stderr.contains("no program of the command has the functions"), "{done:?}");
    let (_, done) = follow(&scratch, &["fib"], &["/no/such/program"]);
    assert_eq!(done.status, Some(127), "{done:?}");
    let (_, many) = follow(&scratch, &["libc.so.6:*"], &["sh", "-c", "echo it runs"]);
    assert_eq!((many.status, &many.stdout[..]), (Some(125), ""), "{many:?}");
    // A process that loads the function later, beside one that has it from the beginning.
    let script = format!("{family} later libm.so.6; {command} 1 >/dev/null; exit 0");
    let (answer, done) = follow(&scratch, &["-m", "calls", "fib", "cbrt"], &["sh", "-c", &script]);
    assert_eq!(done.status, Some(0), "{done:?}");
    assert_eq!(answer["uncounted_processes"], 1, "{done:?}");
    assert!(done.stderr.contains("family is not counted: it loaded the functions"), "{done:?}");
    let wrong = ["callpaths", "--follow-children", "-p", "1", "fib"];
    assert_eq!(scratch.dwell(&wrong).status, Some(2));
}

/// A parent and a child that call work() until the standard input ends.
struct Pair {
    dwell: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    /// The processes, when they have said so.
    pids: Vec<u64>,
    /// Those that the last answer has.
    counted: Vec<u64>,
}

impl Pair {
    fn start(program: &str, options: &[&str]) -> Self {
        let mut dwell = Command::new(env!("CARGO_BIN_EXE_dwell"));
        dwell.args(["callpaths", "--follow-children", "--json"]).args(options);
        dwell.args(["work", "--", program, "loop"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut dwell = dwell.spawn().unwrap();
        let lines = BufReader::new(dwell.stdout.take().unwrap()).lines();
        Pair { dwell, lines, pids: Vec::new(), counted: Vec::new() }
    }

    /// Reads a line of the processes, or an answer.
    fn read(&mut self) {
        let line = self.lines.next().unwrap().unwrap();
        match serde_json::from_str::<Value>(&line) {
            Ok(answer) if answer.is_object() => self.counted = process_ids(&answer),
            _ => {
                self.pids = line.split(' ').map(|pid| pid.parse().unwrap()).collect();
                self.pids.sort_unstable();
            }
        }
    }

    /// Waits until nobody traces the processes and they have no probes.
    fn wait_for_removal(&self) {
        let read = |pid: &u64, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
        let is_free = |pid: &u64| {
            read(pid, "status").contains("TracerPid:\t0\n") && !read(pid, "maps").contains("dwell-probe")
        };
        while !self.pids.iter().all(is_free) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Ends them, and checks that their code is that of the program.
    fn end(mut self, program: &str) {
        drop(self.dwell.stdin.take());
        let codes = |lines: Vec<String>| -> Vec<String> {
            lines
                .into_iter()
                .filter(|line| line.starts_with("child ") || line.starts_with("parent "))
                .collect()
        };
        let found = codes(self.lines.map(Result::unwrap).collect());
        let alone = Command::new(program).arg("loop").stdin(Stdio::null()).output().unwrap();
        let alone = String::from_utf8(alone.stdout).unwrap().lines().map(str::to_owned).collect();
        assert_eq!((found.len(), &found), (2, &codes(alone)));
        self.dwell.wait().unwrap();
    }
}

#[test]
fn children_go_on_without_probes_after_a_kill() {
    let scratch = Scratch::new();
    let program = build(&scratch, "family");
    let mut pair = Pair::start(&program, &["--interval", "0.1"]);
    while pair.pids.is_empty() || pair.counted != pair.pids {
        pair.read();
    }
    pair.dwell.kill().unwrap();
    pair.wait_for_removal();
    pair.end(&program);
}

#[test]
fn children_go_on_without_probes_after_the_duration() {
    let scratch = Scratch::new();
    let program = build(&scratch, "family");
    // On a slow machine the duration may be over before both processes are there.
    for seconds in ["0.5", "2", "8", "32"] {
        let mut pair = Pair::start(&program, &["--duration", seconds]);
        // The processes keep the output open, so dwell ends before them.
        let input = pair.dwell.stdin.take();
        if pair.dwell.wait().unwrap().success() {
            while pair.pids.is_empty() || pair.counted.is_empty() {
                pair.read();
            }
            if pair.counted == pair.pids {
                pair.wait_for_removal();
                pair.dwell.stdin = input;
                return pair.end(&program);
            }
        }
    }
    panic!("the processes were never counted");
}
