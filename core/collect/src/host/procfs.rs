//! Parsers for the texts of /proc.
//!
//! Enters: bytes of /proc/PID/{maps,stat,status,cgroup} and of /proc/cpuinfo. Leaves: plain values; what cannot be parsed is
//! left out. Never here: I/O.

use dwell_attribution::{FileTag, Target};
use dwell_profile::{Cpu, Pid, VirtualAddress};

use crate::host::Region;

/// A line of /proc/PID/maps: first address, first address after it, file offset, target.
pub type MapsLine = (VirtualAddress, VirtualAddress, u64, Target);

/// Returns the control group in /proc/PID/cgroup. That is the group of version 2, or (on machines with both versions, or
/// with version 1 alone) systemd's own, or the one with the longest path. Returns `/` if all are the root.
pub fn parse_cgroup(text: &str) -> Option<&str> {
    let groups = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let rank = |(controllers, path): &(&str, &str)| {
        let kind = match *controllers {
            "" => 2,
            "name=systemd" => 1,
            _ => 0,
        };
        (*path != "/", kind, path.len())
    };
    groups.max_by_key(rank).map(|(_, path)| path)
}

/// Returns the executable mappings in /proc/PID/maps. An anonymous mapping that fills a hole in a file's mapping is preceded
/// by the file mapping that must have been there, because text may have been copied to huge pages. A file without a name is
/// a file if its inode is that of the `program`.
pub fn parse_maps(maps: &[u8], program: Option<u64>) -> Vec<MapsLine> {
    let lines = maps.split(|b| *b == b'\n').filter_map(|line| parse_mapping(line, program));
    let lines: Vec<(MapsLine, bool)> = lines.collect();
    let mut code = Vec::new();
    for (at, (line, _)) in lines.iter().enumerate().filter(|(_, (_, executable))| *executable) {
        if line.3 == Target::Anonymous {
            let before = at.checked_sub(1).and_then(|before| lines.get(before));
            code.extend(hidden(line, before.map(|l| &l.0), lines.get(at + 1).map(|l| &l.0)));
        }
        code.push(line.clone());
    }
    code
}

/// Returns all mappings in /proc/PID/maps.
pub fn parse_regions(maps: &[u8]) -> Vec<Region> {
    maps.split(|b| *b == b'\n').filter_map(parse_region).collect()
}

fn parse_region(line: &[u8]) -> Option<Region> {
    let text = String::from_utf8_lossy(line);
    let mut words = text.splitn(6, ' ');
    let (range, permissions, offset) = (words.next()?, words.next()?.as_bytes(), words.next()?);
    let inode = words.nth(1)?;
    let name = words.next().unwrap_or_default().trim_start().to_owned();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = range.split_once('-')?;
    Some(Region {
        start: VirtualAddress(hex(start)?),
        end: VirtualAddress(hex(end)?),
        file_offset: hex(offset)?,
        is_executable: permissions.get(2) == Some(&b'x'),
        is_guard: permissions.first() == Some(&b'-'),
        is_private_data: permissions.starts_with(b"rw") && permissions.get(3) == Some(&b'p'),
        is_anonymous: inode == "0",
        name,
    })
}

/// Returns the file mapping that an anonymous one hides, if a file mapping continues directly before or after it.
fn hidden(line: &MapsLine, before: Option<&MapsLine>, after: Option<&MapsLine>) -> Option<MapsLine> {
    let is_file = |l: &&MapsLine| matches!(l.3, Target::File { .. });
    let (start, end) = (line.0, line.1);
    if let Some(before) = before.filter(is_file).filter(|b| b.1 == start) {
        let offset = before.2.wrapping_add(start.bytes_since(before.0));
        return Some((start, end, offset, before.3.clone()));
    }
    let after = after.filter(is_file).filter(|a| a.0 == end)?;
    Some((start, end, after.2.checked_sub(end.checked_bytes_since(start)?)?, after.3.clone()))
}

/// Parses `start-end perms offset major:minor inode   path`. Returns the mapping and whether it is executable.
fn parse_mapping(line: &[u8], program: Option<u64>) -> Option<(MapsLine, bool)> {
    let mut rest = line;
    let mut word = || {
        let end = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        rest = tail.get(1..).unwrap_or_default();
        std::str::from_utf8(word).ok()
    };
    let (range, permissions, offset, device, inode) = (word()?, word()?, word()?, word()?, word()?);
    let executable = permissions.as_bytes().get(2) == Some(&b'x');
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let ((start, end), (major, minor)) = (range.split_once('-')?, device.split_once(':')?);
    let inode = inode.parse().ok()?;
    let tag = FileTag::Inode { major: hex(major)? as u32, minor: hex(minor)? as u32, inode };
    let path = rest.trim_ascii_start();
    let is_program = program == Some(inode) && path.starts_with(b"/");
    let target =
        if is_program { Target::program_named(path, tag) } else { Target::named(path, tag).mapped_as(false) };
    let (start, end) = (VirtualAddress(hex(start)?), VirtualAddress(hex(end)?));
    Some(((start, end, hex(offset)?, target), executable))
}

