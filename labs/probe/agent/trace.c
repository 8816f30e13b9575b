/* agent trace ROOT FILE FOLDER PROGRAM ARG...: run the program, and tell of every write of it and its children to a file
 * below ROOT, in FOLDER/trace: `write START END ERRNO PATH TEXT`, the last two in hex, and `end NOW CODE` when it ended.
 * The first write to a file called FILE is held back before the kernel sees it: FOLDER/held is made, and it goes on
 * when there is FOLDER/release. FILE `-`: none is.
 *
 * A seccomp filter stops only writes, so nothing else of the program is slowed down. Children inherit the filter, whose
 * writes fail without a tracer: all are traced, and this ends after the last of them.
 * agent tell MS FILE...: tell each file's path and first line as the very first thing done; then stay for so long.
 */
#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __x86_64__
enum { NATIVE = AUDIT_ARCH_X86_64 };
#else
enum { NATIVE = AUDIT_ARCH_AARCH64 };
#endif
enum { MAX_CALLS = 256, SHOWN = 256 };

/* A write that has begun, of a thread that is between its two stops. */
static struct call {
	pid_t thread;
	int64_t start;
	char path[PATH], text[SHOWN + 1];
} calls[MAX_CALLS];

static const char *root, *hold;
static char held_path[PATH], release_path[PATH];
static pid_t held;
static FILE *log_file;

static void filter_writes(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwrite64, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(*code), code};
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
		die("seccomp", "trace");
}

static pid_t start(char **argv)
{
	int gate[2];
	char byte;
	if (pipe2(gate, O_CLOEXEC))
		die("pipe", "trace");
	pid_t pid = fork();
	if (!pid) {
		close(gate[1]);
		if (read(gate[0], &byte, 1) != 1) /* until it is traced */
			_exit(126);
		filter_writes();
		execv(argv[0], argv);
		_exit(127);
	}
	long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
		       PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
	if (pid < 0 || ptrace(PTRACE_SEIZE, pid, 0, options) || write(gate[1], "", 1) != 1)
		die("ptrace", argv[0]);
	close(gate[0]);
	close(gate[1]);
	return pid;
}

/* Before a write: remember it when it goes to a file below ROOT. */
static struct call *begin(pid_t thread)
{
	struct __ptrace_syscall_info info;
	char link[64];
	struct call *call = calls;

	while (call < calls + MAX_CALLS && call->thread)
		call++;
	if (call == calls + MAX_CALLS || ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(info), &info) <= 0)
		return NULL;
	snprintf(link, sizeof(link), "/proc/%d/fd/%d", thread, (int)info.seccomp.args[0]);
	ssize_t got = readlink(link, call->path, sizeof(call->path) - 1);
	call->path[got < 0 ? 0 : got] = 0;
	size_t below = strlen(root);
	if (strncmp(call->path, root, below) || call->path[below] != '/')
		return NULL;
	size_t size = info.seccomp.args[2] < SHOWN ? info.seccomp.args[2] : SHOWN;
	struct iovec here = {call->text, size}, there = {(void *)(uintptr_t)info.seccomp.args[1], size};
	got = process_vm_readv(thread, &here, 1, &there, 1, 0);
	call->text[got < 0 ? 0 : got] = 0;
	call->thread = thread;
	call->start = now();
	return call;
}

/* After it: tell what came of it. */
static void end(pid_t thread)
{
	struct __ptrace_syscall_info info;
	for (struct call *call = calls; call < calls + MAX_CALLS; call++) {
		if (call->thread != thread)
			continue;
		call->thread = 0;
		if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(info), &info) <= 0)
			return;
		long error = info.exit.is_error ? -info.exit.rval : 0;
		fprintf(log_file, "write %ld %ld %ld ", (long)call->start, (long)now(), error);
		emit_hex(log_file, call->path);
		fputc(' ', log_file);
		emit_hex(log_file, call->text);
		fputc('\n', log_file);
	}
}

static bool to_hold(const struct call *call)
{
	if (!hold || strcmp(strrchr(call->path, '/') + 1, hold))
		return false;
	hold = NULL;
	close(open(held_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	return true;
}

/* A traced thread has stopped: do what is to be done, and let it go on, unless it is held. */
static void stopped(pid_t thread, int status)
{
	int event = status >> 16, signal = WSTOPSIG(status), how = PTRACE_CONT;
	if (event == PTRACE_EVENT_SECCOMP) {
		struct call *call = begin(thread);
		if (call && to_hold(call)) {
			held = thread;
			return;
		}
		how = call ? PTRACE_SYSCALL : PTRACE_CONT;
	}
	if (signal == (SIGTRAP | 0x80))
		end(thread);
	bool ours = event || signal == (SIGTRAP | 0x80);
	ptrace(how, thread, 0, ours ? 0 : signal);
}

int trace_main(char **argv)
{
	char path[PATH];
	int status, code = 0;

	root = argv[0];
	hold = strcmp(argv[1], "-") ? argv[1] : NULL;
	snprintf(held_path, sizeof(held_path), "%s/held", argv[2]);
	snprintf(release_path, sizeof(release_path), "%s/release", argv[2]);
	snprintf(path, sizeof(path), "%s/trace", argv[2]);
	log_file = fopen(path, "we");
	if (!log_file)
		die("log", path);
	pid_t program = start(argv + 3);
	for (;;) {
		pid_t thread = waitpid(-1, &status, __WALL | (held ? WNOHANG : 0));
		if (thread < 0)
			break;
		if (held && !access(release_path, F_OK)) {
			ptrace(PTRACE_SYSCALL, held, 0, 0);
			held = 0;
		}
		if (!thread)
			usleep(1000);
		else if (WIFSTOPPED(status))
			stopped(thread, status);
		else if (thread == program) {
			code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
			fprintf(log_file, "end %ld %d\n", (long)now(), code);
		}
	}
	return fclose(log_file) ? 2 : code;
}

int tell_main(char **argv)
{
	char text[TEXT];
	for (char **path = argv + 1; *path; path++) {
		int fd = open(*path, O_RDONLY | O_CLOEXEC);
		ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
		text[got < 0 ? 0 : got] = 0;
		printf("%s\t%.*s\n", *path, (int)strcspn(text, "\n"), text);
	}
	fflush(stdout);
	usleep(1000 * atoi(argv[0]));
	return 0;
}
