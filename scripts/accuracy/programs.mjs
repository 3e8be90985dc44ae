// The programs whose estimates are judged on this machine: the source of each, and how it is built and run.
//
// The source is one of `debian` (a source package), `crate` (see programs/rust) and `fixture` (a workload of
// test-fixtures/programs). `build` is a shell command that runs in the source. Its variables: $CC is the compiler with the
// common flags, $OUT the program to make, $STUBS a folder of headers that the configuration would have made, $HERE the folder
// of our drivers beside this file. `run` contains the arguments of the program; in it {in} is the folder of inputs and {here}
// that of the drivers.
//
// Programs of role `tune` may be used to choose settings, those of role `judge` may not; those of role `kernel` stall for one
// known reason. The programs with `quick` suffice to check that everything works.

const gcc = 'gcc';
const gxx = 'g++';
const clang = 'clang-14';
const clangxx = 'clang++-14';

const cargo = (bin) => `RUSTFLAGS="-C relocation-model=static -C link-arg=-Wl,--build-id" CARGO_TARGET_DIR="$(dirname $OUT)/../cargo" cargo build -q --release --locked --manifest-path $HERE/rust/Cargo.toml --bin ${bin} && cp "$(dirname $OUT)/../cargo/release/${bin}" $OUT`;

const workload = (source, repetitions) => {
  const [name, ending] = source.split('.');
  const compile = ending === 'rs' ? 'rustc --edition 2024 -O -g -C link-arg=-Wl,--build-id' : '$CC';
  return {
    name, language: ending === 'rs' ? 'rust' : 'c', role: 'kernel', fixture: source, compiler: ending === 'rs' ? 'rustc' : gcc, pie: true,
    build: `${compile} -o $OUT ${source}`, run: [String(repetitions)],
  };
};

