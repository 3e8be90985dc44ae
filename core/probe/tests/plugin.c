// Loads libraries while it runs: `plugin`. It waits for 0.3 s before and after, and then calls cbrt() of libm 100 times, and
// inflateInit2_() of libz once, which calls allocate() here.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *allocator(void *, unsigned, unsigned);

/* The end of the structure that libz calls z_stream; zlib.h may not be there. */
struct stream {
	char before[64];
	allocator *allocate;
	void (*release)(void *, void *);
	char after[32];
};

__attribute__((noinline)) void *allocate(void *own, unsigned number, unsigned bytes)
{
	(void)own;
	return calloc(number, bytes);
}

static void release(void *own, void *memory)
{
	(void)own;
	free(memory);
}

int main(void)
{
	struct stream stream = { .allocate = allocate, .release = release };
	double sum = 0;

	usleep(300 * 1000);
	double (*root)(double) = (double (*)(double))dlsym(dlopen("libm.so.6", RTLD_NOW), "cbrt");
	int (*begin)(struct stream *, int, const char *, int) =
		(int (*)(struct stream *, int, const char *, int))dlsym(dlopen("libz.so.1", RTLD_NOW), "inflateInit2_");

	usleep(300 * 1000);
	for (int i = 0; i < 100; i++)
		sum += root(i);
	printf("%.1f %d\n", sum, begin(&stream, 15, "1.2", sizeof stream));
	return 0;
}
