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

/* KLL sketches: `operators/kll.py` says what they are, and how they are written. Doubles are worked
   on as whole numbers of the same order: what turns one into the other turns it back. `ROOM` of
   the callers says what a sketch of so many levels may hold. */
#define MOST_LEVELS 60
#define KLL_HEAD UINT32_C(0x020F0105)
#define KLL_SORTED UINT32_C(0x02000000)
#define KLL_SINGLE_HEAD UINT32_C(0x040F0202)
#define KLL_SIZES UINT32_C(0x000800C8)
#define KLL_K 200
#define KLL_PREAMBLE 5
#define KLL_SINGLE_WORDS 4

typedef struct {
    int64_t count, least, greatest, held;
    int heights;
    int64_t sizes[MOST_LEVELS + 1];
} Kll;

typedef struct {
    int64_t turned; /* the bits that are turned over in a negative number: none of whole numbers */
    const int64_t *room;
    int64_t *values, *work, *other, *rising, *kept; /* each has room for all values of a sketch */
} KllRoom;

static KllRoom kll_room(const int64_t *layout, const int64_t *room, int64_t *scratch) {
    int64_t most = layout[1];
    KllRoom made = {
        layout[0], room, scratch, scratch + most, scratch + 2 * most, scratch + 3 * most, scratch + 4 * most
    };
    return made;
}

static inline int64_t turned_over(int64_t bits, int64_t turned) { return bits ^ (bits < 0 ? turned : 0); }

static inline int64_t item_at(const uint32_t *words) {
    int64_t item;
    memcpy(&item, words, sizeof item);
    return item;
}

static inline uint32_t *put_item(uint32_t *out, int64_t item) {
    memcpy(out, &item, sizeof item);
    return out + 2;
}

/* Where the run of values in order ends that begins at a place. */
static inline int64_t end_of_run(const int64_t *values, int64_t at, int64_t count) {
    for (at++; at < count && values[at] >= values[at - 1]; at++) {}
    return at;
}

/* Sorts values that are made of few runs, two and two: gives the one of both places where they
   then are. */
static int64_t *sorted_runs(int64_t *values, int64_t count, int64_t *other) {
    while (count && end_of_run(values, 0, count) < count) {
        int64_t at = 0;
        while (at < count) {
            int64_t middle = end_of_run(values, at, count);
            int64_t end = middle < count ? end_of_run(values, middle, count) : count;
            int64_t one = at, two = middle, to = at;
            while (one < middle && two < end) {
                int second = values[two] < values[one];
                other[to++] = second ? values[two] : values[one];
                two += second, one += !second;
            }
            while (one < middle) other[to++] = values[one++];
            while (two < end) other[to++] = values[two++];
            at = end;
        }
        int64_t *swap = values;
        values = other, other = swap;
    }
    return values;
}

/* Reads all but the values of a sketch; whether it is one in the form in which it is written. */
static int read_kll(const uint32_t *words, int64_t count, const int64_t *room, int64_t turned, Kll *read) {
    memset(read, 0, sizeof *read);
    if (words[1] != KLL_SIZES) return 0;
    if (words[0] == KLL_SINGLE_HEAD && count == KLL_SINGLE_WORDS) {
        read->count = read->held = read->heights = read->sizes[0] = 1;
        read->least = read->greatest = turned_over(item_at(words + 2), turned);
        return 1;
    }
    if ((words[0] | KLL_SORTED) != KLL_HEAD || count <= KLL_PREAMBLE + 4) return 0;
    read->count = item_at(words + 2);
    int heights = read->heights = (int)(words[KLL_PREAMBLE - 1] >> 16);
    if (heights < 1 || heights > MOST_LEVELS) return 0;
    int64_t values = count - KLL_PREAMBLE - heights - 4;
    if (values <= 0 || values % 2) return 0;
    for (int level = 0; level < heights; level++) {
        int64_t end = level + 1 < heights ? (int64_t)words[KLL_PREAMBLE + level + 1] : room[heights];
        read->sizes[level] = end - (int64_t)words[KLL_PREAMBLE + level];
        if (read->sizes[level] < 0) return 0;
        read->held += read->sizes[level];
    }
    read->least = turned_over(item_at(words + KLL_PREAMBLE + heights), turned);
    read->greatest = turned_over(item_at(words + KLL_PREAMBLE + heights + 2), turned);
    return 2 * read->held == values;
}

/* Where the values of a sketch begin. */
static inline const uint32_t *values_in(const uint32_t *words, int64_t count, const Kll *read) {
    return words + count - 2 * read->held;
}

