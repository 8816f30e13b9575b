/* The agent as the first process of a guest: measures what /plan says, one operation after the other, sends every
 * sample over the second serial line, and powers the guest off. Nothing else runs beside it: no init, no shell, no disk.
 *
 * A plan is lines of words:
 *   seed N
 *   set PATH TEXT       write a file and read it back, as a parameter of a planted defect
 *   measure NAME OPERATION COUNT WARM GAP-US SIBLINGS BESIDE THREADS
 * SIBLINGS idle groups exist meanwhile; THREADS others do the operation BESIDE in groups of their own, 100 us apart (moves: at once).
 * WARM operations come first and are not kept; GAP-US is slept before each. Operations start soon after a timer tick.
 */
#define _GNU_SOURCE
#include "agent.h"
#include "script.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define ROOT "/sys/fs/cgroup/m"
enum { QUIET = 2000000 }; /* ns; half of what lies between two ticks at the least (HZ 250) */
/* us: without it, one CPU would be what all wait for. Moves come at once: with it, a planted wait of moves hardly showed
 * in the forks beside them. */
enum { BREATH = 100 };
enum { MAX_COUNT = 1000000, MAX_SIBLINGS = 100000, MAX_BESIDE = 64 };

/* One thread that does one operation again and again, in a group of its own. */
struct lane {
	const struct action *action;
	char path[64], below[80];
	int fd[2]; /* the file, or for a move the cgroup.procs of two groups below */
	pid_t moved;
	uint64_t seed;
	atomic_bool *stop;
	pthread_t id;
};

/* One timed operation: its duration in ns, or -1 and errno. `start` opens what it needs; 0, or -1 and errno. */
struct action {
	const char *name, *file;
	int64_t (*once)(struct lane *lane, unsigned turn);
};

static FILE *out;
static uint64_t seed = 1;

static uint64_t draw(struct lane *lane)
{
	lane->seed ^= lane->seed << 13; /* xorshift64 */
	lane->seed ^= lane->seed >> 7;
	return lane->seed ^= lane->seed << 17;
}

static int64_t timed_write(int fd, const char *text)
{
	size_t size = strlen(text);
	int64_t start = now();
	ssize_t written = pwrite(fd, text, size, 0);
	int64_t end = now();
	return written < 0 ? -1 : end - start;
}

/* Values have one width each: the kernel reads a longer number for longer. */
static int64_t write_weight(struct lane *lane, unsigned turn)
{
	char text[32];
	(void)turn;
	sprintf(text, "%d", 1000 + (int)(draw(lane) % 9000));
	return timed_write(lane->fd[0], text);
}

static int64_t write_max(struct lane *lane, unsigned turn)
{
	char text[32];
	(void)turn;
	sprintf(text, "%d 100000", 10000 + (int)(draw(lane) % 90000));
	return timed_write(lane->fd[0], text);
}

static int64_t read_file(struct lane *lane, unsigned turn)
{
	char text[TEXT];
	(void)turn;
	int64_t start = now();
	ssize_t got = pread(lane->fd[0], text, sizeof(text), 0);
	int64_t end = now();
	return got < 0 ? -1 : end - start;
}

static int64_t move(struct lane *lane, unsigned turn)
{
	char text[32];
	sprintf(text, "%d", lane->moved);
	return timed_write(lane->fd[turn % 2], text);
}

static int64_t make_group(struct lane *lane, unsigned turn)
{
	(void)turn;
	int64_t start = now();
	int failed = mkdir(lane->below, 0755);
	int64_t end = now();
	return failed || rmdir(lane->below) ? -1 : end - start;
}

static int64_t remove_group(struct lane *lane, unsigned turn)
{
	(void)turn;
	if (mkdir(lane->below, 0755))
		return -1;
	int64_t start = now();
	int failed = rmdir(lane->below);
	int64_t end = now();
	return failed ? -1 : end - start;
}

static int64_t fork_once(struct lane *lane, unsigned turn)
{
	(void)lane, (void)turn;
	int64_t start = now();
	pid_t pid = fork();
	if (!pid)
		_exit(0);
	int64_t end = now();
	return pid < 0 || waitpid(pid, NULL, 0) != pid ? -1 : end - start;
}