/// The fields of /proc/PID/stat that we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// Name of the first thread.
    pub comm: &'a str,
    /// Pid of the parent.
    pub parent_pid: Pid,
    /// Whether it is a kernel thread (PF_KTHREAD).
    pub kernel_thread: bool,
    /// Whether it has ended and only its exit status is left.
    pub ended: bool,
    /// Whether it runs or could run, if it had a CPU.
    pub runs: bool,
    /// Start of the process in clock ticks since boot.
    pub began_ticks: Option<u64>,
}

/// Parses /proc/PID/stat. The name may contain spaces and parentheses.
pub fn parse_stat(stat: &str) -> Option<Stat<'_>> {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let (head, tail) = stat.rsplit_once(')')?;
    let comm = head.split_once('(')?.1;
    let mut words = tail.split_whitespace();
    let state = words.next()?;
    let parent_pid = words.next()?.parse().ok()?;
    let flags: u64 = words.nth(4)?.parse().ok()?;
    let began_ticks = words.nth(12).and_then(|word| word.parse().ok());
    Some(Stat {
        comm,
        parent_pid,
        kernel_thread: flags & PF_KTHREAD != 0,
        ended: matches!(state, "Z" | "X"),
        runs: state == "R",
        began_ticks,
    })
}

/// Returns the user instruction at which a thread waits, from /proc/PID/task/TID/syscall: the address behind the system call that
/// it made, or the instruction that faulted.
pub fn parse_waiting_pc(syscall: &str) -> Option<VirtualAddress> {
    /// Bytes of the instruction by which x86-64 and AArch64 call the system.
    const CALL_BYTES: u64 = if cfg!(target_arch = "x86_64") { 2 } else { 4 };
    let mut words = syscall.split_whitespace();
    let is_call = words.next()? != "-1"; // Or the word `running`, which is alone.
    let pc = VirtualAddress(u64::from_str_radix(words.next_back()?.strip_prefix("0x")?, 16).ok()?);
    Some(if is_call { pc.back(CALL_BYTES) } else { pc })
}

/// Returns the pid in the innermost namespace from /proc/PID/status.
pub fn parse_inner_pid(status: &str) -> Option<Pid> {
    status.lines().find_map(|l| l.strip_prefix("NSpid:"))?.split_whitespace().next_back()?.parse().ok()
}

