/* Scripted operations: lanes in script.c, files in files.c, processes in process.c and look.c, what these obey in
 * orders.c. */
#ifndef SCRIPT_H
#define SCRIPT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { MAX_ARGS = 8, RESULT = 16384, MAX_PROCESSES = 512 };

int script_main(const char *path);

/* One operation; 0 or an errno, words in `out` (RESULT bytes when needs_text). UNKNOWN: not one of these. */
enum { UNKNOWN = -1 };
int file_op(char **argv, char *out);
int process_op(int argc, char **argv, char *out);
int look_op(char **argv, char *out);
bool needs_text(const char *name);

int failed(void); /* errno, never 0 */
int read_into(const char *path, char *out);
int write_file(const char *path, const char *text, int flags);

/* A counter for each process, in memory that all share: moves while the process runs its `spin`, `yield`, `storm` or `chain`. */
extern _Atomic uint64_t *counters;
pid_t process_pid(int n); /* 0: no such process */
void processes_init(void);
void end_processes(void);

int clone_into(const char *cgroup, uint64_t flags); /* fork, with a path into that cgroup; pid, or -1 and errno */
void child_main(int number, int socket) __attribute__((noreturn));
void exec_again(const char *until) __attribute__((noreturn)); /* agent exec UNTIL: see the order `exec` */

#endif
