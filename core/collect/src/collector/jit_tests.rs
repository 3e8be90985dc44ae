//! Tests code generated in memory by processes that fork, execute and write their maps at any time: no sample may be counted
//! under a name that is not its own.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use dwell_attribution::{CodeId, FileVersion, Identity, ImageFiles, KernelPlace, MappedRange, Target};
use dwell_profile::{CpuId, ImageId, ImageRecord, ImageSymbol, Pid, VirtualAddress};
use expect_test::{Expect, expect};

use super::*;
use crate::host::{
    ProcessSnapshot,
    code_names::{CodeName, Finder, NamesWindow, find_in_perf_map},
};

/// Contents of perf maps by pid.
type Maps = Rc<RefCell<BTreeMap<Pid, String>>>;

#[derive(Default)]
struct MapHost {
    maps: Maps,
    pids: BTreeMap<CodeId, Pid>,
}

impl ImageFiles for MapHost {
    fn identify(&mut self, target: &Target, _place: MappedRange) -> Identity {
        Identity::without_file(ImageId::named(&target.program().unwrap_or_default()))
    }

    fn vdso_id(&mut self) -> ImageId {
        ImageId::named("vdso")
    }
}

impl Host for MapHost {
    fn process(&mut self, pid: Pid) -> Option<ProcessSnapshot> {
        let mappings = vec![(VirtualAddress(0x1000), VirtualAddress(0x9000), 0, Target::Anonymous)];
        let name = "old".to_owned();
        (pid == Pid(1)).then_some(ProcessSnapshot { name, kernel_thread: false, program: None, mappings })
    }

    fn is_alive(&self, _pid: Pid) -> bool {
        false
    }

    fn version(
        &mut self,
        _target: &Target,
        _place: MappedRange,
        _mapped_ns: Option<u64>,
    ) -> Option<FileVersion> {
        None
    }

    fn has_in_memory(&mut self, _: Pid, _: VirtualAddress, _: &ImageId, _: u64) -> Option<bool> {
        None
    }

    fn code(&mut self, _image: &ImageId, _offset: u64, _bytes: &mut [u8]) -> usize {
        0
    }

    fn kernel_place(&mut self, _address: VirtualAddress, _interval: Interval) -> Option<KernelPlace> {
        None
    }

    fn kernel_symbols(&mut self, _image: &ImageId, _offsets: &[u64]) -> Vec<ImageSymbol> {
        Vec::new()
    }

    fn note_code(&mut self, code: CodeId, pid: Pid, _parent: Option<CodeId>, _since_ns: Option<u64>) {
        self.pids.insert(code, Pid(pid.0));
    }

    fn code_names_bytes(&mut self, code: CodeId) -> u64 {
        self.pids.get(&code).and_then(|pid| Some(self.maps.borrow().get(pid)?.len() as u64)).unwrap_or(0)
    }

    fn code_names(
        &mut self,
        code: CodeId,
        addresses: &[VirtualAddress],
        window: NamesWindow,
    ) -> (Vec<CodeName>, u64) {
        let (mut finder, maps) = (Finder::new(addresses, window), self.maps.borrow());
        let map = self.pids.get(&code).and_then(|pid| maps.get(pid));
        let end = map.map_or(0, |map| find_in_perf_map(map.as_bytes(), &mut finder, true));
        (finder.finish(), end)
    }

    fn forget_code(&mut self, is_needed: &dyn Fn(CodeId) -> bool) {
        self.pids.retain(|code, _| is_needed(*code));
    }
}

/// A simulated machine on which events happen one after the other.
struct Bench {
    collector: Collector<MapHost>,
    maps: Maps,
    now: u64,
    images: BTreeMap<ImageId, ImageRecord>,
    counts: BTreeMap<(ImageId, String, u64), u64>,
}

impl Bench {
    fn new() -> Self {
        let maps = Maps::default();
        let host = MapHost { maps: maps.clone(), ..MapHost::default() };
        let collector = Collector::new(host, vec![Event::CPU_CLOCK], InstanceLimits::in_a_run(Vec::new()));
        Bench { collector, maps, now: 0, images: BTreeMap::new(), counts: BTreeMap::new() }
    }

    fn apply(&mut self, item: OwnedRecord) {
        self.now += 1;
        self.collector.apply(self.now, item);
    }

    fn side(&mut self, side: SideBandRecord) {
        self.apply(OwnedRecord::SideBand(Box::new(side)));
    }

    /// Executes a program that has memory for generated code.
    fn exec(&mut self, pid: Pid) {
        self.side(SideBandRecord::Exec { pid, comm: "server".into() });
        let room = SideBandRecord::Map {
            pid,
            start: VirtualAddress(0x1000),
            length: 0x8000,
            file_offset: 0,
            target: Target::Anonymous,
        };
        self.side(room);
    }

