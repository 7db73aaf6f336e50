/* A program that fills memory in a known way, and checks what it wrote: the truth of tests/real/ahead.py.
 *
 * fill PATTERN MIB [BLOCKS_PER_S]
 *   dense    every page, in ascending order           down     in descending order
 *   threads  by four threads, a quarter each          random   every page, in random order
 *   sparse   one page in 2 MiB                        turns    16 MiB densely, and a while later one page in 2 MiB
 *   grow     every page, in a mapping that mremap doubles again and again
 *   fork     the first half, and the other one by a child in its own copy
 *   anew     every page, four times, each time in a mapping of its own
 *   stride   three quarters densely, then the last one, every 14th page first, then those beside them
 *   stripes  a quarter densely, then of the others two fifths, like that
 *   reads    a quarter by one system call, which nothing can interrupt, then the rest densely
 *   scatter  three quarters densely, then every page of the last one in random order
 *   rounds   every page of an eighth, at once, again and again, each time in a mapping of its own that was made 5 ms before
 *   leaves   an eighth like that, and then seven mappings as large at once, of each one page in 2 MiB
 *
 * Waits for a line, fills, prints "filled PID TOUCHED_BYTES FAULTS", waits for another line, checks, and prints "ok".
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul
#define BLOCK (2ul << 20)
#define THREADS 4
#define STRIDE 14ul
#define PARTS 8ul
#define ROUNDS 16

static char *memory, *others[PARTS];
static size_t size, touched, other_count;
static long blocks_per_s = 200;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void *map(size_t length) {
    /* Room for a beginning at a multiple of 2 MiB, so that all blocks are whole ones. */
    char *p = mmap(NULL, length + BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) fail("mmap");
    char *begin = (char *)(((uintptr_t)p + BLOCK - 1) & ~(BLOCK - 1));
    if (begin > p) munmap(p, begin - p);
    munmap(begin + length, p + BLOCK - begin);
    return begin;
}

static void write_page(size_t page) {
    uint64_t *words = (uint64_t *)(memory + page * PAGE);
    for (size_t i = 0; i < PAGE / 8; i++) words[i] = (page + 1) * 0x9e3779b97f4a7c15ul + i;
}

static int is_right(size_t page) {
    const uint64_t *words = (const uint64_t *)(memory + page * PAGE);
    for (size_t i = 0; i < PAGE / 8; i++)
        if (words[i] != (page + 1) * 0x9e3779b97f4a7c15ul + i) return 0;
    return 1;
}

static void rest(void) {
    struct timespec time = {0, 1000000000l / blocks_per_s};
    nanosleep(&time, NULL);
}

static void fill(size_t from, size_t to) {
    for (size_t page = from; page < to; page++) {
        write_page(page);
        if (page % 512 == 511) rest();
    }
}

static void *fill_part(void *number) {
    size_t part = size / PAGE / THREADS, at = (size_t)(uintptr_t)number * part;
    fill(at, at + part);
    return NULL;
}

static uint8_t *is_touched;

static void touch(size_t page) {
    write_page(page);
    is_touched[page] = 1;
}

/* Writes to pages from..to, every STRIDEth first, then those beside them, PASSES times; the first time at once. */
static void touch_all_over(size_t from, size_t to, size_t passes) {
    for (size_t pass = 0, written = 0; pass < passes; pass++)
        for (size_t page = from + pass; page < to; page += STRIDE) {
            touch(page);
            if (pass && ++written % 512 == 0) rest();
        }
}

/* Writes to some of the pages from..to, in random order. */
static void touch_at_random(size_t from, size_t to, size_t count) {
    size_t *order = malloc((to - from) * sizeof *order);
    for (size_t i = 0; i < to - from; i++) {
        size_t j = (size_t)rand() % (i + 1);
        order[i] = order[j], order[j] = from + i;
    }
    for (size_t i = 0; i < count; i++) {
        touch(order[i]);
        if (i % 512 == 511) rest();
    }
    free(order);
}

static void wait_for_line(void) {
    char line[8];
    if (!fgets(line, sizeof line, stdin)) exit(2);
}

