//! Tests of whole sessions on databases that are made here, with hostile names. Skipped by name where there is no
//! libduckdb.

mod service;

use std::{fs, path::PathBuf, time::Duration};

use dwell_profile::{
    Counts, Database, Epoch, EpochId, Event, ImageId, ImageKind, ImageOffset, ImageRecord, ImageSymbol,
    SampleKey,
};
use dwell_query::{Cancel, Options};

use crate::{Answer, Engine, Format, Limits, Question, Session, SqlError, Style};

/// Names that end a literal, an identifier or a line, or that a terminal would obey.
const HOSTILE: &[&str] = &[
    "'; DROP VIEW samples; --",
    "\"; ATTACH 'x'; --",
    "$$ \\' /* */ %s {}",
    "line\nbreak\ttab\r",
    "\u{1b}[31mred\u{202e}\u{7f}",
    "é漢字 \u{fffd}",
    "null\0byte",
    "",
];

/// Returns the library; `None`, and a line that `npm test` counts, if there is none.
fn engine(test: &str) -> Option<Engine> {
    let named = std::env::var_os(crate::VARIABLE).map(PathBuf::from);
    let program = std::env::current_exe().unwrap();
    match crate::library(named.as_deref(), Some(&program), &[]) {
        Ok(path) => Some(Engine::load(&path).unwrap()),
        Err(error) => {
            println!("SKIPPED {test}: {error}");
            None
        }
    }
}

const LIMITS: Limits = Limits { memory_bytes: 256 << 20, threads: 2 };

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Scratch(tempfile::TempDir::new().unwrap())
    }

    /// The folder of the database. DuckDB would take its name for a pattern and for the end of a literal.
    fn database(&self) -> PathBuf {
        self.0.path().join("da'ta [a-z]*?\n;")
    }

    fn epoch(&self, name: &str) -> Epoch {
        let epoch = serde_json::json!({
            "id": "20261126T110131Z-5f3a9c", "name": null, "start": "2026-11-26T11:01:31Z", "end": null,
            "host": {"name": name, "kernel_release": "6"},
            "cpu": {"arch": "x86_64", "vendor": "v", "model_name": name, "family": 6, "model": 1, "stepping": 1,
                "count": 2, "clock_hz": 1e9},
            "backend": "import", "scope": {"import": name},
            "events": {"cycles": {"period": 1000, "unit": "cycles", "samples": 3, "lost": 1, "throttled": 0, "unknown": 0}},
        });
        serde_json::from_value(epoch).unwrap()
    }

    /// Makes an epoch in which every name is hostile. Returns its id.
    fn record(&self, at: usize, name: &str) -> EpochId {
        let database = Database::open(self.database()).unwrap();
        let mut epoch = self.epoch(name);
        epoch.id = EpochId(format!("20261126T1101{at:02}Z-5f3a9c"));
        let id = epoch.id.clone();
        let mut writer = database.writer().unwrap().begin(epoch).unwrap();
        writer.append(&counts(name), &[record(name)]).unwrap();
        // The writer would refuse such a name, but another program may have written the file.
        let file = self.database().join("epochs").join(&id.0).join("epoch.json");
        let mut epoch: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        epoch["name"] = name.into();
        fs::write(&file, epoch.to_string()).unwrap();
        id
    }

    fn open(&self, engine: &Engine) -> Session {
        Session::open(engine, Options::for_database(self.database()), &LIMITS, None, Format::Jsonl).unwrap()
    }
}

fn image(name: &str) -> ImageId {
    ImageId::named(&format!("jit:{name}"))
}

fn record(name: &str) -> ImageRecord {
    let mut record = ImageRecord::new(image(name), ImageKind::Jit, format!("/{name}").replace('\0', ""));
    record.symbols = vec![ImageSymbol { offset: ImageOffset(16), size_bytes: 16, name: name.to_owned() }];
    record
}

