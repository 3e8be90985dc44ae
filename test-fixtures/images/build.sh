#!/bin/sh
# Builds the ELF fixtures of core/image from src/ and writes MANIFEST. Run after a change of src/ and commit the result;
# a test fails when a source, this recipe or a binary is not what MANIFEST says. Needs Debian 12's gcc, g++, binutils,
# clang-14, lld-14, gcc-aarch64-linux-gnu, gcc-riscv64-linux-gnu, and rustc.
set -eu
cd "$(dirname "$0")/src"
out=..
rm -f $out/*.elf $out/*.so $out/*.debug $out/*.o $out/MANIFEST
map="-ffile-prefix-map=$PWD=/dwell/images/src"
c="gcc -O2 -Wall $map"

$c -g -gdwarf-5 -o $out/c-dwarf5.elf calc.c
$c -g -gdwarf-4 -no-pie -o $out/c-dwarf4.elf calc.c
$c -g -fPIC -shared -o $out/c-shared.so calc.c
$c -g -static-pie -nostdlib -o $out/c-static-pie.elf bare.c
clang-14 -O2 -g -gdwarf-5 -fdebug-prefix-map="$PWD"=/dwell/images/src -o $out/c-clang-md5.elf calc.c
objcopy --compress-debug-sections=zlib $out/c-dwarf5.elf $out/c-zlib.elf
objcopy --compress-debug-sections=zlib-gnu $out/c-dwarf5.elf $out/c-zlib-gnu.elf
objcopy --compress-debug-sections=zstd $out/c-dwarf5.elf $out/c-zstd.elf
objcopy --only-keep-debug $out/c-dwarf5.elf $out/c-stripped.debug
(cd $out && objcopy --strip-all --add-gnu-debuglink=c-stripped.debug c-dwarf5.elf c-stripped.elf)
$c -g -Wl,--build-id=none -o $out/c-linked.elf calc.c
(cd $out && objcopy --only-keep-debug c-linked.elf c-linked.debug &&
    objcopy --strip-all --add-gnu-debuglink=c-linked.debug c-linked.elf)
$c -g -gdwarf-5 -gsplit-dwarf -o $out/c-split.elf calc.c
rm -f $out/*.dwo ./*.dwo
$c -g -c -mcmodel=kernel -fno-pic -o $out/c-module.o bare.c
g++ -O2 -g $map -fPIC -shared -nostdlib -o $out/cpp-tree.so tree.cpp
rustc -O -g --crate-type cdylib -C panic=abort -C link-arg=-nostdlib --remap-path-prefix "$PWD"=/dwell/images/src \
    -o $out/rust-words.so words.rs
gcc -c -o $out/x86-forms.o x86.s
ld -static -e forms -o $out/x86-forms.elf $out/x86-forms.o
rm $out/x86-forms.o
small="-Wl,-z,max-page-size=4096"
aarch64-linux-gnu-gcc -O2 -g $map $small -static -nostdlib -mno-outline-atomics -o $out/aarch64-bare.elf bare.c
aarch64-linux-gnu-gcc -march=armv8.3-a $small -static -nostdlib -Wl,-e,forms -o $out/aarch64-forms.elf aarch64.s
aarch64-linux-gnu-gcc -O2 -g $map $small -fPIC -shared -o $out/aarch64-shared.so calc.c
riscv64-linux-gnu-gcc -O2 -g $map -static -nostdlib -o $out/riscv64-bare.elf bare.c
riscv64-linux-gnu-gcc -march=rv64gc -static -nostdlib -Wl,-e,forms,--no-relax -o $out/riscv64-forms.elf riscv64.s
riscv64-linux-gnu-gcc -O2 -g $map -fPIC -shared -o $out/riscv64-shared.so calc.c
# Jump tables: each compiler and architecture, position-independent and not.
bare="-O2 -fno-stack-protector -nostdlib -Wl,--build-id=none"
for arch in x86_64 aarch64 riscv64; do
    [ $arch = x86_64 ] && gcc=gcc || gcc=$arch-linux-gnu-gcc
    [ $arch = riscv64 ] && clang="--target=$arch-linux-gnu -march=rv64gc" || clang="--target=$arch-linux-gnu"
    $gcc $bare $small -fPIC -shared -o $out/switch-$arch-gcc.so switch.c
    $gcc $bare $small -fno-pic -no-pie -static -Wl,-e,labels -o $out/switch-$arch-gcc.elf switch.c
    clang-14 $clang $bare -fuse-ld=lld-14 -fPIC -shared -o $out/switch-$arch-clang.so switch.c
    clang-14 $clang $bare -fuse-ld=lld-14 -fno-pic -static -Wl,-e,labels -o $out/switch-$arch-clang.elf switch.c
done

cd $out
{
    for tool in gcc clang-14 ld objcopy rustc aarch64-linux-gnu-gcc riscv64-linux-gnu-gcc; do
        echo "# $($tool --version | head -1)"
    done
    python3 -c '
import sys, zlib
for path in sorted(sys.argv[1:]):
    data = open(path, "rb").read()
    print(f"{zlib.crc32(data):08x} {len(data)} {path}")
' build.sh src/* *.elf *.so *.debug *.o
} > MANIFEST
