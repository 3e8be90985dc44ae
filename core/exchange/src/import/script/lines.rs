//! Parses single lines of `perf script`: the first line of a sample, and its calls.
//!
//! Enters: a line. Leaves: the fields that the line has. Never here: previous lines, files, a guess about a missing
//! field. perf prints the requested fields (`-F`) in a fixed order; numbers and addresses have fixed widths, which
//! distinguish them from names that look like them.

use dwell_profile::Pid;

use crate::import::imported::pid_of;

/// The first line of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Head<'a> {
    /// The thread's name.
    pub comm: &'a str,
    /// The process; the thread if only the thread was printed.
    pub pid: Option<Pid>,
    /// The event, if it was printed.
    pub event: Option<&'a str>,
    /// The number of events that the sample stands for, if it was printed.
    pub period: Option<u64>,
    /// The rest of the line: an innermost call, or the text of a tracepoint.
    pub rest: &'a str,
    /// Whether the line has a time, which no other kind of line has at that position. A line without a time is a sample
    /// only if a call follows.
    pub is_certain: bool,
}

/// A call: its address, and perf's names for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Call<'a> {
    /// The address as perf prints it: the address in the process, or the offset in the file if there are call chains.
    pub address: u64,
    /// The symbol, if perf knew one.
    pub symbol: Option<&'a str>,
    /// The distance from the symbol's first byte, if it was printed.
    pub within: Option<u64>,
    /// The image; empty if it was not printed or perf did not know it.
    pub image: &'a str,
    /// Whether the call was inlined, so that it has no symbol of its own.
    pub is_inlined: bool,
}

/// Width of an address including the spaces before it, in columns.
const ADDRESS_WIDTH: usize = 16;
/// Width of a period, in columns.
const PERIOD_WIDTH: usize = 10;

/// A word and its position.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    start: usize,
    /// Width including the spaces before the word.
    width: usize,
}

impl Word<'_> {
    fn end(&self) -> usize {
        self.start + self.text.len()
    }

    fn is_number(&self) -> bool {
        self.text.bytes().all(|b| b.is_ascii_digit())
    }

    /// Returns whether the word is an address as perf prints it: a hexadecimal number that fills its columns.
    fn is_address(&self) -> bool {
        self.width >= ADDRESS_WIDTH && self.hexadecimal().is_some()
    }

    fn hexadecimal(&self) -> Option<u64> {
        u64::from_str_radix(self.text.strip_prefix("0x").unwrap_or(self.text), 16).ok()
    }

    /// Returns whether the word is a time, such as `2094.522570:`.
    fn is_time(&self) -> bool {
        let parts = self.text.strip_suffix(':').and_then(|t| t.split_once('.'));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        parts.is_some_and(|(whole, part)| digits(whole) && digits(part) && part.len() >= 3)
    }

    fn is_cpu(&self) -> bool {
        let inner = self.text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        inner.is_some_and(|cpu| !cpu.is_empty() && cpu.bytes().all(|b| b.is_ascii_digit()))
    }

    /// Parses a process, `1234`, or a process and a thread, `1234/1235`.
    fn pid(&self) -> Option<Pid> {
        let (pid, tid) = self.text.split_once('/').unwrap_or((self.text, "0"));
        tid.parse::<i32>().ok()?;
        pid.parse().ok().map(pid_of)
    }
}

fn words(line: &str) -> impl Iterator<Item = Word<'_>> + Clone {
    const SPACES: [char; 2] = [' ', '\t'];
    let mut end = 0;
    std::iter::from_fn(move || {
        let rest = &line[end..];
        let start = end + rest.find(|c| !SPACES.contains(&c))?;
        let text = line[start..].split(SPACES).next()?;
        let width = start + text.len() - end;
        end = start + text.len();
        Some(Word { text, start, width })
    })
}

impl<'a> Head<'a> {
    /// Parses a line that begins a sample: `comm  pid[/tid] [cpu] time: period event: …`, or those fields that were
    /// printed.
    pub fn read(line: &'a str) -> Option<Self> {
        if let Some(time) = words(line).find(Word::is_time) {
            let head = Head { is_certain: true, ..Head::default() };
            return head.before(&line[..time.start])?.after(&line[time.end()..]);
        }
        // Without a time, the head extends to the event, to the address, or to the end of the line.
        let event = words(line).find(|w| w.text.len() > 1 && w.text.ends_with(':'));
        let address = words(line).skip(1).find(Word::is_address);
        let at = match (event, address) {
            (Some(event), Some(address)) if address.start < event.start => address.end() - address.width,
            (Some(event), _) => event.start,
            (None, Some(address)) => address.end() - address.width,
            (None, None) => line.len(),
        };
        let mut before = &line[..at];
        let mut after = &line[at..];
        // A period precedes the event.
        let period = words(before).last().filter(|w| w.is_number() && w.width > PERIOD_WIDTH);
        if let Some(period) = period {
            (before, after) = (&line[..period.start], &line[period.start..]);
        }
        Head::default().before(before)?.after(after)
    }

