/* agent script PLAN: run a list of operations in lanes, and tell what came of each.
 *
 * A plan line is LANE, OP and its arguments, separated by tabs; `-` as OP ends a phase: operations of one lane follow
 * each other, lanes of one phase run at the same time, the next phase starts when all lanes are done. The first line
 * gives the milliseconds that a phase may take; a lane that is not done by then is left behind, its operation untold.
 * The operations are told in files.c, process.c and orders.c.
 *
 * The lanes run in a process of their own, which shares the results: one that is stuck in the kernel cannot be ended,
 * and whoever waits for the agent must not wait for it. A lane is one thread from its first phase to the end, since
 * PR_SET_PDEATHSIG of a process tells of the end of the thread that started it.
 */
#define _GNU_SOURCE
#include "agent.h"
#include "script.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { MAX_LANES = 32 };

struct op {
	int lane, argc;
	char *argv[MAX_ARGS];
	int64_t start, end; /* end 0: never came back */
	int error;
	char *text;
};

static struct lane {
	pthread_t id;
	struct op *from, *to;
	bool started, busy;
	int number;
} lanes[MAX_LANES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the lanes' from, to and busy */
static pthread_cond_t begin = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static atomic_int ready, met;
static int lanes_in_phase;

/* Wait until every lane of the phase has come to its n-th `meet`, as this one has; each has as many of them. */
static int meet(void)
{
	int all = lanes_in_phase, last = (atomic_fetch_add(&met, 1) / all + 1) * all;
	while (atomic_load(&met) < last)
		sched_yield();
	return 0;
}

static int do_op(struct op *op)
{
	if (!strcmp(op->argv[0], "meet"))
		return meet();
	int error = file_op(op->argv, op->text);
	return error == UNKNOWN ? process_op(op->argc, op->argv, op->text) : error;
}

static void *run_lane(void *argument)
{
	struct lane *lane = argument;
	for (;;) {
		pthread_mutex_lock(&lock);
		while (!lane->busy)
			pthread_cond_wait(&begin, &lock);
		pthread_mutex_unlock(&lock);
		atomic_fetch_add(&ready, 1);
		while (atomic_load(&ready) < lanes_in_phase)
			sched_yield(); /* all lanes of a phase start together */
		for (struct op *op = lane->from; op < lane->to; op++) {
			if (op->lane != lane->number)
				continue;
			op->start = now();
			op->error = do_op(op);
			op->end = now();
		}
		pthread_mutex_lock(&lock);
		lane->busy = false;
		pthread_cond_signal(&done);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static bool any_busy(void)
{
	for (int i = 0; i < MAX_LANES; i++)
		if (lanes[i].busy)
			return true;
	return false;
}

/* Run the operations [from, to) in their lanes; false when a lane did not come back in time. */
static bool run_phase(struct op *from, struct op *to, int limit_ms)
{
	struct timespec until;
	int error = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += limit_ms / 1000;
	until.tv_nsec += limit_ms % 1000 * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	pthread_mutex_lock(&lock);
	atomic_store(&ready, 0);
	atomic_store(&met, 0);
	lanes_in_phase = 0;
	for (struct op *op = from; op < to; op++) {
		struct lane *lane = &lanes[op->lane];
		if (lane->busy)
			continue;
		*lane = (struct lane){lane->id, from, to, lane->started, true, op->lane};
		lanes_in_phase++;
		if (!lane->started && pthread_create(&lane->id, NULL, run_lane, lane))
			die("thread", "script");
		lane->started = true;
	}
	pthread_cond_broadcast(&begin);
	while (any_busy() && !error)
		error = pthread_cond_timedwait(&done, &lock, &until);
	bool well = !any_busy();
	pthread_mutex_unlock(&lock);
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

static void *share(size_t size)
{
	void *memory = mmap(NULL, size + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		die("memory", "script");
	return memory;
}

/* The plan's operations in shared memory, each with room for its words. */
static struct op *read_plan(const char *path, int *count, int *limit_ms)
{
	FILE *plan = fopen(path, "r");
	char line[8192];
	struct op *ops;
	size_t room = 0, used = 0;
	int capacity = 0;

	if (!plan || fscanf(plan, "%d\n", limit_ms) != 1)
		die("script", path);
	while (fgets(line, sizeof(line), plan))
		capacity++;
	rewind(plan);
	if (!fgets(line, sizeof(line), plan))
		die("script", path);
	ops = share(capacity * sizeof(*ops));
	for (*count = 0; *count < capacity && fgets(line, sizeof(line), plan);) {
		room += parse(line, &ops[*count]) && needs_text(ops[*count].argv[0]) ? RESULT : 1;
		*count += ops[*count].argc > 0;
	}
	fclose(plan);
	char *texts = share(room);
	for (int i = 0; i < *count; i++) {
		ops[i].text = texts + used;
		used += needs_text(ops[i].argv[0]) ? RESULT : 1;
	}
	return ops;
}

static void run(struct op *ops, int count, int limit_ms)
{
	int null = open("/dev/null", O_RDWR);
	bool well = true;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int fd = 0; fd < 3; fd++) /* whoever reads what the agent writes must not wait for this process */
		dup2(null, fd);
	processes_init();
	for (int i = 0, from = 0; i <= count && well; i++) {
		if (i < count && strcmp(ops[i].argv[0], "-"))
			continue;
		if (i > from)
			well = run_phase(ops + from, ops + i, limit_ms);
		from = i + 1;
	}
	end_processes();
}

int script_main(const char *path)
{
	int count, limit_ms, ended[2];
	struct op *ops = read_plan(path, &count, &limit_ms);
	struct pollfd end;

	fflush(stdout);
	if (pipe2(ended, O_CLOEXEC))
		die("pipe", "script");
	pid_t pid = fork();
	if (!pid) {
		close(ended[0]);
		run(ops, count, limit_ms);
		(void)!write(ended[1], "", 1); /* told, since its children hold this end too */
		_exit(0);
	}
	close(ended[1]);
	end = (struct pollfd){.fd = ended[0], .events = POLLIN};
	if (pid < 0 || poll(&end, 1, -1) != 1)
		die("fork", "script");
	for (int i = 0; i < count; i++) {
		printf("op %d %ld %ld %d ", i, (long)ops[i].start, (long)ops[i].end, ops[i].error);
		emit_hex(stdout, ops[i].end ? ops[i].text : "");
		fputc('\n', stdout);
	}
	printf("end\n");
	return fflush(stdout) ? 2 : 0;
}
