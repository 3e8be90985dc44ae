//! `dwell sql` as users have it: docs/sql.md holds, each recipe runs, counts are those of `top`, and failures are one
//! clear line.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Ended, Scratch, can_sample, workload};

/// A database with three recordings, which all tests read: `before` and `again` of one program, `after` of another.
fn recorded(test: &str) -> Option<&'static Scratch> {
    static RECORDED: OnceLock<Option<Scratch>> = OnceLock::new();
    let recorded = RECORDED.get_or_init(|| {
        if !can_sample(test) {
            return None;
        }
        let scratch = Scratch::new();
        for (name, program) in [("before", "mispredict"), ("again", "mispredict"), ("after", "divide")] {
            let program = workload(program);
            let command = ["record", "-e", "cpu-clock", "-F", "2000", "--name", name, "--"];
            let ended = scratch.dwell(&[&command[..], &[program.to_str().unwrap(), "200"]].concat());
            assert_eq!(ended.status, Some(0), "{ended:?}");
        }
        Some(scratch)
    });
    recorded.as_ref().filter(|_| can_query(test))
}

/// Whether libduckdb is at hand; else says so, for `npm test` to count.
fn can_query(test: &str) -> bool {
    let ended = Scratch::new().dwell(&["sql", "SELECT 1"]);
    if ended.stderr.contains("no usable DuckDB") {
        println!("SKIPPED {test}: {}", ended.stderr.trim());
        return false;
    }
    assert_eq!(ended.status, Some(0), "{ended:?}");
    true
}

fn rows(scratch: &Scratch, query: &str) -> Vec<Value> {
    let text = scratch.text(&["sql", "--format", "jsonl", query]);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn document() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql.md")).unwrap()
}

fn fails(ended: &Ended, parts: &[&str]) {
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert!(ended.stderr.starts_with("dwell: sql: ") && ended.stdout.is_empty(), "{ended:?}");
    parts.iter().for_each(|part| assert!(ended.stderr.contains(part), "no '{part}' in {}", ended.stderr));
}

