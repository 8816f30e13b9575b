/* Operations of a script on files.
 *
 *   mkdir PATH | rmdir PATH | chown PATH UID | sleep MS
 *   write PATH TEXT | write_nonblock PATH TEXT | read PATH | list PATH (directories end in /)
 *   await PATH LINE MS      until a line of the file is LINE; ETIMEDOUT, and what the file says in the end
 *   open SLOT PATH | write_fd SLOT TEXT | read_fd SLOT
 *   poll_fd SLOT MS         until the file tells of a change since it was read; ETIMEDOUT
 *   watch SLOT PATH | notices SLOT MS   inotify: how many modifications were told, once none came for MS
 */
#define _GNU_SOURCE
#include "agent.h"
#include "script.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FDS = 64 };

static int fds[MAX_FDS];

int failed(void)
{
	return errno ? errno : EIO;
}

static int result(int returned)
{
	return returned < 0 ? failed() : 0;
}

static int write_at(int fd, const char *text)
{
	return fd < 0 ? failed() : result(pwrite(fd, text, strlen(text), 0));
}

int write_file(const char *path, const char *text, int flags)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | flags);
	int error = write_at(fd, text);
	if (fd >= 0)
		close(fd);
	return error;
}

static int read_all(int fd, char *out)
{
	ssize_t got = 0, total = 0;
	if (fd < 0)
		return failed();
	while (total < RESULT - 1 && (got = pread(fd, out + total, RESULT - 1 - total, total)) > 0)
		total += got;
	out[total] = 0;
	return result(got);
}

int read_into(const char *path, char *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int error = read_all(fd, out);
	if (fd >= 0)
		close(fd);
	return error;
}

static int await_line(const char *path, const char *text, int ms, char *out)
{
	int64_t limit = now() + ms * 1000000LL;
	size_t size = strlen(text);
	for (;;) {
		int error = read_into(path, out);
		if (error)
			return error;
		for (const char *line = out; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
			if (!strncmp(line, text, size) && (line[size] == '\n' || !line[size]))
				return 0;
		if (now() > limit)
			return ETIMEDOUT;
		usleep(200);
	}
}

static int list(const char *path, char *out)
{
	DIR *dir = opendir(path);
	size_t used = 0;
	if (!dir)
		return failed();
	for (struct dirent *entry; (entry = readdir(dir)) && used < RESULT - 300;)
		if (entry->d_name[0] != '.')
			used += sprintf(out + used, "%s%s\n", entry->d_name, entry->d_type == DT_DIR ? "/" : "");
	closedir(dir);
	return 0;
}

static int keep(int *slot, int fd)
{
	if (*slot > 0)
		close(*slot);
	*slot = fd;
	return result(fd);
}

static int open_kept(int *slot, const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && errno == EACCES)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	return keep(slot, fd);
}

static int poll_fd(int fd, int ms)
{
	struct pollfd change = {.fd = fd, .events = POLLPRI};
	int got = poll(&change, 1, ms);
	return got ? result(got) : ETIMEDOUT;
}

static int watch(int *slot, const char *path)
{
	int error = keep(slot, inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
	return error ? error : result(inotify_add_watch(*slot, path, IN_MODIFY));
}

static int notices(int fd, int ms, char *out)
{
	struct pollfd more = {.fd = fd, .events = POLLIN};
	struct inotify_event event; /* without a name, since a file is watched */
	int count = 0;
	while (poll(&more, 1, ms) == 1 && read(fd, &event, sizeof(event)) == sizeof(event))
		count += !!(event.mask & IN_MODIFY);
	sprintf(out, "%d", count);
	return 0;
}

int file_op(char **a, char *out)
{
	const char *name = a[0];
	int *slot = &fds[(unsigned)atoi(a[1]) % MAX_FDS];
	errno = 0;
	if (!strcmp(name, "mkdir"))
		return result(mkdir(a[1], 0755));
	if (!strcmp(name, "rmdir"))
		return result(rmdir(a[1]));
	if (!strcmp(name, "chown"))
		return result(chown(a[1], atoi(a[2]), -1));
	if (!strcmp(name, "sleep"))
		return result(usleep(atoi(a[1]) * 1000));
	if (!strcmp(name, "write"))
		return write_file(a[1], a[2], 0);
	if (!strcmp(name, "write_nonblock"))
		return write_file(a[1], a[2], O_NONBLOCK);
	if (!strcmp(name, "read"))
		return read_into(a[1], out);
	if (!strcmp(name, "list"))
		return list(a[1], out);
	if (!strcmp(name, "await"))
		return await_line(a[1], a[2], atoi(a[3]), out);
	if (!strcmp(name, "open"))
		return open_kept(slot, a[2]);
	if (!strcmp(name, "write_fd"))
		return write_at(*slot, a[2]);
	if (!strcmp(name, "read_fd"))
		return read_all(*slot, out);
	if (!strcmp(name, "poll_fd"))
		return poll_fd(*slot, atoi(a[2]));
	if (!strcmp(name, "watch"))
		return watch(slot, a[2]);
	if (!strcmp(name, "notices"))
		return notices(*slot, atoi(a[2]), out);
	return UNKNOWN;
}
