/* The independent side of `cargo xtask bench-mem-check`: the same accesses in a different program. It shares no code
 * with duramen bench mem: the addresses are a cycle stored in the memory itself, and a compiler makes the loads and
 * stores from plain C.
 *
 *   reference chase BYTES SECONDS    ns per dependent load of a random cycle through all lines
 *   reference read  BYTES SECONDS    GB/s of reading in order
 *   reference write BYTES SECONDS    GB/s of writing in order, past the cache
 */
#define _GNU_SOURCE
#include <emmintrin.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t state = 88172645463325252ull;
static uint64_t next_random(void) { /* xorshift64, Marsaglia 2003 */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

struct line {
    struct line *next;
    char rest[56];
};

static void chase(struct line *lines, size_t count, double seconds) {
    uint32_t *order = malloc(count * sizeof *order);
    for (size_t i = 0; i < count; i++) order[i] = (uint32_t)i;
    for (size_t i = count - 1; i > 0; i--) { /* Sattolo: one cycle through all */
        size_t j = next_random() % i;
        uint32_t t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (size_t i = 0; i < count; i++) lines[order[i]].next = &lines[order[(i + 1) % count]];
    free(order);
    struct line *at = lines;
    uint64_t loads = 0;
    double start = now(), end;
    do {
        for (int i = 0; i < 65536; i++) at = at->next;
        loads += 65536;
        end = now();
    } while (end - start < seconds);
    struct line *volatile sink = at;
    (void)sink;
    printf("%.3f\n", (end - start) * 1e9 / (double)loads);
}

static void read_in_order(const char *memory, size_t bytes, double seconds) {
    __m128i sum = _mm_setzero_si128();
    double done = 0, start = now(), end;
    do {
        for (const char *p = memory; p < memory + bytes; p += 64) {
            sum = _mm_xor_si128(sum, _mm_load_si128((const __m128i *)p));
            sum = _mm_xor_si128(sum, _mm_load_si128((const __m128i *)(p + 16)));
            sum = _mm_xor_si128(sum, _mm_load_si128((const __m128i *)(p + 32)));
            sum = _mm_xor_si128(sum, _mm_load_si128((const __m128i *)(p + 48)));
        }
        done += (double)bytes;
        end = now();
    } while (end - start < seconds);
    volatile int sink = _mm_cvtsi128_si32(sum);
    (void)sink;
    printf("%.3f\n", done / (end - start) / 1e9);
}

static void write_in_order(char *memory, size_t bytes, double seconds) {
    __m128i value = _mm_set1_epi32(0x5a5a5a5a);
    double done = 0, start = now(), end;
    do {
        for (char *p = memory; p < memory + bytes; p += 16) _mm_stream_si128((__m128i *)p, value);
        _mm_sfence();
        done += (double)bytes;
        end = now();
    } while (end - start < seconds);
    printf("%.3f\n", done / (end - start) / 1e9);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    size_t bytes = strtoull(argv[2], 0, 10);
    double seconds = atof(argv[3]);
    char *raw = mmap(0, bytes + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return 3;
    char *memory = (char *)(((uintptr_t)raw + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1));
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 1, bytes);
    if (!strcmp(argv[1], "chase")) chase((struct line *)memory, bytes / sizeof(struct line), seconds);
    else if (!strcmp(argv[1], "read")) read_in_order(memory, bytes, seconds);
    else if (!strcmp(argv[1], "write")) write_in_order(memory, bytes, seconds);
    else return 2;
    return 0;
}