    /// Parses the fields before the time: `comm  pid[/tid] [cpu]`.
    fn before(self, text: &'a str) -> Option<Self> {
        let mut all: Vec<Word<'_>> = words(text).collect();
        let is_misc = |w: &Word<'_>| w.text.bytes().all(|b| b.is_ascii_uppercase());
        // `-F +misc` prints `U`, `K`, … after the process.
        if all.len() > 1 && all.last().is_some_and(is_misc) && all[all.len() - 2].pid().is_some() {
            all.pop();
        }
        if all.last().is_some_and(Word::is_cpu) {
            all.pop();
        }
        let pid = all.last().and_then(Word::pid);
        if pid.is_some() {
            all.pop();
        }
        let comm = all.first().zip(all.last()).map_or("", |(first, last)| &text[first.start..last.end()]);
        Some(Head { comm, pid, ..self })
    }

    /// Parses the fields after the time: `period event: …`.
    fn after(self, text: &'a str) -> Option<Self> {
        let mut rest = text;
        let mut period = None;
        let mut all = words(text);
        let mut next = all.next();
        if let Some(word) = next.filter(|w| w.is_number()) {
            let following = all.next();
            // An address may consist of decimal digits only, but it is followed by its symbol.
            let is_period = following.is_none_or(|f| f.text.ends_with(':') || f.is_address());
            if is_period {
                (period, rest, next) = (Some(word.text.parse().ok()?), &text[word.end()..], following);
            }
        }
        let is_event = |w: &Word<'_>| w.text.len() > 1 && w.text.ends_with(':');
        let event = match next {
            Some(word) if is_event(&word) => Some(word),
            Some(word) if word.is_address() => None,
            // An event's name that the user chose may contain spaces.
            Some(first) => words(text)
                .skip_while(|w| w.start < first.start)
                .find(is_event)
                .map(|last| Word { text: &text[first.start..last.end()], ..first }),
            None => None,
        };
        if let Some(event) = event {
            rest = &text[event.end()..];
        }
        let event = event.map(|e| e.text.trim_end_matches(':'));
        Some(Head { event, period, rest, ..self })
    }
}

impl<'a> Call<'a> {
    /// Parses `address symbol+0xoffset (image)`, or those fields that were printed. If `strict` is true, the address
    /// must fill its columns, because the text of a tracepoint may be at this position.
    pub fn read(text: &'a str, strict: bool) -> Option<Self> {
        let mut all = words(text);
        let mut word = all.next()?;
        if strict && !word.is_address() {
            return None;
        }
        // `-F +addr` prints the accessed address first.
        if let Some(second) = all.next().filter(Word::is_address) {
            word = second;
        }
        let address = word.hexadecimal().filter(|_| {
            // `add (/bin/x)` begins with a name, unless the width says that it is an address.
            word.is_address() || word.text.bytes().any(|b| b.is_ascii_digit())
        });
        let named = text[if address.is_some() { word.end() } else { word.start }..].trim();
        let (named, image) = split_image(named);
        let (name, within) = match named.rsplit_once("+0x") {
            Some((name, offset)) => (name, u64::from_str_radix(offset, 16).ok()),
            None => (named, None),
        };
        let name = if within.is_some() { name } else { named };
        let is_inlined = image == "inlined";
        let image = if is_inlined || image == "[unknown]" { "" } else { image };
        let symbol = Some(name).filter(|name| !name.is_empty() && *name != "[unknown]");
        if address.is_none() && (symbol.is_none() || image.is_empty() && !is_inlined) {
            return None;
        }
        Some(Call { address: address.unwrap_or(0), symbol, within, image, is_inlined })
    }
}

/// Splits `symbol (image)`: names and paths may contain spaces and parentheses, which are balanced.
fn split_image(text: &str) -> (&str, &str) {
    let group = |end: usize| {
        let mut depth = 0;
        let open = text[..end].char_indices().rev().find(|(_, c)| {
            depth += match c {
                ')' => 1,
                '(' => -1,
                _ => 0,
            };
            depth == 0
        });
        let (open, _) = open?;
        (open == 0 || text[..open].ends_with(' '))
            .then(|| (text[..open].trim_end(), &text[open + 1..end - 1]))
    };
    if text.ends_with(')') {
        return group(text.len()).unwrap_or((text, ""));
    }
    // More fields follow: the image is the last group in parentheses that looks like an image.
    let ends = text.match_indices(") ").map(|(at, _)| at + 1).collect::<Vec<_>>();
    let is_image = |image: &str| image.starts_with(['/', '[']) || image == "inlined";
    let found = ends.into_iter().rev().filter_map(group).find(|(_, image)| is_image(image));
    found.unwrap_or((text, ""))
}

