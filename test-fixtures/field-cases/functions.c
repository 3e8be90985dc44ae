// Four functions that take 8, 4, 2 and 1 shares of the time, half of which are static. Usage: functions ROUNDS.
#include <stdio.h>
#include <stdlib.h>

static volatile unsigned sink;

#define SPIN(turns) for (unsigned i = 0; i < rounds * (turns); i++) sink = sink / 3 + i

__attribute__((noinline)) void eight(unsigned rounds) { SPIN(8); }
static __attribute__((noinline)) void four(unsigned rounds) { SPIN(4); }
__attribute__((noinline)) void two(unsigned rounds) { SPIN(2); }
static __attribute__((noinline)) void one(unsigned rounds) { SPIN(1); }

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 100;

	for (unsigned i = 0; i < rounds; i++) {
		eight(1000);
		four(1000);
		two(1000);
		one(1000);
	}
	return 0;
}
