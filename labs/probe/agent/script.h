/* Scripted operations: lanes in script.c, processes in process.c. */
#ifndef SCRIPT_H
#define SCRIPT_H

#include <stdbool.h>

enum { MAX_ARGS = 8, RESULT = 16384 };

int script_main(const char *path);
int read_into(const char *path, char *out);

/* One operation on processes; 0 or an errno, words in `out` (RESULT bytes when needs_text). */
int process_op(int argc, char **argv, char *out);
bool needs_text(const char *name);
void end_processes(void);

#endif
