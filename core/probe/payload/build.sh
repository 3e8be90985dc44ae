#!/bin/sh
# Builds the payload, which is committed beside its source.
#   core/probe/payload/build.sh [FOLDER]
# Needs gcc; Debian 12's makes the committed file. Where the same version is installed, a test builds it again and compares.
# It begins with two jumps of 16 bytes each: to `enter` and to `leave`.
set -eu
cd "$(dirname "$0")"
into=${1:-.}
build=$(mktemp -d)
trap 'rm -r "$build"' EXIT
gcc -O2 -std=gnu11 -Wall -Wextra -Werror -ffreestanding -fPIE -mcmodel=small -mgeneral-regs-only -mfsgsbase \
	-fcf-protection=none -fno-stack-protector -fno-asynchronous-unwind-tables -fno-jump-tables \
	-fno-tree-loop-distribute-patterns -ffunction-sections -c payload.c -o "$build/payload.o"
cat > "$build/payload.ld" <<'LINK'
SECTIONS {
	.text 0 : { start.o(.text) *(.text.0) *(.text.1) *(.text*) }
	/DISCARD/ : { *(.comment) *(.note*) }
	.others : { *(.data*) *(.bss*) *(.rodata*) *(.got*) }
	ASSERT(SIZEOF(.others) == 0, "the payload has data")
}
LINK
printf '.text\n jmp enter\n .balign 16, 0xcc\n jmp leave\n .balign 16, 0xcc\n' > "$build/start.s"
(cd "$build" && as start.s -o start.o && ld -T payload.ld start.o payload.o -o payload.elf &&
	objcopy -O binary -j .text payload.elf payload.bin)
cp "$build/payload.bin" "$into/payload.x86_64.bin"
