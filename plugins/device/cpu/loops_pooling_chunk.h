// SPDX-License-Identifier: Apache-2.0
// Pooling of one row for POOL_WIDTH neighbouring channels at a time, in GCC's vector types.
// Included once for each width by loops_pooling.c, which defines POOL_WIDTH.

#define POOL_NAME(name) CPU_JOINED(name, POOL_WIDTH)
#define VEC POOL_NAME(vec)
#define INT POOL_NAME(int_vec)
#define UINT POOL_NAME(uint_vec)
#define HALVES POOL_NAME(half_vec)
#define BYTES POOL_NAME(byte_vec)
#define LOAD POOL_NAME(load)
#define STORE POOL_NAME(store)
#define STORE_EXACT POOL_NAME(store_exact)
#define SELECT POOL_NAME(select)
#define LARGER POOL_NAME(larger)
#define STORE_INDEX POOL_NAME(store_index)
#define EQUAL_INDEX POOL_NAME(equal_index)

typedef float VEC __attribute__((vector_size(4 * POOL_WIDTH)));
typedef int32_t INT __attribute__((vector_size(4 * POOL_WIDTH)));
typedef uint32_t UINT __attribute__((vector_size(4 * POOL_WIDTH)));
typedef uint16_t HALVES __attribute__((vector_size(2 * POOL_WIDTH)));
typedef int8_t BYTES __attribute__((vector_size(POOL_WIDTH)));

static inline __attribute__((always_inline)) INT SELECT(INT mask, INT a, INT b)
{
    return (mask & a) | (~mask & b);
}

// `dtype` is a constant wherever these two are inlined. Halves are converted as in loops_half.c.
static inline __attribute__((always_inline)) VEC LOAD(uint32_t dtype, const void *from)
{
    VEC value;
    HALVES halves;
    if (dtype == LS_F32) {
        memcpy(&value, from, sizeof(value));
        return value;
    }
    memcpy(&halves, from, sizeof(halves));
    const UINT bits = __builtin_convertvector(halves, UINT);
    if (dtype == LS_BF16)
        return (VEC)(bits << 16);
    const UINT exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    const UINT rebased = (UINT)SELECT(exponent == 31, (INT){0} + 255, (INT)exponent + 112) << 23;
    const VEC small = __builtin_convertvector((INT)mantissa, VEC) * 0x1p-24f;
    return (VEC)(SELECT(exponent != 0, (INT)(rebased | mantissa << 13), (INT)small) |
                 (INT)((bits & 0x8000) << 16));
}

