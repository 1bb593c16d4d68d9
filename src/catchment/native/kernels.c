/* Loops that NumPy needs many passes for; `library.py` says what each is given.

   Every one of them does what the NumPy code beside its caller does, in the same order, so that the
   results are the same bits; only products are multiplied in another order. Pointers lead to whole
   arrays without gaps, and codes of groups are in range: the callers see to that. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Loops whose steps do not depend on each other are compiled once for each width of vectors, and
   the one for this processor is taken when the library is loaded. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define VECTORIZED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define VECTORIZED
#endif

#define SLOT_BITS 12
#define ADDRESS_BITS 26
#define SMALL_NUMBERS 32

static const uint64_t SEED = 9001;

static inline uint64_t turned(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }

static inline uint64_t finished(uint64_t half) {
    half = (half ^ half >> 33) * UINT64_C(0xFF51AFD7ED558CCD);
    half = (half ^ half >> 33) * UINT64_C(0xC4CEB9FE1A85EC53);
    return half ^ half >> 33;
}

/* The coupon of eight bytes: `operators/murmur.py` and `operators/coupons.py`. */
static inline uint32_t coupon(uint64_t word) {
    uint64_t low = turned(word * UINT64_C(0x87C37B91114253D5), 31) * UINT64_C(0x4CF5AD432745937F);
    low = (low ^ SEED ^ 8) + (SEED ^ 8);
    uint64_t high = (SEED ^ 8) + low;
    low = finished(low), high = finished(high);
    low += high, high += low;
    /* The last bit is set so that there is a first one: zeros count up to 62 only. */
    uint32_t zeros = (uint32_t)__builtin_clzll(high | 1);
    uint32_t number = zeros + 1 < 63 ? zeros + 1 : 63;
    return number << ADDRESS_BITS | ((uint32_t)low & ((UINT32_C(1) << ADDRESS_BITS) - 1));
}

VECTORIZED void coupons_of_words(const uint64_t *words, int64_t rows, uint32_t *coupons) {
    for (int64_t row = 0; row < rows; row++) coupons[row] = coupon(words[row]);
}

VECTORIZED void coupons_of_doubles(const double *values, int64_t rows, uint32_t *coupons) {
    for (int64_t row = 0; row < rows; row++) {
        double value = values[row] + 0.0; /* -0.0 is 0.0 */
        uint64_t word;
        memcpy(&word, &value, sizeof word);
        coupons[row] = coupon(value != value ? UINT64_C(0x7FF8000000000000) : word);
    }
}

/* Raises the register of each coupon to its number. */
void raise_registers(const uint32_t *coupons, const int64_t *codes, int64_t rows, uint8_t *registers) {
    for (int64_t row = 0; row < rows; row++) {
        uint32_t slot = coupons[row] & ((UINT32_C(1) << SLOT_BITS) - 1);
        uint8_t *place = registers + (codes[row] << SLOT_BITS) + slot;
        uint8_t number = (uint8_t)(coupons[row] >> ADDRESS_BITS);
        *place = number > *place ? number : *place;
    }
}

/* Of each table, the sums of 2**-register, of small numbers and of the others, and how many
   registers are not zero. The sums are exact, so their order does not matter. */
VECTORIZED void sum_registers(const uint8_t *registers, int64_t tables, double *sums, int64_t *filled) {
    const uint64_t one = UINT64_C(1) << (SMALL_NUMBERS - 1);
    for (int64_t table = 0; table < tables; table++, registers += 1 << SLOT_BITS) {
        uint64_t small = 0;
        uint16_t zeros = 0;
        uint8_t most = 0;
        for (int slot = 0; slot < 1 << SLOT_BITS; slot++) small += one >> registers[slot];
        for (int slot = 0; slot < 1 << SLOT_BITS; slot++) zeros += registers[slot] == 0;
        for (int slot = 0; slot < 1 << SLOT_BITS; slot++) most = registers[slot] > most ? registers[slot] : most;
        double large = 0;
        for (int slot = 0; most >= SMALL_NUMBERS && slot < 1 << SLOT_BITS; slot++)
            if (registers[slot] >= SMALL_NUMBERS) large += ldexp(1, -registers[slot]);
        sums[2 * table] = ldexp((double)small, 1 - SMALL_NUMBERS);
        sums[2 * table + 1] = large;
        filled[table] = (1 << SLOT_BITS) - zeros;
    }
}

/* How many rows each group has, on top of what is there. */
void count_rows(const int64_t *codes, int64_t rows, int64_t *counts) {
    for (int64_t row = 0; row < rows; row++) counts[codes[row]]++;
}

/* The least and greatest of each group so far and of these rows. NaN is larger than any number: it
   is never the least, and always the greatest. */
void least_doubles(const double *values, const int64_t *codes, int64_t rows, double *least) {
    for (int64_t row = 0; row < rows; row++) {
        double value = values[row], known = least[codes[row]];
        least[codes[row]] = value < known ? value : known;
    }
}

