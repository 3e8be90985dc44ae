//! Tests the permissions of the systemd service, as systemd itself analyzes its unit.

use std::{fs, path::PathBuf, process::Command};

fn packaged(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd")).join(name)
}

/// Returns the path of a copy of the unit that names an existing program instead of the one to be installed.
fn unit_for_here(folder: &std::path::Path) -> PathBuf {
    let unit = fs::read_to_string(packaged("dwell.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/dwell "));
    let lines = unit.lines().filter(|l| !l.starts_with("Documentation="));
    let text: String = lines.map(|l| l.replace("/usr/bin/dwell", "/bin/true") + "\n").collect();
    let path = folder.join("dwell.service");
    fs::write(&path, text).unwrap();
    path
}

/// Returns whether `systemd-analyze` succeeded, and its output. Returns `None` and prints a message without systemd.
fn systemd_analyze(name: &str, arguments: &[&str]) -> Option<(bool, String)> {
    match Command::new("systemd-analyze").args(arguments).output() {
        Err(error) => {
            println!("SKIPPED {name}: systemd-analyze cannot run: {error}");
            None
        }
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
        }
    }
}

#[test]
fn the_unit_is_well_formed() {
    let folder = tempfile::tempdir().unwrap();
    let unit = unit_for_here(folder.path());
    let verify = ["verify", "--man=no", unit.to_str().unwrap()];
    let Some((_, text)) = systemd_analyze("the_unit_is_well_formed", &verify) else { return };
    // The output also contains problems of other units of the machine.
    let ours: Vec<&str> = text.lines().filter(|l| l.contains("dwell.service")).collect();
    assert!(ours.is_empty(), "{ours:#?}");
}

#[test]
fn the_unit_is_hardened() {
    let unit = packaged("dwell.service");
    let security = ["security", "--offline=true", "--threshold=30", "--no-pager", unit.to_str().unwrap()];
    let Some((is_below, text)) = systemd_analyze("the_unit_is_hardened", &security) else { return };
    if text.contains("unrecognized option") {
        return println!("SKIPPED the_unit_is_hardened: this systemd does not analyze units offline");
    }
    assert!(is_below, "exposure above 3.0:\n{text}");
}

#[test]
fn capabilities_of_the_unit_are_documented() {
    let unit = fs::read_to_string(packaged("dwell.service")).unwrap();
    let named = |key: &str| -> Vec<String> {
        let line = unit.lines().find_map(|l| l.strip_prefix(key)).unwrap();
        line.split(' ').map(str::to_owned).collect()
    };
    let bounding = named("CapabilityBoundingSet=");
    assert_eq!(bounding, named("AmbientCapabilities="));
    for capability in bounding {
        assert!(
            unit.lines().any(|l| l.starts_with(&format!("# {capability} "))),
            "{capability} is not explained"
        );
    }
}
