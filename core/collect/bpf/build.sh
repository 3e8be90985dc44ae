#!/bin/sh
# Builds the BPF objects, one for each architecture. They are committed beside their source.
#   core/collect/bpf/build.sh [FOLDER]
# Needs Debian's clang-14 and llvm-14, because another compiler generates another program. Where
# clang-14 is installed, a test (core/collect/src/sys/bpf/tests.rs) builds the objects again and
# compares the programs.
set -eu
cd "$(dirname "$0")"
for architecture in x86_64 aarch64; do
	object=${1:-.}/collect.$architecture.o
	macro=DWELL_$(echo $architecture | tr a-z A-Z)
	clang-14 -O2 -g -target bpf -mcpu=v3 -D"$macro" -I"/usr/include/$(uname -m)-linux-gnu" \
		-Wall -Wextra -Werror -c collect.bpf.c -o "$object"
	llvm-strip-14 --strip-debug "$object"
done
