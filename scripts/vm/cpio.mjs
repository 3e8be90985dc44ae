// Makes a cpio archive ("newc"), which the kernel unpacks as its first file system. Enters: paths and contents. Leaves: bytes.
// Pure.

const hex = (number) => number.toString(16).padStart(8, '0');
const padding = (length) => Buffer.alloc((4 - (length % 4)) % 4);

function member(inode, name, mode, content) {
  const size = Buffer.byteLength(name) + 1;
  const fields = [inode, mode, 0, 0, 1, 0, content.length, 0, 0, 0, 0, size, 0];
  const head = Buffer.from(`070701${fields.map(hex).join('')}${name}\0`);
  return [head, padding(head.length), content, padding(content.length)];
}

/** @param {Record<string, Buffer | null>} files by path without a leading slash; null: a folder. All may be executed. */
export function cpio(files) {
  const members = Object.entries(files).flatMap(([name, content], index) =>
    member(index + 1, name, content === null ? 0o40755 : 0o100755, content ?? Buffer.alloc(0)));
  return Buffer.concat([...members, ...member(0, 'TRAILER!!!', 0, Buffer.alloc(0))]);
}
