// The programs of the absolute table: real programs as Debian packages them, and kernels whose hot loop is known.
//
// Each program repeats the same work `passes` times in one process (in several processes if `processes` is set). So a run can
// last as long as needed, while callgrind counts only a few passes.
//
// `command(passes, at)` returns the command. `at` provides `input(name)`, `script(name)`, `joined(name, passes)` (a file that
// contains an input this many times) and `built(name)` (a program of ours). `package` is the Debian package with the program.
// Programs of role `tune` may be used to choose settings (the earlier `recipes` are among them), those of role `judge` may
// not. The programs with `quick` suffice to check that everything works. `hot` of a kernel is the function whose loop is
// judged.

const times = (passes, path) => Array(passes).fill(path);
/** Returns the command of a shell that runs a command this many times: many processes, like a build. */
const again = (passes, command) => ['bash', '-c', 'for ((i = 0; i < $0; i++)); do "$@" || exit; done', String(passes), ...command];

/** Prevents signals to goroutines, because callgrind 3.19 fails an assertion at the second one. */
const go = { GODEBUG: 'asyncpreemptoff=1' };

const tune = [
  { name: 'gzip', language: 'c', package: 'gzip', command: (passes, { input }) => ['gzip', '-6', '-c', ...times(passes, input('book.txt'))] },
  { name: 'bzip2', language: 'c', package: 'bzip2', command: (passes, { input }) => ['bzip2', '-9', '-k', '-c', ...times(passes, input('chapter.txt'))] },
  { name: 'xz', language: 'c', package: 'xz-utils', command: (passes, { input }) => ['xz', '-3', '-T1', '-k', '-c', ...times(passes, input('chapter.txt'))] },
  { name: 'zstd', language: 'c', package: 'zstd', command: (passes, { input }) => ['zstd', '-9', '--single-thread', '-q', '-c', ...times(passes, input('chapter.txt'))] },
  { name: 'lz4', language: 'c', package: 'lz4', quick: true, command: (passes, { input }) => ['lz4', '-9', '-q', '-c', '-m', ...times(passes, input('book.txt'))] },
  { name: 'brotli', language: 'c', package: 'brotli', command: (passes, { joined }) => ['brotli', '-q', '6', '-w', '16', '-c', joined('chapter.txt', passes)] },
  { name: 'lua', language: 'c', package: 'lua5.4', command: (passes, { script }) => ['lua5.4', script('work.lua'), String(passes)] },
  { name: 'sqlite', language: 'c', package: 'sqlite3', command: (passes, { script }) => ['sqlite3', ':memory:', '-init', script('work.sql'), ...times(passes, `.read ${script('pass.sql')}`)] },
  { name: 'python', language: 'c', package: 'python3', env: { PYTHONHASHSEED: '0' }, command: (passes, { script, input }) => ['/usr/bin/python3', script('work.py'), String(passes), input('page.txt')] },
  { name: 'jq', language: 'c', package: 'jq', command: (passes, { script, input }) => ['jq', '-c', '-f', script('work.jq'), ...times(passes, input('objects.json'))] },
  { name: 'mawk', language: 'c', package: 'mawk', command: (passes, { script, input }) => ['mawk', '-v', `n=${passes}`, '-v', `file=${input('page.txt')}`, '-f', script('work.awk')] },
];

