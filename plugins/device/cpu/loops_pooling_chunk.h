// SPDX-License-Identifier: Apache-2.0
// Pooling of one row for POOL_WIDTH neighbouring channels at a time, in GCC's vector types.
// Included once for each width by loops_pooling.c, which defines POOL_WIDTH.

#define POOL_NAME(name) CPU_JOINED(name, POOL_WIDTH)
#define VEC POOL_NAME(vec)
#define INT POOL_NAME(int_vec)
#define BYTES POOL_NAME(byte_vec)
#define LOAD POOL_NAME(load)
#define STORE POOL_NAME(store)
#define SELECT POOL_NAME(select)
#define LARGER POOL_NAME(larger)
#define STORE_INDEX POOL_NAME(store_index)
#define EQUAL_INDEX POOL_NAME(equal_index)

typedef float VEC __attribute__((vector_size(4 * POOL_WIDTH)));
typedef int32_t INT __attribute__((vector_size(4 * POOL_WIDTH)));
typedef int8_t BYTES __attribute__((vector_size(POOL_WIDTH)));

static inline __attribute__((always_inline)) VEC LOAD(const float *from)
{
    VEC value;
    memcpy(&value, from, sizeof(value));
    return value;
}

static inline __attribute__((always_inline)) void STORE(float *to, VEC value)
{
    memcpy(to, &value, sizeof(value));
}

static inline __attribute__((always_inline)) INT SELECT(INT mask, INT a, INT b)
{
    return (mask & a) | (~mask & b);
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
    const float *x, int64_t row, int64_t column, int64_t kernel_columns, int64_t r0, int64_t r1,
    int64_t c0, int64_t c1, float *y, void *saved, int64_t at, uint32_t bytes)
{
    const int32_t flag = bytes == 1 ? 0x80 : INT32_MIN;
    VEC best = LOAD(x + r0 * row + c0 * column);
    INT index = (INT){0} + (int32_t)(r0 * kernel_columns + c0);
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++) {
            VEC value = LOAD(x + r * row + c * column);
            INT larger = value > best;
            best = LARGER(value, best);
            index = SELECT(larger, (INT){0} + (int32_t)(r * kernel_columns + c), index);
        }
    index |= (best <= 0.0f) & flag;
    STORE(y, best);
    STORE_INDEX(saved, at, bytes, index);
}

// dx [+]= dy where the window's largest was element `index`
static inline __attribute__((always_inline)) void POOL_NAME(largest_give)(
    const float *dy, const void *saved, int64_t at, uint32_t bytes, int32_t index, uint32_t relu,
    uint32_t add, float *dx)
{
    VEC gradient = (VEC)(EQUAL_INDEX(saved, at, bytes, index, relu) & (INT)LOAD(dy + at));
    STORE(dx, add ? gradient + LOAD(dx) : gradient);
}

static inline __attribute__((always_inline)) void POOL_NAME(mean_window)(
    const float *x, int64_t row, int64_t column, int64_t r0, int64_t r1, int64_t c0, int64_t c1,
    float factor, float *y)
{
    VEC sum = {0};
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++)
            sum += LOAD(x + r * row + c * column);
    STORE(y, sum * factor);
}

static inline __attribute__((always_inline)) void POOL_NAME(mean_give)(const float *dy,
                                                                       float factor, float *dx)
{
    STORE(dx, LOAD(dx) + LOAD(dy) * factor);
}

#undef POOL_NAME
#undef VEC
#undef INT
#undef BYTES
#undef LOAD
#undef STORE
#undef SELECT
#undef LARGER
#undef STORE_INDEX
#undef EQUAL_INDEX
