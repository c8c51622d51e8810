/* SPDX-License-Identifier: Apache-2.0 */
/* bench-copy.h - what bench-copy measures with and says; bench-copy-pin.c has its --pin. */
#ifndef GPC_BENCH_COPY_H
#define GPC_BENCH_COPY_H

#include "busy.h"
#include "device/bytes.h"
#include "gpc.h"

#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TIMES 5000

struct times { uint32_t n; double us[MAX_TIMES]; };

extern bool quick;

/* A CUDA call, or one of the library's: both are 0 when all is well. */
#define CK(call) check((int)(call), #call, __FILE__, __LINE__)
void check(int e, const char *call, const char *file, int line);
void wrong(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

double now_us(void);
double cpu_us(void);                     /* of this thread */
void sleep_us(unsigned us);
void *shared_ram(size_t bytes);          /* touched, at a multiple of 2 MiB */

static inline void add_us(struct times *t, double us)
{
	if (t->n < MAX_TIMES)
		t->us[t->n++] = us;
}
double part(struct times *t, double of);         /* sorts */
static inline double middle(struct times *t)
{
	return part(t, 0.5);
}

/* Rows; mark 0: none. */
#define ROW __attribute__((format(printf, 4, 5)))
void row_rate(struct times *t, double bytes, double mark, const char *name, ...) ROW;
void row_ratio(double value, double mark, bool more_is_better, const char *name, ...) ROW;
void row_us(struct times *t, double mark, const char *name);
void row_part(struct times *t, double of, double mark, const char *name);
void begin_rows(const char *device);
int end_rows(void);
/* True: --pin. */
bool options(int argc, char **argv, int *ret_device);

int bench_pins(int device);

#endif
