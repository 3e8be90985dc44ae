#!/bin/sh
# Builds every kernel of this folder into target/kernels/x86-64 (or $1), each only when its source is newer. gcc is all it needs.
set -eu
cd "$(dirname "$0")"
into=${1:-../../../target/kernels/x86-64}
mkdir -p "$into"
for source in *.s; do
  program=$into/${source%.s}
  if [ -x "$program" ] && [ "$program" -nt "$source" ] && [ "$program" -nt common.inc ]; then continue; fi
  gcc -g -nostdlib -static -o "$program" "$PWD/$source"
done
