//! The contracts of docs/json.md: every verb's JSON has the fields it promises, each of its type, and statuses are as said.

mod support;

use serde_json::{Value, json};
use support::{Scratch, can_sample, workload};

/// Holds `value` to `shape`, which is an example: numbers stand for numbers, `[x]` for a list of such, `"?x"` for a text
/// or null, `{"*": x}` for a map, and a null for a number or null. More fields than the shape's may be there.
fn hold(value: &Value, shape: &Value, path: &str) {
    match shape {
        Value::Null => assert!(value.is_null() || value.is_number(), "{path}: {value}"),
        Value::Bool(_) => assert!(value.is_boolean(), "{path}: {value}"),
        Value::Number(number) if number.is_u64() => assert!(value.is_u64(), "{path}: {value}"),
        Value::Number(_) => assert!(value.is_number(), "{path}: {value}"),
        Value::String(text) if text.starts_with('?') => {
            assert!(value.is_null() || value.is_string() || value.is_u64(), "{path}: {value}")
        }
        Value::String(text) if text.contains('|') => {
            assert!(text.split('|').any(|choice| value == choice), "{path}: {value} is none of {text}");
        }
        Value::String(_) => assert!(value.is_string(), "{path}: {value}"),
        Value::Array(shapes) => {
            let values = value.as_array().unwrap_or_else(|| panic!("{path}: {value}"));
            for (index, value) in values.iter().enumerate() {
                hold(value, &shapes[0], &format!("{path}[{index}]"));
            }
        }
        Value::Object(shapes) => {
            let values = value.as_object().unwrap_or_else(|| panic!("{path}: {value}"));
            if let Some(shape) = shapes.get("*") {
                values.iter().for_each(|(key, value)| hold(value, shape, &format!("{path}.{key}")));
                return;
            }
            for (key, shape) in shapes {
                let value = values.get(key).unwrap_or_else(|| panic!("{path} has no {key}"));
                hold(value, shape, &format!("{path}.{key}"));
            }
        }
    }
}

/// Holds an estimate to what the scale of its listing allows.
fn hold_scale(listing: &Value, estimate: &Value) {
    let is_absolute = listing["scale"]["kind"] == "absolute";
    let number = |key: &str| estimate[key].as_f64();
    for key in ["executions", "executions_min", "executions_max", "cpi", "cpi_max"] {
        assert!(is_absolute || number(key).is_none(), "{key}: {estimate:#}");
    }
    if let (Some(min), Some(executions), Some(max)) =
        (number("executions_min"), number("executions"), number("executions_max"))
    {
        assert!(min <= executions && executions <= max, "{estimate:#}");
    }
    let cpi_min = number("cpi_min").unwrap();
    assert!(number("cpi_max").is_none_or(|max| cpi_min <= max), "{estimate:#}");
    assert!(number("cpi").is_none_or(|cpi| cpi_min <= cpi), "{estimate:#}");
}

/// Holds the CPI of a row of `top` to what its scale allows. A row that has no scale has no number either.
fn hold_row_scale(row: &Value) {
    let number = |key: &str| row[key].as_f64();
    let is_absolute = row["scale"] == "absolute";
    assert!(is_absolute || number("cpi").is_none(), "{row:#}");
    let (min, max) = (number("cpi_min"), number("cpi_max"));
    if let Some(cpi) = number("cpi") {
        assert!(min.is_some_and(|min| min <= cpi) && max.is_none_or(|max| cpi <= max), "{row:#}");
    }
    assert!(min.zip(max).is_none_or(|(min, max)| min <= max), "{row:#}");
    assert!(!is_absolute || min.is_some(), "{row:#}");
}

