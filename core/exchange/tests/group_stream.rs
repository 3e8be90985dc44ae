//! Tests a stream as `perf record -e '{cpu-clock:u,sched:sched_switch}:S' -o -` of Linux 6.0 writes it. The test makes it byte by
//! byte, in both byte orders, and compares the epoch with its records. It also makes the fuzzer's `group-stream` files.

use std::{fs, path::Path};

use dwell_exchange::{ImportFile, import_perf_data};
use dwell_profile::Database;
use expect_test::expect;
use jiff::Timestamp;

/// Writes integers with their low bytes first or last.
struct Writer {
    little_endian: bool,
}

/// IDENTIFIER, IP, TID, TIME, READ and PERIOD.
const SAMPLE_TYPE: u64 = 1 << 16 | 1 | 2 | 4 | 16 | 256;
/// The read format: ID, GROUP and LOST.
const READ_FORMAT: u64 = 4 | 8 | 16;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const CLOCK: u64 = 11;
const SWITCH: u64 = 12;
const NONE: u64 = 99;

impl Writer {
    fn half(&self, value: u32) -> Vec<u8> {
        if self.little_endian { value.to_le_bytes().into() } else { value.to_be_bytes().into() }
    }

    fn words(&self, values: &[u64]) -> Vec<u8> {
        let word = |v: &u64| if self.little_endian { v.to_le_bytes() } else { v.to_be_bytes() };
        values.iter().flat_map(word).collect()
    }

    fn record(&self, kind: u32, misc: u16, body: &[&[u8]]) -> Vec<u8> {
        let body = body.concat();
        let size = 8 + body.len() as u16;
        let pair = [misc, size].map(|v| if self.little_endian { v.to_le_bytes() } else { v.to_be_bytes() });
        [&self.half(kind)[..], &pair.concat(), &body].concat()
    }

    fn attribute(&self, kind: u32, config: u64, id: u64) -> Vec<u8> {
        let flags = if self.little_endian { SAMPLE_ID_ALL } else { SAMPLE_ID_ALL.reverse_bits() };
        let words = self.words(&[config, 1000, SAMPLE_TYPE, READ_FORMAT, flags, 0, 0, 0, 0, id]);
        self.record(64, 0, &[&self.half(kind), &self.half(80), &words])
    }

    /// Returns the fields at the end of each record other than a sample: process and thread 7, a time, an event.
    fn end(&self, time: u64) -> Vec<u8> {
        [self.half(7), self.half(7), self.words(&[time, CLOCK])].concat()
    }

    fn sample(&self, id: u64, ip: u64, time: u64, values: &[[u64; 3]]) -> Vec<u8> {
        let fixed = [self.words(&[id, ip]), self.half(7), self.half(7), self.words(&[time, 1000])].concat();
        let counters = self.words(&[values.len() as u64]);
        self.record(9, 2, &[&fixed, &counters, &self.words(values.as_flattened())])
    }

    fn tracing_data(&self) -> Vec<u8> {
        let format = "name: sched_switch\nID: 320\nformat:\n";
        let mut data = [
            b"\x17\x08\x44tracing0.5\0",
            &[u8::from(!self.little_endian), 8][..],
            &self.half(4096),
            b"header_page\0",
            &self.words(&[4]),
            b"pageheader_event\0",
            &self.words(&[5]),
            b"event",
            &self.half(0),
            &self.half(1),
            b"sched\0",
            &self.half(1),
            &self.words(&[format.len() as u64]),
            format.as_bytes(),
        ]
        .concat();
        data.resize(data.len().next_multiple_of(8), 0);
        [self.record(66, 0, &[&self.half(data.len() as u32)]), data].concat()
    }

