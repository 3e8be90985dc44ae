#!/bin/sh
# Builds every workload of this folder into build/, each only when its source is newer. gcc and rustc are all it needs.
# Exit status 0: all are there.
set -eu
cd "$(dirname "$0")"
mkdir -p build
for source in *.c *.rs; do
  program=build/${source%.*}
  if [ -x "$program" ] && [ "$program" -nt "$source" ] && [ "$program" -nt build.sh ]; then continue; fi
  # Absolute source paths, so that editors find the file that the debug information names.
  case $source in
    *.c) gcc -O2 -g -Wall -Wextra -Werror -o "$program" "$PWD/$source" ;;
    *.rs) rustc --edition 2024 -O -g -D warnings -o "$program" "$PWD/$source" ;;
  esac
  echo "built $program"
done
