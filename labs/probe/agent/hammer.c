/* The hot loops: tables of values, files under test, and the threads that write and read them. */
#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <time.h>
#include <unistd.h>

/* A container's first process has the number 1, too, in its own namespace; only a guest has it by this name (rdinit=/agent). */
bool first_of_guest(void)
{
	return getpid() == 1 && !strcmp(program_invocation_name, "/agent");
}

void die(const char *what, const char *where)
{
	const char *why = errno ? strerror(errno) : "";
	if (first_of_guest()) { /* its end would be a panic: the lab's failure must not look like the kernel's */
		fprintf(stderr, "<2>cgroup-lab: init failed: %s: %.*s: %s\n", what, (int)strcspn(where, "\n"), where, why);
		reboot(RB_POWER_OFF);
	}
	fprintf(stderr, "agent: %s: %.*s%s%s\n", what, (int)strcspn(where, "\n"), where, *why ? ": " : "", why);
	exit(2);
}

void *allocate(size_t count, size_t size)
{
	/* populated now, so that no page fault falls into a timed operation */
	void *memory = mmap(NULL, count * size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		die("out of memory", "allocate");
	return memory;
}

int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static uint32_t hash(const char *text)
{
	uint32_t h = 2166136261u; /* FNV-1a */
	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 16777619u;
	return h;
}

static int table_find(const struct table *table, const char *text)
{
	for (uint32_t at = hash(text) & table->mask; table->slots[at] >= 0; at = (at + 1) & table->mask)
		if (!strcmp(table->read[table->slots[at]], text))
			return table->slots[at];
	return -1;
}

/* A table file: one value a line, what to write, a tab, what a read then says. */
struct table *table_load(const char *path)
{
	struct table *table = allocate(1, sizeof(*table));
	char line[2 * TEXT + 2];
	FILE *in = fopen(path, "r");
	if (!in)
		die("table", path);
	while (fgets(line, sizeof(line), in))
		table->count++;
	rewind(in);
	table->write = allocate(table->count + 1, TEXT);
	table->read = allocate(table->count + 1, TEXT);
	for (table->mask = 64; table->mask < 4u * table->count; table->mask *= 2)
		;
	table->slots = allocate(table->mask, sizeof(int));
	memset(table->slots, 0xff, table->mask * sizeof(int));
	table->mask--;
	for (int i = 0; i < table->count && fgets(line, sizeof(line), in); i++) {
		char *tab = strchr(line, '\t');
		line[strcspn(line, "\n")] = 0;
		if (!tab || tab - line >= TEXT || strlen(tab + 1) >= TEXT) {
			errno = 0;
			die("malformed table", path);
		}
		*tab = 0;
		strcpy(table->write[i], line);
		strcpy(table->read[i], tab + 1);
		if (table_find(table, tab + 1) < 0) {
			uint32_t at = hash(tab + 1) & table->mask;
			while (table->slots[at] >= 0)
				at = (at + 1) & table->mask;
			table->slots[at] = i;
		}
	}
	fclose(in);
	return table;
}

static ssize_t read_text(int fd, char *text)
{
	ssize_t size = pread(fd, text, TEXT - 1, 0);
	if (size < 0)
		return size;
	while (size > 0 && text[size - 1] == '\n')
		size--;
	text[size] = 0;
	return size;
}

struct target *target_open(int id, const char *path, const struct table *table)
{
	struct target *target = allocate(1, sizeof(*target));
	int fd = open(path, O_RDWR | O_CLOEXEC);
	target->id = id;
	target->table = table;
	snprintf(target->path, sizeof(target->path), "%s", path);
	pthread_mutex_init(&target->lock, NULL);
	target->foreign = allocate(MAX_FOREIGN, TEXT);
	if (fd < 0 || read_text(fd, target->initial) < 0)
		die("file under test", path);
	close(fd);
	return target;
}

static int32_t value_of(struct target *target, const char *text)
{
	int found = table_find(target->table, text);
	if (found >= 0)
		return found;
	if (!strcmp(text, target->initial))
		return VALUE_INITIAL;
	pthread_mutex_lock(&target->lock);
	for (found = 0; found < target->foreign_count; found++)
		if (!strcmp(target->foreign[found], text))
			break;
	if (found == target->foreign_count) {
		if (found == MAX_FOREIGN)
			found--; /* the last place stands for all further texts */
		else
			target->foreign_count++;
		strcpy(target->foreign[found], text);
	}
	pthread_mutex_unlock(&target->lock);
	return target->table->count + found;
}

static void do_write(struct worker *w, int fd, int value)
{
	struct operation *op = &w->operations[w->done++];
	const char *text = w->target->table->write[value];
	size_t size = strlen(text);
	int64_t start = now();
	ssize_t written = pwrite(fd, text, size, 0);
	int error = written < 0 ? errno : 0;
	*op = (struct operation){start, now(), value, error, w->thread, WRITE};
}

static bool do_read(struct worker *w, int fd)
{
	struct operation *op = &w->operations[w->done++];
	char text[TEXT];
	int64_t start = now();
	ssize_t size = read_text(fd, text);
	int error = size < 0 ? errno : 0;
	*op = (struct operation){start, now(), VALUE_FAILED, error, w->thread, READ};
	if (!error)
		op->value = value_of(w->target, text);
	return !error;
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13; /* xorshift64 */
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

static void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void *work(void *argument)
{
	struct worker *w = argument;
	int fd = open(w->target->path, w->kind == WRITE ? O_RDWR | O_CLOEXEC : O_RDONLY | O_CLOEXEC);
	int *order = w->kind == WRITE ? allocate(w->count, sizeof(int)) : NULL;

	if (w->cpu >= 0)
		pin(w->cpu);
	/* one random order, repeated: a value returns only after all others of its writer */
	for (int i = 0; i < w->count; i++)
		order[i] = w->first + i;
	for (int i = w->count - 1; i > 0; i--) {
		int j = next_random(&w->seed) % (i + 1), kept = order[i];
		order[i] = order[j];
		order[j] = kept;
	}
	if (w->together)
		pthread_barrier_wait(w->together);
	for (uint64_t turn = 0; fd >= 0 && w->done + 2 <= w->capacity && !atomic_load(w->stop); turn++) {
		if (w->kind == WRITE)
			do_write(w, fd, order[turn % w->count]);
		if (!do_read(w, fd))
			break; /* the group is gone */
		if (w->pause_us)
			usleep(w->pause_us);
	}
	if (w->full && w->done + 2 > w->capacity)
		atomic_store(w->full, true);
	if (fd >= 0)
		close(fd);
	if (order)
		munmap(order, w->count * sizeof(int));
	return NULL;
}

struct worker *worker_start(struct worker plan)
{
	struct worker *w = allocate(1, sizeof(*w));
	*w = plan;
	w->seed = plan.seed * 0x9e3779b97f4a7c15u + plan.thread + 1; /* never zero in practice, distinct per thread */
	w->operations = allocate(w->capacity, sizeof(struct operation));
	if (pthread_create(&w->id, NULL, work, w))
		die("thread", w->target->path);
	return w;
}

void worker_join(struct worker *w)
{
	pthread_join(w->id, NULL);
}
