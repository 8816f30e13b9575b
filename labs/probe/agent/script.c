/* agent script PLAN: run a list of operations in lanes, and tell what came of each.
 *
 * A plan line is LANE, OP and its arguments, separated by tabs; `-` as OP ends a phase: operations of one lane follow
 * each other, lanes of one phase run at the same time, the next phase starts when all lanes are done. The first line
 * gives the milliseconds that a phase may take; a lane that is not done by then is left behind, its operation untold.
 */
#define _GNU_SOURCE
#include "agent.h"
#include "script.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_LANES = 32, MAX_FDS = 64 };

struct op {
	int lane, argc;
	char *argv[MAX_ARGS];
	int64_t start, end; /* end 0: never came back */
	int error;
	char *text;
};

struct lane {
	pthread_t id;
	struct op *ops;
	int from, to, number;
};

static int fds[MAX_FDS];
static atomic_int ready;
static int lanes_in_phase;

static int failed(void)
{
	return errno ? errno : EIO;
}

static int write_at(int fd, const char *text)
{
	return fd < 0 || pwrite(fd, text, strlen(text), 0) < 0 ? failed() : 0;
}

static int write_file(const char *path, const char *text, int flags)
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
	return got < 0 ? failed() : 0;
}

int read_into(const char *path, char *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int error = read_all(fd, out);
	if (fd >= 0)
		close(fd);
	return error;
}

/* Wait until a line of the file is TEXT; ETIMEDOUT with what the file says in the end. */
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

static int open_kept(const char *slot, const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && errno == EACCES)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	fds[atoi(slot) % MAX_FDS] = fd;
	return fd < 0 ? failed() : 0;
}

static int do_op(struct op *op)
{
	char **a = op->argv;
	const char *name = a[0];
	errno = 0;
	if (!strcmp(name, "mkdir"))
		return mkdir(a[1], 0755) ? failed() : 0;
	if (!strcmp(name, "rmdir"))
		return rmdir(a[1]) ? failed() : 0;
	if (!strcmp(name, "write"))
		return write_file(a[1], a[2], 0);
	if (!strcmp(name, "write_nonblock"))
		return write_file(a[1], a[2], O_NONBLOCK);
	if (!strcmp(name, "read"))
		return read_into(a[1], op->text);
	if (!strcmp(name, "list"))
		return list(a[1], op->text);
	if (!strcmp(name, "await"))
		return await_line(a[1], a[2], atoi(a[3]), op->text);
	if (!strcmp(name, "open"))
		return open_kept(a[1], a[2]);
	if (!strcmp(name, "write_fd"))
		return write_at(fds[atoi(a[1]) % MAX_FDS], a[2]);
	if (!strcmp(name, "read_fd"))
		return read_all(fds[atoi(a[1]) % MAX_FDS], op->text);
	if (!strcmp(name, "sleep"))
		return usleep(atoi(a[1]) * 1000);
	return process_op(op->argc, a, op->text);
}

static void *run_lane(void *argument)
{
	struct lane *lane = argument;
	atomic_fetch_add(&ready, 1);
	while (atomic_load(&ready) < lanes_in_phase)
		; /* all lanes of a phase start together */
	for (int i = lane->from; i < lane->to; i++) {
		struct op *op = &lane->ops[i];
		if (op->lane != lane->number)
			continue;
		op->start = now();
		op->error = do_op(op);
		op->end = now();
	}
	return NULL;
}

/* Run ops[from..to) in their lanes; false when a lane did not come back in time. */
static bool run_phase(struct op *ops, int from, int to, int limit_ms)
{
	struct lane lanes[MAX_LANES];
	struct timespec until;
	bool seen[MAX_LANES] = {false}, well = true;
	int count = 0;

	for (int i = from; i < to; i++) {
		if (!seen[ops[i].lane])
			lanes[count++] = (struct lane){.ops = ops, .from = from, .to = to, .number = ops[i].lane};
		seen[ops[i].lane] = true;
	}
	atomic_store(&ready, 0);
	lanes_in_phase = count;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += limit_ms / 1000;
	until.tv_nsec += limit_ms % 1000 * 1000000L;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000L;
	}
	for (int i = 0; i < count; i++)
		if (pthread_create(&lanes[i].id, NULL, run_lane, &lanes[i]))
			die("thread", "script");
	for (int i = 0; i < count; i++)
		well = !pthread_timedjoin_np(lanes[i].id, NULL, &until) && well;
	return well;
}

static bool parse(char *line, struct op *op)
{
	char *rest = line, *word;
	line[strcspn(line, "\n")] = 0;
	op->lane = atoi(strsep(&rest, "\t"));
	if (op->lane < 0 || op->lane >= MAX_LANES)
		die("lane out of range", line);
	while ((word = strsep(&rest, "\t")) && op->argc < MAX_ARGS)
		op->argv[op->argc++] = strdup(word);
	for (int i = op->argc; i < MAX_ARGS; i++)
		op->argv[i] = (char *)""; /* a missing argument is an empty one */
	return op->argc > 0;
}

int script_main(const char *path)
{
	FILE *plan = fopen(path, "r");
	char line[8192];
	int count = 0, capacity = 0, limit_ms, from = 0;
	struct op *ops = NULL;
	bool well = true;

	if (!plan || fscanf(plan, "%d\n", &limit_ms) != 1)
		die("script", path);
	while (fgets(line, sizeof(line), plan)) {
		if (count == capacity)
			ops = realloc(ops, (capacity = 2 * capacity + 64) * sizeof(*ops));
		ops[count] = (struct op){0};
		if (parse(line, &ops[count]))
			count++;
	}
	fclose(plan);
	for (int i = 0; i < count; i++)
		ops[i].text = calloc(1, needs_text(ops[i].argv[0]) ? RESULT : 1);
	for (int i = 0; i <= count && well; i++) {
		if (i < count && strcmp(ops[i].argv[0], "-"))
			continue;
		if (i > from)
			well = run_phase(ops, from, i, limit_ms);
		from = i + 1;
	}
	for (int i = 0; i < count; i++) {
		printf("op %d %ld %ld %d ", i, (long)ops[i].start, (long)ops[i].end, ops[i].error);
		emit_hex(stdout, ops[i].end ? ops[i].text : "");
		fputc('\n', stdout);
	}
	printf("end\n");
	fflush(stdout);
	end_processes();
	_exit(0); /* lanes that are stuck in the kernel are left behind */
}