static const struct action actions[] = {
	{"cpu.weight", "cpu.weight", write_weight}, {"cpu.max", "cpu.max", write_max},
	{"read-cpu.max", "cpu.max", read_file},	    {"io.weight", "io.weight", write_weight},
	{"attach", "cgroup.procs", move},	    {"mkdir", "", make_group},
	{"rmdir", "", remove_group},		    {"fork", "", fork_once},
};

static const struct action *action_named(const char *name)
{
	for (size_t i = 0; i < sizeof(actions) / sizeof(*actions); i++)
		if (!strcmp(actions[i].name, name))
			return &actions[i];
	return NULL;
}

/* Open what the lane's action needs; 0 or an errno. */
static int lane_open(struct lane *lane)
{
	const char *file = lane->action->file;
	char path[PATH];

	if (mkdir(lane->path, 0755))
		return errno;
	sprintf(lane->below, "%s/x", lane->path);
	if (!*file)
		return 0;
	for (int i = 0; i < 2; i++) {
		sprintf(path, "%s/%s", lane->path, file);
		if (lane->action->once == move) {
			sprintf(path, "%s/%d", lane->path, i);
			if (mkdir(path, 0755))
				return errno;
			strcat(path, "/cgroup.procs");
		}
		lane->fd[i] = open(path, O_RDWR | O_CLOEXEC);
		if (lane->fd[i] < 0)
			return errno;
	}
	if (lane->action->once != move)
		return 0;
	lane->moved = fork();
	if (!lane->moved)
		for (;;)
			pause();
	return lane->moved < 0 ? errno : 0;
}

static void lane_close(struct lane *lane)
{
	char path[PATH];
	for (int i = 0; i < 2; i++)
		if (lane->fd[i] > 0)
			close(lane->fd[i]);
	if (lane->moved > 0) {
		kill(lane->moved, SIGKILL);
		waitpid(lane->moved, NULL, 0);
	}
	for (int i = 0; i < 2; i++) {
		sprintf(path, "%s/%d", lane->path, i);
		rmdir(path);
	}
	rmdir(lane->path);
}

static void *beside(void *argument)
{
	struct lane *lane = argument;
	for (unsigned turn = 0; !atomic_load(lane->stop) && lane->action->once(lane, turn) >= 0; turn++)
		if (lane->action->once != move)
			usleep(BREATH);
	return NULL;
}

static int siblings(int count, bool make)
{
	char path[64];
	for (int i = 0; i < count; i++) {
		sprintf(path, ROOT "/idle%06d", i);
		if (make ? mkdir(path, 0755) : rmdir(path))
			return errno;
	}
	return 0;
}

struct measure {
	char name[64];
	const struct action *action, *beside;
	int count, warm, gap_us, siblings, threads;
};

static int64_t coarse(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t); /* moves at each tick of the timer, and only then */
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Wait until a tick of the timer has just passed, unless one did within QUIET: what comes next meets none. Else the
 * share of operations that a tick falls into decides about the 99th percentile, of those that take about 1/100 of it. */
static void after_tick(void)
{
	static int64_t passed;
	if (now() - passed < QUIET)
		return;
	for (int64_t last = coarse(); coarse() == last;)
		;
	passed = now();
}

/* Fill `samples`; 0 or the errno of what did not work. */
static int take(const struct measure *m, uint32_t *samples)
{
	static struct lane lanes[MAX_BESIDE + 1];
	atomic_bool stop = false;
	int error = siblings(m->siblings, true), opened = 0, started = 0;

	memset(lanes, 0, sizeof(lanes));
	for (; !error && opened <= m->threads; opened++) {
		struct lane *lane = &lanes[opened];
		*lane = (struct lane){.action = opened ? m->beside : m->action, .stop = &stop};
		lane->seed = seed * 0x9e3779b97f4a7c15u + opened + 1;
		sprintf(lane->path, ROOT "/lane%02d", opened);
		error = lane_open(lane);
	}
	for (; !error && started < m->threads; started++)
		error = pthread_create(&lanes[started + 1].id, NULL, beside, &lanes[started + 1]);
	for (int turn = 0; !error && turn < m->warm + m->count; turn++) {
		if (m->gap_us)
			usleep(m->gap_us);
		after_tick();
		int64_t ns = m->action->once(&lanes[0], turn);
		if (ns < 0)
			error = failed();
		else if (turn >= m->warm)
			samples[turn - m->warm] = ns > UINT32_MAX ? UINT32_MAX : ns;
	}
	atomic_store(&stop, true);
	for (int i = 0; i < started; i++)
		pthread_join(lanes[i + 1].id, NULL);
	for (int i = 0; i < opened; i++)
		lane_close(&lanes[i]);
	siblings(m->siblings, false);
	return error;
}

