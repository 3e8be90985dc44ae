//! Examples that `--help` shows, for each command. A test parses every line of them.

pub const RECORD: &str = "\
Examples:
  dwell record -- make test                    sample a command and what it starts
  dwell record --count -- ./bench --fast       also count executions, for absolute CPI and causes
  dwell record -p 1234 --duration 30           sample a running process for half a minute
  dwell record --all --dimensions cgroup       sample the machine until Ctrl-C, and keep containers apart
  dwell record -e cpu-clock,off-cpu -- ./app   also record what threads wait for";

pub const DAEMON: &str = "\
Examples:
  dwell daemon                                 sample the machine for at most 1 % of each CPU
  dwell daemon --rotate 1h --keep-for 7d       a recording for each hour, for a week
  dwell daemon --app nginx,postgres            only samples of these two are kept";

pub const CALLPATHS: &str = "\
Examples:
  dwell callpaths -p 1234 parse                who calls parse, how often, and how long it takes
  dwell callpaths -m calls -p 1234 'json_*' --duration 10
  dwell callpaths malloc -- ./app input        from the start of a command to its end";

pub const TRACE: &str = "\
Examples:
  dwell trace record -o t -- ./app input       record every instruction and data address
  dwell trace stat t                           how much that is
  dwell trace print t --to 100                 as valgrind's lackey prints it";

pub const TRACE_RECORD: &str = "\
Examples:
  dwell trace record -o t -- ./app input
  dwell trace record -o t --control -- make    only the instructions, which costs less";

pub const TRACE_PRINT: &str = "\
Examples:
  dwell trace print t --from 1000 --to 1100    a hundred instructions of each thread
  dwell trace print t --process 4711           one process of several";

pub const TRACE_STAT: &str = "\
Example:
  dwell trace stat t --json";

pub const TRACE_COUNTS: &str = "\
Example:
  dwell trace counts t --json                  exact executions of each instruction, by binary";

pub const STATUS: &str = "\
Examples:
  dwell status --watch                         what the daemon does now, and what it costs
  dwell status --epoch latest                  losses and unknown samples of a recording";

pub const FLUSH: &str = "\
Example:
  dwell flush                                  before reading what the daemon sampled just now";

pub const PAUSE: &str = "\
Example:
  dwell pause                                  no samples, and no cost of sampling, until dwell resume";

pub const RESUME: &str = "\
Examples:
  dwell resume                                 go on in the same recording
  dwell resume --app nginx,postgres            keep samples of these two only, in a new recording
  dwell resume --all                           keep samples of all applications again";

pub const EPOCH: &str = "\
Examples:
  dwell epoch list
  dwell epoch rename latest before             a name for diff and for --epoch
  dwell epoch remove latest~3";

pub const TOP: &str = "\
Examples:
  dwell top                                    the functions with the most time
  dwell top --by line -n 40                    source lines
  dwell top --by caller --of memcpy            who calls memcpy
  dwell top --since 1h --by image              what the machine did in the last hour
  dwell top --service nginx --epoch all        one service (recorded with --dimensions cgroup)
  dwell top --tui                              the same, to walk through

'dwell legend' explains the numbers.";

pub const CALLERS: &str = "\
Examples:
  dwell callers memcpy                         who calls memcpy, and who calls them
  dwell callers libc.so.6:memcpy --depth 3";

pub const CALLEES: &str = "\
Example:
  dwell callees main                           what main spends its time on, level by level";

pub const FLAME: &str = "\
Examples:
  dwell flame -o flame.svg
  dwell flame --diff before after -o change.svg
  dwell flame --color-by cause -o causes.svg";

pub const ANNOTATE: &str = "\
Examples:
  dwell annotate                               the function with the most samples
  dwell annotate parse
  dwell annotate libz.so.1:crc32 --full        one of several functions of that name, all of it

'dwell legend' explains the numbers.";

pub const LIST: &str = "\
Example:
  dwell list src/parse.c                       the cost of each line, beside the line

'dwell legend' explains the numbers.";

pub const CFG: &str = "\
Examples:
  dwell cfg parse -o parse.svg
  dwell cfg parse --format dot -o parse.dot";

pub const SUMMARY: &str = "\
Examples:
  dwell summary parse                          where the cycles of parse go, cause by cause
  dwell summary --under handle_request         of handle_request and all that it calls

'dwell legend' explains the numbers.";

pub const REPORT: &str = "\
Example:
  dwell report --html report.html              one page that needs no network";

pub const STATS: &str = "\
Examples:
  dwell stats run1 run2 run3                   how much functions vary between runs
  dwell stats old1 old2 old3 --against new1,new2,new3";

pub const DIFF: &str = "\
Examples:
  dwell diff before after                      what got slower or faster, and whether that can be chance
  dwell diff latest~1 latest parse             line by line";

pub const IMPORT: &str = "\
Examples:
  dwell import perf.data
  dwell import cpu.pprof --name production
  dwell import profiles.json                   what the file exporter of an OpenTelemetry collector wrote";

pub const EXPORT: &str = "\
Examples:
  dwell export --format pprof -o profile.pb.gz
  dwell export --format folded -o stacks.folded";

pub const FEEDBACK: &str = "\
Examples:
  dwell feedback --for clang -o program.prof
  dwell feedback --for bolt --image program -o program.fdata";

pub const DOCTOR: &str = "\
Example:
  dwell doctor                                 before the first recording, or when one is refused";

pub const LEGEND: &str = "\
Example:
  dwell legend";

pub const COMPLETIONS: &str = "\
Example:
  dwell completions bash";

pub const MAN: &str = "\
Example:
  dwell man annotate";

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use crate::args::Cli;

    /// Returns the words of an example without the explanation after it.
    fn words(line: &str) -> Vec<String> {
        let command = line.trim().split("   ").next().unwrap_or_default();
        let parts = command.split('\'').enumerate();
        let words = parts.flat_map(|(n, part)| match n % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn each_command_has_examples_that_are_right() {
        let mut command = Cli::command();
        command.build();
        for verb in command.get_subcommands() {
            let shown = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<&str> = shown.lines().filter(|line| line.starts_with("  dwell ")).collect();
            assert!(!examples.is_empty(), "{} has no example", verb.get_name());
            for example in &examples {
                let words = words(example);
                assert_eq!(Cli::try_parse_from(&words).err().map(|e| e.to_string()), None, "{example}");
            }
            let of_verb = |line: &&&str| line.starts_with(&format!("  dwell {}", verb.get_name()));
            assert!(examples.iter().any(|line| of_verb(&line)), "{}", verb.get_name());
        }
    }

    /// Returns the commands of dwell in a document: code in a line, and lines that are indented as code.
    fn commands_in(text: &str) -> Vec<&str> {
        let in_line = text.lines().filter(|line| !line.starts_with("    "));
        let in_line = in_line.flat_map(|line| line.split('`').skip(1).step_by(2));
        let indented = text.lines().filter_map(|line| line.strip_prefix("    "));
        in_line.chain(indented).filter(|code| code.starts_with("dwell ")).collect()
    }

    #[test]
    fn commands_for_users_of_other_tools_are_right() {
        let commands = commands_in(include_str!("../../../../docs/coming-from.md"));
        assert!(commands.len() > 40, "{commands:?}");
        for command in commands {
            let words = words(command);
            assert_eq!(Cli::try_parse_from(&words).err().map(|e| e.to_string()), None, "{command}");
        }
    }
}
