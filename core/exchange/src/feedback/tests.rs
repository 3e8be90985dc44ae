//! Tests of each format for an invented program, and of what its reader prints if that is installed.

use std::process::Command;

use dwell_query::answer::{
    Feedback, FeedbackCall, FeedbackEdge, FeedbackFrame, FeedbackInstruction, FeedbackProcedure,
};
use expect_test::expect;

use super::{Counts, Optimizer, feedback};

fn frame(function: &str, start_line: u32, line: u32, discriminator: u32) -> FeedbackFrame {
    let file = Some("/src/a.c".to_owned());
    FeedbackFrame { function: Some(function.to_owned()), file, start_line, line, discriminator }
}

fn instruction(address: u64, samples: u64, executions: f64, frames: &[FeedbackFrame]) -> FeedbackInstruction {
    let (frames, calls) = (frames.to_vec(), Vec::new());
    FeedbackInstruction { address, samples, executions: Some(executions), frames, calls }
}

/// Returns a program in which `hot` calls the local function `leaf` in a loop, and `mix`, which is inlined and whose
/// second block is one of four copies; the `.cold` part of `hot` was split off.
fn program() -> Feedback {
    let hot = |line, discriminator| frame("hot", 10, line, discriminator);
    let call = |target: &str, target_address, executions, is_indirect| FeedbackCall {
        target: target.to_owned(),
        target_address,
        executions,
        is_indirect,
    };
    let mut calls = instruction(0x1008, 40, 100.0, &[hot(13, 2)]);
    calls.calls = vec![call("leaf", 0x2000, 100.0, false)];
    let mut pointer = instruction(0x100c, 0, 100.0, &[hot(14, 0)]);
    pointer.calls = vec![call("leaf", 0x2000, 75.0, true), call("elsewhere", 0x3000, 25.0, true)];
    let procedure = |symbol: &str, address, local_number, entries| FeedbackProcedure {
        image: "/usr/bin/prog".into(),
        build_id: "abcdef".into(),
        symbol: symbol.into(),
        local_number,
        address,
        entries,
        ..FeedbackProcedure::default()
    };
    let edge = |from, to, executions| FeedbackEdge { from, to, executions };
    let unrolled = (4 << 1) << 7 | 1 << 1;
    Feedback {
        epochs: vec!["e1".into()],
        event: "cpu-clock".into(),
        procedures: vec![
            FeedbackProcedure {
                instructions: vec![
                    instruction(0x1000, 5, 2.0, &[hot(10, 0)]),
                    instruction(0x1004, 70, 100.0, &[frame("mix", 3, 4, 0), hot(12, 0)]),
                    instruction(0x1006, 1, 25.4, &[frame("mix", 3, 5, unrolled), hot(12, 0)]),
                    calls,
                    pointer,
                    instruction(0x1010, 9, 100.0, &[hot(13, 2)]),
                    instruction(0x1012, 9, 500.0, &[hot(0, 0)]),
                ],
                block_starts: vec![0, 1, 6],
                edges: vec![edge(0x1000, 0x1004, 2.0), edge(0x1010, 0x1004, 98.0), edge(0x1010, 0x1012, 2.0)],
                ..procedure("hot", 0x1000, None, 2.0)
            },
            FeedbackProcedure {
                instructions: vec![instruction(0x1800, 0, 1.0, &[hot(16, 0)])],
                block_starts: vec![0],
                ..procedure("hot.cold", 0x1800, Some(1), 1.0)
            },
            FeedbackProcedure {
                instructions: vec![
                    instruction(0x2000, 3, 175.0, &[frame("leaf", 30, 31, 0)]),
                    FeedbackInstruction { address: 0x2004, samples: 2, ..FeedbackInstruction::default() },
                ],
                block_starts: vec![0],
                ..procedure("leaf", 0x2000, Some(2), 180.0)
            },
        ],
        notes: Vec::new(),
    }
}

fn text(optimizer: Optimizer, counts: Counts) -> String {
    String::from_utf8(feedback(&program(), optimizer, counts)).unwrap()
}

