// Functions that the drivers share: they read a whole file and compute a checksum. The code is valid C and C++.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// Returns the bytes of the file `path`, followed by a zero; they are never freed. Exits with status 2 if the file cannot be read.
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

// Returns memory, or exits with status 2.
static inline void *must_allocate(size_t size) {
  void *memory = malloc(size);
  if (!memory) exit(2);
  return memory;
}