const judge = [
  { name: 'gawk', language: 'c', package: 'gawk', env: { LC_ALL: 'C' }, command: (passes, { script, input }) => ['gawk', '-v', `n=${passes}`, '-v', `file=${input('page.txt')}`, '-f', script('work.awk')] },
  { name: 'perl', language: 'c', package: 'perl', env: { PERL_HASH_SEED: '0' }, command: (passes, { script, input }) => ['/usr/bin/perl', script('work.pl'), String(passes), input('page.txt')] },
  { name: 'ruby', language: 'c', package: 'ruby', command: (passes, { script, input }) => ['/usr/bin/ruby', script('work.rb'), String(passes), input('page.txt')] },
  { name: 'php', language: 'c', package: 'php-cli', command: (passes, { script, input }) => ['php', script('work.php'), String(passes), input('page.txt')] },
  { name: 'xmllint', language: 'c', package: 'libxml2-utils', command: (passes, { input }) => ['xmllint', '--noout', ...times(passes, input('page.xml'))] },
  { name: 'flac', language: 'c', package: 'flac', command: (passes, { input }) => ['flac', '-s', '-c', '--force-raw-format', '--endian=little', '--channels=2', '--bps=16', '--sample-rate=44100', '--sign=signed', ...times(passes, input('sound.raw'))] },
  { name: 'lame', language: 'c', package: 'lame', command: (passes, { joined }) => ['lame', '-r', '-s', '44.1', '--quiet', joined('sound.raw', passes), '-'] },
  { name: 'opusenc', language: 'c', package: 'opus-tools', command: (passes, { joined }) => ['opusenc', '--quiet', '--raw', '--raw-rate', '44100', '--serial', '1', joined('sound.raw', passes), '-'] },
  { name: 'optipng', language: 'c', package: 'optipng', command: (passes, { input }) => ['optipng', '-quiet', '-simulate', '-o2', ...times(passes, input('picture.ppm'))] },
  { name: 'zopfli', language: 'c', package: 'zopfli', command: (passes, { input }) => ['zopfli', '--i1', '-c', ...times(passes, input('page.txt'))] },
  { name: 'pigz', language: 'c', package: 'pigz', threads: 2, command: (passes, { input }) => ['pigz', '-9', '-p', '2', '-c', ...times(passes, input('book.txt'))] },
  { name: 'dot', language: 'c', package: 'graphviz', command: (passes, { input }) => ['dot', '-Tplain', ...times(passes, input('graph.dot'))] },
  { name: 'tidy', language: 'c', package: 'tidy', status: 1, command: (passes, { input }) => ['tidy', '-q', '--show-warnings', 'no', '-o', '/dev/null', ...times(passes, input('page.html'))] },
  { name: 'cc1', language: 'c++', package: 'gcc', processes: true, command: (passes, { input }) => again(passes, ['gcc', '-O2', '-S', '-o', '/dev/null', input('code.c')]) },
  { name: 'z3', language: 'c++', package: 'z3', command: (passes, { joined }) => ['z3', joined('formula.smt2', passes)] },
  { name: 'cppcheck', language: 'c++', package: 'cppcheck', command: (passes, { joined }) => ['cppcheck', '-q', joined('code.c', passes)] },
  { name: 'hunspell', language: 'c++', package: 'hunspell', command: (passes, { input }) => ['hunspell', '-d', 'en_US', '-l', ...times(passes, input('page.txt'))] },
  { name: 'povray', language: 'c++', package: 'povray', command: (passes, { script }) => ['povray', `+I${script('work.pov')}`, '-D', '-F', '-V', '-GA', '+WT1', '+W80', '+H60', `+KFF${passes}`] },
  { name: 'rg', language: 'rust', package: 'ripgrep', command: (passes, { input }) => ['rg', '-j1', '-c', '\\b[a-m]\\w+[n-z] (\\w+) \\d+|(hea|tee|oso)[a-z]*', ...times(passes, input('chapter.txt'))] },
  { name: 'deflate', language: 'rust', source: 'rust', command: (passes, { built, input }) => [built('deflate'), ...times(passes, input('page.txt'))] },
  { name: 'regexes', language: 'rust', source: 'rust', command: (passes, { built, input }) => [built('regexes'), ...times(passes, input('page.txt'))] },
  { name: 'fzf', language: 'go', package: 'fzf', env: go, command: (passes, { joined }) => ['bash', '-c', 'fzf --filter "etn" < "$0"', joined('chapter.txt', passes)] },
  { name: 'gron', language: 'go', package: 'gron', env: go, command: (passes, { joined }) => ['gron', '-s', joined('objects.json', passes)] },
  { name: 'indexer', language: 'go', source: 'go', env: go, command: (passes, { built, input }) => [built('indexer'), String(passes), input('chapter.txt'), input('objects.json')] },
];

const kernel = ['chase-l1', 'chase-l2', 'chase-llc', 'chase-dram', 'copy', 'matmul', 'sort', 'hashjoin'].map((name) => ({
  name, language: 'c', source: 'kernels.c', hot: `hot_${name.split('-')[0]}`, quick: name === 'copy',
  command: (passes, { built }) => [built('kernels'), name, String(passes)],
}));

const withRole = (role, programs) => programs.map((program) => ({ ...program, role }));
/** @type {{ name: string, role: 'tune'|'judge'|'kernel', language: string, package?: string, command: Function }[]} */
export const programs = [...withRole('tune', tune), ...withRole('judge', judge), ...withRole('kernel', kernel)];
