//! Runs `dwell doctor`: what works on this machine, and what would make the rest work.

use std::{
    env,
    path::{Path, PathBuf},
};

use dwell_collect::{Ability, State, abilities};
use dwell_profile::Database;
use serde_json::json;

use crate::{
    print, print_json,
    text::{BOLD, DIM, paint},
};

/// Tries what this machine allows and prints it.
pub fn run(db: anyhow::Result<PathBuf>, debug_dirs: &[PathBuf], json: bool) -> anyhow::Result<()> {
    let mut all = abilities();
    all.extend([debug_information(debug_dirs), debuginfod(), engine(), database(db)]);
    all.extend(EDITORS.iter().filter_map(editor));
    if json {
        let checks: Vec<_> =
            all.iter().map(|a| json!({ "what": a.what, "state": name(a.state), "found": a.found })).collect();
        return print_json(&json!({ "schema": 1, "checks": checks }));
    }
    print(&render(&all))
}

fn name(state: State) -> &'static str {
    match state {
        State::Works => "works",
        State::Limited => "limited",
        State::Fails => "fails",
    }
}

fn render(all: &[Ability]) -> String {
    let mut text = String::new();
    for Ability { what, state, found } in all {
        let mark = match state {
            State::Works => "✓",
            State::Limited => "◐",
            State::Fails => "✗",
        };
        text += &format!("{mark} {}\n    {}\n", paint(BOLD, what), paint(DIM, found));
    }
    let works = all.iter().any(|a| a.state != State::Fails && a.what.starts_with("sample"));
    if works {
        text += "\nBegin with: dwell record -- COMMAND, then dwell top and dwell annotate\n";
    }
    text += "'dwell --help' lists all commands; 'dwell COMMAND --help' has examples\n";
    text
}

fn debug_information(debug_dirs: &[PathBuf]) -> Ability {
    let what = "show source lines of system libraries";
    let dirs = std::iter::once(Path::new("/usr/lib/debug")).chain(debug_dirs.iter().map(PathBuf::as_path));
    let found: Vec<String> =
        dirs.filter(|dir| dir.join(".build-id").is_dir()).map(|dir| dir.display().to_string()).collect();
    if found.is_empty() {
        let found = "no debug information is installed (your own programs need only -g): apt install libc6-dbg, or a debuginfod server";
        return Ability { what, state: State::Limited, found: found.to_owned() };
    }
    Ability { what, state: State::Works, found: format!("debug information in {}", found.join(", ")) }
}

fn debuginfod() -> Ability {
    let what = "fetch debug information";
    match env::var("DEBUGINFOD_URLS") {
        Ok(urls) if !urls.trim().is_empty() => {
            Ability { what, state: State::Works, found: format!("dwell import asks {}", urls.trim()) }
        }
        _ => Ability {
            what,
            state: State::Limited,
            found: "DEBUGINFOD_URLS names no server: set it to that of your distribution".to_owned(),
        },
    }
}

fn engine() -> Ability {
    let what = "answer queries in SQL";
    match crate::sql::engine() {
        Ok(_) => Ability { what, state: State::Works, found: "dwell sql, by DuckDB".to_owned() },
        Err(error) => Ability { what, state: State::Fails, found: crate::one_line(&error) },
    }
}

fn database(db: anyhow::Result<PathBuf>) -> Ability {
    let what = "read your recordings";
    let opened = db.and_then(|db| Ok((Database::open(&db)?.epochs()?, db)));
    match opened {
        Ok((read, db)) => {
            let (count, damaged) = (read.epochs.len(), read.warnings.len());
            let state = if damaged > 0 { State::Limited } else { State::Works };
            let damaged = if damaged > 0 { format!(", {damaged} cannot be read") } else { String::new() };
            Ability { what, state, found: format!("{count} recordings in {}{damaged}", db.display()) }
        }
        Err(error) => Ability { what, state: State::Fails, found: crate::one_line(&error) },
    }
}

/// Editors that have Dwell's views: the program, what it is called, and how it gets them.
const EDITORS: [(&str, &str, &str); 4] = [
    ("code", "show costs in VS Code", "code --install-extension vscode-extension/dwell-linux-x64.vsix"),
    ("emacs", "show costs in Emacs", "emacs -L emacs -l dwell, then M-x dwell-mode"),
    ("nvim", "show costs in Neovim", "lsp-server/README.md has the lines for its configuration"),
    ("hx", "show costs in Helix", "lsp-server/README.md has the lines for its configuration"),
];

/// Returns what an editor needs, if it is on this machine.
fn editor((program, what, how): &(&str, &'static str, &str)) -> Option<Ability> {
    let paths = env::var_os("PATH")?;
    env::split_paths(&paths).find(|dir| dir.join(program).is_file())?;
    Some(Ability { what, state: State::Works, found: (*how).to_owned() })
}
