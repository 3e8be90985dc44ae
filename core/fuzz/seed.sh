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
