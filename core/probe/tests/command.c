// A program whose first calls count: `command N [CMD…]`. A constructor calls fib(5), then main() prints fib(N). It ends with 3,
// or executes CMD.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((noinline)) int fib(int n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

__attribute__((constructor, noinline)) void early(void)
{
	volatile int result = fib(5);

	(void)result;
}

int main(int argc, char **argv)
{
	printf("%d\n", fib(argc > 1 ? atoi(argv[1]) : 10));
	fflush(stdout);
	if (argc > 2)
		execvp(argv[2], &argv[2]);
	return 3;
}
