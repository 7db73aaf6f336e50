/* A program of which it is known which pages it uses: the truth of tests/real/pages.py, independent of Isotherm.
 *
 * pages KEY=VALUE... [-- KEY=VALUE...]
 *   size=BYTES      memory to populate
 *   set=SET         which pages are used: none, first (HOT from the start on), nth (one in HOT), random (HOT of them)
 *   hot=N seed=N    see set
 *   period=US       time between two rounds; each uses every page of the set once
 *   window=US       tell in which share of all windows of this length a page is used
 *   threads=N       share a round among so many threads
 *   fork=N          let so many children use the pages, which are shared copy-on-write; the parent uses none
 *   life=MS         with fork: end a child after this time, one after the other, and fork another in its place
 *   file=PATH       map this file, shared, instead of anonymous memory
 *   lock=1          lock the memory
 *   split=N         make about N mappings of it: every second one may not be written
 *   stop=MS         after this time, use nothing any more
 *   exec=MS         after this time, execute this program again with what stands behind "--"
 *
 * Prints "ready START SIZE HOT_PAGES PID..." when all is populated. On SIGTERM prints "rounds N longest_us N share F" and ends.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul

static volatile sig_atomic_t asked_to_end;
static volatile uint8_t *memory;
static uint64_t *hot, hot_pages;
static long thread_count = 1;
static pthread_barrier_t begin, end;

static void on_term(int number) {
    (void)number;
    asked_to_end = 1;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static const char *text(int count, char **words, const char *key) {
    size_t length = strlen(key);
    for (int i = 1; i < count; i++)
        if (!strncmp(words[i], key, length) && words[i][length] == '=') return words[i] + length + 1;
    return NULL;
}

static uint64_t number(int count, char **words, const char *key, uint64_t otherwise) {
    const char *value = text(count, words, key);
    return value ? strtoull(value, NULL, 10) : otherwise;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* False: a signal came first. */
static int sleep_until(uint64_t ns) {
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == 0;
}

static void choose(const char *set, uint64_t pages, uint64_t n, uint64_t state) {
    hot = malloc(pages * sizeof *hot);
    if (!hot) fail("malloc");
    if (!strcmp(set, "first"))
        for (uint64_t p = 0; p < n && p < pages; p++) hot[hot_pages++] = p;
    if (!strcmp(set, "nth"))
        for (uint64_t p = 0; p < pages; p += n) hot[hot_pages++] = p;
    if (!strcmp(set, "random")) {
        /* Selection sampling: each set of n pages is as likely as any other. */
        for (uint64_t p = 0; p < pages && hot_pages < n; p++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            if ((state >> 33) % (pages - p) < n - hot_pages) hot[hot_pages++] = p;
        }
    }
    /* What choosing took is given back, so that next to nothing but the pages is resident. */
    hot = realloc(hot, (hot_pages ? hot_pages : 1) * sizeof *hot);
}

static void use(uint64_t first, uint64_t step) {
    for (uint64_t i = first; i < hot_pages; i += step) (void)memory[hot[i] * PAGE];
}

static void *helper(void *own) {
    for (;;) {
        pthread_barrier_wait(&begin);
        use((uintptr_t)own, thread_count);
        pthread_barrier_wait(&end);
    }
    return NULL;
}

int main(int count, char **words) {
    int own = 1;
    while (own < count && strcmp(words[own], "--")) own++;
    uint64_t size = number(own, words, "size", 0), period = number(own, words, "period", 100000) * 1000;
    uint64_t window = number(own, words, "window", 0) * 1000;
    uint64_t stop_ms = number(own, words, "stop", 0), exec_ms = number(own, words, "exec", 0);
    const char *set = text(own, words, "set"), *file = text(own, words, "file");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1000);
    struct sigaction action = {.sa_handler = on_term};
    sigaction(SIGTERM, &action, NULL);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, fd = -1;
    if (file) {
        flags = MAP_SHARED;
        fd = open(file, O_RDWR | O_CREAT, 0600);
        if (fd < 0 || ftruncate(fd, size)) fail(file);
    }
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (memory == MAP_FAILED) fail("mmap");
    madvise((void *)memory, size, MADV_NOHUGEPAGE);
    for (uint64_t at = 0; at < size; at += PAGE) memory[at] = 1;
    if (number(own, words, "lock", 0) && mlock((void *)memory, size)) fail("mlock");
    uint64_t parts = number(own, words, "split", 0), part = parts ? size / PAGE / parts * PAGE : 0;
    for (uint64_t at = 0; part && at + part <= size; at += 2 * part)
        if (mprotect((void *)(memory + at), part, PROT_READ)) fail("mprotect");
    choose(set ? set : "none", size / PAGE, number(own, words, "hot", 1), number(own, words, "seed", 1));
    printf("ready %lu %lu %lu %d", (unsigned long)memory, (unsigned long)size, (unsigned long)hot_pages, getpid());
    uint64_t children = number(own, words, "fork", 0);
    int parent = children > 0;
    pid_t *pids = calloc(children + 1, sizeof *pids);
    for (uint64_t c = 0; c < children; c++) {
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (!child) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            parent = 0;
            break;
        }
        pids[c] = child;
        printf(" %d", child);
    }
    if (!children || parent) {
        printf("\n");
        fflush(stdout);
    }
    uint64_t life = number(own, words, "life", 0) * 1000000, used = hot_pages, oldest = 0;
    if (parent) hot_pages = 0;
    thread_count = number(own, words, "threads", 1);
    pthread_barrier_init(&begin, NULL, thread_count);
    pthread_barrier_init(&end, NULL, thread_count);
    for (long t = 1; t < thread_count; t++) {
        pthread_t thread;
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        if (pthread_create(&thread, NULL, helper, (void *)t)) fail("pthread_create");
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    uint64_t started = now_ns(), next = started, last = 0, rounds = 0, longest = 0, unseen = 0, first = 0;
    uint64_t change = started + (parent && life ? life / children : 0);
    while (!asked_to_end) {
        uint64_t now = now_ns();
        if (parent && life && now >= change) {
            kill(pids[oldest], SIGKILL);
            waitpid(pids[oldest], NULL, 0);
            pids[oldest] = fork();
            if (pids[oldest] < 0) fail("fork");
            if (!pids[oldest]) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                parent = 0;
                hot_pages = used;
            }
            oldest = (oldest + 1) % children;
            change += life / children;
        }
        if (exec_ms && now - started > exec_ms * 1000000) {
            words[own] = words[0];
            execv("/proc/self/exe", words + own);
            fail("exec");
        }
        if (hot_pages && !(stop_ms && now - started > stop_ms * 1000000)) {
            if (last) {
                uint64_t gap = now - last;
                longest = gap > longest ? gap : longest;
                unseen += gap > window ? gap - window : 0;
            } else
                first = now;
            last = now;
            rounds++;
            if (thread_count > 1) pthread_barrier_wait(&begin);
            use(0, thread_count);
            if (thread_count > 1) pthread_barrier_wait(&end);
        }
        next += period;
        if (!sleep_until(next)) break;
    }
    if (!children || parent) {
        printf("rounds %lu longest_us %lu share %.5f\n", rounds, longest / 1000,
               last > first ? 1.0 - (double)unseen / (last - first) : 0.0);
        fflush(stdout);
    }
    for (uint64_t c = 0; parent && c < children; c++) {
        kill(pids[c], SIGKILL);
        waitpid(pids[c], NULL, 0);
    }
    /* A child must not write again what its parent had not written yet when it forked. */
    _exit(0);
}
