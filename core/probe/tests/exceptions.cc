// Throws through functions whose calls are known: `exceptions ROUNDS`. For each byte of its standard input it calls thrower() ROUNDS
// times through between(); two thirds of the calls throw. Then it prints how many calls there were, and how many threw.
#include <cstdio>
#include <cstdlib>

static volatile unsigned long sink;

extern "C" __attribute__((noinline, noclone)) int thrower(int x)
{
	char text[64];

	text[x & 63] = (char)x;
	sink += (unsigned long)text[x & 31];
	if (x % 3)
		throw x;
	sink += 2;
	return x;
}

struct Cleaner {
	~Cleaner() { sink += 5; }
};

extern "C" __attribute__((noinline, noclone)) int between(int x)
{
	Cleaner cleaner;
	int result = thrower(x);

	sink++;
	return result;
}

extern "C" __attribute__((noinline, noclone)) bool catcher(int x)
{
	try {
		return between(x) < 0;
	} catch (int thrown) {
		return thrown == x;
	}
}

int main(int, char **argv)
{
	unsigned long calls = 0, caught = 0;

	std::puts("ready");
	std::fflush(stdout);
	while (std::getchar() != EOF) {
		for (int i = 0; i < std::atoi(argv[1]); i++, calls++)
			caught += catcher(i);
		std::printf("%lu %lu\n", calls, caught);
		std::fflush(stdout);
	}
}
