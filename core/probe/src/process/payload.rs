//! The payload's code.

/// The machine code, which may be at any address.
pub const CODE: &[u8] = include_bytes!("../../payload/payload.x86_64.bin");
/// Where functions' entries enter it.
pub const ENTER_AT: u64 = 0;
/// Where functions' exits enter it.
pub const LEAVE_AT: u64 = 16;

#[cfg(test)]
mod tests {
    use std::process::Command;

    #[test]
    fn the_payload_is_built_from_its_source() {
        let name = "the_payload_is_built_from_its_source";
        let version = Command::new("gcc").arg("-dumpfullversion").output();
        let version = version.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        if version.as_deref().ok() != Some("12.2.0") {
            return println!("SKIPPED {name}: gcc 12.2.0 made the committed file, and this is {version:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/payload/build.sh");
        assert!(Command::new("sh").arg(script).arg(folder.path()).status().unwrap().success());
        let built = std::fs::read(folder.path().join("payload.x86_64.bin")).unwrap();
        assert!(built == super::CODE, "payload.x86_64.bin is stale: run core/probe/payload/build.sh");
    }
}
