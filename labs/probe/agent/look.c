/* Operations of a script that look at processes; process.c tells what they give. */
#define _GNU_SOURCE
#include "agent.h"
#include "script.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXITING = 4 }; /* PF_EXITING of the flags in /proc/PID/stat: such a thread is no longer moved */

/* The state letter of a thread; X while it is ending, 0 when it is gone. */
static char state_of(pid_t pid, const char *tid)
{
	char path[64], text[256], state = 0;
	unsigned flags;
	snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", pid, tid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[got > 0 ? got : 0] = 0;
	const char *end = strrchr(text, ')');
	if (!end || sscanf(end, ") %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2)
		return 0;
	return state != 'Z' && flags & EXITING ? 'X' : state;
}

static int await_state(int n, const char *letters, int ms, char *out)
{
	int64_t limit = now() + ms * 1000000LL;
	char tid[16];
	sprintf(tid, "%d", process_pid(n));
	for (;; usleep(200)) {
		out[0] = state_of(process_pid(n), tid);
		out[1] = 0;
		if (!out[0])
			return ESRCH;
		if (strchr(letters, out[0]))
			return 0;
		if (now() > limit)
			return ETIMEDOUT;
	}
}

static int moves(int n, int ms, char *out)
{
	if (n < 0 || n >= MAX_PROCESSES)
		return ENOSYS;
	uint64_t before = atomic_load(&counters[n]);
	int64_t limit = now() + ms * 1000000LL;
	while (atomic_load(&counters[n]) == before && now() < limit)
		usleep(200);
	strcpy(out, atomic_load(&counters[n]) == before ? "no" : "yes");
	return 0;
}

static int count(int n, char *out)
{
	if (n < 0 || n >= MAX_PROCESSES)
		return ENOSYS;
	sprintf(out, "%lu", (unsigned long)atomic_load(&counters[n]));
	return 0;
}

static bool has_line(const char *text, const char *line)
{
	size_t size = strlen(line);
	for (const char *at = text; (at = strstr(at, line)); at += size)
		if ((at == text || at[-1] == '\n') && (at[size] == '\n' || !at[size]))
			return true;
	return false;
}

/* Each live thread's cgroup, once; or with `listed`, the threads that are not in that text. */
static int threads_of(int n, const char *listed, char *out)
{
	static __thread char text[RESULT];
	char path[64];
	size_t used = 0;
	sprintf(path, "/proc/%d/task", process_pid(n));
	DIR *dir = opendir(path); /* /proc/0 does not exist */
	if (!dir)
		return failed();
	for (struct dirent *entry; (entry = readdir(dir)) && used < RESULT / 2;) {
		if (!atoi(entry->d_name))
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/cgroup", process_pid(n), entry->d_name);
		if (!listed && (read_into(path, text) || !*text))
			continue;
		text[strcspn(text, "\n")] = 0;
		const char *said = listed ? entry->d_name : text;
		if (!has_line(listed ? listed : out, said) && !strchr("ZX", state_of(process_pid(n), entry->d_name)))
			used += sprintf(out + used, "%s\n", said);
	}
	closedir(dir); /* strchr above finds the 0 of a thread that is gone, too */
	return 0;
}

static int missing(int n, const char *path, char *out)
{
	static __thread char listed[RESULT];
	int error = read_into(path, listed);
	return error ? error : threads_of(n, listed, out);
}

static int members(const char *path, char *out)
{
	static __thread char text[RESULT];
	int error = read_into(path, text);
	size_t used = 0;
	for (char *rest = text, *word; !error && (word = strsep(&rest, "\n")) && used < RESULT - 32;) {
		pid_t pid = atoi(word);
		int n = 0;
		while (n < MAX_PROCESSES && process_pid(n) != pid)
			n++;
		if (pid > 0)
			used += sprintf(out + used, n < MAX_PROCESSES ? "%d\n" : "?%d\n", n < MAX_PROCESSES ? n : pid);
	}
	return error;
}

/* Move what FROM lists to another cgroup.procs, once; the error of a process that did not go, apart from its end. */
static int evacuate(const char *from, const char *to)
{
	static __thread char text[RESULT];
	int error = read_into(from, text);
	for (char *rest = text, *pid; (!error || error == ESRCH) && (pid = strsep(&rest, "\n"));)
		if (*pid)
			error = write_file(to, pid, 0);
	return error == ESRCH ? 0 : error;
}

static int proc_file(int n, const char *name, char *out)
{
	char path[256];
	snprintf(path, sizeof(path), "/proc/%d/%s", process_pid(n), name);
	return read_into(path, out);
}

int look_op(char **a, char *out)
{
	int n = atoi(a[1]);
	if (!strcmp(a[0], "members"))
		return members(a[1], out);
	if (!strcmp(a[0], "evacuate"))
		return evacuate(a[1], a[2]);
	if (!strcmp(a[0], "moves"))
		return moves(n, atoi(a[2]), out);
	if (!strcmp(a[0], "count"))
		return count(n, out);
	if (!strcmp(a[0], "proc"))
		return proc_file(n, a[2], out);
	if (!strcmp(a[0], "state"))
		return await_state(n, a[2], atoi(a[3]), out);
	if (!strcmp(a[0], "homes"))
		return threads_of(n, NULL, out);
	if (!strcmp(a[0], "missing"))
		return missing(n, a[2], out);
	return UNKNOWN;
}
