// Ways that take turns: only one collector's events are turned on at a time. The descriptors of the events come from `lend` in
// the environment: TURNS_WAYS is a list of ways, each a list of descriptors ("7,8;9;" means ways with two events, one, and none).

#ifndef TURNS_H
#define TURNS_H

#include <linux/perf_event.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>

enum { WAYS_MAX = 8, EVENTS_MAX = 16 };

struct ways {
	int count;
	struct way {
		int events[EVENTS_MAX], count;
	} of[WAYS_MAX];
};

static inline void read_ways(struct ways *ways)
{
	char *at = getenv("TURNS_WAYS");

	for (ways->count = 0; at && *at && ways->count < WAYS_MAX; ways->count++) {
		struct way *way = &ways->of[ways->count];

		for (way->count = 0; *at && *at != ';' && way->count < EVENTS_MAX; at += *at == ',')
			way->events[way->count++] = strtol(at, &at, 10);
		at += *at == ';';
	}
}

static inline void turn(const struct way *way, int is_on)
{
	for (int i = 0; i < way->count; i++)
		ioctl(way->events[i], is_on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
}

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

#endif