/* Leaves no more in a sketch, whose values stand level by level, than there is room for; gives
   them where they then are, or nothing where there would be too many levels. */
static const int64_t *compressed(Kll *sketch, const KllRoom *with) {
    const int64_t *values = with->values, *room = with->room;
    if (sketch->held <= room[sketch->heights]) return values;
    int64_t *to = with->kept, rose = 0;
    int heights = sketch->heights;
    for (int level = 0; level < sketch->heights || rose; level++) {
        if (level >= MOST_LEVELS) return NULL;
        int64_t known = sketch->sizes[level], count = known + rose;
        memcpy(with->work, values, (size_t)known * sizeof *values);
        memcpy(with->work + known, with->rising, (size_t)rose * sizeof *values);
        values += known, rose = 0;
        const int64_t *run = sorted_runs(with->work, count, with->other);
        int depth = heights - 1 > level ? heights - 1 - level : 0;
        if (sketch->held <= room[heights] || count < room[depth + 1] - room[depth]) {
            memcpy(to, run, (size_t)count * sizeof *run);
            to += sketch->sizes[level] = count;
            continue;
        }
        if (heights == level + 1 && ++heights > MOST_LEVELS) return NULL;
        uint64_t middle = (uint64_t)turned_over(run[count / 2], with->turned);
        uint64_t dice = (middle ^ ((uint64_t)sketch->count + (uint64_t)level)) * UINT64_C(0x9E3779B97F4A7C15) >> 62;
        int odd = count % 2, skip = odd && dice > 1;
        rose = count / 2;
        for (int64_t pair = 0; pair < rose; pair++) with->rising[pair] = run[skip + (int)(dice & 1) + 2 * pair];
        if (odd) *to++ = skip ? run[0] : run[count - 1];
        sketch->sizes[level] = odd;
        sketch->held -= rose;
    }
    sketch->heights = 1;
    for (int level = 0; level < MOST_LEVELS; level++)
        if (sketch->sizes[level]) sketch->heights = level + 1;
    return with->kept;
}

/* Writes a sketch: the place behind it. */
static uint32_t *written_kll(const Kll *sketch, const int64_t *values, const KllRoom *with, uint32_t *out) {
    int single = sketch->count == 1;
    *out++ = single ? KLL_SINGLE_HEAD : KLL_HEAD;
    *out++ = KLL_SIZES;
    if (!single) {
        out = put_item(out, sketch->count);
        *out++ = (uint32_t)sketch->heights << 16 | KLL_K;
        int64_t begin = with->room[sketch->heights] - sketch->held;
        for (int level = 0; level < sketch->heights; level++) {
            *out++ = (uint32_t)begin;
            begin += sketch->sizes[level];
        }
        out = put_item(out, turned_over(sketch->least, with->turned));
        out = put_item(out, turned_over(sketch->greatest, with->turned));
    }
    for (int64_t at = 0; at < sketch->held; at++) out = put_item(out, turned_over(values[at], with->turned));
    return out;
}

/* Compresses a sketch and writes it down; where it ends, or NULL if it cannot be compressed. */
static uint32_t *finished_kll(Kll *sketch, KllRoom *with, uint32_t *to) {
    const int64_t *kept = compressed(sketch, with);
    return kept == NULL ? NULL : written_kll(sketch, kept, with, to);
}

/* The sketches of runs of values in order, none of them empty. The layout is what is turned over in
   negative numbers, and how many values a sketch has at most. Where something cannot be done, the
   first offset is -1. */
void sketch_kll(
    const int64_t *values, const int64_t *offsets, const int64_t *layout, const int64_t *room, int64_t sketches,
    int64_t *scratch, uint32_t *out, int64_t *ends
) {
    KllRoom with = kll_room(layout, room, scratch);
    uint32_t *to = out;
    ends[0] = 0;
    for (int64_t row = 0; row < sketches; row++) {
        Kll sketch = {0};
        const int64_t *run = values + offsets[row];
        sketch.count = sketch.held = sketch.sizes[0] = offsets[row + 1] - offsets[row];
        sketch.heights = 1;
        for (int64_t at = 0; at < sketch.held; at++) with.values[at] = turned_over(run[at], with.turned);
        sketch.least = with.values[0], sketch.greatest = with.values[sketch.held - 1];
        to = finished_kll(&sketch, &with, to);
        if (to == NULL) {
            ends[0] = -1;
            return;
        }
        ends[row + 1] = to - out;
    }
}