    fn fork(&mut self, parent_pid: Pid, pid: Pid) {
        self.side(SideBandRecord::Fork { pid, parent_pid });
    }

    fn write(&mut self, pid: Pid, line: &str) {
        *self.maps.borrow_mut().entry(Pid(pid.0)).or_default() += &format!("{line}\n");
    }

    fn samples(&mut self, pid: Pid, pc: u64, count: u64) {
        for _ in 0..count {
            let sample = Sample {
                mode: Mode::User,
                pc: VirtualAddress(pc),
                pid,
                tid: pid.first_thread(),
                cpu: Some(CpuId(0)),
                registers: None,
            };
            self.apply(OwnedRecord::Sample(EventIndex(0), sample));
        }
    }

    /// Takes the counts and adds them to what a segment would contain.
    fn flush(&mut self) {
        let batch = self.collector.take();
        ImageRecord::absorb_all(&mut self.images, batch.images);
        for (key, count) in batch.rows.counts() {
            *self.counts.entry((key.image, key.app.to_string(), key.offset.0)).or_default() += count;
        }
        self.collector.reap(self.now);
    }

    /// Checks the samples by name, as a reader of the segments finds them, and the numbers of symbols and uncertain samples.
    fn check(mut self, expected: Expect) {
        self.flush();
        let mut by_name: BTreeMap<(String, String), u64> = BTreeMap::new();
        let mut symbols = 0;
        for record in self.images.values() {
            symbols += record.symbols.len();
            let ends = record.symbols.windows(2).all(|w| w[0].offset.0 + w[0].size_bytes <= w[1].offset.0);
            assert!(ends, "symbols overlap: {:?}", record.symbols);
        }
        for ((image, _, offset), count) in &self.counts {
            let covers =
                |s: &&ImageSymbol| offset.checked_sub(s.offset.0).is_some_and(|at| at < s.size_bytes);
            let symbol = self.images[image].symbols.iter().find(covers);
            let name = symbol.map_or("-".to_owned(), |s| s.name.clone());
            *by_name.entry((image.to_string(), name)).or_default() += count;
        }
        let total: u64 = self.counts.values().sum();
        assert_eq!(total, self.collector.counts.tallies()[0].samples, "samples in are samples counted");
        let text = by_name.iter().map(|((image, name), count)| format!("{image} {name} {count}\n"));
        let uncertain = self.collector.uncertain_names();
        let text: String = text.chain([format!("{symbols} symbols, {uncertain} uncertain\n")]).collect();
        expected.assert_eq(&text);
    }
}