/// Holds the shares of a summary to what its scale allows: numbers if it is absolute, ranges otherwise.
fn hold_shares(summary: &Value) {
    let is_absolute = summary["scale"] == "absolute";
    let hold_range = |of: &Value, key: &str| {
        let number = |end: &str| of[format!("{key}{end}")].as_f64();
        assert_eq!(number("").is_some(), is_absolute, "{key}: {of:#}");
        let (min, max) = (number("_min").unwrap(), number("_max").unwrap());
        assert!(min <= max && number("").is_none_or(|share| share == max), "{key}: {of:#}");
    };
    for key in ["unexplained_stall", "subtotal_dynamic", "subtotal_static", "total_stall", "execution"] {
        hold_range(summary, key);
    }
    summary["static"].as_array().unwrap().iter().for_each(|part| hold_range(part, "share"));
    assert_eq!(summary["net_sampling_error"].is_null(), !is_absolute, "{summary:#}");
    assert_eq!(summary["unexplained_gain"].is_null(), !is_absolute, "{summary:#}");
}

#[test]
fn threads_cpus_and_groups_are_kept_on_request() {
    if !can_sample("the dimensions of samples") {
        return;
    }
    let scratch = Scratch::new();
    let program = workload("mispredict");
    let program = program.to_str().unwrap();
    let options = ["record", "-e", "cpu-clock", "-F", "2000", "--dimensions", "thread,cpu,cgroup", "--"];
    // The second process gets another name, because it executes a renamed copy.
    let script = r#""$0" 60; cp "$0" "$1/renamed"; exec "$1/renamed" 60"#;
    let folder = scratch.path("programs");
    std::fs::create_dir(&folder).unwrap();
    let command = ["sh", "-c", script, program, folder.to_str().unwrap()];
    let recorded = scratch.dwell(&[&options[..], &command].concat());
    assert_eq!(recorded.status, Some(0), "{recorded:?}");

    let threads = scratch.json(&["top", "--by", "thread"]);
    let names: Vec<&str> = rows(&threads).iter().map(|row| row["thread"].as_str().unwrap()).collect();
    assert!(names.contains(&"mispredict") && names.contains(&"renamed"), "{names:?}");
    let cpus = scratch.json(&["top", "--by", "cpu"]);
    assert!(rows(&cpus).iter().all(|row| row["cpu"].is_u64()), "{cpus:#}");
    let groups = scratch.json(&["top", "--by", "cgroup"]);
    // A child is in the control group of its parent, which is that of this test.
    assert!(rows(&groups).iter().all(|row| row["cgroup"].is_string()), "{groups:#}");
    for top in [&threads, &cpus, &groups] {
        assert_shares_add_up(top);
        assert_eq!(top["total"], threads["total"]);
        let samples = |row: &Value| row["samples"]["cpu-clock"].as_u64().unwrap_or(0);
        let sum: u64 = rows(top).iter().map(samples).sum();
        assert_eq!(Some(sum), top["total"]["cpu-clock"].as_u64(), "{top:#}");
    }
    let samples = |row: &Value| row["samples"]["cpu-clock"].as_u64().unwrap_or(0);
    let of_thread = rows(&threads).iter().find(|row| row["thread"] == "renamed").map(samples);
    for by in ["procedure", "image", "app", "cgroup"] {
        let only = scratch.json(&["top", "-n", "0", "--by", by, "--thread", "renamed"]);
        assert_eq!(Some(rows(&only).iter().map(samples).sum()), of_thread, "{by}: {only:#}");
        assert_eq!(only["total"], threads["total"], "shares are of all samples");
    }
    // A service is as if there were no other samples.
    let group = rows(&groups)[0]["cgroup"].as_str().unwrap();
    let of_service = rows(&groups).iter().filter(|row| row["cgroup"].as_str().unwrap().contains(group));
    let of_service: u64 = of_service.map(samples).sum();
    for verb in ["top", "summary"] {
        let answer = scratch.json(&[verb, "--service", group]);
        let own = if verb == "top" { &answer["total"]["cpu-clock"] } else { &answer["samples"] };
        assert_eq!(own.as_u64(), Some(of_service), "{verb}: {answer:#}");
    }
    for (words, why) in [
        (["top", "--service", "nowhere"], "no samples of service 'nowhere'"),
        (["status", "--service", "nowhere"], "--service selects samples for commands that show or export"),
    ] {
        let refused = scratch.dwell(&words);
        assert!(refused.status == Some(1) && refused.stderr.contains(why), "{refused:?}");
    }
    let user = scratch.json(&["top", "-n", "0", "--user", "--app", "mispredict"]);
    assert!(rows(&user).iter().all(|row| row["build_id"] != "kernel"), "{user:#}");
    let refused = scratch.dwell(&["top", "--app", "nobody", "--thread", "renamed"]);
    assert!(refused.stderr.contains("no samples of app 'nobody', thread 'renamed'"), "{refused:?}");
    let text = scratch.text(&["top", "--by", "thread"]);
    assert!(text.contains("thread") && text.contains("renamed"), "{text}");
    // Unless rows are requested by dimension, each place is one row.
    let procedures = scratch.json(&["top", "-n", "0"]);
    let walks = rows(&procedures).iter().filter(|row| row["procedure"] == "walk").count();
    assert!((1..=2).contains(&walks), "{procedures:#}");
}