    fn stream(&self) -> Vec<u8> {
        let image: Vec<u8> = (0..20).chain([0; 4]).collect();
        let map = [self.half(7), self.half(7), self.words(&[0x1000, 0x1000, 0])].concat();
        let file = [[0, 0].map(|v| self.half(v)).concat(), self.words(&[1, 1])].concat();
        let aux = [self.words(&[16, 0, 0]), vec![0; 16]].concat();
        let group = |at: u64, switches| [[1000 * (at + 1), CLOCK, 0], [switches, SWITCH, 0]];
        [
            if self.little_endian { &b"PERFILE2"[..] } else { b"2ELIFREP" },
            &self.words(&[16]),
            &self.attribute(1, 0, CLOCK),
            &self.attribute(2, 320, SWITCH),
            &self.tracing_data(),
            &self.record(78, 0, &[&self.words(&[2, CLOCK]), b"cpu-clock:u\0\0\0\0\0"]),
            &self.record(67, 2, &[&self.half(u32::MAX), &image, b"/bin/x\0\0"]),
            &self.record(80, 0, &[&self.words(&[3]), &self.half(8), b"host\0\0\0\0"]),
            &self.record(3, 1 << 13, &[&self.half(7), &self.half(7), b"x\0\0\0\0\0\0\0", &self.end(1)]),
            &self.record(10, 2, &[&map, &file, &self.half(5), &self.half(2), b"/bin/x\0\0", &self.end(2)]),
            &self.sample(CLOCK, 0x1000, 3, &group(0, 0)),
            &self.sample(CLOCK, 0x1001, 4, &group(1, 0)),
            &self.sample(CLOCK, 0x1002, 5, &group(2, 5)),
            &self.record(13, 0, &[&self.words(&[4]), &self.end(9)]),
            &self.record(71, 0, &[&aux]),
            &[0xff; 16],
            &self.sample(NONE, 0, 9, &[]),
            &self.record(68, 0, &[]),
        ]
        .concat()
    }
}

#[test]
fn a_group_sample_counts_for_each_event_that_advanced() {
    let folder = tempfile::tempdir().unwrap();
    let description = |bytes: &[u8]| {
        let path = folder.path().join("stream");
        fs::write(&path, bytes).unwrap();
        let database = Database::open(folder.path().join("db")).unwrap();
        let request = ImportFile { path, ..ImportFile::default() };
        let imported = import_perf_data(&database, &request, Timestamp::now()).unwrap();
        let epochs = database.epochs().unwrap().epochs;
        let epoch = epochs.iter().find(|e| e.id == imported.epoch).unwrap();
        let mut description = format!("{} samples on {}\n", imported.samples, epoch.host.name);
        for (event, e) in &epoch.events {
            description +=
                &format!("{event}: {} every {} {}, {} lost\n", e.samples, e.period, e.unit.name(), e.lost);
        }
        description + &imported.notes.join("\n") + "\n"
    };
    let [little, big] = [true, false].map(|little_endian| Writer { little_endian }.stream());
    expect![[r#"
        3 samples on host
        cpu-clock:u: 3 every 1000 ns, 4 lost
        sched:sched_switch: 1 every 5 events, 0 lost
        1 samples have an id that no event of the file has and were left out
        1 records of AUX data (Intel PT, ARM SPE, …) were left out
        1 samples are of events that were read when the leader of their group was sampled (perf record :S)
        /bin/x: it is not on this machine (build id 000102030405060708090a0b0c0d0e0f10111213)
    "#]]
    .assert_eq(&description(&little));
    assert_eq!(description(&little), description(&big));
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/regressions/perf_data");
    for (name, bytes) in [("group-stream", &little), ("group-stream-big-endian", &big)] {
        // UPDATE_EXPECT rewrites these files, like expected texts. Make the third one with `gzip -n -c group-stream >
        // group-stream-gzip`.
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(kept.join(name), bytes).unwrap();
        }
        assert!(fs::read(kept.join(name)).unwrap() == *bytes, "{name} is not what is made here");
    }
    let packed = fs::read(kept.join("group-stream-gzip")).unwrap();
    assert_eq!(description(&packed), description(&little));
}
