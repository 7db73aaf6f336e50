// large GIB HOT_PERCENT: maps one file of 64 MiB over and over until it has so many GiB, and reads every page of that once; then reads a
// part of all pages, chosen at random, every 5 s. Prints "ready" when it has begun with that. Memory that no machine here has.

#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_SIZE (64UL << 20)
#define PAGE 4096UL

static uint64_t mix(uint64_t x)
{
	x += 0x9E3779B97F4A7C15;
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
	return x ^ (x >> 31);
}

int main(int argc, char **argv)
{
	uint64_t size = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1) << 30, hot = argc > 2 ? strtoull(argv[2], NULL, 10) : 10;
	int file = memfd_create("large", 0);
	char *all = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	volatile char sink;

	if (file < 0 || ftruncate(file, FILE_SIZE) < 0 || all == MAP_FAILED) {
		perror("large");
		return 1;
	}
	for (uint64_t at = 0; at < size; at += FILE_SIZE)
		if (mmap(all + at, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, file, 0) == MAP_FAILED) {
			perror("large: mmap");
			return 1;
		}
	for (uint64_t page = 0; page < size / PAGE; page++)
		sink = all[page * PAGE];
	for (int first = 1;; first = 0) {
		for (uint64_t page = 0; page < size / PAGE; page++)
			if (mix(page) % 100 < hot)
				sink = all[page * PAGE];
		if (first) {
			puts("ready");
			fflush(stdout);
		}
		sleep(5);
	}
	(void)sink;
}