fn rows(top: &Value) -> &Vec<Value> {
    top["rows"].as_array().unwrap()
}

#[test]
fn answers_have_the_documented_fields() {
    if !can_sample("the shapes of answers") {
        return;
    }
    let scratch = Scratch::new();
    assert_eq!(scratch.record(&workload("mispredict"), "100").status, Some(0));

    let epochs = scratch.json(&["epoch", "list"]);
    let event = json!({ "period": 1, "unit": "cycles|ns|events", "samples": 1, "lost": 0, "throttled": 0, "unknown": 0, "running_share": 0.5 });
    let epoch = json!({ "id": "", "name": "?", "start": "", "end": "?", "host": "", "cpu": "", "backend": "", "events": { "*": event } });
    hold(&epochs, &json!({ "schema": 1, "epochs": [epoch] }), "epoch list");
    assert_eq!(epochs["schema"], 1);
    assert!(epochs["epochs"][0]["events"]["cpu-clock"]["samples"].as_u64() > Some(100), "{epochs:#}");

    for (by, keys) in [
        ("procedure", json!({ "procedure": "", "demangled": "", "image": "", "build_id": "" })),
        ("image", json!({ "image": "", "build_id": "" })),
        ("line", json!({ "file": "", "line": 1 })),
        ("app", json!({ "app": "", "instance": 1 })),
        ("instance", json!({ "app": "", "instance": 1 })),
    ] {
        let mut row = json!({ "samples": { "*": 1 }, "share": 0.5, "cumulative_share": 0.5, "cycles": null, "seconds": null, "cpi": null, "cpi_min": null, "cpi_max": null });
        row.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let top = scratch.json(&["top", "--by", by]);
        hold(&top["rows"][0], &row, by);
        hold(&top, &json!({ "schema": 1, "epochs": [""], "total": { "*": 1 }, "rows": [{}] }), by);
        rows(&top).iter().for_each(hold_row_scale);
        assert_shares_add_up(&top);
    }

    let refused = scratch.dwell(&["top", "--by", "cgroup"]);
    assert_eq!(refused.status, Some(1));
    assert!(refused.stderr.contains("no cgroup was kept: record with '--dimensions cgroup'"), "{refused:?}");

    let account = json!({ "began": "", "elapsed_ns": 1, "cpu_user_ns": 1, "cpu_kernel_ns": 1, "memory_bytes": 1, "disk_bytes": 1,
        "lost": {}, "unknown": {}, "samples_by_cpu": { "*": [1] }, "late_records": 0, "skew_ns_max": 0 });
    let told = scratch.json(&["status", "--epoch", "latest"]);
    let shape = json!({ "schema": 1, "epoch": "", "backend": "", "start": "", "end": "?", "events": { "*": event },
        "unknown_share": 0.5, "resolved_share": 0.5, "clock_hz": null, "collector": account,
        "paths": { "bursts": 1, "steps": 1, "samples_dropped": 1 }, "notes": [] });
    hold(&told, &shape, "status --epoch");
    if !told["windows"].is_null() {
        // Windows are recorded where threads cannot be followed.
        hold(&told["windows"], &json!({ "windows": 1, "executions": 1, "samples_dropped": 1 }), "windows");
    }
    let by_cpu = told["collector"]["samples_by_cpu"]["cpu-clock"].as_array().unwrap();
    let sum: u64 = by_cpu.iter().map(|n| n.as_u64().unwrap()).sum();
    let ways = ["paths", "windows", "counts"];
    let left_out: u64 = ways.iter().filter_map(|how| told[how]["samples_dropped"].as_u64()).sum();
    assert_eq!(Some(sum - left_out), told["events"]["cpu-clock"]["samples"].as_u64(), "{told:#}");
    let text = scratch.text(&["status", "--epoch", "latest"]);
    for part in [
        "resolved",
        "every",
        "throttled",
        "by CPU",
        "user",
        "kernel",
        "memory",
        "on disk",
        "lost: ",
        "unknown: ",
        "skew: ",
    ] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }

    let listing = scratch.json(&["annotate", "mispredict:walk"]);
    let confidence = "low|medium|high";
    let stall = json!({ "kind": "static|dynamic", "cause": "", "letter": "", "cycles_min": 0.5, "cycles_max": 0.5, "share_min": 0.5, "share_max": 0.5, "culprit_address": null, "levels": ["L2|LLC|DRAM"], "sources": [{ "level": "l2|last-level|memory", "part": null }] });
    let estimates = json!({ "executions": null, "executions_min": null, "executions_max": null, "executions_relative": null,
        "cpi": null, "cpi_min": 0.5, "cpi_max": null });
    let shape = json!({
        "schema": 1,
        "scale": { "kind": "absolute|program|procedure", "evidence": [""] },
        "image": { "path": "", "build_id": "", "arch": "x86_64|aarch64|riscv64" },
        "procedure": { "name": "", "demangled": "", "address": 1, "size": 1 },
        "epoch": "",
        "machine_model": "",
        "period": { "*": { "value": 1, "unit": "cycles|ns|events" } },
        "period_seconds": null,
        "blocks": [{
            "address": 1, "frequency": null, "executions": null, "confidence": confidence, "cpi": null, "best_case_cpi": null,
            "successors": [{ "to": 1, "frequency": null, "executions": null }],
        }],
        "instructions": [{
            "address": 1, "text": "", "file": "?", "line": null, "samples": { "*": 1 }, "executions": null, "cpi": null,
            "issue_cycles_min": 0.5, "confidence": confidence, "stalls": [stall],
            "operands": [{ "text": "", "writers": [1] }],
        }],
    });
    hold(&listing, &shape, "annotate");
    for of in ["blocks", "instructions"] {
        hold(&listing[of], &json!([estimates]), of);
        listing[of].as_array().unwrap().iter().for_each(|estimate| hold_scale(&listing, estimate));
    }
    let text = scratch.text(&["annotate", "mispredict:walk"]);
    let head = text.lines().find(|line| line.starts_with("Address")).unwrap();
    let columns = ["Samples", "Time", "Culprit", "CPI"].map(|title| head.find(title).unwrap());
    assert!(columns.is_sorted(), "{head}");
    let addresses: Vec<_> =
        listing["instructions"].as_array().unwrap().iter().map(|i| i["address"].as_u64()).collect();
    assert!(addresses.is_sorted() && addresses.len() > 5);
}