#[test]
fn processes_of_one_program_have_different_code_at_one_address() {
    let mut b = Bench::new();
    b.exec(Pid(10));
    for (pid, name, count) in [(11, "parse", 5), (12, "render", 3), (13, "query", 2), (14, "parse", 1)] {
        b.fork(Pid(10), Pid(pid));
        b.write(Pid(pid), &format!("1000 40 {name}"));
        b.samples(Pid(pid), 0x1004, count);
    }
    b.side(SideBandRecord::Exit { pid: Pid(12) });
    b.samples(Pid(12), 0x1004, 1); // This sample arrives after the exit.
    b.check(expect![[r#"
        jit:server parse 6
        jit:server query 2
        jit:server render 4
        3 symbols, 0 uncertain
    "#]]);
}

#[test]
fn a_child_has_its_parents_names_until_it_writes_its_own() {
    let mut b = Bench::new();
    b.exec(Pid(10));
    b.write(Pid(10), "1000 40 shared");
    b.fork(Pid(10), Pid(11));
    b.samples(Pid(11), 0x1004, 2);
    b.fork(Pid(11), Pid(12)); // This is a grandchild.
    b.samples(Pid(12), 0x1004, 3);
    b.write(Pid(10), "1000 40 recompiled"); // The parent or a child with its descriptor may have written it.
    b.samples(Pid(10), 0x1008, 1);
    b.fork(Pid(10), Pid(13));
    b.samples(Pid(13), 0x1004, 4);
    b.write(Pid(13), "2000 40 own"); // It writes its own map, so later text in the parent's map is the parent's.
    b.write(Pid(10), "1000 40 again");
    b.samples(Pid(13), 0x2004, 1);
    b.check(expect![[r#"
        jit:server - 6
        jit:server own 1
        jit:server recompiled 4
        2 symbols, 6 uncertain
    "#]]);
}

#[test]
fn an_execution_ends_code_and_names() {
    let mut b = Bench::new();
    b.exec(Pid(10));
    b.write(Pid(10), "1000 40 before");
    b.samples(Pid(10), 0x1004, 1);
    b.exec(Pid(10));
    b.maps.borrow_mut().clear();
    b.samples(Pid(10), 0x1004, 2);
    b.check(expect![[r#"
        jit:server - 2
        jit:server before 1
        1 symbols, 0 uncertain
    "#]]);
}

#[test]
fn replaced_code_is_nameless_only_between_two_lookups() {
    let mut b = Bench::new();
    b.exec(Pid(10));
    b.write(Pid(10), "1000 40 first");
    b.samples(Pid(10), 0x1004, 3);
    b.flush();
    b.samples(Pid(10), 0x1004, 1); // It is not known whether this sample …
    b.write(Pid(10), "1000 20 second");
    b.samples(Pid(10), 0x1004, 1); // … and this one are of the first or the second code.
    b.samples(Pid(10), 0x1024, 1); // This is of the first code: nothing else was there.
    b.flush();
    b.samples(Pid(10), 0x1004, 5);
    b.check(expect![[r#"
        jit:server - 2
        jit:server first 4
        jit:server second 5
        2 symbols, 2 uncertain
    "#]]);
}

#[test]
fn late_names_apply_to_their_own_process_only() {
    let mut b = Bench::new();
    b.exec(Pid(10));
    b.exec(Pid(20));
    b.samples(Pid(10), 0x1004, 1);
    b.samples(Pid(20), 0x2004, 1);
    b.flush();
    b.write(Pid(10), "1000 40 late");
    b.write(Pid(10), "2000 40 elsewhere");
    b.side(SideBandRecord::Exit { pid: Pid(10) });
    b.check(expect![[r#"
        jit:server - 1
        jit:server late 1
        1 symbols, 0 uncertain
    "#]]);
}

#[test]
fn the_last_name_applies_to_a_process_that_already_ran() {
    let mut b = Bench::new();
    b.write(Pid(1), "1000 40 first\n1000 40 last");
    b.collector.discover([Pid(1)]);
    b.samples(Pid(1), 0x1004, 3);
    b.check(expect![[r#"
        jit:old last 3
        1 symbols, 0 uncertain
    "#]]);
}

#[test]
fn names_are_stored_again_in_a_new_epoch() {
    let mut b = Bench::new();
    b.exec(Pid(10));
    b.write(Pid(10), "1000 40 name");
    b.samples(Pid(10), 0x1004, 1);
    b.flush();
    b.collector.begin_epoch();
    (b.images, b.counts) = Default::default();
    b.samples(Pid(10), 0x1004, 2);
    b.check(expect![[r#"
        jit:server name 2
        1 symbols, 0 uncertain
    "#]]);
}

#[test]
fn a_thousand_processes_with_equal_names_share_one_image() {
    let mut b = Bench::new();
    b.exec(Pid(10));
    for pid in 100..1100 {
        b.fork(Pid(10), Pid(pid));
        b.write(Pid(pid), "1000 40 first\n2000 40 second");
        b.write(Pid(pid), &format!("3000 40 {}", ["even", "odd"][pid as usize % 2]));
        [0x1004, 0x2004, 0x3004].into_iter().for_each(|pc| b.samples(Pid(pid), pc, 1));
        b.side(SideBandRecord::Exit { pid: Pid(pid) });
        b.now += 3_000_000_000;
        if pid % 100 == 0 {
            b.flush();
        }
    }
    b.flush();
    assert!(b.collector.attribution.host.pids.len() < 10, "what is gone is forgotten");
    b.check(expect![[r#"
        jit:server even 500
        jit:server first 1000
        jit:server odd 500
        jit:server second 1000
        4 symbols, 0 uncertain
    "#]]);
}

#[test]
fn aggregated_samples_get_the_names_of_their_own_process() {
    use crate::entries::{Entry, Place};
    let mut b = Bench::new();
    b.collector.keep_spaces();
    b.exec(Pid(10));
    for (pid, name) in [(11, "parse"), (12, "render")] {
        b.fork(Pid(10), Pid(pid));
        b.write(Pid(pid), &format!("1000 40 {name}"));
    }
    b.side(SideBandRecord::Exit { pid: Pid(11) }); // Its entries arrive later.
    let place = Place::Process { pc: VirtualAddress(0x1004), executable: 0 };
    let entry = |pid, count| Entry { place, pid, event: EventIndex(0).into(), cpu: None, count };
    let interval = Interval { since_ns: 0, until_ns: b.now };
    b.collector.apply_entries(&[entry(Pid(11), 7), entry(Pid(12), 3)], interval);
    b.collector.end_interval(b.now);
    b.check(expect![[r#"
        jit:server parse 7
        jit:server render 3
        2 symbols, 0 uncertain
    "#]]);
}
