// A function with another one inlined into its loop. Usage: inlined ROUNDS.
#include <cstdio>
#include <cstdlib>

struct Hash {
	unsigned value = 0;
	__attribute__((always_inline)) inline void add(unsigned x)
	{
		value ^= x * 2654435761u;
		value += value / (x | 1);
	}
};

__attribute__((noinline)) unsigned hash_all(unsigned count)
{
	Hash hash;
	for (unsigned i = 0; i < count; i++) hash.add(i);
	return hash.value;
}

int main(int argc, char **argv)
{
	unsigned sum = 0;
	for (int i = 0; i < (argc > 1 ? std::atoi(argv[1]) : 10); i++) sum += hash_all(10000000);
	std::printf("%u\n", sum);
}