#[test]
fn answers_of_the_tool_suite_have_the_documented_fields() {
    if !can_sample("the shapes of the tool suite's answers") {
        return;
    }
    let scratch = Scratch::new();
    for _ in 0..2 {
        assert_eq!(scratch.record(&workload("mispredict"), "100").status, Some(0));
    }
    let range = json!({ "cause": "", "share_min": 0.5, "share_max": 0.5 });
    let part = json!({ "cause": "", "share": null, "share_min": 0.5, "share_max": 0.5 });
    let shape = json!({
        "schema": 1, "epochs": [""], "scope": { "kind": "procedure|image|epoch", "name": "" }, "machine_model": "",
        "time_event": "", "period_cycles": null, "samples": 1, "samples_tallied": 0.5, "tallied_share": 0.5,
        "procedures": 1, "procedures_left_out": 1, "cycles": null, "instructions": null, "cpi": null,
        "best_case_cpi": null, "dynamic": [range], "unexplained_gain": null, "static": [part], "net_sampling_error": null,
        "notes": [""],
    });
    for (arguments, kind) in [
        (&["summary"][..], "epoch"),
        (&["summary", "mispredict:walk"], "procedure"),
        (&["summary", "--image", "mispredict"], "image"),
    ] {
        let summary = scratch.json(arguments);
        hold(&summary, &shape, kind);
        hold_shares(&summary);
        assert_eq!(summary["scope"]["kind"], kind);
        assert!(summary["samples_tallied"].as_f64() > Some(0.0), "{summary:#}");
        let text = scratch.text(arguments);
        match summary["scale"] == "absolute" {
            true => assert_printed_sums(&text),
            false => assert!(text.contains("Subtotal dynamic") && !text.contains("Net sampling"), "{text}"),
        }
    }

    let page = scratch.path("page.html");
    let report = scratch.json(&["report", "--html", page.to_str().unwrap()]);
    hold(&report, &json!({ "schema": 1, "epochs": [""], "file": "", "bytes": 1, "procedures": 1 }), "report");
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.ends_with("</html>\n") || html.ends_with("</html>"), "the page is whole");
    assert_eq!(report["bytes"], html.len());
    for table in ["<table class=\"lines\">", "<table class=\"procs\">"] {
        let head = html.split_once(table).unwrap().1.split_once("</thead>").unwrap().0;
        let columns = ["share<", ">time<", ">waits for<", ">CPI<"].map(|title| head.find(title).unwrap());
        assert!(columns.is_sorted(), "time, causes, CPI: {head}");
    }
    assert!(html.contains("What do these numbers mean?") && html.contains("odometers"), "the legend");
    assert_eq!(
        scratch.json(&["top", "--since", "1h"])["epochs"].as_array().map(Vec::len),
        Some(2),
        "both runs"
    );

    let set = json!({ "epoch": "", "name": "?", "against": true, "samples": 1, "exposure": 0.5 });
    let mut row = json!({
        "procedure": "", "demangled": "", "image": "", "samples": [1], "range_share": 0.5, "sum": 1, "sum_share": 0.5,
        "n": 1, "mean": 0.5, "std_dev": 0.5, "min": 1, "max": 1,
    });
    let shape = |row: &Value| json!({ "schema": 1, "event": "", "sets": [set], "total": 1, "rows": [row], "notes": [""] });
    let stats = scratch.json(&["stats", "latest", "latest~1"]);
    hold(&stats, &shape(&row), "stats");
    assert_eq!(stats["rows"][0]["n"], 2);
    row["comparison"] = json!({
        "mean": 0.5, "mean_against": 0.5, "ratio": null, "dispersion": null, "p": 0.5, "false_discovery_rate": 0.5,
        "significant": true,
    });
    for arguments in
        [&["stats", "latest", "--", "latest~1"][..], &["stats", "latest", "--against", "latest~1"]]
    {
        // Arguments after `--` are epochs, so `--json` precedes it.
        let text = scratch.text(&[&["--json"], arguments].concat());
        hold(&serde_json::from_str(&text).unwrap(), &shape(&row), "stats of groups");
        assert!(scratch.text(arguments).contains("against"));
    }
    let side = json!({ "epochs": [""], "cpu": "", "machine_model": "", "event": "", "samples": 1, "period_cycles": null });
    let change = json!({
        "samples_a": 0.5, "samples_b": 0.5, "change": 0.5, "change_share": 0.5, "ratio": null, "p": 0.5,
        "false_discovery_rate": 0.5, "significant": true,
    });
    let mut row = json!({
        "executions_a": null, "executions_b": null, "cpi_a": null, "cpi_b": null, "count_ratio": null, "cost_ratio": null,
        "tells_apart": true,
    });
    row.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    let shape = json!({
        "schema": 1, "a": side, "b": side, "normalized_by": "", "exposure": 0.5, "total": change, "procedures": [row],
        "lines": [row], "instructions": [row], "insignificant_procedures": 1, "insignificant_lines": 1,
        "omitted_rows": 1, "notes": [""],
    });
    for arguments in
        [&["diff", "latest~1", "latest", "--all"][..], &["diff", "latest~1", "latest", "mispredict:walk"]]
    {
        let diff = scratch.json(arguments);
        hold(&diff, &shape, "diff");
        for row in ["procedures", "lines", "instructions"].iter().flat_map(|of| diff[of].as_array().unwrap())
        {
            let are_known = ["count_ratio", "cost_ratio"].iter().all(|ratio| row[ratio].is_number());
            assert!(are_known || row["tells_apart"] == false, "{row:#}");
            let sides = ["executions_a", "executions_b"].iter().all(|side| row[side].is_number());
            assert!(sides || row["count_ratio"].is_null(), "{row:#}");
        }
        assert_eq!(
            diff["instructions"].as_array().unwrap().is_empty(),
            arguments.len() == 4 && arguments[3] == "--all"
        );
        let text = scratch.text(arguments);
        assert!(text.contains("walk") && text.contains("what changed"), "{text}");
    }

    let source = support::source("mispredict.c");
    let listed = scratch.text(&["list", source.to_str().unwrap()]);
    assert!(listed.contains("while (n--)") && listed.contains('%'), "{listed}");
    hold(
        &scratch.json(&["list", source.to_str().unwrap()]),
        &json!({ "schema": 1, "file": "", "lines": [{ "line": 1, "samples": { "*": 1 }, "share": 0.5 }],
            "stale": [{ "line": 1, "share": 0.5 }], "programs": [{ "path": "", "rebuilt": false }] }),
        "list",
    );
    let nothing = scratch.dwell(&["list", "/no/such/file.c"]);
    assert_eq!(nothing.status, Some(1), "{nothing:?}");
    let picture = scratch.text(&["cfg", "mispredict:walk"]);
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>") && picture.contains("CPI"));
    let graph = scratch.text(&["cfg", "mispredict:walk", "--format", "dot"]);
    assert!(graph.starts_with("digraph \"walk\" {") && graph.contains(" -> "), "{graph}");

    for format in ["pprof", "folded", "speedscope", "callgrind"] {
        let file = scratch.path(format);
        let path = file.to_str().unwrap();
        let told = scratch.json(&["export", "--format", format, "-o", path]);
        hold(&told, &json!({ "schema": 1, "epochs": [""], "file": "", "bytes": 1, "notes": [""] }), format);
        let written = std::fs::read(&file).unwrap();
        assert_eq!(told["bytes"], written.len());
        assert!(written.windows(4).any(|w| w == b"walk"), "{format}");
        let printed = scratch.command(&["export", "--format", format]).output().unwrap().stdout;
        assert_eq!(printed, written, "{format}");
    }

    for optimizer in ["clang", "gcc", "bolt", "bolt-blocks"] {
        let file = scratch.path(optimizer);
        let arguments =
            ["feedback", "--for", optimizer, "--image", "mispredict", "-o", file.to_str().unwrap()];
        let told = scratch.json(&arguments);
        let shape = json!({
            "schema": 1, "epochs": [""], "file": "", "bytes": 1, "procedures": 1, "notes": [""],
        });
        hold(&told, &shape, optimizer);
        let written = std::fs::read(&file).unwrap();
        assert_eq!(told["bytes"], written.len());
        assert!(written.windows(4).any(|w| w == b"walk"), "{optimizer}");
    }
    let elsewhere = scratch.dwell(&["feedback", "--for", "clang", "--image", "no-such-image"]);
    assert_eq!((elsewhere.status, elsewhere.stdout.as_str()), (Some(1), ""), "{elsewhere:?}");

    let missing = scratch.dwell(&["stats", "latest", "--normalize", "no-such-procedure"]);
    assert_eq!((missing.status, missing.stdout.as_str()), (Some(1), ""));
    assert!(missing.stderr.contains("no-such-procedure"), "{missing:?}");
}

