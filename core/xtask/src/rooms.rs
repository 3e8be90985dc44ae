//! The dependencies between the rooms. Enters: each crate with its dependencies. Leaves: the dependencies that are not
//! allowed. Never here: reading of files.

/// Each room with the rooms that it may depend on. `analysis` never depends on `collect`; `node` depends only on
/// `query`, `sql` and `fleet`.
const ROOMS: &[(&str, &[&str])] = &[
    ("dwell-profile", &[]),
    ("dwell-image", &["dwell-profile"]),
    ("dwell-attribution", &["dwell-profile", "dwell-image"]),
    ("dwell-unwind", &["dwell-profile", "dwell-image"]),
    ("dwell-collect", &["dwell-profile", "dwell-image", "dwell-attribution", "dwell-unwind"]),
    ("dwell-analysis", &["dwell-profile", "dwell-image"]),
    ("dwell-probe", &["dwell-profile", "dwell-image", "dwell-analysis", "dwell-collect"]),
    ("dwell-trace", &["dwell-profile", "dwell-image", "dwell-probe"]),
    ("dwell-query", &["dwell-profile", "dwell-image", "dwell-analysis"]),
    ("dwell-exchange", &["dwell-profile", "dwell-image", "dwell-attribution", "dwell-unwind", "dwell-query"]),
    ("dwell-sql", &["dwell-profile", "dwell-query"]),
    ("dwell-fleet", &["dwell-profile"]),
    (
        "dwell-cli",
        &[
            "dwell-profile",
            "dwell-collect",
            "dwell-probe",
            "dwell-trace",
            "dwell-query",
            "dwell-exchange",
            "dwell-sql",
            "dwell-fleet",
        ],
    ),
    ("dwell-node", &["dwell-query", "dwell-sql", "dwell-fleet"]),
    ("dwell-accuracy", &["dwell-profile", "dwell-image", "dwell-analysis", "dwell-collect"]),
    ("dwell-xtask", &[]),
];

/// External crates that only some rooms may use, each with the reason.
const CONFINED: &[(&str, &[&str], &str)] = &[
    ("perf-event-open-sys", &["dwell-collect"], "only collect makes system calls of this kind"),
    ("signal-hook", &["dwell-collect"], "only collect makes system calls of this kind"),
    ("capstone", &["dwell-image"], "instructions leave image as plain data"),
    ("object", &["dwell-image"], "ELF leaves image as plain data"),
    ("gimli", &["dwell-image"], "DWARF leaves image as plain data"),
    ("addr2line", &["dwell-image"], "DWARF leaves image as plain data"),
    ("parquet", &["dwell-profile"], "only profile knows the format of the database"),
    ("linux-perf-data", &["dwell-exchange"], "only exchange knows the formats of other tools"),
    ("napi", &["dwell-node"], "only node knows JavaScript"),
    ("rusty-s3", &["dwell-fleet"], "only fleet knows object stores"),
    ("libloading", &["dwell-sql"], "only sql loads a library at run time"),
    ("rustyline", &["dwell-cli"], "only binaries talk to a terminal"),
    ("clap", &["dwell-cli", "dwell-accuracy"], "only binaries parse arguments"),
    ("anyhow", &["dwell-cli", "dwell-accuracy", "dwell-xtask"], "libraries name their errors with thiserror"),
    (
        "serde_json",
        &[
            "dwell-profile",
            "dwell-collect",
            "dwell-analysis",
            "dwell-probe",
            "dwell-trace",
            "dwell-query",
            "dwell-exchange",
            "dwell-sql",
            "dwell-fleet",
            "dwell-cli",
            "dwell-node",
            "dwell-accuracy",
            "dwell-xtask",
        ],
        "answers become text at the boundary; tidy lists the files below query that may",
    ),
];

/// Returns one line for each dependency that is not allowed.
pub fn problems(crates: &[(String, Vec<String>)]) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, dependencies) in crates {
        let Some((_, seen)) = ROOMS.iter().find(|(room, _)| room == name) else {
            problems.push(format!("{name} is not a room: list it in core/xtask/src/rooms.rs"));
            continue;
        };
        for dependency in dependencies {
            if dependency.starts_with("dwell-") && !seen.contains(&dependency.as_str()) {
                problems.push(format!("{name} must not see {dependency}"));
            }
            let confined = CONFINED.iter().find(|(confined, ..)| confined == dependency);
            if let Some((_, _, reason)) = confined.filter(|(_, rooms, _)| !rooms.contains(&name.as_str())) {
                problems.push(format!("{name} must not use {dependency}: {reason}"));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    fn check(crates: &[(&str, &[&str])], expected: Expect) {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let crates: Vec<_> = crates.iter().map(|(name, seen)| (name.to_string(), owned(seen))).collect();
        expected.assert_eq(&super::problems(&crates).join("\n"));
    }

    #[test]
    fn forbidden_dependencies_are_reported() {
        check(&[("dwell-query", &["dwell-profile", "dwell-analysis", "serde_json"])], expect![""]);
        check(
            &[("dwell-analysis", &["dwell-collect"]), ("dwell-node", &["dwell-query", "dwell-profile"])],
            expect![[r#"
                dwell-analysis must not see dwell-collect
                dwell-node must not see dwell-profile"#]],
        );
        check(
            &[("dwell-image", &["serde_json"])],
            expect![[
                r#"dwell-image must not use serde_json: answers become text at the boundary; tidy lists the files below query that may"#
            ]],
        );
        check(&[("dwell-new", &[])], expect!["dwell-new is not a room: list it in core/xtask/src/rooms.rs"]);
    }
}
