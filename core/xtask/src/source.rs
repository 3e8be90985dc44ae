//! The rules that a file's text can break. Enters: a path and the text. Leaves: one line for each problem. Pure.

/// Largest number of lines of a file. A longer file should be split.
const LINES_MAX: usize = 600;

/// Exceptions from a rule, each with the reason. A path that ends in `/` includes everything below it.
type Exceptions = &'static [(&'static str, &'static str)];

const LONG: Exceptions =
    &[("core/node/index.d.ts", "made from core/node/src by the macros that describe it")];

const UNSAFE: Exceptions = &[
    ("core/collect/src/", "system calls and the rings that the kernel writes"),
    ("core/image/src/", "the one memory map, in a module that allows it"),
    ("core/probe/", "ptrace, and the memory that is shared with the probed program"),
    ("core/sql/src/duckdb/", "the C API of DuckDB"),
    ("core/trace/src/", "ptrace, and the code that is put into the traced program"),
];

/// Places below `query` that may use JSON.
const JSON: Exceptions = &[
    ("core/profile/src/", "epoch.json and the other metadata of the database's format"),
    ("core/collect/src/", "the daemon's control socket"),
    ("core/analysis/src/", "machine models are data"),
    ("core/probe/src/", "requests to the process that probes"),
];

/// Hosts of package registries. The machine decides where packages come from, so the repository must not name them.
const REGISTRY_HOSTS: &[&str] = &[
    concat!("registry.npm", "js.org"),
    concat!("static.crates", ".io"),
    concat!("index.crates", ".io"),
    concat!("files.python", "hosted.org"),
    concat!("deb.deb", "ian.org"),
    concat!("\"resolved\": \"", "http"),
];

/// Imports that are not allowed: folder, module and reason.
const IMPORTS: &[(&str, &str, &str)] = &[
    ("lsp-server/", "vscode", "the server serves every editor"),
    ("lsp-server/", "vscode-languageclient", "the server is no client"),
    ("vscode-extension/", "@dwell/core", "the extension speaks LSP only"),
];

fn excepted(exceptions: Exceptions, path: &str) -> bool {
    exceptions.iter().any(|(place, _)| path == *place || (place.ends_with('/') && path.starts_with(place)))
}

/// Returns one line for each rule that the file breaks.
pub fn problems(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut broken = |rule: bool, problem: &str| {
        if rule {
            problems.push(format!("{path}: {problem}"));
        }
    };
    let written = [".rs", ".ts", ".mjs", ".c", ".h", ".el", ".sh"].iter().any(|end| path.ends_with(end));
    let lines = text.lines().count();
    broken(
        written && lines > LINES_MAX && !excepted(LONG, path),
        &format!("{lines} lines, over {LINES_MAX}: split the file by concept"),
    );
    broken(
        REGISTRY_HOSTS.iter().any(|host| text.contains(host)) && path != "Cargo.lock",
        "names the host of a package registry",
    );
    if path.starts_with("core/") && path.ends_with(".rs") {
        let code = code_of(text);
        broken(
            !opens_with_docs(text) && !path.contains("/tests/"),
            "does not open with `//!`: what enters, what leaves",
        );
        broken(
            has_word(&code, "unsafe") && !excepted(UNSAFE, path),
            "has `unsafe`, which lives in core/collect",
        );
        broken(has_word(&code, "todo") || has_word(&code, "unimplemented"), "is not finished");
        broken(
            below_query(path) && has_word(&code, "serde_json") && !excepted(JSON, path),
            "knows JSON, which begins at core/query",
        );
    }
    for (folder, module, reason) in IMPORTS {
        broken(
            path.starts_with(folder) && !path.contains("/test/") && imports(text, module),
            &format!("imports {module}: {reason}"),
        );
    }
    problems
}

/// Returns one line for each exception whose file does not exist.
pub fn stale_exceptions(files: &[String]) -> Vec<String> {
    [LONG, UNSAFE, JSON]
        .concat()
        .iter()
        .filter(|(place, _)| !files.iter().any(|file| file.starts_with(place)))
        .map(|(place, _)| format!("{place}: core/xtask/src/source.rs excepts this missing file"))
        .collect()
}

