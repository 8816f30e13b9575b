/* Containers: J workers take one container after the other through create, start, state, kill, delete, while
 * threads write and read files of the container's own cgroup. */
#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { THREADS_BEFORE = 1000 }; /* thread numbers of the containers' own workers start here */
enum { NOT_RUNNING = 200, NOT_ENDED = 201 }; /* codes of our own checks, beside the runtime's */

static const struct containers *plan;
static FILE *out;
static atomic_int next_container, next_target;
static pthread_mutex_t out_lock = PTHREAD_MUTEX_INITIALIZER;

/* Run the program with output to `log`; its exit code, minus the signal that ended it, or minus SIGKILL at the limit. */
static int run(char **argv, const char *log)
{
	posix_spawn_file_actions_t files;
	int64_t limit = now() + plan->step_seconds * 1000000000LL;
	pid_t pid;
	int status;

	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&files, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	posix_spawn_file_actions_adddup2(&files, 1, 2);
	int error = posix_spawn(&pid, argv[0], &files, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	if (error) {
		errno = error;
		die("runtime", argv[0]);
	}
	for (;;) {
		pid_t done = waitpid(pid, &status, WNOHANG);
		if (done == pid)
			return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
		if (now() > limit) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return -SIGKILL;
		}
		usleep(500);
	}
}

static void read_file(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? 0 : read(fd, text, size - 1);
	text[got < 0 ? 0 : got] = 0;
	if (fd >= 0)
		close(fd);
}

/* Runtimes return from kill before the process is gone; wait until its group is empty, or say that it is not. */
static int wait_unpopulated(const char *id)
{
	int64_t limit = now() + plan->step_seconds * 1000000000LL;
	char path[2 * PATH], text[256];

	snprintf(path, sizeof(path), "%s/%s/cgroup.events", plan->cgroup, id);
	while (now() < limit) {
		read_file(path, text, sizeof(text));
		if (!strstr(text, "populated 1"))
			return 0;
		usleep(1000);
	}
	return NOT_ENDED;
}

/* One step of one container's life; true when it went well. */
static bool step(const char *id, int worker, char **words)
{
	char *argv[12] = {(char *)plan->runtime, "--root", (char *)plan->root};
	char log[2 * PATH], said[2048];
	int64_t start = now();

	for (int i = 0; words[i]; i++)
		argv[3 + i] = words[i];
	snprintf(log, sizeof(log), "%s/%s/log", plan->bundles, id);
	int code = run(argv, log);
	int64_t end = now();
	read_file(log, said, sizeof(said));
	if (!code && !strcmp(words[0], "state") && !strstr(said, "\"running\""))
		code = NOT_RUNNING;
	if (!code && !strcmp(words[0], "kill"))
		code = wait_unpopulated(id);
	pthread_mutex_lock(&out_lock);
	fprintf(out, "step %s %d %s %ld %ld %d ", id, worker, words[0], (long)start, (long)end, code);
	emit_hex(out, code ? said : "");
	fputc('\n', out);
	pthread_mutex_unlock(&out_lock);
	return !code;
}

/* bundles/ID/config.json from the template, with every @ID@ replaced. */
static void make_bundle(const char *id, const char *template)
{
	char path[2 * PATH];

	snprintf(path, sizeof(path), "%s/%s", plan->bundles, id);
	if (mkdir(path, 0700))
		die("bundle", path);
	strcat(path, "/config.json");
	FILE *config = fopen(path, "w");
	if (!config)
		die("bundle", path);
	for (const char *at = template, *mark; *at; at = mark + 4) {
		mark = strstr(at, "@ID@");
		if (!mark) {
			fputs(at, config);
			break;
		}
		fprintf(config, "%.*s%s", (int)(mark - at), at, id);
	}
	fclose(config);
}

static int start_own(const char *id, int worker, atomic_bool *stop, struct worker **running)
{
	int count = 0;
	for (int i = 0; i < plan->own_count; i++) {
		const struct own *own = &plan->own[i];
		char path[2 * PATH];
		snprintf(path, sizeof(path), "%s/%s/%s", plan->cgroup, id, own->name);
		if (access(path, R_OK | W_OK))
			continue; /* the step that should have made it has failed, and is on record */
		struct worker w = {
			.target = target_open(atomic_fetch_add(&next_target, 1), path, own->table),
			.stop = stop,
			.thread = THREADS_BEFORE + worker * 2 * MAX_OWN + 2 * i,
			.kind = WRITE,
			.count = own->split,
			.cpu = -1,
			.pause_us = plan->pause_us,
			.capacity = plan->capacity / 16,
			.seed = plan->seed,
		};
		running[count++] = worker_start(w);
		w.kind = READ;
		w.count = 0;
		w.thread++;
		running[count++] = worker_start(w);
	}
	return count;
}

static void one_life(const char *id, int worker, const char *template)
{
	struct worker *running[2 * MAX_OWN];
	atomic_bool stop = false;
	char bundle[2 * PATH];

	make_bundle(id, template);
	snprintf(bundle, sizeof(bundle), "%s/%s", plan->bundles, id);
	if (!step(id, worker, (char *[]){"create", "--bundle", bundle, (char *)id, NULL}))
		return;
	int count = start_own(id, worker, &stop, running);
	bool well = step(id, worker, (char *[]){"start", (char *)id, NULL});
	well = well && step(id, worker, (char *[]){"state", (char *)id, NULL});
	well = step(id, worker, (char *[]){"kill", (char *)id, "KILL", NULL}) && well;
	atomic_store(&stop, true);
	for (int i = 0; i < count; i++)
		worker_join(running[i]);
	step(id, worker, (char *[]){"delete", (char *)id, NULL});
	pthread_mutex_lock(&out_lock);
	for (int i = 0; i < count; i++) {
		if (i % 2 == 0)
			emit_target(out, running[i]->target);
		emit_worker(out, running[i]);
	}
	pthread_mutex_unlock(&out_lock);
}

static void *lives(void *argument)
{
	int worker = (int)(intptr_t)argument, number;
	char template[65536], id[32];

	read_file(plan->template, template, sizeof(template));
	while ((number = atomic_fetch_add(&next_container, 1)) < plan->count) {
		snprintf(id, sizeof(id), "c%03d", number);
		one_life(id, worker, template);
	}
	return NULL;
}

void containers_run(const struct containers *containers, FILE *file)
{
	pthread_t threads[64];

	plan = containers;
	out = file;
	atomic_store(&next_target, plan->first_target);
	for (int i = 0; i < plan->workers; i++)
		if (pthread_create(&threads[i], NULL, lives, (void *)(intptr_t)i))
			die("thread", "containers");
	for (int i = 0; i < plan->workers; i++)
		pthread_join(threads[i], NULL);
}