static void measure(const struct measure *m)
{
	uint32_t *samples = allocate(m->count, sizeof(*samples));
	int error = take(m, samples);
	fprintf(out, "samples %s %d %d\n", m->name, error, error ? 0 : m->count);
	if (!error)
		fwrite(samples, sizeof(*samples), m->count, out);
	fputc('\n', out);
}

static void set(const char *path, const char *text)
{
	char told[RESULT] = "";
	int error = write_file(path, text, 0);
	if (!error)
		error = read_into(path, told);
	told[strcspn(told, "\n")] = 0;
	fprintf(out, "set %s %d %s\n", path, error, *told ? told : "-");
}

static void tell(const char *name, const char *path)
{
	char text[RESULT];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof(text));
	fprintf(out, "fact %s x", name);
	for (ssize_t i = 0; i < got; i++)
		fprintf(out, "%02x", (unsigned char)text[i]);
	fputc('\n', out);
	if (fd >= 0)
		close(fd);
}

static void tell_state(const char *when)
{
	static const char *const files[][2] = {
		{"stat", "/proc/stat"}, {"load", "/proc/loadavg"}, {"pressure", "/proc/pressure/cpu"},
		{"clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"},
	};
	char name[32];
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		sprintf(name, "%s.%s", files[i][0], when);
		tell(name, files[i][1]);
	}
}

static void follow(const char *line)
{
	struct measure m = {0};
	char path[PATH], text[64], action[32], other[32];

	if (sscanf(line, "seed %lu", &seed) == 1)
		return;
	if (sscanf(line, "set %511s %63s", path, text) == 2)
		return set(path, text);
	if (sscanf(line, "measure %63s %31s %d %d %d %d %31s %d", m.name, action, &m.count, &m.warm, &m.gap_us,
		   &m.siblings, other, &m.threads) == 8) {
		m.action = action_named(action);
		m.beside = action_named(other);
		if (m.action && m.count > 0 && m.count <= MAX_COUNT && m.siblings <= MAX_SIBLINGS &&
		    m.threads <= MAX_BESIDE && (m.beside || !m.threads))
			return measure(&m);
	}
	errno = 0;
	die("line in plan", line);
}

static void prepare_guest(void)
{
	struct termios raw;
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	int log = open("/dev/kmsg", O_WRONLY | O_CLOEXEC), line = open("/dev/ttyS1", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (log >= 0)
		dup2(log, STDERR_FILENO);
	if (line < 0 || tcgetattr(line, &raw))
		die("results", "/dev/ttyS1");
	cfmakeraw(&raw);
	tcsetattr(line, TCSANOW, &raw);
	out = fdopen(line, "w");
	if (mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL))
		die("mount", "cgroup2");
	static const char *const controllers[] = {"+cpu", "+io", "+memory", "+pids"};
	mkdir(ROOT, 0755);
	for (size_t i = 0; i < sizeof(controllers) / sizeof(*controllers); i++) {
		write_file("/sys/fs/cgroup/cgroup.subtree_control", controllers[i], 0);
		write_file(ROOT "/cgroup.subtree_control", controllers[i], 0);
	}
}

/* The first process of the guest; comes back never: an end of the first process would be a panic. */
void measure_main(void)
{
	char line[1024];
	prepare_guest();
	FILE *plan = fopen("/plan", "r");
	if (!plan)
		die("plan", "/plan");
	tell("release", "/proc/sys/kernel/osrelease");
	tell("notes", "/sys/kernel/notes");
	tell("parameters", "/proc/cmdline");
	tell_state("before");
	while (fgets(line, sizeof(line), plan))
		follow(line);
	tell_state("after");
	tell("taint", "/proc/sys/kernel/tainted");
	fprintf(out, "end\n");
	fflush(out);
	tcdrain(fileno(out));
	reboot(RB_POWER_OFF);
	die("power off", "");
}
