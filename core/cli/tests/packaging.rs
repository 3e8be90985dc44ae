//! `packaging/systemd/install.sh` installs what it promises: the binary, a manual page for each verb, completions for shells, the service.

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;

/// Installs the `dwell` that was just built below a folder of its own, as a packager does.
fn install(root: &Path) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd/install.sh");
    let output =
        Command::new("sh").args([script, env!("CARGO_BIN_EXE_dwell")]).env("DESTDIR", root).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The verbs as `dwell --help` lists them.
fn verbs() -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_dwell")).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let commands = help.split_once("Commands:").unwrap().1.split_once("Options:").unwrap().0;
    let indented = commands.lines().filter_map(|line| line.strip_prefix("  "));
    let named =
        indented.filter(|line| !line.starts_with(' ')).map(|line| line.split(' ').next().unwrap().to_owned());
    named.filter(|verb| verb != "help").collect()
}

#[test]
fn each_verb_has_a_manual_page_and_each_shell_its_completions() {
    let root = TempDir::new().unwrap();
    let listed = install(root.path());
    let read = |path: &str| {
        assert!(listed.lines().any(|line| line.ends_with(path)), "{path} is not listed: {listed}");
        let file = root.path().join(path.trim_start_matches('/'));
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    assert!(read("/usr/share/man/man1/dwell.1").contains(".TH dwell 1"));
    let verbs = verbs();
    assert!(verbs.len() > 10 && verbs.contains(&"annotate".to_owned()), "{verbs:?}");
    for verb in &verbs {
        let page = read(&format!("/usr/share/man/man1/dwell-{verb}.1"));
        assert!(page.contains(&format!(".TH dwell-{verb} 1")), "{verb}: {page}");
    }
    for completions in [
        "/usr/share/bash-completion/completions/dwell",
        "/usr/share/zsh/vendor-completions/_dwell",
        "/usr/share/fish/vendor_completions.d/dwell.fish",
    ] {
        let script = read(completions);
        assert!(verbs.iter().all(|verb| script.contains(verb.as_str())), "{completions}: {script}");
    }
    for unit in ["dwell.service", "dwell-push.service"] {
        assert!(read(&format!("/usr/lib/systemd/system/{unit}")).contains("ExecStart=/usr/bin/dwell "));
    }
    assert!(read("/usr/lib/systemd/system/dwell-push.timer").contains("OnCalendar="));
}
