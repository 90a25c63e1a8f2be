/* Logarithms of many small symmetric positive definite matrices: matrix_logarithm.py says what is computed.

   LANES matrices are worked on at a time, one in each lane of a SIMD register. There is no branch on what they
   hold, so a matrix has the same result in every lane and beside any others. Symmetric matrices are stored
   as lower triangles, row by row. */

#include <math.h>
#include <stddef.h>

#define LANES 4
#define MOST 32 /* rows of a matrix */
#define AHEAD 3 /* poles worked on at a time, so that their divisions overlap; divides their number */

#define INLINE static inline __attribute__((always_inline))
#define AT(i, j) ((i) * ((i) + 1) / 2 + (j)) /* for j <= i */
#define TRIANGLE (MOST * (MOST + 1) / 2)

typedef double lanes __attribute__((vector_size(8 * LANES)));
typedef long long mask __attribute__((vector_size(8 * LANES)));

/* The rational function constant - sum of weights/(x + shifts), and what it is applied to. */
typedef struct {
    int size, poles;
    double constant, widest;
    const double *shifts, *weights, *whitening;
} Question;

/* Householder reflections I - beta[k] v[k] v[k]', of which v[k] is zero up to place k. */
typedef struct {
    lanes v[MOST][MOST], beta[MOST];
} Reflections;

INLINE lanes chosen(mask where, lanes a, lanes b) { return (lanes)(((mask)a & where) | ((mask)b & ~where)); }

INLINE lanes root(lanes a) {
    lanes found;
    for (int l = 0; l < LANES; l++) found[l] = __builtin_sqrt(a[l]);
    return found;
}

/* a <- b a b' with a lower triangular b, the same for all. */
INLINE void whiten(int m, const double *b, lanes *a) {
    lanes half[TRIANGLE];
    for (int i = 0; i < m; i++)
        for (int j = 0; j <= i; j++) {
            lanes sum = {0};
            for (int k = 0; k <= i; k++) sum += b[i * m + k] * a[k < j ? AT(j, k) : AT(k, j)];
            half[AT(i, j)] = sum;
        }
    for (int i = 0; i < m; i++)
        for (int j = 0; j <= i; j++) {
            lanes sum = {0};
            for (int k = 0; k <= j; k++) sum += b[j * m + k] * half[AT(i, k)];
            a[AT(i, j)] = sum;
        }
}

/* a <- H a H with H = I - beta v v', in rows and columns from `first` on. */
INLINE void reflect(int m, int first, const lanes *v, lanes beta, lanes *a) {
    lanes p[MOST], inner = {0};
    for (int i = first; i < m; i++) {
        lanes sum = a[AT(i, i)] * v[i];
        for (int j = first; j < i; j++) {
            sum += a[AT(i, j)] * v[j];
            p[j] += a[AT(i, j)] * v[i];
        }
        p[i] = sum;
    }
    for (int i = first; i < m; i++) {
        p[i] *= beta;
        inner += p[i] * v[i];
    }
    inner *= 0.5 * beta;
    for (int i = first; i < m; i++) p[i] -= inner * v[i];
    for (int i = first; i < m; i++)
        for (int j = first; j <= i; j++) a[AT(i, j)] -= v[i] * p[j] + p[i] * v[j];
}

/* Brings `a` to tridiagonal form (Golub and Van Loan 2013, Algorithm 8.3.1). Entries below 1e-140 count as zero. */
INLINE void tridiagonalise(int m, lanes *a, lanes *diagonal, lanes *off, Reflections *by) {
    for (int k = 0; k + 2 < m; k++) {
        lanes square = {0}, *v = by->v[k];
        for (int i = k + 1; i < m; i++) {
            v[i] = a[AT(i, k)];
            square += v[i] * v[i];
        }
        lanes length = root(square), head = v[k + 1];
        mask negative = head < 0.0, any = square > 1e-280;
        off[k] = chosen(any, chosen(negative, length, -length), (lanes){0});
        by->beta[k] = chosen(any, 1.0 / (square + length * chosen(negative, -head, head)), (lanes){0});
        v[k + 1] = head - off[k];
        reflect(m, k + 1, v, by->beta[k], a);
    }
    for (int i = 0; i < m; i++) diagonal[i] = a[AT(i, i)];
    if (m > 1) off[m - 2] = a[AT(m - 1, m - 2)];
}

/* Undoes tridiagonalise for a full matrix f. */
INLINE void turn_back(int m, lanes *f, const Reflections *by) {
    for (int k = m - 3; k >= 0; k--) {
        const lanes *v = by->v[k];
        for (int j = 0; j <= k; j++) {
            lanes sum = {0};
            for (int i = k + 1; i < m; i++) sum += f[AT(i, j)] * v[i];
            sum *= by->beta[k];
            for (int i = k + 1; i < m; i++) f[AT(i, j)] -= sum * v[i];
        }
        reflect(m, k + 1, v, by->beta[k], f);
    }
}

