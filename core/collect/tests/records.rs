//! Tests records of each known type, and bytes that are not records.

use dwell_attribution::FileTag;
use dwell_collect::{
    REGISTER_COUNT,
    records::{Body, Mode, Record, RecordError, SampleFields, parse_record, parse_record_of, split_record},
};
use dwell_profile::{Pid, Tid, VirtualAddress};

const TRAILER: [u64; 3] = [0x22_0000_0011, 77, 5]; // pid 17 and tid 34, time, identifier

/// Returns a record of this type and misc, with a body of 64-bit words.
fn record(kind: u32, misc: u16, body: &[u64], tail: &[u8]) -> Vec<u8> {
    let size = 8 + 8 * body.len() + tail.len();
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(misc.to_ne_bytes());
    bytes.extend((size as u16).to_ne_bytes());
    body.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
    bytes.extend(tail);
    bytes
}

fn side(kind: u32, misc: u16, body: &[u64], text: &[u8]) -> Vec<u8> {
    let mut tail = text.to_vec();
    TRAILER.iter().for_each(|word| tail.extend(word.to_ne_bytes()));
    record(kind, misc, body, &tail)
}

/// Returns two 32-bit words as one 64-bit word.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Returns a record of every type.
fn corpus() -> Vec<Vec<u8>> {
    let sample = [5, 0x4000, pair(17, 34), 77];
    let with_registers: Vec<u64> =
        sample.into_iter().chain([2]).chain((100..).take(REGISTER_COUNT)).collect();
    let file = [pair(17, 34), 0x40_0000, 0x1000, 0x2000, pair(254, 1), 99, 3, pair(5, 2)];
    let build_id = [pair(17, 34), 0x40_0000, 0x1000, 0x2000, 0x0403_0201_0000_0014, 1, 2, pair(5, 2)];
    vec![
        record(9, 2, &sample, &[]),
        record(9, 1, &with_registers, &[]),
        record(9, 1, &[5, 0x4000, pair(17, 34), 77, 0], &[]),
        side(10, 0, &file, b"/usr/bin/cat\0\0\0\0"),
        side(10, 1 << 14, &build_id, b"/lib/x.so\0\0\0\0\0\0\0"),
        side(1, 0, &[pair(17, 34), 0x40_0000, 0x1000, 0x2000], b"//anon\0\0"),
        side(3, 1 << 13, &[pair(17, 34)], b"cat\0\0\0\0\0"),
        side(7, 0, &[pair(18, 17), pair(35, 34), 77], b""),
        side(4, 0, &[pair(17, 1), pair(34, 1), 77], b""),
        side(2, 0, &[5, 42], b""),
        side(13, 0, &[43], b""),
        side(5, 0, &[77, 5, 5], b""),
        side(6, 0, &[77, 5, 5], b""),
        side(17, 0, &[1], b""),
    ]
}

fn body(bytes: &[u8]) -> Body<'_> {
    parse_record(bytes).unwrap().body
}

#[test]
fn each_type_of_record_is_parsed() {
    let corpus = corpus();
    let Body::Sample(sample) = body(&corpus[0]) else { panic!() };
    assert_eq!(
        (sample.mode, sample.pc, sample.pid, sample.tid, sample.registers),
        (Mode::User, VirtualAddress(0x4000), Pid(17), Tid(34), None)
    );
    let Body::Sample(sample) = body(&corpus[1]) else { panic!() };
    let registers = sample.registers.unwrap().0;
    assert_eq!((sample.mode, registers[0], registers[8], registers[16]), (Mode::Kernel, 100, 108, 116));
    assert!(matches!(body(&corpus[2]), Body::Sample(s) if s.registers.is_none()));
    let Body::Mmap(mmap) = body(&corpus[3]) else { panic!() };
    assert_eq!((mmap.pid, mmap.start), (Pid(17), VirtualAddress(0x40_0000)));
    assert_eq!((mmap.length, mmap.file_offset), (0x1000, 0x2000));
    assert_eq!((mmap.path, mmap.executable), (&b"/usr/bin/cat"[..], true));
    assert_eq!(mmap.file, FileTag::Inode { major: 254, minor: 1, inode: 99 });
    let Body::Mmap(mmap) = body(&corpus[4]) else { panic!() };
    let FileTag::BuildId(id) = mmap.file else { panic!() };
    assert_eq!((id.len(), &id[..4]), (20, &[1, 2, 3, 4][..]));
    assert!(matches!(body(&corpus[5]), Body::Mmap(m) if m.path == b"//anon" && m.executable));
    assert_eq!(body(&corpus[6]), Body::Comm { pid: Pid(17), tid: Tid(34), exec: true, comm: b"cat" });
    assert_eq!(
        body(&corpus[7]),
        Body::Fork { pid: Pid(18), parent_pid: Pid(17), tid: Tid(35), parent_tid: Tid(34) }
    );
    assert_eq!(body(&corpus[8]), Body::Exit { pid: Pid(17), tid: Tid(34) });
    assert_eq!(body(&corpus[9]), Body::Lost(42));
    assert_eq!(body(&corpus[10]), Body::LostSamples(43));
    assert_eq!((body(&corpus[11]), body(&corpus[12])), (Body::Throttle, Body::Unthrottle));
    assert_eq!(body(&corpus[13]), Body::Other(17));
    for bytes in &corpus {
        let Record { time_ns, event_id, .. } = parse_record(bytes).unwrap();
        assert_eq!((time_ns, event_id), (77, 5));
    }
}

