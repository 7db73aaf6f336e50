// crowd PROCESSES PAGES: so many processes that sleep, each of which has written to so many pages of its own. Prints "ready".
// All end with the first one.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long processes = argc > 1 ? atol(argv[1]) : 100, pages = argc > 2 ? atol(argv[2]) : 16;
	pid_t first = getpid();

	for (long i = 1; i < processes; i++) {
		pid_t child = fork();
		if (child < 0) {
			perror("crowd: cannot fork");
			kill(0, SIGKILL);
		}
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != first)
				_exit(0);
			char *own = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (own == MAP_FAILED)
				_exit(1);
			memset(own, 1, pages * 4096);
			for (;;)
				pause();
		}
	}
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
