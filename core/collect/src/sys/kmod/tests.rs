//! Compares the mirrors with the structures of the C header, as a C compiler lays them out.

use std::{fmt::Write, mem::offset_of, path::Path, process::Command};

use super::*;
use crate::{
    entries::EVENT_ENTERED,
    source::kmod::chunks::{CHUNK_BYTES, ENTRY_BYTES, REGISTER_SAMPLE_BYTES},
};

macro_rules! layout {
    ($c:literal, $rust:ty, $($field:ident as $name:literal),*) => {
        Layout { c: $c, size: size_of::<$rust>(), fields: vec![$(($name, offset_of!($rust, $field))),*] }
    };
}

struct Layout {
    c: &'static str,
    size: usize,
    fields: Vec<(&'static str, usize)>,
}

fn layouts() -> Vec<Layout> {
    vec![
        layout!("version", Version, abi as "abi", ways as "ways", registers as "registers"),
        layout!("event", Event, config as "config", period as "period", spread as "spread", kind as "type",
            flags as "flags"),
        layout!("config", Config, version as "version", event_count as "event_count", bucket_bits as "bucket_bits",
            overflow_entries as "overflow_entries", register_samples as "register_samples", event as "event"),
        layout!("period", Period, period as "period", spread as "spread", event as "event"),
        layout!("apart", KeptApart, count as "count", tag as "tag"),
        layout!("table_counts", TableCounts, samples as "samples", found as "found", fresh as "fresh",
            evicted as "evicted", saturated as "saturated", spilled as "spilled", lost as "lost", lost_of as "lost_of"),
        layout!("status", Status, cpu as "cpu", cpus as "cpus", interrupts as "interrupts", idle as "idle",
            nested as "nested", kernel as "kernel", charged as "charged", register_samples as "register_samples",
            register_lost as "register_lost", throttled as "throttled", given_up as "given_up", read_samples as "read_samples",
            read_entries as "read_entries", table as "table"),
        layout!("event_status", EventStatus, cpu as "cpu", event as "event", samples as "samples", idle as "idle",
            nested as "nested", lost as "lost", throttled as "throttled", given_up as "given_up",
            given_up_ns as "given_up_ns", enabled_ns as "enabled_ns", running_ns as "running_ns"),
        Layout {
            c: "chunk",
            size: CHUNK_BYTES,
            fields: vec![
                ("kind", 0),
                ("cpu", 4),
                ("count", 8),
                ("record_bytes", 12),
                ("since_ns", 16),
                ("until_ns", 24),
            ],
        },
        Layout { c: "entry", size: ENTRY_BYTES, fields: vec![("key", 0), ("place", 8)] },
        Layout {
            c: "register_sample",
            size: REGISTER_SAMPLE_BYTES,
            fields: vec![
                ("time_ns", 0),
                ("pc", 8),
                ("pid", 16),
                ("tid", 20),
                ("event", 24),
                ("registers", 32),
            ],
        },
    ]
}

/// Returns the named constants of the header, with the values of our mirrors.
fn constants() -> Vec<(&'static str, u64)> {
    vec![
        ("DWELL_ABI_VERSION", ABI_VERSION.into()),
        ("DWELL_EVENTS_MAX", EVENTS_MAX as u64),
        ("DWELL_APART_MAX", APART_MAX as u64),
        ("DWELL_REGISTERS", crate::registers::REGISTERS_REPORTED as u64),
        ("DWELL_ALL_CPUS", ALL_CPUS.into()),
        ("DWELL_EVENT_PINNED", EVENT_PINNED.into()),
        ("DWELL_EVENT_REGISTERS", EVENT_REGISTERS.into()),
        ("DWELL_EVENT_CHARGED", EVENT_CHARGED.into()),
        ("DWELL_EVENT_ENTERED", EVENT_ENTERED.into()),
        ("DWELL_VERSION", VERSION),
        ("DWELL_CONFIGURE", CONFIGURE),
        ("DWELL_START", START),
        ("DWELL_STOP", STOP),
        ("DWELL_FLUSH", FLUSH),
        ("DWELL_PERIOD", PERIOD),
        ("DWELL_APART", APART),
        ("DWELL_STATUS", STATUS),
        ("DWELL_EVENT_STATUS", EVENT_STATUS),
    ]
}

/// Returns C's values of the same names, one line for each.
fn ask_c(source: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&file, source).unwrap();
    let kmod = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kmod");
    let mut gcc = Command::new("gcc");
    gcc.arg("-I").arg(kmod).args(["-Wall", "-Werror", "-o"]).arg(&program).arg(&file);
    assert!(gcc.status().expect("gcc runs").success());
    let output = Command::new(&program).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_mirrors_match_the_c_header() {
    let (mut ours, mut body) = (String::new(), String::new());
    let mut say = |name: &str, expression: &str, value: u64| {
        writeln!(ours, "{name} {value}").unwrap();
        writeln!(body, "\tprintf(\"{name} %llu\\n\", (unsigned long long){expression});").unwrap();
    };
    for Layout { c, size, fields } in layouts() {
        say(c, &format!("sizeof(struct dwell_{c})"), size as u64);
        for (field, offset) in fields {
            say(&format!("{c}.{field}"), &format!("offsetof(struct dwell_{c}, {field})"), offset as u64);
        }
    }
    constants().iter().for_each(|(name, value)| say(name, name, *value));
    let head = "#include <stddef.h>\n#include <stdio.h>\n#include \"dwell_abi.h\"\n\nint main(void)\n{\n";
    assert_eq!(ours, ask_c(&format!("{head}{body}\treturn 0;\n}}\n")));
}
