/* Programs for tests/soak.
 *
 * checker check BYTES SEED  memory whose every byte is known: pages are looked at again and again, and some written
 *                           anew. Ends with status 7 and a line on stderr when a byte is wrong.
 * checker churn RATE        forks so many children a second, each of which uses a little memory and ends.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, WRONG = 7 };

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static void fill(uint64_t *page, uint64_t seed, uint64_t generation)
{
	page[0] = generation;
	for (int i = 1; i < WORDS; i++)
		page[i] = mix(seed + generation * WORDS + i);
}

static void verify(const uint64_t *page, uint64_t seed, uint64_t expected)
{
	for (int i = 0; i < WORDS; i++) {
		uint64_t right = i ? mix(seed + expected * WORDS + i) : expected;
		if (page[i] != right) {
			fprintf(stderr, "wrong: pid %d, address %p: %016lx instead of %016lx\n", getpid(), (void *)&page[i], page[i], right);
			_exit(WRONG);
		}
	}
}

static int check(size_t bytes, uint64_t seed)
{
	size_t pages = bytes / PAGE;
	uint64_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* What must be there, apart from what is there. */
	uint64_t *generations = calloc(pages, 8);
	uint64_t random = mix(seed);

	if (memory == MAP_FAILED || !generations)
		return 1;
	for (size_t p = 0; p < pages; p++)
		fill(memory + p * WORDS, seed ^ p << 32, 0);
	puts("ready");
	fflush(stdout);
	for (;;) {
		for (int i = 0; i < 64; i++) {
			random = mix(random + 1);
			/* Nine in ten in a tenth of the memory. */
			size_t range = random % 10 ? pages / 10 : pages;
			size_t p = mix(random) % range;
			uint64_t *page = memory + p * WORDS;
			verify(page, seed ^ p << 32, generations[p]);
			if (random >> 40 & 1)
				fill(page, seed ^ p << 32, ++generations[p]);
		}
		usleep(5000);
	}
}

static int churn(double rate)
{
	struct timespec gap = { 0, (long)(1e9 / rate) };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		pid_t child = fork();
		if (child == 0) {
			char *some = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (some != MAP_FAILED)
				memset(some, 1, 64 * PAGE);
			usleep(20000);
			_exit(0);
		}
		nanosleep(&gap, NULL);
	}
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "check"))
		return check(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
	if (argc == 3 && !strcmp(argv[1], "churn"))
		return churn(atof(argv[2]));
	fprintf(stderr, "usage: checker check BYTES SEED | churn RATE\n");
	return 2;
}