/* f <- the function of a tridiagonal t. With t + shift = u D u' and a unit upper triangular u, the diagonal of the
   inverse follows from the first entry on, and each row of it from the diagonal. */
INLINE void apply(int m, const Question *q, const lanes *diagonal, const lanes *off, lanes *f) {
    for (int i = 0; i < m * (m + 1) / 2; i++) f[i] = (lanes){0};
    for (int i = 0; i < m; i++) f[AT(i, i)] += q->constant;
    for (int p = 0; p < q->poles; p += AHEAD) {
        lanes inverse[AHEAD][MOST], above[AHEAD][MOST], entry[AHEAD], along[AHEAD], pivot[AHEAD];
        for (int t = 0; t < AHEAD; t++) pivot[t] = diagonal[m - 1] + q->shifts[p + t];
        for (int i = m - 1; i > 0; i--)
            for (int t = 0; t < AHEAD; t++) {
                inverse[t][i] = 1.0 / pivot[t];
                above[t][i] = off[i - 1] * inverse[t][i];
                pivot[t] = diagonal[i - 1] + q->shifts[p + t] - off[i - 1] * above[t][i];
            }
        for (int t = 0; t < AHEAD; t++) entry[t] = q->weights[p + t] / pivot[t];
        for (int i = 0; i < m; i++) {
            for (int t = 0; t < AHEAD; t++) {
                if (i > 0) entry[t] = q->weights[p + t] * inverse[t][i] + above[t][i] * above[t][i] * entry[t];
                along[t] = entry[t];
                f[AT(i, i)] -= entry[t];
            }
            for (int j = i + 1; j < m; j++)
                for (int t = 0; t < AHEAD; t++) {
                    along[t] *= -above[t][j];
                    f[AT(j, i)] -= along[t];
                }
        }
    }
}

/* Where t is positive definite with eigenvalues in the range of the function: the traces of t and of its inverse,
   computed as in apply, bound them. */
INLINE mask in_range(int m, const Question *q, const lanes *diagonal, const lanes *off) {
    lanes inverse[MOST], above[MOST], trace = diagonal[m - 1], pivot = diagonal[m - 1];
    mask positive = pivot > 0.0;
    for (int i = m - 1; i > 0; i--) {
        inverse[i] = 1.0 / pivot;
        above[i] = off[i - 1] * inverse[i];
        pivot = diagonal[i - 1] - off[i - 1] * above[i];
        positive &= pivot > 0.0;
        trace += diagonal[i - 1];
    }
    lanes entry = 1.0 / pivot, trace_of_inverse = entry;
    for (int i = 1; i < m; i++) {
        entry = inverse[i] + above[i] * above[i] * entry;
        trace_of_inverse += entry;
    }
    return positive & (trace <= q->widest) & (trace_of_inverse <= q->widest);
}

INLINE void all(const Question *q, const double *rows, ptrdiff_t n, double *out) {
    const int m = q->size;
    for (ptrdiff_t start = 0; start < n; start += LANES) {
        lanes a[TRIANGLE], f[TRIANGLE], diagonal[MOST], off[MOST];
        Reflections by;
        const double *row[LANES];
        const int last = n - start < LANES ? (int)(n - start) : LANES;
        /* The last row fills the lanes that are left over. */
        for (int l = 0; l < LANES; l++) row[l] = rows + (start + (l < last ? l : last - 1)) * m * m;
        for (int i = 0; i < m; i++)
            for (int j = 0; j <= i; j++)
                for (int l = 0; l < LANES; l++) a[AT(i, j)][l] = row[l][i * m + j];
        whiten(m, q->whitening, a);
        tridiagonalise(m, a, diagonal, off, &by);
        apply(m, q, diagonal, off, f);
        turn_back(m, f, &by);
        const mask held = in_range(m, q, diagonal, off);
        double *to = out + start * (m * (m + 1) / 2);
        for (int l = 0; l < last; l++)
            for (int i = 0; i < m; i++)
                for (int j = i; j < m; j++)
                    *to++ = held[l] ? f[AT(j, i)][l] * (i == j ? 1.0 : 1.4142135623730951) : NAN;
    }
}

static void portable(const Question *q, const double *rows, ptrdiff_t n, double *out) { all(q, rows, n, out); }

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static void with_avx2(const Question *q, const double *rows, ptrdiff_t n,
                                                          double *out) {
    all(q, rows, n, out);
}
#endif

/* Coordinates (n, size (size + 1)/2) of the logarithms of n matrices in C order; NaN for those out of range. */
void logarithms(const Question *q, const double *rows, ptrdiff_t n, double *out) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        with_avx2(q, rows, n, out);
        return;
    }
#endif
    portable(q, rows, n, out);
}