#[test]
fn tables_and_macros_are_those_of_the_document() {
    let Some(scratch) = recorded("tables_and_macros_are_those_of_the_document") else { return };
    let mut documented: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let mut table = None;
    for line in document().lines() {
        if let Some(heading) = line.strip_prefix('#') {
            let name = heading.trim_start_matches('#').trim().strip_prefix('`');
            table = name.and_then(|name| name.strip_suffix('`')).map(str::to_owned);
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let (Some(table), [_, column, kind, ..]) = (&table, &cells[..])
            && let Some(column) = column.strip_prefix('`')
        {
            let column = (column.trim_end_matches('`').to_owned(), (*kind).to_owned());
            documented.entry(table.clone()).or_default().push(column);
        }
    }
    let shown: Vec<String> =
        rows(scratch, "SHOW TABLES").iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(documented.keys().cloned().collect::<Vec<_>>(), shown);
    for (table, columns) in &documented {
        let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
        let described = rows(scratch, &format!("DESCRIBE {table}"));
        let described: Vec<_> =
            described.iter().map(|row| (text(row, "column_name"), text(row, "column_type"))).collect();
        assert_eq!(*columns, described, "{table}");
    }
    let macros = "SELECT function_name || '(' || array_to_string(parameters, ', ') || ')' AS name FROM duckdb_functions() \
                  WHERE function_name LIKE 'dwell%' AND function_type LIKE '%macro' ORDER BY name";
    for row in rows(scratch, macros) {
        let name = row["name"].as_str().unwrap();
        assert!(document().contains(&format!("| `{name}` |")), "{name} is not documented");
    }
}

#[test]
fn each_recipe_runs() {
    let Some(scratch) = recorded("each_recipe_runs") else { return };
    let document = document();
    let recipes: Vec<&str> =
        document.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(recipes.len() >= 20, "{} recipes", recipes.len());
    let mut empty = Vec::new();
    for recipe in recipes {
        let answer = scratch.json(&["sql", recipe]);
        assert_eq!(answer["schema"], 1);
        if answer["rows"].as_array().unwrap().is_empty() {
            empty.push(recipe);
        }
    }
    // Nothing was lost; the edges of a loop without a sampled branch may be unknown.
    let may_be_empty = |recipe: &&&str| recipe.contains("losses") || recipe.contains("culprit");
    assert_eq!(empty.iter().filter(|r| !may_be_empty(r)).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn counts_are_those_of_top() {
    let Some(scratch) = recorded("counts_are_those_of_top") else { return };
    for epoch in ["before", "after"] {
        let top = |by: &str| scratch.json(&["top", "--by", by, "-n", "0", "--epoch", epoch]);
        let count = |row: &Value| row["samples"]["cpu-clock"].as_i64().unwrap_or(0);
        let of_epoch = format!("epoch = dwell_epoch('{epoch}') AND event = 'cpu-clock'");
        let check = |by: &str, key: &dyn Fn(&Value) -> String, query: &str| {
            let mut expected: Vec<(String, i64)> =
                top(by)["rows"].as_array().unwrap().iter().map(|row| (key(row), count(row))).collect();
            expected.retain(|(_, count)| *count > 0);
            expected.sort();
            let found = rows(scratch, query);
            let found: Vec<(String, i64)> = found
                .iter()
                .map(|row| (row["key"].as_str().unwrap().to_owned(), row["n"].as_i64().unwrap()))
                .collect();
            assert_eq!(found, expected, "{by}");
        };
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        check(
            "image",
            &|row| format!("{} {}", text(&row["build_id"]), text(&row["image"])),
            &format!(
                "SELECT image || ' ' || path AS key, sum(count)::BIGINT AS n FROM samples JOIN images USING (image) WHERE {of_epoch} \
             GROUP BY ALL ORDER BY ALL"
            ),
        );
        check(
            "app",
            &|row| text(&row["app"]),
            &format!("SELECT app AS key, count AS n FROM applications WHERE {of_epoch} ORDER BY ALL"),
        );
        check(
            "procedure",
            &|row| format!("{} {}", text(&row["build_id"]), text(&row["procedure"])),
            &format!(
                "SELECT image || ' ' || coalesce(procedure, '[no symbol]') AS key, count AS n FROM procedure_samples WHERE {of_epoch} \
             ORDER BY ALL"
            ),
        );
        // The join that the document shows for other engines has the same counts.
        check(
            "procedure",
            &|row| format!("{} {}", text(&row["build_id"]), text(&row["procedure"])),
            &format!(
                "SELECT s.image || ' ' || coalesce(CASE WHEN \"offset\" < \"end\" THEN name END, '[no symbol]') AS key, \
             sum(count)::BIGINT AS n FROM samples AS s ASOF LEFT JOIN procedures AS p \
             ON s.image = p.image AND s.\"offset\" >= p.start WHERE {of_epoch} GROUP BY ALL ORDER BY ALL"
            ),
        );
    }
}

#[test]
fn stacks_are_those_of_top_and_callers() {
    let test = "stacks_are_those_of_top_and_callers";
    let Some(scratch) = recorded(test) else { return };
    if !cfg!(target_arch = "x86_64") {
        println!("SKIPPED {test}: call stacks are recorded on x86-64 only");
        return;
    }
    let of = "epoch = dwell_epoch('before') AND event = 'cpu-clock'";
    let pairs = |rows: &[Value], name: &dyn Fn(&Value) -> String, count: &str| {
        let mut pairs: Vec<_> = rows.iter().map(|row| (name(row), row[count].as_i64().unwrap())).collect();
        pairs.sort();
        pairs
    };
    let inclusive = scratch.json(&["top", "--inclusive", "-n", "0", "--epoch", "before"]);
    let expected = pairs(
        inclusive["rows"].as_array().unwrap(),
        &|row| row["function"].as_str().unwrap().to_owned(),
        "samples",
    );
    let query = format!(
        "SELECT demangled, sum(count)::BIGINT AS n FROM (SELECT DISTINCT epoch, stack, image, demangled FROM frames) \
         JOIN stacks USING (epoch, stack) WHERE {of} GROUP BY epoch, image, demangled"
    );
    let found = pairs(&rows(scratch, &query), &|row| row["demangled"].as_str().unwrap().to_owned(), "n");
    assert!(found.len() > 3, "{found:?}");
    assert_eq!(found, expected);
    let all =
        rows(scratch, &format!("SELECT sum(count)::BIGINT AS n, max(depth) AS depth FROM stacks WHERE {of}"));
    assert_eq!(all[0]["n"], inclusive["samples"]);
    let deepest =
        rows(scratch, "SELECT max(depth) + 1 AS depth FROM frames WHERE epoch = dwell_epoch('before')");
    assert_eq!(all[0]["depth"], deepest[0]["depth"]);

    let hottest =
        expected.iter().filter(|(name, _)| name != "_start" && name != "main").max_by_key(|(_, n)| *n);
    let (function, _) = hottest.unwrap();
    let callers = scratch.json(&["callers", function, "--epoch", "before", "--min-share", "0"]);
    let expected = pairs(
        callers["rows"].as_array().unwrap(),
        &|row| row["function"].as_str().unwrap().to_owned(),
        "samples",
    );
    let recipe = document();
    let recipe = recipe.split("```sql\n").find(|text| text.starts_with("WITH inside")).unwrap();
    let recipe = recipe.split("```").next().unwrap().replace("'divide'", &format!("'{function}'"));
    let recipe =
        recipe.replace("GROUP BY caller", &format!("WHERE caller IS NOT NULL AND {of} GROUP BY caller"));
    let found = pairs(&rows(scratch, &recipe), &|row| row["caller"].as_str().unwrap().to_owned(), "samples");
    assert_eq!(found, expected, "{function}");
}

#[test]
fn instructions_are_those_of_annotate() {
    let Some(scratch) = recorded("instructions_are_those_of_annotate") else { return };
    let listing = scratch.json(&["annotate", "divide:divide", "--epoch", "after"]);
    let found = rows(
        scratch,
        "SELECT address, text, coalesce(samples, 0) AS samples, executions_relative AS executions, cpi_min, line \
         FROM dwell_annotate('divide', 'divide') WHERE epoch = dwell_epoch('after') ORDER BY address",
    );
    let expected = listing["instructions"].as_array().unwrap();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found["address"], expected["address"]);
        assert_eq!(found["text"], expected["text"]);
        assert_eq!(found["samples"].as_i64(), Some(expected["samples"]["cpu-clock"].as_i64().unwrap_or(0)));
        assert_eq!(found["executions"].as_f64(), expected["executions_relative"].as_f64());
        assert_eq!(found["cpi_min"].as_f64(), expected["cpi_min"].as_f64());
        assert_eq!(found["line"], expected["line"]);
    }
    let stalls: usize = expected.iter().map(|i| i["stalls"].as_array().unwrap().len()).sum();
    let of_divide = "procedure = 'divide' AND epoch = dwell_epoch('after')";
    let count = |table: &str| {
        rows(scratch, &format!("SELECT count(*) AS n FROM {table} WHERE {of_divide}"))[0]["n"]
            .as_u64()
            .unwrap() as usize
    };
    let blocks = listing["blocks"].as_array().unwrap();
    let edges: usize = blocks.iter().map(|block| block["successors"].as_array().unwrap().len()).sum();
    assert_eq!((count("stalls"), count("blocks"), count("edges")), (stalls, blocks.len(), edges));
    // What a condition selects is computed alone; the answer is that of a condition that selects nothing.
    let all = rows(
        scratch,
        "SELECT count(*) AS n FROM instructions WHERE procedure || '' = 'divide' AND epoch || '' = dwell_epoch('after')",
    );
    assert_eq!(all[0]["n"].as_u64(), Some(found.len() as u64));
}

#[test]
fn queries_come_from_arguments_files_and_standard_input() {
    let Some(scratch) = recorded("queries_come_from_arguments_files_and_standard_input") else { return };
    let query = "SELECT 1 AS one, 'a' AS text;\n";
    let file = scratch.path("query.sql");
    fs::write(&file, query).unwrap();
    let expected = "one,text\n1,a\n";
    assert_eq!(scratch.text(&["sql", "--format", "csv", query]), expected);
    assert_eq!(scratch.text(&["sql", "--format", "csv", "--file", file.to_str().unwrap()]), expected);
    let piped = |arguments: &[&str], text: &str| {
        let mut command = scratch.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        Ended::from(child.wait_with_output().unwrap())
    };
    assert_eq!(piped(&["sql", "--format", "csv"], query).stdout, expected);
    assert_eq!(piped(&["sql", "--format", "csv", "--file", "-"], query).stdout, expected);
    fails(&piped(&["sql"], " -- nothing\n"), &["no statement"]);
    fails(&scratch.dwell(&["sql", "--file", "/nowhere/query.sql"]), &["/nowhere/query.sql"]);
    fails(&scratch.dwell(&["sql", "SELECT nothing FROM samples"]), &["nothing", "not found"]);
    fails(&scratch.dwell(&["sql", "COPY samples TO 'x'"]), &["read only"]);
    assert_eq!(scratch.dwell(&["sql", "--format", "xml", "SELECT 1"]).status, Some(2));
    assert_eq!(scratch.dwell(&["sql", "--json", "--format", "csv", "SELECT 1"]).status, Some(2));
}

#[test]
fn parquet_and_the_export_are_read_again() {
    let Some(scratch) = recorded("parquet_and_the_export_are_read_again") else { return };
    let written = scratch.command(&["sql", "--format", "parquet", "SELECT * FROM samples"]).output().unwrap();
    assert!(
        written.status.success() && written.stdout.starts_with(b"PAR1") && written.stdout.ends_with(b"PAR1")
    );
    let failed = scratch.dwell(&["sql", "--format", "parquet", "SELECT error('x')"]);
    fails(&failed, &["x"]);
    let folder = scratch.path("it's [an] export");
    let name = folder.to_str().unwrap();
    assert_eq!(scratch.text(&["sql", "--export", name]), "");
    let prelude = fs::read_to_string(folder.join("prelude.sql")).unwrap();
    let samples = fs::read(folder.join("samples.parquet")).unwrap();
    assert!(samples.starts_with(b"PAR1"));
    for table in ["epochs", "procedures", "lines", "instructions", "stalls", "blocks", "edges"] {
        assert!(folder.join(format!("{table}.parquet")).is_file(), "{table}");
        assert!(prelude.contains(&format!("CREATE VIEW {table} AS")), "{table}");
    }
    assert!(prelude.contains("CREATE MACRO dwell_diff(a, b)"));
    fails(&scratch.dwell(&["sql", "--export", name]), &["files already"]);
}

/// The script of an export makes the same tables in another DuckDB, here in Node.
#[test]
fn the_export_works_in_another_duckdb() {
    let Some(scratch) = recorded("the_export_works_in_another_duckdb") else { return };
    let folder = scratch.path("elsewhere");
    scratch.text(&["sql", "--export", folder.to_str().unwrap()]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = r#"
        const duckdb = require(process.argv[1] + '/node_modules/@duckdb/node-bindings');
        (async () => {
          process.chdir(process.argv[2]);
          const db = await duckdb.open(':memory:');
          const connection = await duckdb.connect(db);
          await duckdb.query(connection, require('fs').readFileSync('prelude.sql', 'utf8'));
          for (const sql of process.argv.slice(3)) {
            const result = await duckdb.query(connection, sql);
            const chunk = await duckdb.fetch_chunk(result);
            const data = duckdb.vector_get_data(duckdb.data_chunk_get_vector(chunk, 0), 8);
            console.log(String(new DataView(data.buffer, data.byteOffset).getBigInt64(0, true)));
          }
        })();"#;
    let queries = [
        "SELECT sum(count)::BIGINT FROM samples",
        "SELECT count(*) FROM dwell_annotate('divide', 'divide')",
        "SELECT count(*) FROM dwell_diff('before', 'after')",
        "SELECT sum(count)::BIGINT FROM dwell_source('divide.c')",
    ];
    let mut node = Command::new("node");
    node.args(["-e", script]).arg(&root).arg(&folder).args(queries);
    let ended = Ended::from(node.output().unwrap());
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let ours: Vec<String> = queries
        .iter()
        .map(|query| scratch.text(&["sql", "--format", "csv", query]).lines().nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), ours);
}

#[test]
fn a_signal_stops_a_query() {
    let Some(scratch) = recorded("a_signal_stops_a_query") else { return };
    let endless = "SELECT count(*) FROM range(1000000000000) t(i) WHERE hash(i) = 7";
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let mut command = scratch.command(&["sql", endless]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(700));
        let started = Instant::now();
        assert!(
            Command::new("kill")
                .args([&format!("-{signal}"), &child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        let ended = Ended::from(child.wait_with_output().unwrap());
        assert_eq!(ended.status, Some(status), "{ended:?}");
        assert_eq!(ended.stderr, "dwell: sql: interrupted\n");
        assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    }
}

#[test]
fn a_missing_or_wrong_library_is_named() {
    let scratch = Scratch::new();
    let run = |library: &Path| {
        Ended::from(scratch.command(&["sql", "SELECT 1"]).env("DWELL_DUCKDB", library).output().unwrap())
    };
    let build = |name: &str, source: &str| -> PathBuf {
        let (code, library) = (scratch.path(&format!("{name}.c")), scratch.path(&format!("{name}.so")));
        fs::write(&code, source).unwrap();
        let built = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).args([&library, &code]).status();
        assert!(built.unwrap().success());
        library
    };
    fails(
        &run(Path::new("/nowhere/libduckdb.so")),
        &["/nowhere/libduckdb.so", "not loadable", "DWELL_DUCKDB"],
    );
    fails(&run(&scratch.path("")), &["libduckdb.so", "not loadable"]);
    let text = scratch.path("text.so");
    fs::write(&text, "not a library").unwrap();
    fails(&run(&text), &["text.so", "not loadable"]);
    let other = build("other", "int other;\n");
    fails(&run(&other), &["other.so", "it is not DuckDB"]);
    let old = build("old", "const char *duckdb_library_version(void) { return \"v1.0.0\"; }\n");
    fails(&run(&old), &["old.so", "DuckDB v1.0.0 is the wrong version", "1.5"]);
    let odd = build("odd", "const char *duckdb_library_version(void) { return \"v1.5.9\"; }\n");
    fails(&run(&odd), &["odd.so", "it has no function duckdb_create_config"]);
    // Neither the copy of the program nor the current folder has one above it, nor is one in the home folder.
    let program = scratch.path("dwell");
    fs::copy(env!("CARGO_BIN_EXE_dwell"), &program).unwrap();
    let mut alone = Command::new(&program);
    alone
        .args(["sql", "SELECT 1"])
        .current_dir(scratch.path(""))
        .env("HOME", scratch.path(""))
        .env_remove("DWELL_DUCKDB")
        .stdin(Stdio::null());
    fails(
        &Ended::from(alone.output().unwrap()),
        &["no usable DuckDB", "npm install --prefix ~ @duckdb/node-bindings"],
    );
}

#[test]
fn the_prompt_answers_completes_and_remembers() {
    let Some(scratch) = recorded("the_prompt_answers_completes_and_remembers") else { return };
    let state = scratch.path("state");
    // script(1) runs the program in a terminal of its own.
    let program = format!("{} sql", env!("CARGO_BIN_EXE_dwell"));
    let mut command = Command::new("script");
    command.args(["-qec", &program, "/dev/null"]).env("DWELL_DB", scratch.path("database"));
    command.env("XDG_STATE_HOME", &state).env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let mut press = |text: &str| {
        keys.write_all(text.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(700));
    };
    press("");
    press("SELECT 40 +\r"); // A statement ends with a semicolon.
    press("2 AS answer;\r");
    press("SELECT count(*) > 0 AS found FROM proced\t_s\t;\r");
    press("SELECT nothing;\r");
    press("\x03"); // Ctrl-C drops the line.
    press("\x04");
    drop(keys);
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().map(str::trim).collect();
    for line in ["answer", "42", "found", "true"] {
        assert!(lines.contains(&line), "no '{line}' in {lines:#?}");
    }
    assert!(ended.stdout.contains("dwell: sql: Binder Error: Referenced column \"nothing\""), "{ended:?}");
    let history = state.join("dwell/sql_history");
    assert!(fs::read_to_string(&history).unwrap().contains("FROM procedure_samples;"));
    assert_eq!(fs::metadata(&history).unwrap().permissions().mode() & 0o777, 0o600);
}
