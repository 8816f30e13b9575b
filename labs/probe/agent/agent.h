/* The guest agent: does what a plan says, records every operation, judges nothing. */
#ifndef AGENT_H
#define AGENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { TEXT = 128, PATH = 512, MAX_TABLES = 16, MAX_OWN = 8, MAX_FOREIGN = 256 };
enum { READ = 0, WRITE = 1 };
enum { VALUE_INITIAL = -1, VALUE_FAILED = -2 };

/* One system call on a file. */
struct operation {
	int64_t start, end; /* ns, CLOCK_MONOTONIC */
	int32_t value;	    /* index into the table; from table size on: foreign texts; or VALUE_* */
	int16_t error;
	uint16_t thread;
	uint8_t kind;
};

/* The values of one kind of file: what to write, and what a read then says. */
struct table {
	int count;
	char (*write)[TEXT];
	char (*read)[TEXT];
	int *slots; /* open-addressed hash over the read texts */
	uint32_t mask;
};

struct table *table_load(const char *path);

/* One cgroup file under test; several threads work on it, each through a descriptor of its own. */
struct target {
	int id;
	char path[PATH];
	const struct table *table;
	char initial[TEXT];
	pthread_mutex_t lock; /* of the foreign texts: taken only when a text is in no table */
	int foreign_count;
	char (*foreign)[TEXT];
};

struct target *target_open(int id, const char *path, const struct table *table);

/* One thread at work on one target, with a bounded record of what it did. */
struct worker {
	struct target *target;
	pthread_barrier_t *together; /* where all wait before the first operation, or NULL */
	atomic_bool *stop;
	atomic_bool *full; /* set when the record is full, or NULL */
	uint16_t thread;
	int kind; /* WRITE: write and read back, READ: only read */
	int first, count; /* the values that this writer owns */
	int cpu;	  /* -1: any */
	int pause_us;	  /* between operations, so that others on this CPU get on */
	uint64_t seed;
	uint32_t done, capacity;
	struct operation *operations;
	pthread_t id;
};

struct worker *worker_start(struct worker plan);
void worker_join(struct worker *worker);

/* What the containers part of a plan says. */
struct own {
	char name[64]; /* file in the container's own cgroup */
	const struct table *table;
	int split; /* the writer owns values 0..split */
};

struct containers {
	int count, workers, step_seconds, pause_us;
	uint32_t capacity;
	char runtime[PATH], root[PATH], bundles[PATH], template[PATH], cgroup[PATH];
	int own_count;
	struct own own[MAX_OWN];
	uint64_t seed;
	int first_target; /* ids of the containers' own files start here */
};

void containers_run(const struct containers *plan, FILE *out);

int trace_main(char **argv); /* agent trace, agent tell: see trace.c */
int tell_main(char **argv);

void measure_main(void) __attribute__((noreturn)); /* as the first process of a guest: see measure.c */

int64_t now(void);
void *allocate(size_t count, size_t size);
void emit_target(FILE *out, const struct target *target);
void emit_worker(FILE *out, const struct worker *worker);
void emit_hex(FILE *out, const char *text);
bool first_of_guest(void);
void die(const char *what, const char *where) __attribute__((noreturn));

#endif
