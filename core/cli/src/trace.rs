//! Runs `dwell trace`: converts arguments for dwell-trace and shows its answers.

use std::{
    io::{self, BufWriter, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{ExitCode, ExitStatus},
};

use anyhow::Context;
use dwell_trace::{Access, Detail, Item, Recording, Totals, Trace};
use serde_json::json;

use crate::{
    args::{TraceArgs, TracePrintArgs, TraceRecordArgs, TraceVerb},
    complain, exit, print, print_json,
    text::{bytes, grouped},
};

/// Runs a verb of `dwell trace`.
pub fn run(verb: &TraceVerb, json: bool) -> anyhow::Result<ExitCode> {
    let done = match verb {
        TraceVerb::Record(args) => return record(args, json),
        TraceVerb::Print(args) => print_trace(args, json),
        TraceVerb::Stat(args) => stat(args, json),
        TraceVerb::Counts(args) => counts(args, json),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Records a command. Its status is that of the command.
fn record(args: &TraceRecordArgs, json: bool) -> anyhow::Result<ExitCode> {
    let detail = match (args.control, args.check) {
        (true, _) => Detail::Control,
        (_, true) => Detail::Check,
        _ => Detail::Addresses,
    };
    let (folder, command) = (args.output.clone(), args.command.clone());
    let recorded = dwell_trace::record(&Recording { folder, detail, command }).context("trace record")?;
    let shown = args.output.display();
    if json {
        print_json(&json!({
            "schema": 1, "trace": args.output, "bytes": recorded.bytes, "packed_bytes": recorded.packed_bytes,
        }))?;
    } else {
        complain(&format!("trace {shown}: {} in files", bytes(recorded.packed_bytes)));
    }
    Ok(exit::of_command(ExitStatus::from_raw(recorded.status)))
}

fn open(folder: &Path, verb: &str) -> anyhow::Result<Trace> {
    let trace = Trace::open(folder).with_context(|| format!("trace {verb}"))?;
    trace.warnings.iter().for_each(|warning| complain(&format!("warning: {warning}")));
    Ok(trace)
}

/// Prints instructions and references as lackey does.
fn print_trace(args: &TracePrintArgs, json: bool) -> anyhow::Result<()> {
    anyhow::ensure!(!json, "trace print: the text is lackey's: there is no JSON of it");
    let trace = open(&args.folder, "print")?;
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    for (number, entry) in trace.manifest.threads.iter().enumerate() {
        if args.process.is_some_and(|wanted| wanted != entry.process)
            || args.thread.is_some_and(|wanted| wanted != entry.thread)
        {
            continue;
        }
        let mut stream = trace.stream(number as u32).context("trace print")?;
        let mut written = writeln!(out, "# process {} thread {}", entry.process, entry.thread);
        let mut next = 0;
        let done = stream.each(&mut |item| {
            next += u64::from(matches!(item, Item::Instruction { .. }));
            let is_wanted = next > args.from && args.to.is_none_or(|to| next <= to);
            if is_wanted && written.is_ok() {
                written = write_item(&mut out, item);
            }
        });
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.context("trace print")?,
        }
        stream.warnings.iter().for_each(|warning| complain(&format!("warning: {warning}")));
        if let Err(broken) = done {
            out.flush()?;
            anyhow::bail!("trace print: thread {}: {broken}", entry.thread);
        }
    }
    Ok(out.flush()?)
}

fn write_item(out: &mut dyn Write, item: Item) -> io::Result<()> {
    match item {
        Item::Instruction { pc, length } => writeln!(out, "I  {:08x},{length}", pc.0),
        Item::Reference { access, address, bytes } => {
            let letter = match access {
                Access::Load => 'L',
                Access::Store => 'S',
                Access::Modify => 'M',
            };
            writeln!(out, " {letter} {:08x},{bytes}", address.0)
        }
        Item::Signal(number) => writeln!(out, "# signal {number}"),
    }
}

fn stat(args: &TraceArgs, json: bool) -> anyhow::Result<()> {
    let trace = open(&args.folder, "stat")?;
    let (mut totals, mut stream_bytes, mut broken) = (Totals::default(), 0, Vec::new());
    for number in 0..trace.manifest.threads.len() as u32 {
        let mut stream = trace.stream(number).context("trace stat")?;
        let done = stream.each(&mut |_| {});
        totals.add(stream.totals);
        stream_bytes += stream.bytes();
        broken.extend(stream.warnings.iter().cloned());
        broken.extend(done.err().map(|broken| format!("thread {number}: {broken}")));
    }
    broken.iter().for_each(|warning| complain(&format!("warning: {warning}")));
    let files: u64 =
        std::fs::read_dir(&args.folder)?.flatten().filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum();
    let threads = trace.manifest.threads.len();
    let Totals { instructions, references, alone, untraced, checked, wrong } = totals;
    if json {
        let check =
            (trace.manifest.detail == Detail::Check).then(|| json!({ "checked": checked, "wrong": wrong }));
        return print_json(&json!({
            "schema": 1, "command": trace.manifest.command, "detail": trace.manifest.detail,
            "instructions": instructions, "references": references, "bytes": stream_bytes, "packed_bytes": files,
            "slowdown": null, "threads": threads, "switches": null,
            "untraced": { "instructions_alone": alone, "references": untraced }, "check": check, "warnings": broken,
        }));
    }
    let mut text = format!(
        "{} instructions, {} references in {threads} threads; {} recorded, {} in files\n",
        grouped(instructions),
        grouped(references),
        bytes(stream_bytes),
        bytes(files)
    );
    if alone + untraced > 0 {
        text += &format!(
            "not known: the references of {} instructions that were executed alone, and {} of gathers, whole sets of registers and bit strings\n",
            grouped(alone),
            grouped(untraced)
        );
    }
    if trace.manifest.detail == Detail::Check {
        text += &format!("{} addresses compared, {} of them wrong\n", grouped(checked), grouped(wrong));
    }
    print(&(text + "the kernel's instructions are not traced\n"))
}

fn counts(args: &TraceArgs, json: bool) -> anyhow::Result<()> {
    let trace = open(&args.folder, "counts")?;
    let counted = trace.counts().context("trace counts")?;
    if json {
        let images: Vec<_> = counted
            .images
            .iter()
            .map(|image| {
                let counts: Vec<_> = image.counts.iter().map(|(address, n)| json!([address, n])).collect();
                json!({ "image": image.image, "path": image.path, "is_here": image.is_here, "counts": counts })
            })
            .collect();
        return print_json(&json!({
            "schema": 1, "images": images, "elsewhere": counted.elsewhere, "warnings": counted.warnings,
        }));
    }
    counted.warnings.iter().for_each(|warning| complain(&format!("warning: {warning}")));
    let mut text = String::new();
    for image in &counted.images {
        text += &format!("{:>18}  {}\n", grouped(image.counts.values().sum()), image.path);
    }
    if counted.elsewhere > 0 {
        text += &format!("{:>18}  code in no file\n", grouped(counted.elsewhere));
    }
    print(&text)
}