fn counts(name: &str) -> Counts {
    let key = |event: &Event, offset| SampleKey {
        image: image(name),
        event: event.clone(),
        offset: ImageOffset(offset),
        app: name.into(),
        instance: 1,
        dimensions: None,
    };
    Counts::from_iter([
        (key(&Event::CYCLES, 20), 2),
        (key(&Event::CYCLES, u64::MAX), 1),
        (key(&Event::BRANCH_TAKEN, 20), 40),
    ])
}

fn run(session: &Session, sql: &str) -> Result<String, SqlError> {
    let mut out = Vec::new();
    session.run(sql, Format::Jsonl, Style::default(), &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

fn rows(session: &Session, sql: &str) -> Vec<serde_json::Value> {
    let text = run(session, sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

#[test]
fn hostile_names_are_data() {
    let Some(engine) = engine("hostile_names_are_data") else { return };
    let scratch = Scratch::new();
    let ids: Vec<EpochId> = HOSTILE.iter().enumerate().map(|(at, name)| scratch.record(at, name)).collect();
    let session = scratch.open(&engine);
    for (id, name) in ids.iter().zip(HOSTILE) {
        let of = |table: &str, columns: &str| {
            rows(&session, &format!("SELECT {columns} FROM {table} WHERE epoch = '{id}' ORDER BY ALL"))
        };
        assert_eq!(
            of("epochs", "name, host, cpu")[0],
            serde_json::json!({"name": name, "host": name, "cpu": name})
        );
        let image = format!("jit:{name}");
        let expected = [
            serde_json::json!({"image": image, "offset": -1, "count": 1, "app": name}),
            serde_json::json!({"image": image, "offset": 20, "count": 2, "app": name}),
        ];
        assert_eq!(of("samples", "image, \"offset\", count, app"), expected);
        let expected = [
            serde_json::json!({"procedure": name, "count": 2}),
            serde_json::json!({"procedure": null, "count": 1}),
        ];
        assert_eq!(of("procedure_samples", "procedure, count"), expected, "{name:?}");
        // The name as a value of the user's, written as a literal.
        if !name.contains('\0') {
            let quoted = crate::segments::literal(name);
            let found = rows(&session, &format!("SELECT count(*) AS n FROM samples WHERE app = {quoted}"));
            assert_eq!(found[0]["n"], 2, "{name:?}");
            let found = rows(
                &session,
                &format!("SELECT name FROM procedures WHERE name = {quoted} AND image = 'jit:' || {quoted}"),
            );
            assert_eq!(found.len(), 1, "{name:?}");
        }
    }
    assert_eq!(rows(&session, "SELECT count(*) AS n FROM images")[0]["n"], HOSTILE.len());
    let mut table = Vec::new();
    session.run("SELECT app FROM samples", Format::Table, Style::default(), &mut table).unwrap();
    let table = String::from_utf8(table).unwrap();
    assert!(table.chars().all(|c| c == '\n' || !c.is_control()), "{table:?}");
    assert!(table.contains("\\u{1b}[31mred\\u{202e}"), "{table}");
}

/// What a query must not do, with DuckDB alone to refuse it: the check of the statement is left out.
#[test]
fn duckdb_itself_is_locked() {
    let Some(engine) = engine("duckdb_itself_is_locked") else { return };
    let scratch = Scratch::new();
    let id = scratch.record(0, "a");
    let session = scratch.open(&engine);
    let target = scratch.0.path().join("out");
    let target = target.to_str().unwrap();
    let segment = format!("{}/epochs/{id}/segment-000001.parquet", session.prefix());
    let refused = [
        "SELECT * FROM read_text('/etc/passwd')".to_owned(),
        "SELECT * FROM read_blob('/proc/self/environ')".to_owned(),
        "SELECT * FROM read_csv('/etc/passwd')".to_owned(),
        "SELECT * FROM '/etc/passwd.csv'".to_owned(),
        "SELECT * FROM glob('/etc/*')".to_owned(),
        "SELECT * FROM 'https://localhost/x.parquet'".to_owned(),
        format!("COPY samples TO '{target}'"),
        format!("COPY (SELECT 1 AS x) TO '{segment}' (FORMAT parquet)"),
        format!("EXPLAIN ANALYZE COPY samples TO '{target}'"),
        format!("ATTACH '{target}'"),
        format!("EXPORT DATABASE '{target}'"),
        "INSTALL httpfs".to_owned(),
        "LOAD httpfs".to_owned(),
        format!("LOAD '{target}.duckdb_extension'"),
        "SET enable_external_access = true".to_owned(),
        "SET lock_configuration = false".to_owned(),
        "RESET lock_configuration".to_owned(),
        "SET memory_limit = '100GB'".to_owned(),
        "SET allowed_directories = ['/']".to_owned(),
        "PRAGMA threads = 64".to_owned(),
        "PRAGMA temp_directory = '/tmp'".to_owned(),
    ];
    for statement in &refused {
        assert!(session.connection().run(statement).is_err(), "{statement}");
    }
    assert!(!fs::exists(target).unwrap());
    assert_eq!(rows(&session, "SELECT sum(count) AS n FROM samples")[0]["n"], 3, "the segment is as it was");
}

/// The same and more by the check of the statement, which comes first.
#[test]
fn only_queries_run() {
    let Some(engine) = engine("only_queries_run") else { return };
    let scratch = Scratch::new();
    scratch.record(0, "a");
    let session = scratch.open(&engine);
    for statement in [
        "COPY samples TO 'x'",
        "EXPLAIN ANALYZE COPY samples TO 'x'",
        "/* select */ ATTACH ':memory:' AS m",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 1",
        "PRAGMA threads = 4",
        "CREATE TABLE t AS SELECT 1",
        "CREATE OR REPLACE VIEW samples AS SELECT 1",
        "DROP VIEW samples",
        "INSERT INTO samples VALUES (1)",
        "CALL enable_logging()",
        "PREPARE p AS SELECT 1",
        "USE memory",
        "VACUUM",
    ] {
        assert!(matches!(run(&session, statement), Err(SqlError::NotAQuery)), "{statement}");
    }
    for call in ["query('SELECT 1')", "query_table('samples')", "enable_logging()", "DWELL__epochs()"] {
        for statement in [format!("FROM {call}"), format!("SELECT * FROM (SELECT 1), (FROM {call})")] {
            assert!(matches!(run(&session, &statement), Err(SqlError::Forbidden(_))), "{statement}");
        }
    }
    for (statement, part) in [
        ("", "no statement"),
        ("-- nothing", "no statement"),
        ("SELECT 1; SELECT 2", "several"),
        ("SELECT $1", "parameters"),
        ("SELEC 1", "syntax error"),
        ("SELECT nothing FROM samples", "nothing"),
        ("SELECT * FROM read_parquet('/nowhere')", "disabled"),
    ] {
        let error = run(&session, statement).unwrap_err().to_string();
        assert!(error.contains(part), "{statement}: {error}");
    }
    for statement in [
        "DESCRIBE samples",
        "SHOW TABLES",
        "SUMMARIZE epochs",
        "EXPLAIN SELECT 1",
        "VALUES (1)",
        "TABLE epochs",
    ] {
        assert!(run(&session, statement).is_ok(), "{statement}");
    }
}

#[test]
fn segments_count_once_and_damaged_ones_are_named() {
    let Some(engine) = engine("segments_count_once_and_damaged_ones_are_named") else { return };
    let scratch = Scratch::new();
    let database = Database::open(scratch.database()).unwrap();
    let mut writer = database.writer().unwrap().begin(scratch.epoch("a")).unwrap();
    let id = writer.epoch().id.clone();
    for _ in 0..3 {
        writer.append(&counts("a"), &[record("a")]).unwrap();
    }
    let folder = scratch.database().join("epochs").join(&id.0);
    let first = folder.join("segment-000001.parquet");
    let bytes = fs::read(&first).unwrap();
    drop(writer);
    let total =
        |session: &Session| rows(session, "SELECT sum(count)::BIGINT AS n FROM samples")[0]["n"].clone();
    assert_eq!(total(&scratch.open(&engine)), 9);
    // Compaction has merged the segments, and a crash left one of the parts.
    database.writer().unwrap().compact(&id).unwrap();
    fs::write(&first, &bytes).unwrap();
    let session = scratch.open(&engine);
    assert!(!fs::exists(folder.join("segment-000002.parquet")).unwrap());
    assert_eq!(total(&session), 9);
    assert!(session.warnings().is_empty(), "{:?}", session.warnings());
    // A session does not see what is appended later, but knows of it.
    assert!(session.is_current());
    let merged = folder.join("segment-000001-000003.parquet");
    let mut damaged = fs::read(&merged).unwrap();
    damaged[20] ^= 1;
    fs::write(&merged, damaged).unwrap();
    let session = scratch.open(&engine);
    assert_eq!(total(&session), serde_json::Value::Null);
    let [warning] = session.warnings() else { panic!("{:?}", session.warnings()) };
    assert!(warning.contains("segment-000001-000003.parquet") && warning.contains("checksum"), "{warning}");
}

#[test]
fn values_of_all_types_are_written() {
    let Some(engine) = engine("values_of_all_types_are_written") else { return };
    let scratch = Scratch::new();
    let session = scratch.open(&engine); // There is no database yet: all tables are empty.
    assert_eq!(rows(&session, "SELECT count(*) AS n FROM samples")[0]["n"], 0);
    assert!(session.warnings().iter().any(|warning| warning.contains("is empty")));
    let all = "SELECT true AS b, -1::TINYINT AS t, 18446744073709551615::UBIGINT AS u, -(2::HUGEINT ** 100)::HUGEINT AS h, 0.1::DOUBLE AS d, \
               1.50 AS dec, 'a\"b\nc' AS v, NULL AS n, [1, NULL] AS l, {'x': 'y'} AS s, DATE '2026-11-26' AS day, 'inf'::DOUBLE AS inf, \
               0.25::FLOAT AS f, ''::VARCHAR AS empty, 'twelve bytes' AS twelve, 'thirteen byte' AS thirteen";
    let check = |format, expected: &str| {
        let mut out = Vec::new();
        session.run(all, format, Style::default(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    };
    let object = r#"{"b":true,"t":-1,"u":18446744073709551615,"h":-1267650600228229401496703205376,"d":0.1,"dec":1.5,"v":"a\"b\nc","n":null,"l":[1,null],"s":{"x":"y"},"day":"2026-11-26","inf":null,"f":0.25,"empty":"","twelve":"twelve bytes","thirteen":"thirteen byte"}"#;
    check(Format::Jsonl, &format!("{object}\n"));
    let names = r#"["b","t","u","h","d","dec","v","n","l","s","day","inf","f","empty","twelve","thirteen"]"#;
    check(Format::Json, &format!("{{\"schema\":1,\"columns\":{names},\"rows\":[{object}]}}\n"));
    check(
        Format::Csv,
        "b,t,u,h,d,dec,v,n,l,s,day,inf,f,empty,twelve,thirteen\ntrue,-1,18446744073709551615,-1267650600228229401496703205376,0.1,1.50,\
         \"a\"\"b\nc\",,\"[1, NULL]\",{'x': y},2026-11-26,inf,0.25,\"\",twelve bytes,thirteen byte\n",
    );
    let mut out = Vec::new();
    session
        .run(
            "SELECT 1 AS one, 'x' AS text; SELECT 'né' AS name, 22 AS n",
            Format::Table,
            Style::default(),
            &mut out,
        )
        .unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "one  text\n---  ----\n  1  x\nname   n\n----  --\nné    22\n"
    );
}

#[test]
fn rows_arrive_while_they_are_computed_and_errors_do_too() {
    let Some(engine) = engine("rows_arrive_while_they_are_computed_and_errors_do_too") else { return };
    let scratch = Scratch::new();
    let session = scratch.open(&engine);
    // Ten million rows of text would not fit into the memory that the query has.
    let long = "SELECT repeat('x', 100) || i AS t FROM range(10000000) t(i)";
    let mut lines = 0_usize;
    struct Lines<'a>(&'a mut usize);
    impl std::io::Write for Lines<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            *self.0 += bytes.iter().filter(|b| **b == b'\n').count();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    session.run(long, Format::Csv, Style::default(), &mut Lines(&mut lines)).unwrap();
    assert_eq!(lines, 10_000_001);
    let late =
        "SELECT CASE WHEN i = 900000 THEN error('late') ELSE i::VARCHAR END AS t FROM range(1000000) t(i)";
    let mut errors = (0..5).map(|_| run(&session, late).unwrap_err().to_string());
    assert!(errors.all(|error| error.contains("late") || error.contains("did not pass on why")));
    let large = "SELECT list(i) AS l FROM range(100000000) t(i)";
    assert!(matches!(run(&session, large), Err(SqlError::Memory)));
    let stopper = session.stopper();
    let stopping = std::thread::spawn(move || {
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(20));
            stopper.stop();
        }
    });
    let endless = "SELECT count(*) FROM range(1000000000000) t(i) WHERE hash(i) = 7";
    assert!(matches!(run(&session, endless), Err(SqlError::Interrupted)));
    stopping.join().unwrap();
    assert_eq!(rows(&session, "SELECT 1 AS one")[0]["one"], 1, "the session goes on");
}

#[test]
fn wrong_libraries_are_named() {
    let Some(_) = engine("wrong_libraries_are_named") else { return };
    use crate::duckdb::check_version;
    for (version, good) in [
        ("v1.5.6", true),
        ("1.5.0", true),
        ("v1.4.5", false),
        ("v2.0.1", false),
        ("v1.5.1-dev9", true),
        ("", false),
    ] {
        assert_eq!(check_version(version), good, "{version}");
    }
}

#[test]
fn only_what_a_statement_selects_is_computed() {
    let Some(engine) = engine("only_what_a_statement_selects_is_computed") else { return };
    let scratch = Scratch::new();
    ["a", "b"].iter().enumerate().for_each(|(at, name)| drop(scratch.record(at, name)));
    let session = scratch.open(&engine);
    // What the sources compute for a statement, before DuckDB drops rows.
    let computed = |statement: &str, table: &str| {
        let selected = session.check(statement).unwrap();
        session.context().computed(table, selected).len()
    };
    for (statement, table, rows) in [
        ("FROM procedures", "procedures", 2),
        ("FROM procedures WHERE image = 'jit:a'", "procedures", 1),
        ("FROM procedures WHERE image IN ('jit:a', 'jit:b') AND name = 'a'", "procedures", 2),
        ("FROM procedures WHERE image = 'jit:a' OR name = 'b'", "procedures", 2),
        ("FROM procedure_samples WHERE epoch = dwell_epoch('latest')", "procedure_samples", 2),
        ("FROM procedure_samples", "procedure_samples", 4),
        ("FROM dwell_diff('b', 'b')", "procedure_samples", 2),
        ("FROM procedures p JOIN procedures q USING (image) WHERE p.image = 'jit:a'", "procedures", 2),
        // In these a restriction would change the answer.
        ("FROM procedures AS p(start, image) WHERE image = 16", "procedures", 2),
        ("FROM procedures AS p(image, b, c, image_too) WHERE p.image = 'jit:a'", "procedures", 2),
        (
            "FROM samples s ASOF JOIN procedures p ON s.\"offset\" >= p.start WHERE p.image = 'jit:a'",
            "procedures",
            2,
        ),
        ("FROM samples s POSITIONAL JOIN procedures p WHERE p.image = 'jit:a'", "procedures", 2),
        ("FROM procedures TABLESAMPLE 50% WHERE image = 'jit:a'", "procedures", 2),
        ("FROM (SELECT name AS image FROM procedures) WHERE image = 'jit:a'", "procedures", 2),
        ("FROM dwell_diff(b := 'a', a := 'b')", "procedure_samples", 4),
        ("FROM images i WHERE EXISTS (FROM procedures WHERE image = i.image)", "procedures", 2),
    ] {
        assert_eq!(computed(statement, table), rows, "{statement}");
    }
}

#[test]
fn what_a_macro_does_not_find_is_said() {
    let Some(engine) = engine("what_a_macro_does_not_find_is_said") else { return };
    let scratch = Scratch::new();
    let gone = ImageId::named("abcdef0123");
    let key = SampleKey {
        image: gone.clone(),
        event: Event::CYCLES,
        offset: ImageOffset(20),
        app: "prog".into(),
        instance: 1,
        dimensions: None,
    };
    let database = Database::open(scratch.database()).unwrap();
    let mut epoch = database.writer().unwrap().begin(scratch.epoch("a")).unwrap();
    let record = ImageRecord::new(gone, ImageKind::File, "/gone/prog");
    epoch.append(&Counts::from_iter([(key, 3)]), &[record]).unwrap();
    let session = scratch.open(&engine);
    let error = run(&session, "FROM dwell_diff('nix', 'a')").unwrap_err().to_string();
    assert!(error.contains("no recording has the id or the name nix"), "{error}");
    assert!(rows(&session, "FROM dwell_annotate('prog', 'f')").is_empty());
    let notes = session.take_notes();
    assert!(notes.len() == 1 && notes[0].contains("/gone/prog"), "the binary is not here: {notes:?}");
    assert!(session.take_notes().is_empty(), "once");
    assert_eq!(
        run(&session, "SELECT 1 AS a, 2 AS a, 3 AS a_1").unwrap().trim(),
        r#"{"a":1,"a_1":2,"a_1_1":3}"#
    );
}

/// A compaction may remove files that a session has listed. Then the statement fails, and the session says that it is
/// not current: the caller opens another one. No count is ever wrong.
#[test]
fn sessions_beside_a_compaction_count_right_or_fail() {
    let Some(engine) = engine("sessions_beside_a_compaction_count_right_or_fail") else { return };
    let scratch = Scratch::new();
    let database = Database::open(scratch.database()).unwrap();
    let writer = database.writer().unwrap();
    let mut epoch = writer.begin(scratch.epoch("a")).unwrap();
    let id = epoch.epoch().id.clone();
    epoch.append(&counts("a"), &[record("a")]).unwrap();
    let writing = std::thread::spawn(move || {
        for number in 1..150 {
            epoch.append(&counts("a"), &[record("a")]).unwrap();
            if number % 3 == 0 {
                writer.compact(&id).unwrap();
            }
        }
    });
    let (mut last, mut failed, mut read) = (0, 0, 0);
    while !writing.is_finished() {
        let session = scratch.open(&engine);
        match run(&session, "SELECT sum(count)::BIGINT AS n FROM samples") {
            Ok(text) => {
                let n = serde_json::from_str::<serde_json::Value>(&text).unwrap()["n"].as_i64().unwrap();
                assert!(n >= last && n % 3 == 0, "{n} after {last}");
                (last, read) = (n, read + 1);
            }
            Err(SqlError::Statement(why)) => {
                assert!(!session.is_current(), "{why}");
                failed += 1;
            }
            Err(other) => panic!("{other}"),
        }
        assert!(session.warnings().is_empty(), "{:?}", session.warnings());
    }
    writing.join().unwrap();
    assert!(read > 0, "{failed} failed");
    assert_eq!(rows(&scratch.open(&engine), "SELECT sum(count)::BIGINT AS n FROM samples")[0]["n"], 450);
}

/// Answers a question that may take a minute.
fn asked(engine: &Engine, scratch: &Scratch, text: &str, rows_max: usize) -> Result<Answer, SqlError> {
    let question = Question { text: text.to_owned(), rows_max, time_max: Duration::from_secs(60) };
    crate::answer(engine, &Options::for_database(scratch.database()), &LIMITS, &question, &Cancel::new())
}

#[test]
fn an_answer_has_the_first_rows_as_exact_values() {
    let Some(engine) = engine("an_answer_has_the_first_rows_as_exact_values") else { return };
    let scratch = Scratch::new();
    scratch.record(0, "a");
    let all = "SELECT true AS b, 9007199254740991 AS safe, -9007199254740992 AS large, 18446744073709551615::UBIGINT AS u, 0.1::DOUBLE AS d, \
               1.50 AS dec, 'a\"b' AS v, NULL AS n, [1, NULL] AS l, DATE '2026-11-26' AS day, 'inf'::DOUBLE AS inf, 1e300::DOUBLE AS wide -- end";
    let answer = asked(&engine, &scratch, all, 1).unwrap();
    let types: Vec<&str> = answer.columns.iter().map(|column| column.type_name.as_str()).collect();
    assert_eq!(
        types,
        [
            "BOOLEAN",
            "BIGINT",
            "BIGINT",
            "UBIGINT",
            "DOUBLE",
            "DECIMAL(3,2)",
            "VARCHAR",
            "INTEGER",
            "INTEGER[]",
            "DATE",
            "DOUBLE",
            "DOUBLE"
        ]
    );
    let row = r#"[[true,9007199254740991,"-9007199254740992","18446744073709551615",0.1,1.5,"a\"b",null,"[1,null]","2026-11-26",null,1e+300]]"#;
    assert_eq!(serde_json::to_string(&answer.rows).unwrap(), row);
    assert!(!answer.more && answer.notes.is_empty(), "{answer:?}");
    for (text, rows_max, rows, more) in [
        ("FROM range(10)", 10, 10, false),
        ("FROM range(10)", 9, 9, true),
        ("FROM range(1000000000000)", 3000, 3000, true),
        ("FROM range(10) WHERE range < 0", 5, 0, false),
        ("SELECT 1", 0, 0, true),
        ("SELECT repeat('x', 1000000) FROM range(100)", 100, 16, true),
        ("SELECT repeat('x', 17000000)", 100, 0, true),
        ("DESCRIBE samples", 100, 10, false),
        ("SHOW TABLES", 100, 18, false),
        ("EXPLAIN SELECT 1", 100, 1, false),
        ("SUMMARIZE epochs", 100, 8, false),
        ("FROM samples", 100, 2, false),
        ("SELECT 1 AS x, 2 AS x;", 100, 1, false),
    ] {
        let answer =
            asked(&engine, &scratch, text, rows_max).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((answer.rows.len(), answer.more), (rows, more), "{text}");
        assert!(answer.rows.iter().all(|row| row.len() == answer.columns.len()), "{text}");
    }
}

#[test]
fn an_answer_is_refused_cancelled_or_given_up() {
    let Some(engine) = engine("an_answer_is_refused_cancelled_or_given_up") else { return };
    let scratch = Scratch::new();
    scratch.record(0, "a");
    for (text, code, part) in [
        ("SELECT * FROM read_text('/etc/passwd')", "sql", "disabled"),
        ("SELECT * FROM '/etc/passwd.csv'", "sql", "disabled"),
        ("COPY samples TO '/tmp/x'", "not-a-query", "only queries"),
        ("ATTACH '/tmp/x'", "not-a-query", "only queries"),
        ("INSTALL httpfs", "not-a-query", "only queries"),
        ("LOAD httpfs", "not-a-query", "only queries"),
        ("SELECT 1); COPY samples TO '/tmp/x'; SELECT (1", "sql", "several"),
        ("SELECT 1) UNION (SELECT 2", "sql", "syntax error"),
        ("SELECT 1; SELECT 2", "sql", "several"),
        ("SELECT $1", "sql", "parameters"),
        ("", "sql", "no statement"),
        ("FROM query('SELECT 1')", "not-a-query", "query"),
    ] {
        let error = asked(&engine, &scratch, text, 10).unwrap_err();
        assert!(error.code() == code && error.to_string().contains(part), "{text}: {} {error}", error.code());
    }
    let endless = "SELECT sum(hash(range) % 7) FROM range(100000000000000)";
    let run = |time_max, cancel: &Cancel| {
        let question = Question { text: endless.to_owned(), rows_max: 1, time_max };
        let options = Options::for_database(scratch.database());
        crate::answer(&engine, &options, &LIMITS, &question, cancel).unwrap_err()
    };
    assert!(matches!(run(Duration::from_secs(1), &Cancel::new()), SqlError::TooLong(_)));
    let cancel = Cancel::new();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            cancel.cancel();
        });
        run(Duration::from_secs(60), &cancel)
    });
    assert_eq!(error.code(), "cancelled", "{error}");
}
