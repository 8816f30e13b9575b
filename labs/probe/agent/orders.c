/* What a process of a script does when it is told (`tell N ORDER`). The answer is an errno and words.
 *
 *   exit CODE | where (its cgroup) | born (its cgroup at its first instant) | alloc MEGABYTES
 *   fork [CGROUP]     a child that stays, placed by clone3() when a path is given; answers where the child was born
 *   threads K         that sleep;  spin K, yield K: that never do;  passing K: each keeps starting threads that end
 *   pin CPU           for the threads that are started after it
 *   storm K           threads that keep forking children;  chain K: processes that fork their successor and end, for 5 s
 *   heir              the first thread ends, another goes on: a process whose leader is a zombie
 *   vfork             a thread waits for a vfork() child that stays
 *   traced            a child that is stopped under ptrace
 *   exec              a thread that is not the leader replaces the program, which does so again, for 5 s; then silence
 *   uid UID | cgroupns (a cgroup namespace of its own, rooted where the process is)
 * and every operation of files.c, and of process.c on processes started before it, as `write PATH TEXT`, `attach N PATH`.
 */
#define _GNU_SOURCE
#include "agent.h"
#include "script.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define LASTING_NS 5000000000LL /* what cannot be stopped by number ends by itself */

static int number; /* of this process */
static enum { STAY, LEAVE, REPLACE } then; /* what the thread that serves does once it has answered */
static char born[RESULT];

static void *idle(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void *spin(void *unused)
{
	for (;;)
		atomic_fetch_add(&counters[number], 1);
	return unused;
}

static void *yield_forever(void *unused)
{
	for (;; atomic_fetch_add(&counters[number], 1))
		sched_yield();
	return unused;
}

static void *nothing(void *unused)
{
	return unused;
}

static void *pass_forever(void *unused)
{
	pthread_t id;
	for (;; atomic_fetch_add(&counters[number], 1))
		if (!pthread_create(&id, NULL, nothing, NULL))
			pthread_join(id, NULL);
	return unused;
}

static void *fork_forever(void *unused)
{
	for (;; atomic_fetch_add(&counters[number], 1)) {
		pid_t pid = fork();
		if (!pid) {
			usleep(1000);
			_exit(0);
		}
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
	return unused;
}

static void chain(void)
{
	int64_t until = now() + LASTING_NS;
	if (fork())
		return;
	for (; now() < until; atomic_fetch_add(&counters[number], 1))
		if (fork() > 0)
			break;
	_exit(0);
}

static void *wait_for_vfork(void *unused)
{
	if (!vfork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return unused;
}

static void *exec_thread(void *until)
{
	char *const argv[] = {(char *)"agent", (char *)"exec", until, NULL};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execv("/proc/self/exe", argv);
	return NULL;
}

void exec_again(const char *until)
{
	pthread_t id;
	if (now() < atoll(until))
		pthread_create(&id, NULL, exec_thread, (void *)until);
	for (;;)
		pause();
}

static int start_threads(int count, void *(*what)(void *), void *argument)
{
	pthread_t id;
	int error = 0;
	while (count-- > 0 && !error)
		error = pthread_create(&id, NULL, what, argument);
	return error;
}

static int touch(int megabytes)
{
	size_t size = (size_t)megabytes << 20;
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return errno;
	memset(memory, 1, size);
	return 0;
}

static int fork_child(const char *cgroup, char *words)
{
	int pipe_fd[2];
	if (pipe(pipe_fd))
		return failed();
	pid_t pid = clone_into(cgroup, 0);
	int error = pid < 0 ? failed() : 0;
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		read_into("/proc/self/cgroup", born);
		(void)!write(pipe_fd[1], born, strlen(born));
		close(pipe_fd[1]);
		idle(NULL);
	}
	close(pipe_fd[1]);
	ssize_t got = error ? 0 : read(pipe_fd[0], words, RESULT - 1);
	words[got > 0 ? got : 0] = 0;
	close(pipe_fd[0]);
	return error ? error : got > 0 ? 0 : ESRCH; /* it died before it could tell */
}

static int traced_child(void)
{
	int status;
	pid_t pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		idle(NULL);
	}
	return pid < 0 || waitpid(pid, &status, WUNTRACED) < 0 ? failed() : 0;
}

static int pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) ? failed() : 0;
}

