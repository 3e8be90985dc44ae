/**
 * Addresses in the core's answers: signed 64-bit numbers, which JavaScript's represent exactly. Kernel code is in the upper half of
 * the address space, so its addresses are negative. Pure; nothing here knows what is at an address.
 */

/** The address in hexadecimal, as disassemblers write it: `ffffffff81000010` of -2130706416. */
export function hex(address: number): string {
  return BigInt.asUintN(64, BigInt(address)).toString(16);
}

/** The address that these hexadecimal digits stand for. */
export function addressOf(digits: string): number {
  return Number(BigInt.asIntN(64, BigInt(`0x${digits}`)));
}

/** The address in a column before an instruction's text. */
export function addressColumn(address: number): string {
  return `${hex(address)}  `.padEnd(10);
}
