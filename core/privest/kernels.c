/* Rows of few columns, standardised and summed: kernels.py says what is computed.

   LANES columns are worked on at a time. There is no branch on what a row holds, so a row has the same vector
   beside any others. Where the processor lacks AVX2 there is nothing here: BLAS is faster there. */

#include <math.h>
#include <stddef.h>

#define LANES 4
#define WIDE (2 * LANES) /* columns of a tile of sums, which stays in registers */
#define TALL 4           /* rows of it; divides WIDE */
#define MOST 64          /* columns of which second moments are summed */
#define AT_A_TIME 64     /* rows that are read once for each tile; they stay in the first cache */

#ifdef __x86_64__

#define FAST __attribute__((target("avx2,fma")))

typedef double lanes __attribute__((vector_size(8 * LANES), aligned(8)));

/* What is applied to all rows. There is a last coordinate where `constant` is above zero. */
typedef struct {
    ptrdiff_t features;
    double longest, shrink, constant;
    const double *mean, *unit;
} Question;

/* Vectors (n, size) of n rows of features and a label, in C order. */
FAST void standardised(const Question *q, const double *rows, ptrdiff_t n, double *out) {
    const ptrdiff_t d = q->features, size = d + (q->constant > 0.0);
    for (ptrdiff_t r = 0; r < n; r++) {
        const double *row = rows + r * (d + 1);
        double *x = out + r * size, squared = 0.0;
        lanes sum = {0};
        ptrdiff_t j = 0;
        for (; j + LANES <= d; j += LANES) {
            const lanes z = (*(const lanes *)(row + j) - *(const lanes *)(q->mean + j)) / *(const lanes *)(q->unit + j);
            *(lanes *)(x + j) = z;
            sum += z * z;
        }
        for (; j < d; j++) {
            x[j] = (row[j] - q->mean[j]) / q->unit[j];
            squared += x[j] * x[j];
        }
        for (int l = 0; l < LANES; l++) squared += sum[l];
        const double length = __builtin_sqrt(squared), over = length / q->longest;
        const int usable = length < INFINITY;
        const double factor = 1.0 / (over > 1.0 ? over : 1.0) / q->shrink;
        for (j = 0; j < d; j++) x[j] = usable ? x[j] * factor : 0.0;
        if (size > d) x[d] = q->constant;
    }
}

/* The (size, size) sum of weights[r] x[r] x[r]' over n rows, of at most MOST columns. */
FAST void second_moment(const double *x, const double *weights, ptrdiff_t n, ptrdiff_t size, double *out) {
    double plain[AT_A_TIME][MOST] = {0}, weighted[AT_A_TIME][MOST] = {0}, sums[MOST][MOST] = {0};
    for (ptrdiff_t start = 0; start < n; start += AT_A_TIME) {
        const ptrdiff_t here = n - start < AT_A_TIME ? n - start : AT_A_TIME;
        for (ptrdiff_t r = 0; r < here; r++)
            for (ptrdiff_t j = 0; j < size; j++) {
                plain[r][j] = x[(start + r) * size + j];
                weighted[r][j] = weights[start + r] * plain[r][j];
            }
        for (ptrdiff_t i = 0; i < size; i += TALL)
            for (ptrdiff_t j = i / WIDE * WIDE; j < size; j += WIDE) {
                lanes tile[TALL][2];
                for (int k = 0; k < TALL; k++)
                    for (int h = 0; h < 2; h++) tile[k][h] = *(lanes *)(sums[i + k] + j + h * LANES);
                for (ptrdiff_t r = 0; r < here; r++)
                    for (int h = 0; h < 2; h++) {
                        const lanes along = *(const lanes *)(plain[r] + j + h * LANES);
                        for (int k = 0; k < TALL; k++) tile[k][h] += weighted[r][i + k] * along;
                    }
                for (int k = 0; k < TALL; k++)
                    for (int h = 0; h < 2; h++) *(lanes *)(sums[i + k] + j + h * LANES) = tile[k][h];
            }
    }
    for (ptrdiff_t i = 0; i < size; i++)
        for (ptrdiff_t j = i; j < size; j++) out[i * size + j] = out[j * size + i] = sums[i][j];
}

/* Whether this processor has what the functions above are compiled for. */
int served(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

#else

int served(void) { return 0; }

#endif