/// The kernel reports the same registers for 32-bit code, but addresses and widths differ, so they are not interpreted.
#[test]
fn registers_of_32_bit_code_are_left_out() {
    let sample = [5, 0x4000, pair(17, 34), 77, 1];
    let all: Vec<u64> = sample.into_iter().chain((100..).take(REGISTER_COUNT)).collect();
    let bytes = record(9, 2, &all, &[]);
    let Body::Sample(sample) = body(&bytes) else { panic!() };
    assert_eq!((sample.pc, sample.registers), (VirtualAddress(0x4000), None));
}

#[test]
fn records_of_an_event_for_bpf_have_no_trailer() {
    let throttle = record(5, 0, &[77, 5, 5], &[]);
    let known = |body| Record { time_ns: 77, event_id: 5, body };
    assert_eq!(parse_record(&throttle), Ok(known(Body::Throttle)));
    assert_eq!(parse_record(&record(6, 0, &[77, 5, 5], &[])), Ok(known(Body::Unthrottle)));
    let lost = Record { time_ns: 0, event_id: 5, body: Body::Lost(42) };
    assert_eq!(parse_record(&record(2, 0, &[5, 42], &[])), Ok(lost));
    assert!(parse_record(&throttle[..16]).is_err());
}

#[test]
fn each_malformation_has_its_own_error() {
    let sample = record(9, 2, &[5, 0x4000, pair(17, 34), 77], &[]);
    assert_eq!(parse_record(&[]), Err(RecordError::Size { given: 0, claimed: 0 }));
    assert_eq!(parse_record(&sample[..20]), Err(RecordError::Size { given: 20, claimed: 40 }));
    assert_eq!(
        parse_record(&[&sample[..], &[0]].concat()),
        Err(RecordError::Size { given: 41, claimed: 40 })
    );
    assert_eq!(parse_record(&record(9, 2, &[5], &[])), Err(RecordError::Short { kind: 9, given: 16 }));
    assert_eq!(parse_record(&record(10, 0, &[5], &[])), Err(RecordError::Short { kind: 10, given: 16 }));
    let odd = record(9, 2, &[5, 0x4000, pair(17, 34), 77, 2, 1, 2, 3], &[]);
    assert_eq!(parse_record(&odd), Err(RecordError::Registers { bytes: 32 }));
    let long_id = side(10, 1 << 14, &[1, 2, 3, 4, 200, 1, 2, 3], b"/x\0");
    assert!(matches!(parse_record(&long_id), Err(RecordError::Short { .. })));
}

/// Returns a sample that claims this many branches, with these entries.
fn stack(claimed: u64, entries: &[[u64; 3]]) -> Vec<u8> {
    let words = [5, 0x4000, pair(17, 34), 77, claimed];
    record(9, 2, &[&words[..], entries.as_flattened()].concat(), &[])
}

#[test]
fn branches_are_those_that_were_executed() {
    let branches = |bytes: &[u8]| -> Result<Vec<(u64, u64)>, RecordError> {
        let record = parse_record_of(bytes, |_| SampleFields::Branches)?;
        assert_eq!((record.time_ns, record.event_id), (77, 5));
        let Body::Branches(stack) = record.body else { panic!("{record:?}") };
        assert_eq!(stack.pid, Pid(17));
        Ok(stack.taken().map(|(from, to)| (from.0, to.0)).collect())
    };
    let wrong_path = 1 << 24;
    let entries = [[0x20, 0x10, 3], [0x30, 0x40, wrong_path], [0x18, 0x1c, 2 << 24]];
    assert_eq!(branches(&stack(3, &entries)), Ok(vec![(0x20, 0x10), (0x18, 0x1c)]));
    assert_eq!(branches(&stack(0, &[])), Ok(Vec::new()));
    for claimed in [0, 2, 4, u64::MAX / 24 + 4, u64::MAX] {
        assert_eq!(branches(&stack(claimed, &entries)), Err(RecordError::Branches { bytes: 72, claimed }));
    }
    let bare = record(9, 2, &[5, 0x4000, pair(17, 34), 77], &[]);
    assert_eq!(branches(&bare), Err(RecordError::Short { kind: 9, given: 40 }));
    // Samples of another event are parsed without branches.
    assert!(matches!(parse_record_of(&bare, |_| SampleFields::None).unwrap().body, Body::Sample(_)));
}