export const programs = [
  {
    name: 'bzip2', language: 'c', role: 'tune', debian: 'bzip2', compiler: gcc,
    build: '$CC -D_FILE_OFFSET_BITS=64 -o $OUT blocksort.c huffman.c crctable.c randtable.c compress.c decompress.c bzlib.c bzip2.c',
    run: ['-k', '-c', '{in}/text.txt'],
  },
  {
    name: 'lua', language: 'c', role: 'tune', debian: 'lua5.4', compiler: gcc,
    // The seed of its hash tables is fixed, so that all runs are equal.
    build: 'cd src && $CC -I$STUBS -DLUA_USE_POSIX "-Dluai_makeseed(L)=24301" -o $OUT $(ls *.c | grep -v luac.c) -lm',
    run: ['{here}/work.lua'],
  },
  {
    name: 'xmlwf', language: 'c', role: 'tune', debian: 'expat', compiler: clang,
    build: 'cd expat && $CC -I$STUBS -DXML_NS -DXML_DTD -DXML_CONTEXT_BYTES=1024 -DHAVE_GETRANDOM -DBYTEORDER=1234 -Ilib -o $OUT lib/xml{parse,role,tok}.c xmlwf/{xmlwf,xmlfile,codepage,unixfilemap}.c',
    run: Array(5).fill('{in}/document.xml'),
  },
  {
    name: 'brotli', language: 'c', role: 'tune', debian: 'brotli', compiler: gcc, pie: true,
    build: '$CC -Ic/include -o $OUT c/common/*.c c/dec/*.c c/enc/*.c c/tools/brotli.c -lm',
    run: ['-q', '6', '-c', '{in}/text.txt'],
  },
  {
    name: 'lz4', language: 'c', role: 'tune', debian: 'lz4', compiler: clang,
    build: '$CC -Ilib -o $OUT $HERE/lz4.c lib/lz4.c lib/lz4hc.c',
    run: ['{in}/records.bin'],
  },
  {
    name: 'floats', quick: true, language: 'c++', role: 'tune', debian: 'double-conversion', compiler: gxx,
    build: '$CC -I. -o $OUT $HERE/floats.cc double-conversion/*.cc',
    run: ['{in}/numbers.txt'],
  },
  {
    name: 'json', language: 'rust', role: 'tune', crate: 'serde_json', compiler: 'rustc',
    build: cargo('json'),
    run: ['{in}/document.json'],
  },
  {
    name: 'minigzip', quick: true, language: 'c', role: 'judge', debian: 'zlib', compiler: gcc,
    build: '$CC -DHAVE_UNISTD_H -I. -o $OUT adler32.c crc32.c deflate.c infback.c inffast.c inflate.c inftrees.c trees.c zutil.c compress.c uncompr.c gz*.c test/minigzip.c',
    run: ['-c', '{in}/text.txt'],
  },
  {
    name: 'mawk', language: 'c', role: 'judge', debian: 'mawk', compiler: gcc,
    build: './configure CC=gcc CFLAGS="${CC#* }" LDFLAGS=-no-pie >/dev/null && make -s mawk && cp mawk $OUT',
    run: ['-f', '{here}/work.awk', '{in}/text.txt'],
  },
  {
    name: 'zstd', language: 'c', role: 'judge', debian: 'libzstd', compiler: clang,
    build: '$CC -DZSTD_DISABLE_ASM -DZSTD_LEGACY_SUPPORT=0 -Ilib -o $OUT $HERE/zstd.c lib/common/*.c lib/compress/*.c lib/decompress/*.c',
    run: ['{in}/records.bin'],
  },
  {
    name: 'sqlite', language: 'c', role: 'judge', crate: 'libsqlite3-sys', compiler: gcc,
    build: '$CC -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION -Isqlite3 -o $OUT $HERE/sqlite.c sqlite3/sqlite3.c -lm',
    run: [],
  },
  {
    name: 'tinyxml2', quick: true, language: 'c++', role: 'judge', debian: 'tinyxml2', compiler: clangxx,
    build: '$CC -I. -o $OUT $HERE/tinyxml2.cc tinyxml2.cpp',
    run: ['{in}/document.xml'],
  },
  {
    name: 'snappy', language: 'c++', role: 'judge', debian: 'snappy', compiler: gxx,
    build: 'sed -E "s/[$]\\{PROJECT_VERSION_(MAJOR|MINOR|PATCH)\\}/1/; s/[$]\\{HAVE_SYS_UIO_H_01\\}/1/" snappy-stubs-public.h.in > $STUBS/snappy-stubs-public.h && $CC -I$STUBS -I. -DHAVE_BUILTIN_EXPECT -DHAVE_BUILTIN_CTZ -DHAVE_ATTRIBUTE_ALWAYS_INLINE -o $OUT $HERE/snappy.cc snappy.cc snappy-sinksource.cc snappy-stubs-internal.cc',
    run: ['{in}/text.txt', '{in}/document.json'],
  },
  {
    name: 'regexes', language: 'rust', role: 'judge', crate: 'regex', compiler: 'rustc',
    build: cargo('regexes'),
    run: ['{in}/text.txt'],
  },
  {
    name: 'deflate', language: 'rust', role: 'judge', crate: 'miniz_oxide', compiler: 'rustc',
    build: cargo('deflate'),
    run: ['{in}/text.txt'],
  },
  workload('copy.c', 300),
  workload('chase.c', 5),
  workload('divide.c', 90),
  workload('mispredict.c', 100),
  workload('hashjoin.rs', 10),
  workload('sort.rs', 5),
];

/** Headers that the configuration of the programs would have made. */
export const stubs = {
  // The salt of its hash tables is fixed, so that all runs are equal.
  'expat_config.h': `#include <string.h>
#include <sys/random.h>
static inline ssize_t fixed_random(void *bytes, size_t size, unsigned flags) { memset(bytes, 0x5e, size); return (ssize_t)size + (ssize_t)(flags & 0); }
#define getrandom fixed_random
`,
  'lua5.4-deb-multiarch.h': '#define DEB_HOST_MULTIARCH "x86_64-linux-gnu"\n',
};

/** Returns the flags to compile a program with, without its own options. */
export function flags({ compiler, pie }) {
  if (compiler === 'rustc') return 'rustc -O -g';
  return `${compiler} -O2 -g -w ${pie ? '-fpie -pie -fno-plt' : '-fno-pie -no-pie'} -Wl,--build-id`;
}