#[test]
fn clang_gets_executions_by_position() {
    expect![[r#"
        hot:405:2
         0: 2
         3.1: 100 leaf:100
         4: 100 elsewhere:25 leaf:75
         6: 1
         2: mix:202
          1: 100
          2.1: 102
        leaf:175:180
         1: 175
    "#]]
    .assert_eq(&text(Optimizer::Clang, Counts::Executions));
}

#[test]
fn samples_are_written_as_autofdo_does_without_lbr() {
    expect![[r#"
        hot:119:5
         0: 5
         3.1: 40
         4: 0
         6: 0
         2: mix:74
          1: 70
          2.1: 4
        leaf:3:3
         1: 3
    "#]]
    .assert_eq(&text(Optimizer::Clang, Counts::Samples));
}

#[test]
fn bolt_gets_transfers() {
    expect![[r#"
        1 hot 0 1 hot 4 0 2
        1 hot 10 1 hot 4 0 98
        1 hot 10 1 hot 12 0 2
        1 hot 8 1 leaf/2 0 0 100
        1 hot c 1 leaf/2 0 0 75
        1 hot c 1 elsewhere 0 0 25
        0 [unknown] 0 1 hot 0 0 2
        0 [unknown] 0 1 hot.cold/1 0 0 1
        0 [unknown] 0 1 leaf/2 0 0 5
    "#]]
    .assert_eq(&text(Optimizer::Bolt, Counts::Executions));
    expect![[r#"
        no_lbr executions:
        1 hot 0 2
        1 hot 4 100
        1 hot 12 500
        1 hot.cold/1 0 1
        1 leaf/2 0 175
    "#]]
    .assert_eq(&text(Optimizer::BoltBlocks, Counts::Executions));
    assert!(text(Optimizer::Bolt, Counts::Samples).starts_with("no_lbr cycles:\n1 hot 0 5\n1 hot 4 70\n"));
}

/// Checks how LLVM's own reader understands the profile, in the binary form too.
#[test]
fn llvm_profdata_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let [profile, binary] = ["profile", "profile.extbinary"].map(|name| folder.path().join(name));
    std::fs::write(&profile, feedback(&program(), Optimizer::Clang, Counts::Executions)).unwrap();
    let run = |arguments: &[&std::ffi::OsStr]| {
        let ended = Command::new("llvm-profdata-14").args(arguments).output();
        ended.map(|ended| {
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
            String::from_utf8(ended.stdout).unwrap()
        })
    };
    let merge = ["merge", "--sample", "--extbinary", "-o"].map(str::as_ref);
    if let Err(error) = run(&[&merge[..], &[binary.as_ref(), profile.as_ref()]].concat()) {
        println!("SKIPPED llvm_profdata_reads_it: llvm-profdata-14: {error}");
        return;
    }
    for file in [&profile, &binary] {
        let output = run(&["show".as_ref(), "--sample".as_ref(), file.as_ref()]).unwrap();
        assert!(output.contains("Function: hot: 405, 2, 4 sampled lines"), "{output}");
        assert!(output.contains("3.1: 100, calls: leaf:100"), "{output}");
        assert!(output.contains("2: inlined callee: mix: 202, 0, 2 sampled lines"), "{output}");
    }
}

/// Checks how the Go compiler's own reader understands the profile: caller, callee, lines below the caller's first
/// line, count.
#[test]
fn go_preprofile_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let [profile, read] = ["profile", "read"].map(|name| folder.path().join(name));
    std::fs::write(&profile, feedback(&program(), Optimizer::Go, Counts::Executions)).unwrap();
    let mut command = Command::new("go");
    command.args(["tool", "preprofile", "-i"]).arg(&profile).arg("-o").arg(&read);
    match command.env("GOTOOLCHAIN", "local").output() {
        Ok(ended) if ended.status.success() => {}
        Ok(ended) if String::from_utf8_lossy(&ended.stderr).contains("no such tool") => {
            println!("SKIPPED go_preprofile_reads_it: go is older than 1.23");
            return;
        }
        Ok(ended) => panic!("{}", String::from_utf8_lossy(&ended.stderr)),
        Err(error) => {
            println!("SKIPPED go_preprofile_reads_it: go: {error}");
            return;
        }
    }
    expect![[r#"
        GO PREPROFILE V1
        hot
        leaf
        3 100
        hot
        mix
        2 100
        hot
        leaf
        4 75
        hot
        elsewhere
        4 25
    "#]]
    .assert_eq(&std::fs::read_to_string(&read).unwrap());
}

/// Checks every word, because GCC's format has no other reader.
#[test]
fn every_word_for_gcc_is_correct() {
    let bytes = feedback(&program(), Optimizer::Gcc { version: 2 }, Counts::Executions);
    let mut words = bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    let mut next = |count: usize| words.by_ref().take(count).collect::<Vec<u32>>();
    assert_eq!(next(3), [0x6763_6461, 2, 0]);
    // Names: elsewhere, hot, leaf, mix; the first takes 10 bytes, the others 4 or 5.
    assert_eq!(next(3), [0xaa00_0000, 11, 4]);
    let at = |tag: u32| bytes.windows(4).position(|w| w == tag.to_le_bytes()).unwrap();
    let functions = &bytes[at(0xac00_0000)..at(0xae00_0000)];
    let functions: Vec<u32> =
        functions.chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
    let hot = [2, 0, 1, 4, 1]; // entries, index of the name, number of positions, number of inlined calls
    assert_eq!(functions[2..8], [&[2][..], &hot].concat());
    let indirect = [4 << 16, 2, 100, 0, 7, 0, 0, 25, 0, 7, 2, 0, 75, 0];
    assert_eq!(
        functions[8..],
        [
            &[0, 0, 2, 0, 3 << 16, 0, 100, 0][..],
            &indirect,
            &[6 << 16, 0, 1, 0, 2 << 16, 3, 2, 0, 1 << 16, 0, 100, 0, 2 << 16, 0, 25, 0],
            &[175 + 5, 0, 2, 1, 0, 1 << 16, 0, 175, 0],
        ]
        .concat()
    );
}