static inline __attribute__((always_inline)) void STORE(uint32_t dtype, void *to, VEC value)
{
    if (dtype == LS_F32) {
        memcpy(to, &value, sizeof(value));
        return;
    }
    const UINT bits = (UINT)value, magnitude = bits & INT32_MAX, sign = bits >> 16 & 0x8000;
    const INT nan = magnitude > 0x7f800000;
    INT half = (INT)((magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16);
    if (dtype == LS_F16) {
        const INT tiny = (INT)((VEC)magnitude + 0.5f) - 0x3f000000;
        const UINT rebased = magnitude - (112 << 23);
        half = (INT)((rebased + 0xfff + (rebased >> 13 & 1)) >> 13);
        half = SELECT(magnitude >= 0x477ff000, (INT){0} + 0x7c00, half);
        half = SELECT(magnitude < 0x38800000, tiny, half);
    }
    half = SELECT(nan, (INT){0} + (dtype == LS_F16 ? 0x7e00 : 0x7fc0), half) | (INT)sign;
    const HALVES halves = __builtin_convertvector((UINT)half, HALVES);
    memcpy(to, &halves, sizeof(halves));
}

// Of a value that is one of its halves.
static inline __attribute__((always_inline)) void STORE_EXACT(uint32_t dtype, void *to, VEC value)
{
    if (dtype == LS_BF16) {
        const HALVES halves = __builtin_convertvector((UINT)value >> 16, HALVES);
        memcpy(to, &halves, sizeof(halves));
    } else {
        STORE(dtype, to, value);
    }
}

// A loop, for gcc 12 has no maximum of vector types; it becomes one instruction that does not wait
// for the comparison that steers the index.
static inline __attribute__((always_inline)) VEC LARGER(VEC a, VEC b)
{
    VEC result;
    for (int i = 0; i < POOL_WIDTH; i++)
        result[i] = a[i] > b[i] ? a[i] : b[i];
    return result;
}

static inline __attribute__((always_inline)) void STORE_INDEX(void *saved, int64_t at,
                                                              uint32_t bytes, INT value)
{
    if (bytes == 0)
        return;
    if (bytes == 1) {
        BYTES narrow = __builtin_convertvector(value, BYTES);
        memcpy((uint8_t *)saved + at, &narrow, sizeof(narrow));
    } else {
        memcpy((int32_t *)saved + at, &value, sizeof(value));
    }
}

// All bits where the saved index is `index`.
static inline __attribute__((always_inline)) INT EQUAL_INDEX(const void *saved, int64_t at,
                                                             uint32_t bytes, int32_t index,
                                                             uint32_t relu)
{
    if (bytes == 1) {
        BYTES value;
        memcpy(&value, (const uint8_t *)saved + at, sizeof(value));
        if (!relu)
            value &= 0x7f;
        return __builtin_convertvector(value == (BYTES){0} + (int8_t)index, INT);
    }
    INT value;
    memcpy(&value, (const int32_t *)saved + at, sizeof(value));
    if (!relu)
        value &= INT32_MAX;
    return value == index;
}

// The largest of window elements [r0, r1) x [c0, c1); x points to the (possibly outside) element
// (0, 0).
static inline __attribute__((always_inline)) void POOL_NAME(largest_window)(
    uint32_t dtype, const void *x, int64_t row, int64_t column, int64_t kernel_columns, int64_t r0,
    int64_t r1, int64_t c0, int64_t c1, void *y, void *saved, int64_t at, uint32_t bytes)
{
    const int32_t flag = bytes == 1 ? 0x80 : INT32_MIN;
    VEC best = LOAD(dtype, past(dtype, x, r0 * row + c0 * column));
    INT index = (INT){0} + (int32_t)(r0 * kernel_columns + c0);
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++) {
            VEC value = LOAD(dtype, past(dtype, x, r * row + c * column));
            INT larger = value > best;
            best = LARGER(value, best);
            index = SELECT(larger, (INT){0} + (int32_t)(r * kernel_columns + c), index);
        }
    index |= (best <= 0.0f) & flag;
    STORE_EXACT(dtype, y, best);
    STORE_INDEX(saved, at, bytes, index);
}

// dx [+]= dy where the window's largest was element `index`; what is added to is float32.
static inline __attribute__((always_inline)) void POOL_NAME(largest_give)(
    uint32_t dtype, const void *dy, const void *saved, int64_t at, uint32_t bytes, int32_t index,
    uint32_t relu, uint32_t add, void *dx)
{
    const INT chosen = EQUAL_INDEX(saved, at, bytes, index, relu);
    if (dtype == LS_F32 || add) {
        const VEC given = (VEC)(chosen & (INT)LOAD(dtype, past(dtype, dy, at)));
        STORE(LS_F32, dx, add ? given + LOAD(LS_F32, dx) : given);
    } else {
        HALVES given;
        memcpy(&given, past(dtype, dy, at), sizeof(given));
        given &= __builtin_convertvector((UINT)chosen, HALVES);
        memcpy(dx, &given, sizeof(given));
    }
}

static inline __attribute__((always_inline)) void POOL_NAME(mean_window)(
    uint32_t dtype, const void *x, int64_t row, int64_t column, int64_t r0, int64_t r1, int64_t c0,
    int64_t c1, float factor, void *y)
{
    VEC sum = {0};
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++)
            sum += LOAD(dtype, past(dtype, x, r * row + c * column));
    STORE(dtype, y, sum * factor);
}

static inline __attribute__((always_inline)) void POOL_NAME(mean_give)(uint32_t dtype,
                                                                       const void *dy, float factor,
                                                                       float *dx)
{
    STORE(LS_F32, dx, LOAD(LS_F32, dx) + LOAD(dtype, dy) * factor);
}

static inline __attribute__((always_inline)) void POOL_NAME(round_to)(uint32_t dtype,
                                                                      const float *x, void *y)
{
    STORE(dtype, y, LOAD(LS_F32, x));
}

#undef POOL_NAME
#undef VEC
#undef INT
#undef UINT
#undef HALVES
#undef BYTES
#undef LOAD
#undef STORE
#undef STORE_EXACT
#undef SELECT
#undef LARGER
#undef STORE_INDEX
#undef EQUAL_INDEX
