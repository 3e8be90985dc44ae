// snappy: each FILE compressed and decompressed several times. Prints the sizes.
#include <string>
#include "file.h"
#include "snappy.h"

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    size_t size;
    const char *bytes = read_file(argv[i], &size);
    std::string packed, again;
    for (int turn = 0; turn < 8; turn++) {
      snappy::Compress(bytes, size, &packed);
      if (!snappy::Uncompress(packed.data(), packed.size(), &again) || again.compare(0, std::string::npos, bytes, size) != 0) return 1;
    }
    printf("%zu %zu\n", size, packed.size());
  }
}
