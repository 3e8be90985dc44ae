// lz4: compresses FILE at a low and at a high level, and decompresses both several times. Prints the sizes.
#include <string.h>
#include "file.h"
#include "lz4.h"
#include "lz4hc.h"

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  size_t size;
  char *bytes = read_file(argv[1], &size);
  int bound = LZ4_compressBound((int)size);
  char *packed = must_allocate((size_t)bound), *again = must_allocate(size);
  int lengths[2];
  for (int hard = 0; hard < 2; hard++) {
    lengths[hard] = hard ? LZ4_compress_HC(bytes, packed, (int)size, bound, 4) : LZ4_compress_default(bytes, packed, (int)size, bound);
    for (int turn = 0; turn < 8; turn++) {
      if (LZ4_decompress_safe(packed, again, lengths[hard], (int)size) != (int)size) return 1;
    }
    if (memcmp(again, bytes, size) != 0) return 1;
  }
  printf("%zu %d %d\n", size, lengths[0], lengths[1]);
}
