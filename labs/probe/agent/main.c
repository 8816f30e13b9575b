/* agent PLAN: run the plan, then write all records to standard output. (agent script: see script.c;
 * agent trace, agent tell: see trace.c; the first process of a guest: see measure.c)
 *
 * A plan is lines of words:
 *   seconds S | capacity N | seed N | pause US
 *   table ID PATH
 *   target ID TABLE PATH
 *   writer TARGET FIRST COUNT CPU
 *   reader TARGET CPU
 *   containers COUNT WORKERS STEP-SECONDS RUNTIME ROOT BUNDLES TEMPLATE CGROUP
 *   own TABLE SPLIT NAME
 * With containers, the writers and readers run until the last container is gone; else for S seconds.
 */
#define _GNU_SOURCE
#include "agent.h"
#include "script.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_WORKERS = 64, MAX_TARGETS = 64 };

static struct table *tables[MAX_TABLES];
static struct target *targets[MAX_TARGETS];
static struct worker plans[MAX_WORKERS];
static int target_count, worker_count;
static struct containers containers;
static double seconds = 1;
static uint32_t capacity = 100000;
static uint64_t seed = 1;
static int pause_us;
static pthread_barrier_t together;
static atomic_bool stop, full;

static void __attribute__((noreturn)) refuse(const char *what, const char *line)
{
	errno = 0; /* it is the plan's fault, not the system's */
	die(what, line);
}

static int within(int value, int limit, const char *line)
{
	if (value < 0 || value >= limit)
		refuse("out of range in plan", line);
	return value;
}

static struct table *table_at(int id, const char *line)
{
	if (!tables[within(id, MAX_TABLES, line)])
		refuse("no such table", line);
	return tables[id];
}

static void add_worker(const char *line, int target, struct worker plan)
{
	if (!targets[within(target, MAX_TARGETS, line)])
		refuse("no such target", line);
	plan.target = targets[target];
	if (plan.kind == WRITE) {
		within(plan.first, plan.target->table->count, line);
		within(plan.count - 1, plan.target->table->count - plan.first, line);
	}
	plan.together = &together;
	plan.stop = &stop;
	plan.full = &full;
	plan.thread = within(worker_count, MAX_WORKERS, line);
	plan.capacity = capacity;
	plan.pause_us = pause_us;
	plan.seed = seed;
	plans[worker_count++] = plan;
}

static void read_line(const char *line)
{
	struct worker w = {.cpu = -1};
	struct containers *c = &containers;
	char path[PATH], name[64];
	int a, b, turn, cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (sscanf(line, "seconds %lf", &seconds) == 1 || sscanf(line, "capacity %u", &capacity) == 1 ||
	    sscanf(line, "seed %lu", &seed) == 1 || sscanf(line, "pause %d", &pause_us) == 1)
		return;
	if (sscanf(line, "table %d %511s", &a, path) == 2) {
		tables[within(a, MAX_TABLES, line)] = table_load(path);
	} else if (sscanf(line, "target %d %d %511s", &a, &b, path) == 3) {
		targets[within(a, MAX_TARGETS, line)] = target_open(a, path, table_at(b, line));
		target_count = a + 1 > target_count ? a + 1 : target_count;
	} else if (sscanf(line, "writer %d %d %d %d", &a, &w.first, &w.count, &turn) == 4) {
		w.kind = WRITE;
		w.cpu = turn % cpus;
		add_worker(line, a, w);
	} else if (sscanf(line, "reader %d %d", &a, &turn) == 2) {
		w.kind = READ;
		w.cpu = cpus - 1 - turn % cpus;
		add_worker(line, a, w);
	} else if (sscanf(line, "containers %d %d %d %511s %511s %511s %511s %511s", &c->count, &c->workers,
			  &c->step_seconds, c->runtime, c->root, c->bundles, c->template, c->cgroup) == 8) {
		within(c->workers, 33, line);
	} else if (sscanf(line, "own %d %d %63s", &a, &b, name) == 3) {
		struct own *own = &c->own[within(c->own_count++, MAX_OWN, line)];
		*own = (struct own){.table = table_at(a, line), .split = b};
		within(b - 1, own->table->count, line);
		strcpy(own->name, name);
	} else if (line[0] != '\n') {
		refuse("unknown line in plan", line);
	}
}

