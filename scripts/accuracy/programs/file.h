// What the drivers share: the whole of a file, and a checksum. Plain C, for C++ as well.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// The bytes of `path`, a zero after them; never freed. Exits with 2 if it cannot be read.
static inline char *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END) != 0) {
    perror(path);
    exit(2);
  }
  *size = (size_t)ftell(file);
  rewind(file);
  char *bytes = (char *)malloc(*size + 1);
  if (!bytes || fread(bytes, 1, *size, file) != *size) {
    perror(path);
    exit(2);
  }
  fclose(file);
  bytes[*size] = 0;
  return bytes;
}

// The memory or an end with 2.
static inline void *must_allocate(size_t size) {
  void *memory = malloc(size);
  if (!memory) exit(2);
  return memory;
}