/// Printed percentages add up to the last digit.
fn assert_printed_sums(text: &str) {
    let tenths = |title: &str| -> i64 {
        let line = text.lines().find(|l| l.contains(title)).unwrap_or_else(|| panic!("no {title} in {text}"));
        let number = line.trim_end().trim_end_matches('%').rsplit(' ').next().unwrap();
        (number.parse::<f64>().unwrap() * 10.0).round() as i64
    };
    let of = |titles: &[&str]| titles.iter().map(|t| tenths(t)).sum::<i64>();
    let fixed = [
        "slotting",
        "(address)",
        "(flags)",
        "(1st source)",
        "(2nd source)",
        "(3rd source)",
        "functional unit busy",
    ];
    assert_eq!(of(&fixed), tenths("Subtotal static"), "{text}");
    assert_eq!(of(&["Subtotal dynamic", "Subtotal static"]), tenths("Total stall"), "{text}");
    assert_eq!(of(&["Total stall", "Execution", "Net sampling error"]), 1000, "{text}");
    assert_eq!(tenths("Total tallied"), 1000, "{text}");
}

fn assert_shares_add_up(top: &Value) {
    let mut sum = 0.0;
    for row in top["rows"].as_array().unwrap() {
        sum += row["share"].as_f64().unwrap();
        assert!((row["cumulative_share"].as_f64().unwrap() - sum).abs() < 1e-6, "{top:#}");
    }
    assert!(sum <= 1.0 + 1e-6, "{top:#}");
}

