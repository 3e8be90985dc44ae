#!/bin/sh
# Fills corpus/ with real inputs: what `regressions` keeps, the workloads for `elf_dwarf`, the fixture databases' segments for `segment`.
set -eu
cd "$(dirname "$0")"
mkdir -p corpus/elf_dwarf corpus/segment corpus/perf_record
for target in regressions/*; do mkdir -p "corpus/${target#*/}" && cp "$target"/* "corpus/${target#*/}"; done
../../test-fixtures/programs/build.sh
cp ../../test-fixtures/programs/build/* corpus/elf_dwarf
find ../../test-fixtures/images -type f -size -256k -exec cp -t corpus/elf_dwarf {} +
find ../../test-fixtures "${XDG_DATA_HOME:-$HOME/.local/share}/dwell" -name '*.parquet' -exec cp -t corpus/segment {} + 2>/dev/null || true

# A program that has its split debug information in sections of its own, and what `dwz` shares.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source=$PWD/../../test-fixtures/images/src/calc.c
for version in 4 5; do
    (cd "$work" && gcc -O2 -gdwarf-$version -gsplit-dwarf -c "$source" -o calc.o && gcc calc.o -o "split-$version")
    for section in info abbrev str str_offsets rnglists; do
        objcopy --dump-section ".debug_$section.dwo=$work/part" "$work/calc.dwo" /dev/null 2>/dev/null || continue
        objcopy --add-section ".debug_$section.dwo=$work/part" "$work/split-$version"
    done
    cp "$work/split-$version" corpus/elf_dwarf
done
if command -v dwz >/dev/null; then
    gcc -O2 -g "$source" -o "$work/one" && cp "$work/one" "$work/two" && printf X >>"$work/two"
    (cd "$work" && dwz -m common one two) && cp "$work/one" "$work/common" corpus/elf_dwarf
fi
