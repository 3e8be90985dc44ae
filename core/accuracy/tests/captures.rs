//! Captures as files: what is read, and what is said of bad ones.

use std::{fs, path::Path};

use dwell_accuracy::{Capture, truth::TrueCause};
use dwell_analysis::{Cause, Level};
use expect_test::{Expect, expect};

const META: &str = r#"{"name": "toy", "language": "c", "source": "here", "role": "judge", "machine": "generic-inorder-2",
    "event": "cycles", "unit": "cycles", "period": 4001, "samples": 30}"#;

/// A small capture in a folder of its own, with one file replaced (or removed, where there is no text).
fn with(file: &str, text: Option<&str>, check: impl FnOnce(&Path)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write("meta.json", META);
    write("samples.tsv", "1000\t10\n0x1004\t20\n");
    write("executions.tsv", "1000\t5\n1004\t5\n");
    write("edges.tsv", "1004\t1000\t4\n");
    match text {
        Some(text) => write(file, text),
        None => fs::remove_file(folder.path().join(file)).expect("a file that is there"),
    }
    check(folder.path());
}

fn check_error(file: &str, text: Option<&str>, expected: Expect) {
    with(file, text, |folder| {
        let error = Capture::read(folder).expect_err("a bad capture").to_string();
        expected.assert_eq(&error.replace(&folder.display().to_string(), "DIR"));
    });
}

#[test]
fn a_capture_is_read() {
    let stalls = "1000\tbase\t-\t9\n1004\tdcache-miss\t1000\t7.5\tl2\n";
    with("stalls.tsv", Some(stalls), |folder| {
        let capture = Capture::read(folder).expect("a good capture");
        assert_eq!(capture.samples.values().sum::<u64>(), capture.meta.samples);
        assert_eq!(capture.executions[&0x1004], 5);
        assert_eq!(capture.edges[&(0x1004, 0x1000)], 4);
        let stall = capture.stalls.expect("stalls")[1];
        assert_eq!((stall.cause, stall.culprit), (TrueCause::Dynamic(Cause::DCacheMiss), Some(0x1000)));
        assert_eq!(stall.level, Some(Level::Second));
        assert!(capture.bursts.is_empty() && capture.mca.is_none());
    });
}

#[test]
fn bursts_open_with_their_span() {
    with("bursts.tsv", Some("7\t1000\t1010\t0\n7\t1004\t1000\t3\n8\t1000\t1000\t0\n"), |folder| {
        let bursts = Capture::read(folder).expect("a good capture").bursts;
        assert_eq!(bursts.len(), 2);
        assert_eq!(
            (bursts[0].span, &bursts[0].transfers[..]),
            ((0x1000, 0x1010), &[(0x1004, 0x1000, 3)][..])
        );
    });
}

#[test]
fn missing_files() {
    check_error("samples.tsv", None, expect!["DIR/samples.tsv: No such file or directory (os error 2)"]);
    check_error(
        "executions.tsv",
        None,
        expect!["DIR/executions.tsv: No such file or directory (os error 2)"],
    );
    check_error("meta.json", None, expect!["DIR/meta.json: No such file or directory (os error 2)"]);
}

#[test]
fn bad_lines_are_named() {
    check_error(
        "samples.tsv",
        Some("1000\t10\n\nxyz\t1\n"),
        expect![[r#"DIR/samples.tsv:3: "xyz" is not a hexadecimal address"#]],
    );
    check_error(
        "samples.tsv",
        Some("1000\t-1\n"),
        expect![[r#"DIR/samples.tsv:1: "-1" is not a whole number"#]],
    );
    check_error(
        "samples.tsv",
        Some("1000\t18446744073709551615\n"),
        expect![[r#"DIR/samples.tsv:1: "18446744073709551615" is too large"#]],
    );
    check_error("samples.tsv", Some("1000\n"), expect!["DIR/samples.tsv:1: a field is missing"]);
    check_error(
        "edges.tsv",
        Some("1000\t1004\t1\t2\n"),
        expect![[r#"DIR/edges.tsv:1: "2" is one field too many"#]],
    );
    check_error(
        "stalls.tsv",
        Some("1000\tmoon\t-\t1\n"),
        expect![[r#"DIR/stalls.tsv:1: "moon" is not a cause of a stall"#]],
    );
    check_error(
        "stalls.tsv",
        Some("1000\tbase\t-\tNaN\n"),
        expect![[r#"DIR/stalls.tsv:1: "NaN" is not an amount"#]],
    );
    check_error(
        "stalls.tsv",
        Some("1000\tdcache-miss\t-\t1\tl9\n"),
        expect![[r#"DIR/stalls.tsv:1: "l9" is not a level of the memory"#]],
    );
    check_error(
        "meta.json",
        Some(&META.replace("\"judge\"", "\"jury\"")),
        expect![
            "DIR/meta.json: unknown variant `jury`, expected one of `tune`, `judge`, `kernel` at line 1 column 65"
        ],
    );
}

#[test]
fn no_bytes_make_it_panic() {
    for text in ["\u{feff}", "\t\t\t\n", "ffffffffffffffff\t18446744073709551615\n", "1\t1\r\n"] {
        with("samples.tsv", Some(text), |folder| drop(Capture::read(folder)));
    }
}
