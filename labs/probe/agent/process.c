/* Operations of a script on processes, which it starts by number.
 *
 *   spawn N [CGROUP] [SPACE]  start process N; with a path, clone3() places it there from its first instant. SPACE: `new`,
 *                             the first process of a pid namespace; a number, in the pid namespace of that process
 *   tell N ORDER              see orders.c; ESRCH when it has died, ETIMEDOUT when it does not answer
 *   kill N SIGNAL | attach N FILE (writes its pid) | proc N NAME (/proc/PID/NAME)
 *   reap N MS                 wait for its end: `signal 9`, `exit 0`; ETIMEDOUT
 *   state N LETTERS MS        until the state of its leader is one of them, as Z; ETIMEDOUT, with the state
 *   moves N MS                whether its counter moves within MS: `yes`, `no`;  count N: what it stands at
 *   homes N                   the cgroups in which its live threads are, each once
 *   members FILE              the numbers of the processes that a cgroup.procs lists; ?PID for others
 *   missing N FILE            the threads of N that a cgroup.threads does not list
 *   evacuate FILE FILE        writes each pid of the first file to the second; a process that has ended is no error
 */
#define _GNU_SOURCE
#include "agent.h"
#include "script.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TELL_MS = 5000 };

_Atomic uint64_t *counters;

static struct {
	pid_t pid;
	int socket;
} processes[MAX_PROCESSES];

int clone_into(const char *cgroup, uint64_t flags)
{
	struct clone_args args = {.exit_signal = SIGCHLD, .flags = flags};
	if (!*cgroup && !flags)
		return fork();
	if (*cgroup) {
		int fd = open(cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return -1;
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = fd;
	}
	pid_t pid = syscall(SYS_clone3, &args, sizeof(args));
	int error = errno;
	if (*cgroup)
		close(args.cgroup);
	errno = error;
	return pid;
}

pid_t process_pid(int n)
{
	return n >= 0 && n < MAX_PROCESSES ? processes[n].pid : 0;
}

/* Let children of this thread start in the pid namespace of a process, or with 0 in the thread's own. */
static int enter_space(pid_t pid)
{
	char path[64];
	sprintf(path, pid ? "/proc/%d/ns/pid" : "/proc/self/ns/pid", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int error = fd < 0 || setns(fd, CLONE_NEWPID) ? failed() : 0;
	if (fd >= 0)
		close(fd);
	return error;
}

static int spawn(int n, const char *cgroup, const char *space)
{
	int pair[2], error = 0;
	bool beside = *space && strcmp(space, "new");

	if (beside)
		error = enter_space(processes[atoi(space) % MAX_PROCESSES].pid);
	if (error)
		return error;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return failed();
	pid_t pid = clone_into(cgroup, *space && !beside ? CLONE_NEWPID : 0);
	error = pid < 0 ? failed() : 0;
	if (!pid) {
		close(pair[0]);
		child_main(n, pair[1]);
	}
	if (beside)
		enter_space(0);
	close(pair[1]);
	if (error)
		return close(pair[0]), error;
	processes[n].pid = pid;
	processes[n].socket = pair[0];
	return 0;
}

static int tell(int n, const char *order, char *out)
{
	struct pollfd answer = {.fd = processes[n].socket, .events = POLLIN};
	char *words;

	if (send(processes[n].socket, order, strlen(order), MSG_NOSIGNAL) < 0)
		return ESRCH;
	if (!strncmp(order, "exit", 4))
		return 0;
	if (poll(&answer, 1, TELL_MS) != 1)
		return ETIMEDOUT;
	ssize_t got = recv(processes[n].socket, out, RESULT - 1, 0);
	if (got <= 0)
		return ESRCH; /* it died */
	out[got] = 0;
	int error = strtol(out, &words, 10);
	memmove(out, words + 1, strlen(words + 1) + 1);
	return error;
}

static int reap(int n, int ms, char *out)
{
	int64_t limit = now() + ms * 1000000LL;
	int status;
	for (;;) {
		pid_t got = waitpid(processes[n].pid, &status, WNOHANG);
		if (got < 0)
			return failed();
		if (got)
			break;
		if (now() > limit)
			return ETIMEDOUT;
		usleep(100);
	}
	close(processes[n].socket);
	processes[n].pid = 0;
	if (WIFSIGNALED(status))
		sprintf(out, "signal %d", WTERMSIG(status));
	else
		sprintf(out, "exit %d", WEXITSTATUS(status));
	return 0;
}

static int attach(int n, const char *path)
{
	char text[32];
	sprintf(text, "%d", processes[n].pid);
	return write_file(path, text, 0);
}

bool needs_text(const char *name)
{
	static const char *const names[] = {"read",  "list",  "await",	 "read_fd", "notices", "tell", "reap",
					    "state", "moves", "members", "proc",    "homes",   "missing", "count"};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

int process_op(int argc, char **a, char *out)
{
	int n = argc > 1 ? atoi(a[1]) : 0;
	if (n < 0 || n >= MAX_PROCESSES)
		return ENOSYS;
	if (!strcmp(a[0], "spawn"))
		return spawn(n, a[2], a[3]);
	int error = look_op(a, out);
	if (error != UNKNOWN)
		return error;
	if (!processes[n].pid)
		return ESRCH;
	if (!strcmp(a[0], "tell"))
		return tell(n, a[2], out);
	if (!strcmp(a[0], "kill"))
		return kill(processes[n].pid, atoi(a[2])) ? failed() : 0;
	if (!strcmp(a[0], "reap"))
		return reap(n, atoi(a[2]), out);
	if (!strcmp(a[0], "attach"))
		return attach(n, a[2]);
	return ENOSYS;
}

void processes_init(void)
{
	size_t size = MAX_PROCESSES * sizeof(*counters);
	counters = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counters == MAP_FAILED)
		die("memory", "script");
}

void end_processes(void)
{
	for (int n = 0; n < MAX_PROCESSES; n++)
		if (processes[n].pid > 0)
			kill(processes[n].pid, SIGKILL);
}