void greatest_doubles(const double *values, const int64_t *codes, int64_t rows, double *greatest) {
    int nan = 0;
    for (int64_t row = 0; row < rows; row++) {
        double value = values[row], known = greatest[codes[row]];
        greatest[codes[row]] = value > known ? value : known;
        nan |= value != value;
    }
    for (int64_t row = 0; nan && row < rows; row++)
        if (values[row] != values[row]) greatest[codes[row]] = values[row];
}

void least_words(const int64_t *values, const int64_t *codes, int64_t rows, int64_t *least) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t value = values[row], known = least[codes[row]];
        least[codes[row]] = value < known ? value : known;
    }
}

void greatest_words(const int64_t *values, const int64_t *codes, int64_t rows, int64_t *greatest) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t value = values[row], known = greatest[codes[row]];
        greatest[codes[row]] = value > known ? value : known;
    }
}

/* The row of each group's least time, the first of equals, and of its greatest, the last of equals;
   what is there before is -1. */
void first_rows(const int64_t *times, const int64_t *codes, int64_t rows, int64_t *first) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t known = first[codes[row]];
        if (known < 0 || times[row] < times[known]) first[codes[row]] = row;
    }
}

void last_rows(const int64_t *times, const int64_t *codes, int64_t rows, int64_t *last) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t known = last[codes[row]];
        if (known < 0 || times[row] >= times[known]) last[codes[row]] = row;
    }
}

/* Adds up the differences from the center of each group, in `sums[group]`; or their squares; or
   their first four powers, in `sums[4 * group]` and the three behind it. */
void add_differences(
    const double *values, const int64_t *codes, const double *centers, int64_t rows, double *sums
) {
    for (int64_t row = 0; row < rows; row++) sums[codes[row]] += values[row] - centers[codes[row]];
}

void add_squares(
    const double *values, const int64_t *codes, const double *centers, int64_t rows, double *sums
) {
    for (int64_t row = 0; row < rows; row++) {
        double difference = values[row] - centers[codes[row]];
        sums[codes[row]] += difference * difference;
    }
}

void add_powers(
    const double *values, const int64_t *codes, const double *centers, int64_t rows, double *sums
) {
    for (int64_t row = 0; row < rows; row++) {
        double *sum = sums + 4 * codes[row];
        double difference = values[row] - centers[codes[row]], square = difference * difference;
        sum[0] += difference;
        sum[1] += square;
        sum[2] += square * difference;
        sum[3] += square * square;
    }
}

/* Multiplies the products of the groups, `mantissa * 2**exponent`, by each row's value. Only where
   a mantissa would get too large or too small, or is no finite number, it is brought back. */
void multiply_doubles(
    const double *values, const int64_t *codes, int64_t rows, double *mantissas, int64_t *exponents
) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t code = codes[row];
        double product = mantissas[code] * values[row], size = fabs(product);
        if (!(size > 0x1p-500 && size < 0x1p500)) {
            int one, other;
            product = frexp(mantissas[code], &one) * frexp(values[row], &other);
            if (isfinite(product) && product != 0) exponents[code] += one + other;
        }
        mantissas[code] = product;
    }
}

/* How often a value is less than the one before it. */
VECTORIZED void count_falls(const int64_t *values, int64_t rows, int64_t *falls) {
    int64_t count = 0;
    for (int64_t row = 1; row < rows; row++) count += values[row] < values[row - 1];
    *falls = count;
}

/* The least and the greatest of some values. */
VECTORIZED void find_ends(const int64_t *values, int64_t rows, int64_t *ends) {
    int64_t least = INT64_MAX, greatest = INT64_MIN;
    for (int64_t row = 0; row < rows; row++) {
        least = values[row] < least ? values[row] : least;
        greatest = values[row] > greatest ? values[row] : greatest;
    }
    ends[0] = least, ends[1] = greatest;
}

/* Words of the number of each row and, above it, of two columns; and back. The layout says what is
   taken from each column, and where its bits begin: least, shift, of the first and the second. */
VECTORIZED void pack_words(
    const int64_t *first, const int64_t *second, const int64_t *layout, int64_t rows, int64_t *words
) {
    const uint64_t low = (uint64_t)layout[0], high = (uint64_t)layout[2];
    const int64_t shift = layout[1], top = layout[3];
    for (int64_t row = 0; row < rows; row++) {
        uint64_t word = (uint64_t)row | ((uint64_t)first[row] - low) << shift;
        words[row] = (int64_t)(word | ((uint64_t)second[row] - high) << top);
    }
}

VECTORIZED void unpack_words(
    const int64_t *words, const int64_t *layout, int64_t count, int64_t *rows, int64_t *first, int64_t *second
) {
    const int64_t shift = layout[1], top = layout[3];
    const int64_t row_bits = (INT64_C(1) << shift) - 1, bits = (INT64_C(1) << (top - shift)) - 1;
    for (int64_t at = 0; at < count; at++) {
        rows[at] = words[at] & row_bits;
        first[at] = (words[at] >> shift & bits) + layout[0];
        second[at] = (words[at] >> top) + layout[2];
    }
}