#[test]
fn statuses() {
    let scratch = Scratch::new();
    for wrong in
        [&["toop"][..], &["record", "-F", "fast", "--", "true"], &["record"], &["top", "--by", "mood"]]
    {
        let ended = scratch.dwell(wrong);
        assert_eq!(ended.status, Some(2), "dwell {wrong:?}: {ended:?}");
        assert!(ended.stdout.is_empty() && !ended.stderr.is_empty(), "dwell {wrong:?}: {ended:?}");
    }
    for verb in [
        "record", "daemon", "status", "flush", "pause", "resume", "epoch", "top", "annotate", "summary",
        "stats", "diff", "import",
    ] {
        assert!(scratch.text(&[verb, "--help"]).contains("Usage: dwell"), "{verb}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(scratch.text(&["completions", shell]).contains("annotate"), "{shell}");
    }
    assert!(scratch.text(&["man"]).contains(".TH dwell"));
    for verb in ["annotate", "list", "top", "summary"] {
        assert!(scratch.text(&[verb, "--help"]).contains("dwell legend"), "{verb}");
    }
    let legend = scratch.text(&["legend"]);
    assert!(
        legend.starts_with("What do these numbers mean?") && legend.contains("loop registers"),
        "{legend}"
    );
    assert!(scratch.json(&["legend"])["text"].as_str().unwrap().contains("loop registers"));
    assert!(scratch.text(&["--version"]).starts_with("dwell "));
}

#[test]
fn doctor_says_what_recording_can() {
    let scratch = Scratch::new();
    let answer = scratch.json(&["doctor"]);
    let shape = json!({"schema": 1, "checks": [{"what": "", "state": "works|limited|fails", "found": ""}]});
    hold(&answer, &shape, "doctor");
    let checks = answer["checks"].as_array().unwrap();
    let works = |what: &str| {
        let check = checks.iter().find(|check| check["what"] == what);
        check.unwrap_or_else(|| panic!("{what}: {answer}"))["state"] == "works"
    };
    let records = |words: &[&str]| scratch.dwell(words).status == Some(0);
    assert_eq!(works("sample your own commands"), records(&["record", "--", "true"]));
    assert_eq!(works("sample the whole machine"), records(&["record", "--all", "--duration", "1"]));
    assert!(works("read your recordings"), "{answer}");
    let text = scratch.text(&["doctor"]);
    assert!(text.contains("✓ read your recordings") && text.contains("dwell record -- COMMAND"), "{text}");
    assert_eq!(scratch.text(&[]), text, "it is what dwell shows without arguments");
    // A folder that is no database is said, and the rest is still tried.
    std::fs::write(scratch.path("notes.txt"), "mine").unwrap();
    let folder = scratch.path("notes.txt").parent().unwrap().to_owned();
    let text = scratch.text(&["doctor", "--db", folder.to_str().unwrap()]);
    assert!(text.contains("✗ read your recordings") && text.contains("is not a profile database"), "{text}");
}
