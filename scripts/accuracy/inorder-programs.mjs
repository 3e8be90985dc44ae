// The programs that run on the simulated in-order core: the source of each, and how it is built and run.
//
// `build` is a shell command. It runs in the unpacked source of `package`, or in the folder of our own files. Its variables:
// $CC and $CXX are the cross compilers with the common flags, $OUT is the program to make, $HERE the folder of our own files,
// $STUBS a folder of headers that the package's configuration would have made. `run` contains the arguments of the program; in
// it {in} is the folder of inputs and {here} the same as $HERE. All programs are linked statically at fixed addresses, so the C
// library belongs to the program and is judged, too.
//
// Programs of role `tune` may be used to choose settings, those of role `judge` may not. They share no code except the C and
// C++ libraries. `period`, in cycles, is given if the usual period would take far more or fewer than 50,000 samples (times
// `--more`).

const own = (name, role, file = `${name}.c`, period = undefined) => ({
  name, role, period, language: file.endsWith('.cpp') ? 'c++' : 'c',
  build: `$${file.endsWith('.cpp') ? 'CXX' : 'CC'} -o $OUT $HERE/${file} -lm`, run: [], file,
});

export const programs = [
  own('sort', 'tune', 'sort.c', 7001),
  own('search', 'tune'),
  own('matrix', 'tune'),
  own('words', 'tune', 'words.cpp', 7001),
  {
    name: 'bzip2', language: 'c', role: 'tune', package: 'bzip2', period: 8009,
    build: '$CC -D_FILE_OFFSET_BITS=64 -o $OUT blocksort.c huffman.c crctable.c randtable.c compress.c decompress.c bzlib.c bzip2.c',
    run: ['-k', '-c', '{in}/text.txt'],
  },
  {
    name: 'lua', language: 'c', role: 'tune', package: 'lua5.4',
    build: 'cd src && $CC -I$STUBS -DLUA_USE_POSIX \'-Dluai_makeseed(L)=42\' -o $OUT $(ls *.c | grep -v luac.c) -lm',
    run: ['{here}/work.lua'],
  },
  {
    name: 'xmlwf', language: 'c', role: 'tune', package: 'expat',
    build: 'cd expat && $CC -I$STUBS -DXML_NS -DXML_DTD -DXML_CONTEXT_BYTES=1024 -DHAVE_GETRANDOM -DBYTEORDER=1234 -Ilib -o $OUT lib/xml{parse,role,tok}.c xmlwf/{xmlwf,xmlfile,codepage,unixfilemap}.c',
    run: ['{in}/document.xml'],
  },
  {
    name: 'tinyxml2', language: 'c++', role: 'tune', package: 'tinyxml2',
    build: '$CXX -I. -o $OUT $HERE/tinyxml2.cpp tinyxml2.cpp',
    run: ['{in}/small.xml'],
  },
  {
    name: 'picosat', language: 'c', role: 'tune', package: 'picosat', period: 12007,
    build: '$CC -I$STUBS/picosat -DNDEBUG -o $OUT app.c main.c picosat.c version.c',
    run: ['-n', '{in}/formula.cnf'],
    status: [10, 20],
  },
  own('hashjoin', 'judge'),
  own('interpreter', 'judge'),
  own('graph', 'judge'),
  own('shapes', 'judge', 'shapes.cpp'),
  {
    name: 'minigzip', language: 'c', role: 'judge', package: 'zlib', period: 4001,
    build: '$CC -DHAVE_UNISTD_H -I. -o $OUT adler32.c crc32.c deflate.c infback.c inffast.c inflate.c inftrees.c trees.c zutil.c compress.c uncompr.c gz*.c test/minigzip.c',
    run: ['-c', '{in}/text.txt'],
  },
  {
    name: 'cjson', language: 'c', role: 'judge', package: 'cjson',
    build: '$CC -I. -o $OUT $HERE/json.c cJSON.c -lm',
    run: ['{in}/small.json'],
  },
  {
    name: 'cmark', language: 'c', role: 'judge', package: 'cmark', period: 2503,
    build: 'cd src && $CC -I. -I$STUBS/cmark -o $OUT *.c',
    run: ['{in}/document.md'],
  },
  {
    name: 'pugixml', language: 'c++', role: 'judge', package: 'pugixml',
    build: '$CXX -Isrc -o $OUT $HERE/pugixml.cpp src/pugixml.cpp',
    run: ['{in}/small.xml'],
  },
  {
    name: 'kissfft', language: 'c', role: 'judge', package: 'kissfft',
    build: '$CC -I. -I$HERE -o $OUT $HERE/fft.c kiss_fft.c -lm',
    run: [],
  },
  {
    name: 'duktape', language: 'c', role: 'judge', package: 'duktape', period: 7001,
    build: '$CC -Isrc -Iexamples/cmdline -Iextras/print-alert -o $OUT src/duktape.c examples/cmdline/duk_cmdline.c extras/print-alert/duk_print_alert.c -DDUK_CMDLINE_PRINTALERT_SUPPORT -lm',
    run: ['{here}/work.js'],
  },
];

const cmarkExport = '#define CMARK_EXPORT\n#define CMARK_NO_EXPORT\n';
const cmarkConfig = '#define HAVE_STDBOOL_H\n#include <stdbool.h>\n#define HAVE___BUILTIN_EXPECT\n#define HAVE___ATTRIBUTE__\n#define CMARK_ATTRIBUTE(list) __attribute__ (list)\n#define CMARK_INLINE inline\n';

/** Headers that the configuration of the programs would have made. */
export const stubs = {
  'expat_config.h': '',
  'lua5.4-deb-multiarch.h': '#define DEB_HOST_MULTIARCH "cross"\n',
  'picosat/config.h': '#define PICOSAT_VERSION "965"\n#define PICOSAT_CC "gcc"\n#define PICOSAT_CFLAGS "-O2"\n',
  'cmark/config.h': cmarkConfig,
  'cmark/cmark_export.h': cmarkExport,
  'cmark/cmark_version.h': '#define CMARK_VERSION ((0 << 16) | (30 << 8) | 2)\n#define CMARK_VERSION_STRING "0.30.2"\n',
};