fn below_query(path: &str) -> bool {
    ["core/profile/src/", "core/image/src/", "core/collect/src/", "core/analysis/src/"]
        .iter()
        .any(|room| path.starts_with(room))
}

fn opens_with_docs(text: &str) -> bool {
    text.starts_with("//!") || text.starts_with("#!")
}

/// Returns the text without comments and string literals. The lines are examined one by one, which is exact enough for
/// `tidy`.
fn code_of(text: &str) -> String {
    text.lines().map(|line| code_of_line(line) + "\n").collect()
}

fn code_of_line(line: &str) -> String {
    let mut code = String::new();
    let mut characters = line.chars().peekable();
    let mut in_string = false;
    while let Some(character) = characters.next() {
        match character {
            '\\' if in_string => {
                characters.next();
            }
            '"' => in_string = !in_string,
            '/' if !in_string && characters.peek() == Some(&'/') => break,
            _ if in_string => {}
            _ => code.push(character),
        }
    }
    code
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|character: char| !character.is_alphanumeric() && character != '_').any(|part| part == word)
}

fn imports(text: &str, module: &str) -> bool {
    ["'", "\""].iter().any(|quote| {
        let quoted = format!("{quote}{module}{quote}");
        text.lines().any(|line| {
            line.contains(&quoted)
                && (line.contains("from ") || line.contains("import(") || line.contains("require("))
        })
    })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    fn check(path: &str, text: &str, expected: Expect) {
        expected.assert_eq(&super::problems(path, text).join("\n"));
    }

    #[test]
    fn a_good_file() {
        check("core/query/src/a.rs", "//! Plain.\n// unsafe, in words\nlet x = \"unsafe\";\n", expect![""]);
    }

    #[test]
    fn long_files() {
        check(
            "emacs/dwell.el",
            &"\n".repeat(601),
            expect!["emacs/dwell.el: 601 lines, over 600: split the file by concept"],
        );
        check("Cargo.lock", &"\n".repeat(601), expect![""]);
    }

    #[test]
    fn unsafe_outside_its_room() {
        let text = "//! x\nunsafe { f() }\n";
        check(
            "core/query/src/a.rs",
            text,
            expect!["core/query/src/a.rs: has `unsafe`, which lives in core/collect"],
        );
        check("core/collect/src/a.rs", text, expect![""]);
    }

    #[test]
    fn json_below_query() {
        let text = "//! x\nuse serde_json::Value;\n";
        check(
            "core/image/src/a.rs",
            text,
            expect!["core/image/src/a.rs: knows JSON, which begins at core/query"],
        );
        check("core/profile/src/epoch.rs", text, expect![""]);
        check("core/cli/src/a.rs", text, expect![""]);
    }

    #[test]
    fn missing_headers_and_unfinished_code() {
        check(
            "core/cli/src/a.rs",
            "fn f() { todo!() }\n",
            expect![[r#"
                core/cli/src/a.rs: does not open with `//!`: what enters, what leaves
                core/cli/src/a.rs: is not finished"#]],
        );
    }

    #[test]
    fn registries() {
        let text = concat!("\"resolved\": \"", "https://example.org/x.tgz\"");
        check("package-lock.json", text, expect!["package-lock.json: names the host of a package registry"]);
        check("package-lock.json", "\"resolved\": \"lsp-server\"", expect![""]);
    }

    #[test]
    fn forbidden_imports_of_typescript() {
        check(
            "lsp-server/src/a.ts",
            "import * as vscode from 'vscode';\n",
            expect!["lsp-server/src/a.ts: imports vscode: the server serves every editor"],
        );
        check(
            "vscode-extension/src/a.ts",
            "import { Query } from \"@dwell/core\";\n",
            expect!["vscode-extension/src/a.ts: imports @dwell/core: the extension speaks LSP only"],
        );
        check("lsp-server/src/b.ts", "import { x } from 'vscode-languageserver/node';\n", expect![""]);
    }
}