int main(int count, char **words) {
    if (count < 3) return 2;
    const char *pattern = words[1];
    size = strtoul(words[2], NULL, 10) << 20;
    if (count > 3) blocks_per_s = strtol(words[3], NULL, 10);
    size_t pages = size / PAGE, half = pages / 2;
    is_touched = calloc(pages, 1);
    int is = 1;
    wait_for_line();
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    if (!strcmp(pattern, "grow")) {
        size_t length = 4 * BLOCK;
        memory = map(length);
        for (size_t from = 0; from < pages; from = length / PAGE, length *= 2) {
            if (from) memory = mremap(memory, length / 2, length, MREMAP_MAYMOVE);
            if (memory == MAP_FAILED) fail("mremap");
            fill(from, length / PAGE);
        }
        memset(is_touched, 1, pages);
    } else if (!strcmp(pattern, "reads")) {
        size_t part = pages / 4;
        int file = memfd_create("part", 0);
        if (file < 0 || ftruncate(file, part * PAGE)) fail("memfd_create");
        memory = mmap(NULL, part * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (memory == MAP_FAILED) fail("mmap");
        for (size_t page = 0; page < part; page++) write_page(page);
        munmap(memory, part * PAGE);
        memory = map(size);
        if (read(file, memory, part * PAGE) != (ssize_t)(part * PAGE)) fail("read");
        close(file);
        fill(part, pages), memset(is_touched, 1, pages);
        /* What was read is collapsed a while after. */
        for (int i = 0; i < 100; i++) rest();
    } else if (!strcmp(pattern, "anew")) {
        for (int i = 0; i < 4; i++) {
            if (i) munmap(memory, size);
            memory = map(size);
            fill(0, pages);
        }
        memset(is_touched, 1, pages);
    } else if (!strcmp(pattern, "stride") || !strcmp(pattern, "stripes") || !strcmp(pattern, "scatter")) {
        /* Two mappings: the second one is there once the first has been filled, and long enough to be seen. */
        int wholly = strcmp(pattern, "stripes") != 0;
        size_t first = wholly ? pages * 3 / 4 : pages / 4;
        memory = map(size);
        if (mprotect(memory + first * PAGE, size - first * PAGE, PROT_NONE)) fail("mprotect");
        fill(0, first), memset(is_touched, 1, first);
        for (int i = 0; i < 60; i++) rest();
        if (mprotect(memory + first * PAGE, size - first * PAGE, PROT_READ | PROT_WRITE)) fail("mprotect");
        if (!strcmp(pattern, "scatter")) {
            touch_at_random(first, pages, pages - first);
            /* What is written to while it is collapsed may have to wait. */
            for (int i = 0; i < 200; i++) rest();
        } else {
            touch_all_over(first, pages, wholly ? STRIDE : STRIDE * 2 / 5);
        }
    } else if (!strcmp(pattern, "rounds") || !strcmp(pattern, "leaves")) {
        int wholly = !strcmp(pattern, "rounds");
        size /= PARTS, pages /= PARTS;
        for (int i = 0; i < (wholly ? ROUNDS : 1); i++) {
            if (memory) munmap(memory, size);
            memory = map(size);
            /* A moment, as others may want the processors, too; between two looks there are 10 ms and more. */
            if (wholly) rest();
            for (size_t page = 0; page < pages; page++) write_page(page);
            for (int j = 0; j < 40; j++) rest();
        }
        if (wholly) {
            memset(is_touched, 1, pages);
        } else {
            munmap(memory, size);
            for (size_t i = 0; i < PARTS - 1; i++) others[other_count++] = map(size);
            for (size_t i = 0; i < other_count; i++) {
                memory = others[i];
                for (size_t page = 0; page < pages; page += 512) touch(page);
            }
            for (int j = 0; j < 400; j++) rest();
        }
    } else {
        memory = map(size);
        if (!strcmp(pattern, "dense")) {
            fill(0, pages), memset(is_touched, 1, pages);
        } else if (!strcmp(pattern, "down")) {
            for (size_t block = pages / 512; block-- > 0; rest())
                for (size_t page = 512; page-- > 0;) touch(block * 512 + page);
        } else if (!strcmp(pattern, "threads")) {
            pthread_t threads[THREADS];
            for (size_t i = 0; i < THREADS; i++)
                if (pthread_create(&threads[i], NULL, fill_part, (void *)(uintptr_t)i)) fail("pthread_create");
            for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
            memset(is_touched, 1, pages);
        } else if (!strcmp(pattern, "random")) {
            /* A tenth stays untouched. */
            touch_at_random(0, pages, pages * 9 / 10);
        } else if (!strcmp(pattern, "sparse") || !strcmp(pattern, "turns")) {
            size_t dense = pattern[0] == 't' ? 8 * 512 : 0;
            for (size_t page = 0; page < dense; page++) touch(page);
            /* Long enough to be seen. */
            for (int i = 0; dense && i < 40; i++) rest();
            for (size_t page = dense; page < pages; page += 512, rest()) touch(page + page / 512 % 512);
        } else if (!strcmp(pattern, "fork")) {
            fill(0, half), memset(is_touched, 1, half);
            pid_t child = fork();
            if (child == 0) {
                fill(half, pages), memset(is_touched, 1, pages);
                for (size_t page = 0; page < pages; page++)
                    if (!is_right(page)) _exit(1);
                _exit(0);
            }
            /* Meanwhile this one writes its half again. */
            fill(0, half);
            int status;
            if (waitpid(child, &status, 0) != child || status != 0) is = 0;
        } else {
            return 2;
        }
    }
    getrusage(RUSAGE_SELF, &after);
    if (!other_count) others[other_count++] = memory;
    for (size_t page = 0; page < pages; page++) touched += is_touched[page] * PAGE * other_count;
    printf("filled %d %zu %ld\n", getpid(), touched, after.ru_minflt - before.ru_minflt);
    fflush(stdout);
    wait_for_line();
    for (size_t i = 0; i < other_count; i++) {
        memory = others[i];
        for (size_t page = 0; page < pages; page++)
            if (is_touched[page] && !is_right(page)) is = 0;
    }
    puts(is ? "ok" : "wrong");
    return !is;
}
