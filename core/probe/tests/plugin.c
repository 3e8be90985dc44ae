// Loads a library while it runs: `plugin`. It waits for 0.3 s before and after, and then calls cbrt() of libm 100 times.
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	double sum = 0;

	usleep(300 * 1000);
	void *library = dlopen("libm.so.6", RTLD_NOW);
	double (*root)(double) = (double (*)(double))dlsym(library, "cbrt");

	usleep(300 * 1000);
	for (int i = 0; i < 100; i++)
		sum += root(i);
	printf("%.1f\n", sum);
	return 0;
}