/// Parses `file:line`, which `-F +srcline` prints below a call; `None` if perf did not know the line.
pub fn source_line(text: &str) -> Option<(&str, u32)> {
    let text = text.trim();
    let text = text.split_once(" (discriminator ").map_or(text, |(text, _)| text);
    let (file, line) = text.rsplit_once(':')?;
    let line = line.parse().ok().filter(|line| *line > 0)?;
    (!file.is_empty() && file != "??").then_some((file, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats a head as `comm|pid|event|period|rest`.
    fn head(line: &str) -> String {
        let Some(head) = Head::read(line) else { return "none".to_owned() };
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        format!(
            "{}|{}|{}|{}|{}|{}",
            head.comm,
            or_dash(head.pid.map(|p| p.to_string())),
            head.event.unwrap_or("-"),
            or_dash(head.period.map(|p| p.to_string())),
            head.rest.trim(),
            if head.is_certain { "sample" } else { "perhaps" }
        )
    }

    #[test]
    fn every_list_of_fields_has_a_head() {
        for (line, wanted) in [
            (
                "               s 31846  2094.522570:    5000000 cpu-clock:ppp:      5586e6ffa13f spin+0x16 (/tmp/s)",
                "s|31846|cpu-clock:ppp|5000000|5586e6ffa13f spin+0x16 (/tmp/s)|sample",
            ),
            (
                "opt 2w12ck1nwlx 32321 [000]  2114.292777:    5000000 cycles: ",
                "opt 2w12ck1nwlx|32321|cycles|5000000||sample",
            ),
            ("swapper     0 [001] 12.345678901: 1 cycles:u: ", "swapper|0|cycles:u|1||sample"),
            (
                "kworker/0:1-ev  7/7     [000] 1.000000: sched:sched_switch: prev_comm=a: b ==> c",
                "kworker/0:1-ev|7|sched:sched_switch|-|prev_comm=a: b ==> c|sample",
            ),
            (
                "tokio: w 1  77 U      3.100000:    9 cpu_core/cycles/P:  401136 main",
                "tokio: w 1|77|cpu_core/cycles/P|9|401136 main|sample",
            ),
            (
                "31846/31846  2094.522570:      5586e6ffa13f spin (/s)",
                "|31846|-|-|5586e6ffa13f spin (/s)|sample",
            ),
            (
                "               s 31846 cpu-clock:ppp:      5586e6ffa13f spin",
                "s|31846|cpu-clock:ppp|-|5586e6ffa13f spin|perhaps",
            ),
            ("               s      5586e6ffa13f spin (/s)", "s|-|-|-|5586e6ffa13f spin (/s)|perhaps"),
            (
                "             add 31846      5586e6ffa13f a::b: c",
                "add|31846|-|-|5586e6ffa13f a::b: c|perhaps",
            ),
            ("s 31764 ", "s|31764|-|-||perhaps"),
            ("a 1  2.000000:  my event: ", "a|1|my event|-||sample"),
            ("[002] cycles:      5586e6ffa13f spin", "|-|cycles|-|5586e6ffa13f spin|perhaps"),
        ] {
            assert_eq!(head(line), wanted, "{line}");
        }
    }

    #[test]
    fn calls_have_names_with_spaces_and_parentheses() {
        let call = |text| {
            let call = Call::read(text, false)?;
            Some((call.address, call.symbol.unwrap_or("-"), call.within, call.image))
        };
        for (text, wanted) in [
            ("\t          401136 main+0x10 (/bin/x)", Some((0x401136, "main", Some(16), "/bin/x"))),
            (
                "\t    7f3e std::function<void (int)>::operator()(int) const+0x1 (/opt/My App (x86)/b (deleted))",
                Some((
                    0x7f3e,
                    "std::function<void (int)>::operator()(int) const",
                    Some(1),
                    "/opt/My App (x86)/b (deleted)",
                )),
            ),
            (
                "\tffffffff822010c9 operator+ ([kernel.kallsyms])",
                Some((0xffff_ffff_8220_10c9, "operator+", None, "[kernel.kallsyms]")),
            ),
            ("\t    7f2f34aef400 [unknown] ([unknown])", Some((0x7f2f_34ae_f400, "-", None, ""))),
            ("\t            113f spin", Some((0x113f, "spin", None, ""))),
            ("\t add (/bin/x)", Some((0, "add", None, "/bin/x"))),
            (
                "         7ffd1000       5586e6ffa13f spin+0x1 (/s) insn: 48 89",
                Some((0x5586_e6ff_a13f, "spin", Some(1), "/s")),
            ),
            ("prev_comm=a", None),
        ] {
            assert_eq!(call(text), wanted, "{text}");
        }
        assert_eq!(Call::read(" 8,0 W 4096 ()", true), None);
        assert!(Call::read("\t 113f mix (inlined)", false).unwrap().is_inlined);
    }

    #[test]
    fn source_lines_are_read_where_perf_printed_them() {
        assert_eq!(source_line("  /a b/s.c:12 (discriminator 3)"), Some(("/a b/s.c", 12)));
        assert_eq!([source_line("  ??:0"), source_line("  libc.so.6[1234]")], [None, None]);
    }
}