int main(int argc, char **argv)
{
	struct worker *running[MAX_WORKERS];
	char line[4096];
	FILE *plan = argc == 2 ? fopen(argv[1], "r") : NULL;

	if (first_of_guest())
		measure_main();
	if (argc == 3 && !strcmp(argv[1], "script"))
		return script_main(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "exec"))
		exec_again(argv[2]);
	if (argc > 5 && !strcmp(argv[1], "trace"))
		return trace_main(argv + 2);
	if (argc > 3 && !strcmp(argv[1], "tell"))
		return tell_main(argv + 2);
	if (!plan)
		die("usage: agent PLAN", argc > 1 ? argv[1] : "");
	while (fgets(line, sizeof(line), plan))
		read_line(line);
	fclose(plan);

	pthread_barrier_init(&together, NULL, worker_count ? worker_count : 1);
	int64_t began = now();
	for (int i = 0; i < worker_count; i++)
		running[i] = worker_start(plans[i]);
	if (containers.count) {
		containers.seed = seed;
		containers.pause_us = pause_us;
		containers.capacity = capacity;
		containers.first_target = target_count;
		containers_run(&containers, stdout);
	} else {
		/* once a record is full, what the others do races with one thread less */
		while (!atomic_load(&full) && now() - began < seconds * 1e9)
			usleep(1000);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < worker_count; i++)
		worker_join(running[i]);
	printf("run %ld %ld\n", (long)(now() - began), sysconf(_SC_NPROCESSORS_ONLN));
	for (int i = 0; i < target_count; i++)
		if (targets[i])
			emit_target(stdout, targets[i]);
	for (int i = 0; i < worker_count; i++)
		emit_worker(stdout, running[i]);
	printf("end\n");
	return fflush(stdout) ? 2 : 0;
}

void emit_hex(FILE *out, const char *text)
{
	fputc('x', out); /* so that an empty text is a word too */
	for (; *text; text++)
		fprintf(out, "%02x", (unsigned char)*text);
}

void emit_target(FILE *out, const struct target *target)
{
	fprintf(out, "target %d %d %s ", target->id, target->foreign_count, target->path);
	emit_hex(out, target->initial);
	for (int i = 0; i < target->foreign_count; i++) {
		fputc(' ', out);
		emit_hex(out, target->foreign[i]);
	}
	fputc('\n', out);
}

/* One operation on the wire: 11 bytes, since most of a probe's time would else go into sending. Times are told as
 * the gap since the end of the thread's operation before and the duration; WIDE holds the upper halves of the next. */
struct __attribute__((packed)) wire {
	uint32_t gap, duration;
	int16_t value;
	uint8_t what; /* errno, with the top bit set for a write; WIDE */
};
enum { WIRE_WRITE = 0x80, WIDE = 0xff };

static void put(FILE *out, uint64_t gap, uint64_t duration, int value, int what)
{
	if ((gap | duration) >> 32) {
		struct wire wide = {gap >> 32, duration >> 32, 0, WIDE};
		fwrite(&wide, sizeof(wide), 1, out);
	}
	struct wire wire = {gap, duration, value, what};
	fwrite(&wire, sizeof(wire), 1, out);
}

void emit_worker(FILE *out, const struct worker *worker)
{
	uint32_t wide = 0;
	int64_t before = 0;
	for (uint32_t i = 0; i < worker->done; i++) {
		const struct operation *op = &worker->operations[i];
		wide += ((op->start - before) | (op->end - op->start)) >> 32 != 0;
		before = op->end;
	}
	fprintf(out, "operations %d %d %u\n", worker->target->id, worker->thread, worker->done + wide);
	before = 0;
	for (uint32_t i = 0; i < worker->done; i++) {
		const struct operation *op = &worker->operations[i];
		int error = op->error > 126 ? 126 : op->error;
		put(out, op->start - before, op->end - op->start, op->value, error | (op->kind == WRITE ? WIRE_WRITE : 0));
		before = op->end;
	}
	fputc('\n', out);
}
