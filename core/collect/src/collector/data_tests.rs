//! Tests which data samples refer to, with given registers and simulated mappings of a process.

use dwell_profile::{CpuId, Tid, VirtualAddress};

use super::{
    tests::{collector, count_lines},
    *,
};
use crate::host::Region;

/// Returns the mappings of a process: text and data of a program with memory directly behind, a heap, a file without code, a
/// stack with its guard, and other memory.
pub(super) fn memory() -> Vec<Region> {
    let region = |start, end, file_offset, permissions: &str, name: &str| Region {
        start: VirtualAddress(start),
        end: VirtualAddress(end),
        file_offset,
        is_executable: permissions == "r-x",
        is_guard: permissions == "---",
        is_private_data: permissions == "rw-",
        is_anonymous: !name.starts_with('/'),
        name: name.to_owned(),
    };
    vec![
        region(0x1000, 0x2000, 0, "r-x", "/bin/init"),
        region(0x2000, 0x3000, 0x1000, "rw-", "/bin/init"),
        region(0x3000, 0x4000, 0, "rw-", ""),
        region(0x5000, 0x6000, 0, "rw-", "[heap]"),
        region(0x7000, 0x8000, 0, "r--", "/var/db"),
        region(0x9000, 0xa000, 0, "---", ""),
        region(0xa000, 0xb000, 0, "rw-", ""),
        region(0xc000, 0xd000, 0, "rw-", ""),
    ]
}

#[cfg(target_arch = "x86_64")]
mod on_x86_64 {
    use super::{super::tests::FakeHost, *};
    use crate::registers::{REGISTER_COUNT, Registers};

    fn prepared() -> Collector<FakeHost> {
        let mut c = collector();
        c.keep_data();
        c.discover([Pid(1)]);
        c
    }

    /// Applies a sample of process 1, with the given rax and rsp or without registers.
    fn sample(c: &mut Collector<FakeHost>, pc: u64, registers: Option<(u64, u64)>) {
        let registers = registers.map(|(rax, rsp)| {
            let mut registers = Registers([0; REGISTER_COUNT]);
            registers.set_general(0, rax);
            registers.set_general(4, rsp);
            Box::new(registers)
        });
        let pc = VirtualAddress(pc);
        c.apply(
            0,
            OwnedRecord::Sample(
                EventIndex(0),
                Sample { mode: Mode::User, pc, pid: Pid(1), tid: Tid(1), cpu: Some(CpuId(0)), registers },
            ),
        );
    }

    fn rows(c: &mut Collector<FakeHost>) -> String {
        let rows = count_lines(&c.take()).into_iter().filter(|row| row.starts_with("data"));
        rows.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn data_addresses_are_in_an_image_or_another_kind_of_memory() {
        let mut c = prepared();
        for rax in [0x2008, 0x2008, 0x3010, 0x5000, 0x7123, 0xa810, 0xc000, 0xe000] {
            sample(&mut c, 0x1033, Some((rax, 0xa800)));
        }
        sample(&mut c, 0x1033, Some((0xa810, 0xc100))); // This thread's stack is elsewhere.
        expect_test::expect![[r#"
            data /bin/init+1008 init#1 2
            data /bin/init+2010 init#1 1
            data data:anonymous+0 init#1 2
            data data:file:/var/db+0 init#1 1
            data data:heap+0 init#1 1
            data data:none:address in no mapping+0 init#1 1
            data data:stack+0 init#1 1"#]]
        .assert_eq(&rows(&mut c));
    }

    #[test]
    fn unknown_data_addresses_are_counted_by_cause() {
        let mut c = prepared();
        sample(&mut c, 0x1012, Some((0x2008, 0)));
        sample(&mut c, 0x1033, None);
        sample(&mut c, 0x1050, Some((0x2008, 0)));
        sample(&mut c, 0x9_0000, Some((0x2008, 0)));
        expect_test::expect![[r#"
            data data:none:code in no file+0 init#1 1
            data data:none:code not at hand or not decoded+0 init#1 1
            data data:none:no memory operand+0 init#1 1
            data data:none:no registers+0 init#1 1"#]]
        .assert_eq(&rows(&mut c));
    }

    #[test]
    fn data_is_found_again_after_images_were_renumbered() {
        let mut c = prepared();
        sample(&mut c, 0x1033, Some((0x2008, 0)));
        let before = rows(&mut c);
        c.sweep_images();
        sample(&mut c, 0x1033, Some((0x2008, 0)));
        assert_eq!(rows(&mut c), before);
    }

    #[test]
    fn data_addresses_beyond_the_limit_are_counted_by_page() {
        let mut c = prepared();
        c.data.as_mut().unwrap().fill_addresses();
        [0x2008, 0x2010, 0x3008].into_iter().for_each(|rax| sample(&mut c, 0x1033, Some((rax, 0))));
        assert_eq!(rows(&mut c), "data-page /bin/init+1000 init#1 2\ndata-page /bin/init+2000 init#1 1");
    }
}