static int become(int uid)
{
	if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
		return failed();
	return prctl(PR_SET_PDEATHSIG, SIGKILL) ? failed() : 0; /* forgotten at a change of credentials */
}

static void *serve(void *socket);

static int obey(char *order, char *words, void *socket)
{
	char *rest = order, *argv[MAX_ARGS];
	const char *name = argv[0] = strsep(&rest, " ");
	int count = rest ? atoi(rest) : 1;

	words[0] = 0;
	errno = 0;
	if (!strcmp(name, "exit"))
		_exit(count);
	if (!strcmp(name, "threads"))
		return start_threads(count, idle, NULL);
	if (!strcmp(name, "spin"))
		return start_threads(count, spin, NULL);
	if (!strcmp(name, "yield"))
		return start_threads(count, yield_forever, NULL);
	if (!strcmp(name, "pin"))
		return pin(count);
	if (!strcmp(name, "passing"))
		return start_threads(count, pass_forever, NULL);
	if (!strcmp(name, "storm"))
		return start_threads(count, fork_forever, NULL);
	if (!strcmp(name, "chain")) {
		while (count-- > 0)
			chain();
		return 0;
	}
	if (!strcmp(name, "vfork"))
		return start_threads(1, wait_for_vfork, NULL);
	if (!strcmp(name, "traced"))
		return traced_child();
	if (!strcmp(name, "exec"))
		return then = REPLACE, 0;
	if (!strcmp(name, "heir"))
		return then = LEAVE, start_threads(1, serve, socket);
	if (!strcmp(name, "alloc"))
		return touch(count);
	if (!strcmp(name, "where"))
		return read_into("/proc/thread-self/cgroup", words);
	if (!strcmp(name, "born"))
		return strcpy(words, born), 0;
	if (!strcmp(name, "fork"))
		return fork_child(rest ? rest : "", words);
	if (!strcmp(name, "uid"))
		return become(count);
	if (!strcmp(name, "cgroupns"))
		return unshare(CLONE_NEWCGROUP) ? failed() : 0;
	for (int i = 1; i < MAX_ARGS; i++)
		argv[i] = i < 2 ? strsep(&rest, " ") : i < 3 ? rest : NULL;
	for (int i = 1; i < MAX_ARGS; i++)
		argv[i] = argv[i] ? argv[i] : (char *)"";
	int error = file_op(argv, words);
	return error == UNKNOWN ? process_op(MAX_ARGS, argv, words) : error;
}

static void *serve(void *argument)
{
	static char order[512], words[RESULT], until[32];
	int socket = (int)(intptr_t)argument;
	for (;;) {
		ssize_t got = recv(socket, order, sizeof(order) - 1, 0);
		if (got <= 0)
			_exit(0);
		order[got] = 0;
		then = STAY;
		int error = obey(order, words, argument), next = then;
		char head[16];
		struct iovec parts[] = {{head, sprintf(head, "%d ", error)}, {words, strlen(words)}};
		struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
		sendmsg(socket, &message, MSG_NOSIGNAL);
		if (next == LEAVE && !error)
			syscall(SYS_exit, 0); /* of this thread only */
		sprintf(until, "%ld", (long)(now() + LASTING_NS));
		if (next == REPLACE)
			start_threads(1, exec_thread, until);
	}
}

void child_main(int n, int socket)
{
	number = n;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	read_into("/proc/self/cgroup", born);
	serve((void *)(intptr_t)socket);
	_exit(0);
}