/// Returns the processor described in /proc/cpuinfo; `arch` is spelled as by `uname -m`. Missing fields are empty or 0.
pub fn parse_cpuinfo(cpuinfo: &str, arch: &str, count: u32) -> Cpu {
    let field = |names: &[&str]| {
        let mut pairs = cpuinfo.lines().filter_map(|l| l.split_once(':'));
        pairs.find(|(name, _)| names.contains(&name.trim())).map_or("", |(_, value)| value.trim())
    };
    let number = |names: &[&str]| {
        let text = field(names);
        let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
        // RISC-V's marchid has 64 bits. The highest is set for commercial cores, and the lowest distinguish them.
        parsed.unwrap_or(0) as u32
    };
    let implementer = field(&["CPU implementer"]);
    let vendor = match field(&["vendor_id", "mvendorid"]) {
        "" => implementer,
        vendor => vendor,
    };
    Cpu {
        arch: arch.to_owned(),
        vendor: vendor.to_owned(),
        model_name: field(&["model name", "Model", "uarch"]).to_owned(),
        family: number(&["cpu family", "CPU implementer", "mvendorid"]),
        model: number(&["model", "CPU part", "marchid"]),
        stepping: number(&["stepping", "CPU revision"]),
        count,
        clock_hz: None,
        clock_hz_range: None,
        machine_model: None,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn the_control_group_of_version_2_or_its_substitute_is_used() {
        let of = |text| parse_cgroup(text);
        assert_eq!(of("0::/system.slice/docker-3f.scope\n"), Some("/system.slice/docker-3f.scope"));
        let hybrid = "9:name=systemd:/user.slice/u.scope\n4:memory:/user.slice/very/long\n0::/\n";
        assert_eq!(of(hybrid), Some("/user.slice/u.scope"));
        assert_eq!(of("4:memory:/docker/ab\n3:cpu,cpuacct:/docker/a\n0::/\n"), Some("/docker/ab"));
        assert_eq!(of("9:name=systemd:/\n0::/\n"), Some("/"));
        assert_eq!(of("0::/a:b\n"), Some("/a:b"));
        assert_eq!(of("nothing"), None);
    }

    #[test]
    fn maps_keep_code_only() {
        let maps = b"5618eb922000-5618eb946000 r-xp 00004000 fe:00 247260                     /usr/bin/my grep (deleted)\n\
            5618eb946000-5618eb956000 r--p 00004000 fe:00 247260                     /usr/bin/grep\n\
            7f9c660c3000-7f9c660c5000 r-xp 00000000 00:00 0                          [vdso]\n\
            7f9c66100000-7f9c66101000 rwxp 00000000 00:00 0 \n\
            7f9c66200000-7f9c66201000 r-xs 00000000 00:01 77                         /memfd:jit (deleted)\n\
            broken\n";
        let text: String = parse_maps(maps, None)
            .iter()
            .map(|(start, end, offset, target)| format!("{:x?}\n", (start.0, end.0, offset, target)))
            .collect();
        expect![[r#"
            (5618eb922000, 5618eb946000, 4000, File { path: "/usr/bin/my grep", deleted: true, tag: Inode { device: fe00, inode: 3c5dc, version: None } })
            (7f9c660c3000, 7f9c660c5000, 0, Vdso)
            (7f9c66100000, 7f9c66101000, 0, Anonymous)
            (7f9c66200000, 7f9c66201000, 0, Anonymous)
        "#]]
        .assert_eq(&text);
        let program = |inode| parse_maps(maps, Some(inode)).last().unwrap().3.program();
        assert_eq!((program(77).as_deref(), program(78)), (Some("memfd:jit"), None), "executed from memory");
    }

    #[test]
    fn anonymous_holes_are_preceded_by_the_hidden_file_mapping() {
        let maps = b"1000-2000 r--p 00000000 fe:00 7 /bin/big\n\
            2000-4000 rwxp 00000000 00:00 0 \n\
            4000-5000 r-xp 00003000 fe:00 7 /bin/big\n\
            7000-8000 rwxp 00000000 00:00 0 \n";
        let describe = |(s, e, o, t): &MapsLine| format!("{s}-{e} {o:x} {:?}\n", t.program());
        let text: String = parse_maps(maps, None).iter().map(describe).collect();
        expect![[r#"
            2000-4000 1000 Some("big")
            2000-4000 0 None
            4000-5000 3000 Some("big")
            7000-8000 0 None
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn stat_survives_hostile_names() {
        let stat = parse_stat("2 (a) b (c)) S 7 0 0 0 -1 2129984 0 0").unwrap();
        let expected = Stat {
            comm: "a) b (c)",
            parent_pid: Pid(7),
            kernel_thread: true,
            ended: false,
            runs: false,
            began_ticks: None,
        };
        assert_eq!(stat, expected);
        let whole = "2 (a) S 7 0 0 0 -1 2129984 10 11 12 13 14 15 16 17 18 19 20 21 22 23";
        assert_eq!(parse_stat(whole).unwrap().began_ticks, Some(22));
        assert_eq!(parse_stat("2 (x"), None);
        assert!(parse_stat(&whole.replace(" S ", " R ")).unwrap().runs);
        assert_eq!(parse_inner_pid("Name:\tx\nNSpid:\t400\t12\n"), Some(Pid(12)));
    }

    #[test]
    fn waiting_threads_show_their_instruction() {
        let call = "35 0x0 0x0 0x7ffd0 0x0 0x0 0x0 0x7ffd8 0x7f0010a2";
        let behind = if cfg!(target_arch = "x86_64") { 0x7f00_10a0 } else { 0x7f00_109e };
        assert_eq!(parse_waiting_pc(call), Some(VirtualAddress(behind)));
        assert_eq!(parse_waiting_pc("-1 0x7ffd8 0x401000"), Some(VirtualAddress(0x40_1000)));
        for other in ["running", "", "35", "35 zz"] {
            assert_eq!(parse_waiting_pc(other), None, "{other}");
        }
    }

    #[test]
    fn processors_are_parsed() {
        let x86 = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\n";
        let arm = "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\nCPU revision\t: 1\n";
        let describe = |text: &str, arch| {
            let c = parse_cpuinfo(text, arch, 2);
            format!("{} {} '{}' {}/{}/{}", c.arch, c.vendor, c.model_name, c.family, c.model, c.stepping)
        };
        assert_eq!(describe(x86, "x86_64"), "x86_64 AuthenticAMD 'AMD EPYC' 25/17/1");
        assert_eq!(describe(arm, "aarch64"), "aarch64 0x41 '' 65/3340/1");
        let riscv = "processor\t: 0\nuarch\t\t: sifive,u74-mc\nmvendorid\t: 0x489\n\
                     marchid\t\t: 0x8000000000000007\nmimpid\t\t: 0x4210427\n";
        assert_eq!(describe(riscv, "riscv64"), "riscv64 0x489 'sifive,u74-mc' 1161/7/0");
    }
}