/// Returns a sample with a call stack: the call chain, registers unless `abi` is 0, and 16 bytes of stack, `filled` of them.
fn with_stack(chain: &[u64], abi: u64, filled: u64) -> Vec<u8> {
    let mut body = vec![5, 0x4000, pair(17, 34), 77, chain.len() as u64];
    body.extend(chain);
    body.push(abi);
    body.extend((100..).take(if abi == 0 { 0 } else { REGISTER_COUNT }));
    body.extend([16, 0x1111, 0x2222, filled]);
    record(9, 1, &body, &[])
}

#[test]
fn call_stacks_are_parsed() {
    const KERNEL: u64 = -128_i64 as u64;
    const USER: u64 = -512_i64 as u64;
    let parse = |bytes: &[u8]| match parse_record_of(bytes, |_| SampleFields::CallStack)?.body {
        Body::SampleWithStack(sample, stack) => Ok((
            sample.registers.is_some(),
            stack.kernel().map(|address| address.0).collect::<Vec<_>>(),
            stack.frame_pointers().map(|address| address.0).collect::<Vec<_>>(),
            stack.user.len(),
            stack.is_cut,
        )),
        other => panic!("{other:?}"),
    };
    let chain = [KERNEL, 0xffff_0001, 0xffff_0002, USER, 0x4000, 0x4010];
    let both = (vec![0xffff_0001, 0xffff_0002], vec![0x4000, 0x4010]);
    assert_eq!(parse(&with_stack(&chain, 2, 16)), Ok((true, both.0.clone(), both.1, 16, true)));
    assert_eq!(parse(&with_stack(&chain[..3], 0, 8)), Ok((false, both.0, vec![], 8, false)));
    assert_eq!(parse(&with_stack(&[], 2, 0)), Ok((true, vec![], vec![], 0, false)));
    // More bytes are filled than there are; the record ends too early; the chain is longer than the record.
    let mut hostile = vec![with_stack(&chain, 2, 17), with_stack(&chain, 2, u64::MAX)];
    let mut cut = with_stack(&chain, 2, 16);
    cut.truncate(cut.len() - 8);
    let length = (cut.len() as u16).to_ne_bytes();
    cut[6..8].copy_from_slice(&length);
    hostile.push(cut);
    let mut long = with_stack(&chain, 2, 16);
    long[40..48].copy_from_slice(&(u64::MAX / 8 + 2).to_ne_bytes());
    hostile.push(long);
    for bytes in hostile {
        assert!(matches!(parse(&bytes), Err(RecordError::CallStack { .. })), "{bytes:x?}");
    }
}

#[test]
fn a_stream_splits_at_the_headers() {
    let stream = corpus().concat();
    let (mut rest, mut count) = (&stream[..], 0);
    while let Some(split) = split_record(rest) {
        let (one, tail) = split.unwrap();
        parse_record(one).unwrap();
        (rest, count) = (tail, count + 1);
    }
    assert_eq!(count, corpus().len());
}

/// Flips, cuts and splices records 200,000 times. Parsing may return an error, but never panics.
#[test]
fn hostile_bytes_never_panic() {
    let corpus = [corpus(), vec![stack(2, &[[1, 2, 3]; 2])]].concat();
    let mut state = 0x5eed_1997_u64;
    println!("seed {state:#x}");
    let mut next = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    for _ in 0..200_000 {
        let mut bytes = corpus[next(corpus.len())].clone();
        for _ in 0..1 + next(6) {
            let at = next(bytes.len());
            match next(4) {
                0 => bytes[at] = next(256) as u8,
                1 => bytes.truncate(at.max(1)),
                2 => bytes.extend_from_slice(&corpus[next(corpus.len())]),
                _ => bytes[at] ^= 1 << next(8),
            }
        }
        let mut rest = &bytes[..];
        while let Some(Ok((one, tail))) = split_record(rest) {
            if let Ok(Record { body: Body::Branches(stack), .. }) =
                parse_record_of(one, |_| SampleFields::Branches)
            {
                assert!(stack.taken().count() <= one.len() / 24);
            }
            if let Ok(Record { body: Body::SampleWithStack(_, stack), .. }) =
                parse_record_of(one, |_| SampleFields::CallStack)
            {
                assert!(stack.kernel().count() + stack.user.len() <= one.len());
            }
            let _ = parse_record(one);
            rest = tail;
        }
        let _ = parse_record(&bytes);
    }
}