/* The unions of sketches, which are in some order: those of a union from `starts` of it on. */
void unite_kll(
    const uint32_t *words, const int64_t *offsets, const int64_t *order, const int64_t *starts, const int64_t *layout,
    const int64_t *room, int64_t unions, int64_t *scratch, uint32_t *out, int64_t *ends
) {
    KllRoom with = kll_room(layout, room, scratch);
    uint32_t *to = out;
    ends[0] = 0;
    for (int64_t row = 0; row < unions; row++) {
        Kll sketch = {0}, part;
        int64_t place[MOST_LEVELS + 1] = {0};
        for (int64_t at = starts[row]; at < starts[row + 1]; at++) {
            int64_t begin = offsets[order[at]], count = offsets[order[at] + 1] - begin;
            if (!read_kll(words + begin, count, room, with.turned, &part)) {
                ends[0] = -1;
                return;
            }
            int first = at == starts[row];
            sketch.least = first || part.least < sketch.least ? part.least : sketch.least;
            sketch.greatest = first || part.greatest > sketch.greatest ? part.greatest : sketch.greatest;
            sketch.count = (int64_t)((uint64_t)sketch.count + (uint64_t)part.count);
            sketch.held += part.held;
            for (int level = 0; level < part.heights; level++) sketch.sizes[level] += part.sizes[level];
        }
        sketch.heights = 1;
        for (int level = 0; level < MOST_LEVELS; level++) {
            place[level + 1] = place[level] + sketch.sizes[level];
            if (sketch.sizes[level]) sketch.heights = level + 1;
        }
        int64_t level_begin[MOST_LEVELS + 1];
        memcpy(level_begin, place, sizeof place);
        for (int64_t at = starts[row]; at < starts[row + 1]; at++) {
            int64_t begin = offsets[order[at]], count = offsets[order[at] + 1] - begin;
            read_kll(words + begin, count, room, with.turned, &part);
            const uint32_t *from = values_in(words + begin, count, &part);
            for (int level = 0; level < part.heights; level++)
                for (int64_t each = 0; each < part.sizes[level]; each++, from += 2)
                    with.values[place[level]++] = turned_over(item_at(from), with.turned);
        }
        if (sketch.held <= room[sketch.heights])
            for (int level = 0; level < sketch.heights; level++) {
                int64_t *run = with.values + level_begin[level];
                const int64_t *sorted = sorted_runs(run, sketch.sizes[level], with.work);
                if (sorted != run) memcpy(run, sorted, (size_t)sketch.sizes[level] * sizeof *run);
            }
        to = finished_kll(&sketch, &with, to);
        if (to == NULL) {
            ends[0] = -1;
            return;
        }
        ends[row + 1] = to - out;
    }
}

/* The value of each sketch of doubles below which a share of its values lies. */
void find_quantiles(
    const uint32_t *words, const int64_t *offsets, const double *share, const int64_t *layout, const int64_t *room,
    int64_t sketches, int64_t *scratch, double *out, int64_t *failed
) {
    KllRoom with = kll_room(layout, room, scratch);
    Kll sketch;
    *failed = 0;
    for (int64_t row = 0; row < sketches; row++) {
        const uint32_t *begin = words + offsets[row];
        int64_t count = offsets[row + 1] - offsets[row];
        if (!read_kll(begin, count, room, with.turned, &sketch)) {
            *failed = 1;
            return;
        }
        const uint32_t *from = values_in(begin, count, &sketch);
        for (int64_t at = 0; at < sketch.held; at++) with.values[at] = turned_over(item_at(from + 2 * at), with.turned);
        const int64_t *next[MOST_LEVELS], *end[MOST_LEVELS];
        int64_t weight[MOST_LEVELS];
        int levels = 0;
        for (int64_t level = 0, at = 0; level < sketch.heights; at += sketch.sizes[level++]) {
            if (!sketch.sizes[level]) continue;
            next[levels] = sorted_runs(with.values + at, sketch.sizes[level], with.work + at);
            end[levels] = next[levels] + sketch.sizes[level];
            weight[levels++] = INT64_C(1) << level;
        }
        int64_t wanted = (int64_t)(*share * (double)sketch.count), found = 0;
        uint64_t passed = 0;
        do {
            int least = 0;
            for (int level = 1; level < levels; level++) least = *next[level] < *next[least] ? level : least;
            found = *next[least]++;
            passed += (uint64_t)weight[least];
            if (next[least] < end[least]) continue;
            levels--;
            next[least] = next[levels], end[least] = end[levels], weight[least] = weight[levels];
        } while (levels && (int64_t)passed <= wanted);
        found = turned_over(found, with.turned);
        memcpy(out + row, &found, sizeof found);
    }
}
