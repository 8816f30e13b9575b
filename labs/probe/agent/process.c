/* Processes of a script: started by number, told what to do over a socket, reaped with a limit. */
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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PROCESSES = 512, TELL_MS = 5000 };

static struct {
	pid_t pid;
	int socket;
} processes[MAX_PROCESSES];

static void *idle(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void *spin(void *unused)
{
	for (;;)
		__asm__ volatile("");
	return unused;
}

static void *yield_forever(void *unused)
{
	for (;;)
		sched_yield();
	return unused;
}

static void *fork_forever(void *unused)
{
	for (;;) {
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

static int start_threads(int count, void *(*what)(void *))
{
	pthread_t id;
	while (count-- > 0) {
		int error = pthread_create(&id, NULL, what, NULL);
		if (error)
			return error;
	}
	return 0;
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

/* What a process does when it is told; the answer is an errno and words. */
static int obey(char *order, char *words)
{
	char *argument = strchr(order, ' ');
	int number = argument ? atoi(argument + 1) : 1;

	if (argument)
		*argument = 0;
	if (!strcmp(order, "exit"))
		_exit(number);
	if (!strcmp(order, "threads"))
		return start_threads(number, idle);
	if (!strcmp(order, "spin"))
		return start_threads(number, spin);
	if (!strcmp(order, "yield"))
		return start_threads(number, yield_forever);
	if (!strcmp(order, "storm"))
		return start_threads(number, fork_forever);
	if (!strcmp(order, "alloc"))
		return touch(number);
	if (!strcmp(order, "where"))
		return read_into("/proc/self/cgroup", words);
	if (!strcmp(order, "fork")) { /* a child that tells where it was born, and stays */
		int pipe_fd[2];
		if (pipe(pipe_fd))
			return errno;
		pid_t pid = fork();
		if (pid < 0)
			return errno;
		if (!pid) {
			static char born[RESULT];
			read_into("/proc/self/cgroup", born);
			(void)!write(pipe_fd[1], born, strlen(born));
			close(pipe_fd[1]);
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			idle(NULL);
		}
		close(pipe_fd[1]);
		ssize_t got = read(pipe_fd[0], words, RESULT - 1);
		words[got > 0 ? got : 0] = 0;
		close(pipe_fd[0]);
		return 0;
	}
	return ENOSYS;
}

static void child_main(int socket)
{
	static char order[256], words[RESULT];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		ssize_t got = recv(socket, order, sizeof(order) - 1, 0);
		if (got <= 0)
			_exit(0);
		order[got] = 0;
		words[0] = 0;
		int error = obey(order, words);
		char head[16];
		struct iovec parts[] = {{head, sprintf(head, "%d ", error)}, {words, strlen(words)}};
		struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
		sendmsg(socket, &message, MSG_NOSIGNAL);
	}
}

/* Start process N; with a path, clone3() places it in that cgroup from its first instant. */
static int spawn(int n, const char *cgroup)
{
	int pair[2], fd = -1;
	struct clone_args args = {.exit_signal = SIGCHLD};

	if (*cgroup) {
		fd = open(cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return errno;
		args.flags = CLONE_INTO_CGROUP;
		args.cgroup = fd;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return errno;
	pid_t pid = *cgroup ? syscall(SYS_clone3, &args, sizeof(args)) : fork();
	int error = pid < 0 ? errno : 0;
	if (!pid) {
		close(pair[0]);
		child_main(pair[1]);
	}
	close(pair[1]);
	if (fd >= 0)
		close(fd);
	if (error) {
		close(pair[0]);
		return error;
	}
	processes[n].pid = pid;
	processes[n].socket = pair[0];
	return 0;
}

static int tell(int n, const char *order, char *out)
{
	struct pollfd answer = {.fd = processes[n].socket, .events = POLLIN};
	char *words;

	if (send(processes[n].socket, order, strlen(order), MSG_NOSIGNAL) < 0)
		return errno;
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
			return errno;
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
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	int error = write(fd, text, sprintf(text, "%d", processes[n].pid)) < 0 ? errno : 0;
	close(fd);
	return error;
}

/* The members of a cgroup.procs file by the script's numbers; pids that are not the script's as ?PID. */
static int members(const char *path, char *out)
{
	static __thread char text[RESULT];
	int error = read_into(path, text);
	size_t used = 0;
	for (char *rest = text, *word; !error && (word = strsep(&rest, "\n")) && used < RESULT - 32;) {
		pid_t pid = atoi(word);
		int n = 0;
		while (n < MAX_PROCESSES && processes[n].pid != pid)
			n++;
		if (pid > 0)
			used += sprintf(out + used, n < MAX_PROCESSES ? "%d\n" : "?%d\n", n < MAX_PROCESSES ? n : pid);
	}
	return error;
}

/* Files of /proc/PID, as `proc N cgroup` or `proc N stat`. */
static int proc_file(int n, const char *name, char *out)
{
	char path[256];
	snprintf(path, sizeof(path), "/proc/%d/%s", processes[n].pid, name);
	return read_into(path, out);
}

bool needs_text(const char *name)
{
	static const char *const names[] = {"read", "list", "await", "read_fd", "tell", "reap", "members", "proc"};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

int process_op(int argc, char **a, char *out)
{
	int n = argc > 1 ? atoi(a[1]) : 0;
	if (!strcmp(a[0], "members"))
		return members(a[1], out);
	if (n < 0 || n >= MAX_PROCESSES)
		return ENOSYS;
	if (!strcmp(a[0], "spawn"))
		return spawn(n, a[2]);
	if (!processes[n].pid)
		return ESRCH;
	if (!strcmp(a[0], "tell"))
		return tell(n, a[2], out);
	if (!strcmp(a[0], "kill"))
		return kill(processes[n].pid, atoi(a[2])) ? errno : 0;
	if (!strcmp(a[0], "reap"))
		return reap(n, atoi(a[2]), out);
	if (!strcmp(a[0], "attach"))
		return attach(n, a[2]);
	if (!strcmp(a[0], "proc"))
		return proc_file(n, a[2], out);
	return ENOSYS;
}

void end_processes(void)
{
	for (int n = 0; n < MAX_PROCESSES; n++)
		if (processes[n].pid > 0)
			kill(processes[n].pid, SIGKILL);
}
