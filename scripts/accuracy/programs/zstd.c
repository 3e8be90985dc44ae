// zstd: compresses FILE at levels 5 and 1, and decompresses it again. Prints the sizes.
#include <string.h>
#include "file.h"
#include "zstd.h"

static size_t round_trip(const char *bytes, size_t size, int level) {
  size_t bound = ZSTD_compressBound(size);
  char *packed = must_allocate(bound);
  char *again = must_allocate(size);
  size_t length = ZSTD_compress(packed, bound, bytes, size, level);
  size_t back = ZSTD_isError(length) ? 0 : ZSTD_decompress(again, size, packed, length);
  if (back != size || memcmp(again, bytes, size) != 0) exit(1);
  free(packed);
  free(again);
  return length;
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  size_t size;
  char *bytes = read_file(argv[1], &size);
  size_t slow = round_trip(bytes, size, 5), fast = round_trip(bytes, size, 1);
  printf("%zu %zu %zu\n", size, slow, fast);
}
