/* The native core of HierarchicalWheel; hierarchical_wheel.py explains the structure and is its twin.
 *
 * Time is cut into windows of 2^24 ns (16.8 ms), and `cursor` is the number of the running window. A timer of a later
 * window lies in a slot: an array of (due, timer). Level L has 1024 slots, each 16^L windows wide, and a timer lies on
 * the lowest level that reaches its window from the cursor, so that a slot is never wider than a 63rd of the way to
 * it: no slot holds more than a small part of what was armed with one delay, and no move is long. When the cursor
 * comes to a slot of a higher level, its timers are dealt out to lower ones; a slot of level 0 is sorted and becomes
 * the `run`. What is armed for the running window, or for the past, stands in a small `heap` beside it.
 *
 * Who owns what. A wheel and each of its timers hold the `Core` (counted in `holders`; it is no Python object). The
 * core holds one reference to each armed timer, an armed timer one to its value. Firing, disarming and the end of the
 * wheel drop both. Neither the core nor the timers are known to the garbage collector: a million of them cost a full
 * collection nothing. The price: a cycle from an armed value back to its wheel is not found.
 *
 * Threads. With the GIL each method is one step, because nothing here runs Python code before the core is whole again.
 * Without it, one mutex per core is held for as long. Callbacks, releases of values and errors are outside of it.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef _MSC_VER
#include <intrin.h>
static inline int lowest_bit(uint64_t bits) { unsigned long at; _BitScanForward64(&at, bits); return (int)at; }
static inline int highest_bit(uint64_t bits) { unsigned long at; _BitScanReverse64(&at, bits); return (int)at; }
#define PREFETCH(address) ((void)(address))
#else
static inline int lowest_bit(uint64_t bits) { return __builtin_ctzll(bits); }
static inline int highest_bit(uint64_t bits) { return 63 - __builtin_clzll(bits); }
#define PREFETCH(address) __builtin_prefetch(address)
#endif

#define WINDOW_BITS 24
#define SLOT_BITS 10
#define SLOTS (1 << SLOT_BITS)
#define WIDEN_BITS 4 /* a slot is 16 times as wide as one of the level below */
#define LEVELS 9     /* the last one reaches over all of int64 */
#define WORDS (SLOTS / 64)

/* Where a timer is, beside the slots 0 … LEVELS * SLOTS - 1. */
#define IN_RUN (LEVELS * SLOTS)
#define IN_HEAP (LEVELS * SLOTS + 1)
#define NOWHERE (LEVELS * SLOTS + 2)

#define KEEP_ROOM 8      /* an empty slot keeps an array of so many entries, and gives back a larger one */
#define SQUEEZE_FROM 32  /* a slot with fewer entries keeps its holes */
#define KEEP_RUN 65536   /* the run and the heap keep arrays of so many entries */
#define AHEAD 8          /* how many entries ahead memory is asked for */

typedef struct Core Core;

typedef struct {
    PyObject_HEAD
    uint32_t where;  /* the slot, or one of the places above */
    uint32_t at;     /* the index there; what every move writes is next to the head, mostly in its cache line */
    Core *core;
    PyObject *value; /* NULL unless armed */
    int64_t order;   /* armed: how many were armed before, it parts equal dues; else: the last due */
} TimerObject;

typedef struct {
    int64_t due;
    TimerObject *timer; /* NULL: a hole, it was disarmed */
} Entry;

typedef struct {
    Entry *items;
    uint32_t count;
    uint32_t room;
    uint32_t live; /* entries that are no holes */
} Slot;

typedef struct {
    int64_t due;
    int64_t order;
    TimerObject *timer;
} HeapEntry;

typedef struct {
    Slot slots[SLOTS];
    uint64_t words[WORDS]; /* a bit per slot that is not empty */
    uint64_t summary;      /* a bit per word that is not zero */
} Level;

struct Core {
#ifdef Py_GIL_DISABLED
    PyMutex mutex;
#endif
    Py_ssize_t holders;
    PyObject *wheel; /* a weak reference */
    int64_t cursor;  /* the running window; everything in slots is later */
    int64_t bound;   /* no slot that is not empty begins before this window */
    int64_t armed;
    int64_t orders;  /* how many were armed so far */
    int64_t soonest; /* if `knows_soonest`: the least due in the slots */
    int knows_soonest;
    uint32_t used; /* a bit per level that is not empty */
    Slot run;
    uint32_t run_next; /* what is before it has fired */
    HeapEntry *heap;
    uint32_t heap_count;
    uint32_t heap_room;
    Level levels[LEVELS];
};

typedef struct {
    PyObject_HEAD
    Core *core;
    PyTypeObject *timer_type;
    PyObject *clock; /* a callable, or NULL */
    int clock_id;    /* of clock_gettime, or -1 */
    PyObject *weakrefs;
} WheelObject;

typedef struct {
    PyTypeObject *timer_type;
    PyTypeObject *callback_type;
    PyTypeObject *wheel_type;
} State;

static PyModuleDef module_definition;

#ifdef Py_GIL_DISABLED
#define LOCK(core) PyMutex_Lock(&(core)->mutex)
#define UNLOCK(core) PyMutex_Unlock(&(core)->mutex)
#define HOLD(core) __atomic_add_fetch(&(core)->holders, 1, __ATOMIC_RELAXED)
#define LET_GO(core) __atomic_sub_fetch(&(core)->holders, 1, __ATOMIC_ACQ_REL)
#else
#define LOCK(core) ((void)(core))
#define UNLOCK(core) ((void)(core))
#define HOLD(core) (++(core)->holders)
#define LET_GO(core) (--(core)->holders)
#endif

/* ---- the core: plain C, under the lock; -1 is "no memory", and then nothing is lost */

static inline int64_t
window_of(int64_t due)
{
    return due >> WINDOW_BITS;
}

static Core *
core_new(int64_t now)
{
    Core *core = calloc(1, sizeof(Core));
    if (core != NULL) {
        core->holders = 1;
        core->cursor = window_of(now);
        core->bound = INT64_MAX;
    }
    return core;
}

static void
core_let_go(Core *core)
{
    if (LET_GO(core) > 0) {
        return;
    }
    for (int level = 0; level < LEVELS; level++) {
        for (int slot = 0; slot < SLOTS; slot++) {
            free(core->levels[level].slots[slot].items);
        }
    }
    free(core->run.items);
    free(core->heap);
    Py_XDECREF(core->wheel);
    free(core);
}

/* Make room for one more, half as much again each time. */
static int
slot_grow(Slot *slot)
{
    uint64_t room = slot->room < KEEP_ROOM ? KEEP_ROOM : (uint64_t)slot->room + slot->room / 2;
    if (room > UINT32_MAX) {
        return -1;
    }
    Entry *items = realloc(slot->items, room * sizeof(Entry));
    if (items == NULL) {
        return -1;
    }
    slot->items = items;
    slot->room = (uint32_t)room;
    return 0;
}

static void
slot_empty(Slot *slot, uint32_t keep)
{
    slot->count = slot->live = 0;
    if (slot->room > keep) {
        free(slot->items);
        slot->items = NULL;
        slot->room = 0;
    }
}

/* Close the holes, and give memory back. */
static void
slot_squeeze(Slot *slot)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < slot->count; i++) {
        TimerObject *timer = slot->items[i].timer;
        if (i + AHEAD < slot->count) {
            PREFETCH(&slot->items[i + AHEAD].timer->where);
        }
        if (timer != NULL) {
            slot->items[kept] = slot->items[i];
            timer->at = kept++;
        }
    }
    slot->count = kept;
    uint32_t room = kept + kept / 4;
    Entry *items = realloc(slot->items, room * sizeof(Entry));
    if (items != NULL) {
        slot->items = items;
        slot->room = room;
    }
}

static void
mark_empty(Core *core, int level, uint32_t slot)
{
    Level *found = &core->levels[level];
    found->words[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
    if (found->words[slot / 64] == 0) {
        found->summary &= ~(UINT64_C(1) << (slot / 64));
        if (found->summary == 0) {
            core->used &= ~(UINT32_C(1) << level);
        }
    }
}

static inline int
comes_before(const HeapEntry *one, const HeapEntry *other)
{
    return one->due != other->due ? one->due < other->due : one->order < other->order;
}

static inline void
heap_set(Core *core, uint32_t at, HeapEntry entry)
{
    core->heap[at] = entry;
    entry.timer->at = at;
}

static void
heap_up(Core *core, uint32_t at, HeapEntry entry)
{
    while (at > 0) {
        uint32_t above = (at - 1) / 2;
        if (!comes_before(&entry, &core->heap[above])) {
            break;
        }
        heap_set(core, at, core->heap[above]);
        at = above;
    }
    heap_set(core, at, entry);
}

static void
heap_down(Core *core, uint32_t at, HeapEntry entry)
{
    for (;;) {
        uint64_t below = 2 * (uint64_t)at + 1;
        if (below >= core->heap_count) {
            break;
        }
        if (below + 1 < core->heap_count && comes_before(&core->heap[below + 1], &core->heap[below])) {
            below++;
        }
        if (!comes_before(&core->heap[below], &entry)) {
            break;
        }
        heap_set(core, at, core->heap[below]);
        at = (uint32_t)below;
    }
    heap_set(core, at, entry);
}

static int
heap_push(Core *core, TimerObject *timer, int64_t due)
{
    if (core->heap_count == core->heap_room) {
        uint64_t room = core->heap_room < 16 ? 16 : (uint64_t)core->heap_room + core->heap_room / 2;
        HeapEntry *heap = room > UINT32_MAX ? NULL : realloc(core->heap, room * sizeof(HeapEntry));
        if (heap == NULL) {
            return -1;
        }
        core->heap = heap;
        core->heap_room = (uint32_t)room;
    }
    timer->where = IN_HEAP;
    heap_up(core, core->heap_count++, (HeapEntry){due, timer->order, timer});
    return 0;
}

static void
heap_remove(Core *core, uint32_t at)
{
    HeapEntry last = core->heap[--core->heap_count];
    if (at < core->heap_count) {
        if (at > 0 && comes_before(&last, &core->heap[(at - 1) / 2])) {
            heap_up(core, at, last);
        }
        else {
            heap_down(core, at, last);
        }
    }
    else if (core->heap_count == 0 && core->heap_room > KEEP_RUN) {
        free(core->heap);
        core->heap = NULL;
        core->heap_room = 0;
    }
}

/* Put a timer where its due says; its `order` is set. Takes over the caller's reference. */
static int
place(Core *core, TimerObject *timer, int64_t due)
{
    int64_t window = window_of(due);
    if (window <= core->cursor) {
        return heap_push(core, timer, due);
    }
    int bit = highest_bit((uint64_t)(window - core->cursor));
    int level = bit < SLOT_BITS ? 0 : (bit - SLOT_BITS) / WIDEN_BITS + 1;
    int shift = level * WIDEN_BITS;
    if ((window >> shift) - (core->cursor >> shift) >= SLOTS) {
        level++;
        shift += WIDEN_BITS;
    }
    Level *found = &core->levels[level];
    uint32_t index = (uint32_t)(window >> shift) % SLOTS;
    Slot *slot = &found->slots[index];
    if (slot->count == slot->room && slot_grow(slot) < 0) {
        return -1;
    }
    slot->items[slot->count] = (Entry){due, timer};
    timer->where = (uint32_t)level * SLOTS + index;
    timer->at = slot->count++;
    if (slot->live++ == 0) {
        found->words[index / 64] |= UINT64_C(1) << (index % 64);
        found->summary |= UINT64_C(1) << (index / 64);
        core->used |= UINT32_C(1) << level;
        int64_t start = (window >> shift) * (INT64_C(1) << shift);
        if (start < core->bound) {
            core->bound = start;
        }
    }
    if (core->knows_soonest && due < core->soonest) {
        core->soonest = due;
    }
    return 0;
}

static inline int64_t
due_of(const Core *core, const TimerObject *timer)
{
    switch (timer->where) {
    case NOWHERE:
        return timer->order;
    case IN_HEAP:
        return core->heap[timer->at].due;
    case IN_RUN:
        return core->run.items[timer->at].due;
    default:
        return core->levels[timer->where / SLOTS].slots[timer->where % SLOTS].items[timer->at].due;
    }
}

/* Take an armed timer out; the caller gets the core's reference to it. */
static void
take_out(Core *core, TimerObject *timer)
{
    if (timer->where == IN_HEAP) {
        heap_remove(core, timer->at);
    }
    else if (timer->where == IN_RUN) {
        core->run.items[timer->at].timer = NULL;
        core->run.live--;
    }
    else {
        int level = (int)(timer->where / SLOTS);
        uint32_t index = timer->where % SLOTS;
        Slot *slot = &core->levels[level].slots[index];
        Entry *entry = &slot->items[timer->at];
        if (core->knows_soonest && entry->due == core->soonest) {
            core->knows_soonest = 0;
        }
        entry->timer = NULL;
        if (--slot->live == 0) {
            slot_empty(slot, KEEP_ROOM);
            mark_empty(core, level, index);
        }
        else if (timer->at == slot->count - 1) {
            do {
                slot->count--;
            } while (slot->items[slot->count - 1].timer == NULL);
        }
        else if (slot->count > SQUEEZE_FROM && slot->live < slot->count / 4) {
            /* No sooner: to close the holes is a look at every timer that is left. */
            slot_squeeze(slot);
        }
    }
    timer->where = NOWHERE;
}

/* Take an armed timer out for good; hands over its value and the core's reference to it. */
static PyObject *
release(Core *core, TimerObject *timer, int64_t due)
{
    PyObject *value = timer->value;
    timer->value = NULL;
    timer->order = due;
    core->armed--;
    return value;
}

static PyObject *
disarm(Core *core, TimerObject *timer)
{
    int64_t due = due_of(core, timer);
    take_out(core, timer);
    return release(core, timer, due);
}

/* The first slot of a level that is not empty, in the order of time from the cursor on: its number, not its index. */
static int64_t
first_slot(const Core *core, int level)
{
    const Level *found = &core->levels[level];
    int64_t from = core->cursor >> (level * WIDEN_BITS);
    int index = (int)((uint64_t)from % SLOTS);
    int word = index / 64, slot;
    uint64_t bits = found->words[word] & (~UINT64_C(0) << (index % 64));
    if (bits == 0) {
        /* Bits of later words; if there are none, it goes on at the beginning of the ring. */
        uint64_t later = found->summary & ~((UINT64_C(2) << word) - 1);
        word = lowest_bit(later ? later : found->summary);
        bits = found->words[word];
    }
    slot = word * 64 + lowest_bit(bits);
    return from + ((slot - index + SLOTS) % SLOTS);
}

/* The slot that begins first, and of two that begin together the wider; -1: all are empty. */
static int
first_level(const Core *core, int64_t *start, int64_t *number)
{
    int best = -1;
    for (uint32_t left = core->used; left != 0;) {
        int level = highest_bit(left);
        left &= ~(UINT32_C(1) << level);
        int64_t slot = first_slot(core, level);
        int64_t begins = slot * (INT64_C(1) << (level * WIDEN_BITS));
        if (best < 0 || begins < *start) {
            best = level;
            *start = begins;
            *number = slot;
        }
    }
    return best;
}

/* Deal the timers of a slot out to lower levels, or to the heap; the cursor is at its start. */
static int
deal_out(Core *core, int level, uint32_t index)
{
    Slot *slot = &core->levels[level].slots[index];
    for (uint32_t i = 0; i < slot->count; i++) {
        Entry entry = slot->items[i];
        if (i + AHEAD < slot->count) {
            PREFETCH(&slot->items[i + AHEAD].timer->where);
        }
        if (entry.timer == NULL) {
            continue;
        }
        if (place(core, entry.timer, entry.due) < 0) {
            return -1;
        }
        slot->items[i].timer = NULL;
        slot->live--;
    }
    slot_empty(slot, KEEP_ROOM);
    mark_empty(core, level, index);
    return 0;
}

static int
by_order(const void *one, const void *other)
{
    int64_t a = ((const Entry *)one)->timer->order, b = ((const Entry *)other)->timer->order;
    return (a > b) - (a < b);
}

/* Sort by due; all dues are of one window. The result is in one of the two arrays. */
static Entry *
sort_by_due(Entry *items, Entry *spare, uint32_t count)
{
    if (count <= 32) {
        for (uint32_t i = 1; i < count; i++) {
            Entry entry = items[i];
            uint32_t at = i;
            for (; at > 0 && items[at - 1].due > entry.due; at--) {
                items[at] = items[at - 1];
            }
            items[at] = entry;
        }
        return items;
    }
    uint32_t counts[3][256] = {{0}};
    for (uint32_t i = 0; i < count; i++) {
        uint64_t due = (uint64_t)items[i].due;
        counts[0][due & 255]++;
        counts[1][due >> 8 & 255]++;
        counts[2][due >> 16 & 255]++;
    }
    for (int byte = 0; byte < 3; byte++) {
        uint32_t *starts = counts[byte], sum = 0;
        if (starts[(uint64_t)items[0].due >> (8 * byte) & 255] == count) {
            continue;
        }
        for (int i = 0; i < 256; i++) {
            uint32_t here = starts[i];
            starts[i] = sum;
            sum += here;
        }
        for (uint32_t i = 0; i < count; i++) {
            spare[starts[(uint64_t)items[i].due >> (8 * byte) & 255]++] = items[i];
        }
        Entry *sorted = spare;
        spare = items;
        items = sorted;
    }
    return items;
}

/* Equal dues fire in the order they were armed in; they can lie otherwise, having come over different levels. */
static void
sort_equals(Entry *items, uint32_t count)
{
    for (uint32_t first = 0; first + 1 < count;) {
        uint32_t end = first + 1;
        int sorted = 1;
        while (end < count && items[end].due == items[first].due) {
            sorted &= items[end].timer->order > items[end - 1].timer->order;
            end++;
        }
        if (!sorted) {
            qsort(items + first, end - first, sizeof(Entry), by_order);
        }
        first = end;
    }
}

/* Make a slot of level 0 the run; the cursor is at it, and the run before has ended. */
static int
start_run(Core *core, uint32_t index)
{
    Slot *slot = &core->levels[0].slots[index], *run = &core->run;
    uint32_t count = slot->live, kept = 0;
    if (run->room < count) {
        uint32_t room = count < KEEP_ROOM ? KEEP_ROOM : count;
        Entry *items = malloc(room * sizeof(Entry));
        if (items == NULL) {
            return -1;
        }
        free(run->items);
        run->items = items;
        run->room = room;
    }
    for (uint32_t i = 0; i < slot->count; i++) {
        if (slot->items[i].timer != NULL) {
            slot->items[kept++] = slot->items[i];
        }
    }
    Entry *sorted = sort_by_due(slot->items, run->items, count);
    if (sorted != run->items) {
        memcpy(run->items, sorted, count * sizeof(Entry));
    }
    sort_equals(run->items, count);
    for (uint32_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            PREFETCH(&run->items[i + AHEAD].timer->where);
        }
        run->items[i].timer->where = IN_RUN;
        run->items[i].timer->at = i;
    }
    run->count = run->live = count;
    core->run_next = 0;
    slot_empty(slot, KEEP_ROOM);
    mark_empty(core, 0, index);
    return 0;
}

/* The first entry of the run that is no hole, or NULL; an ended run is emptied. */
static Entry *
run_head(Core *core)
{
    Slot *run = &core->run;
    if (run->live > 0) {
        while (run->items[core->run_next].timer == NULL) {
            core->run_next++;
        }
        return &run->items[core->run_next];
    }
    if (run->count > 0) {
        slot_empty(run, KEEP_RUN);
        core->run_next = 0;
    }
    return NULL;
}

/* Empty the slots that begin at the cursor, so that run and heap hold all of its window. */
static int
enter_window(Core *core)
{
    int64_t start = 0, number = 0;
    for (;;) {
        int level = first_level(core, &start, &number);
        core->bound = level < 0 ? INT64_MAX : start;
        if (level < 0 || start > core->cursor) {
            return 0;
        }
        core->knows_soonest = 0;
        uint32_t index = (uint32_t)((uint64_t)number % SLOTS);
        if ((level == 0 ? start_run(core, index) : deal_out(core, level, index)) < 0) {
            return -1;
        }
    }
}

/* Take out the first timer that is due at `now`: 1, or 0 if there is none. */
static int
pop(Core *core, int64_t now, TimerObject **timer, PyObject **value)
{
    int64_t target = window_of(now), start = 0, number = 0;
    for (;;) {
        /* Slots at the cursor: it has just moved there, or there was no memory the last time. */
        if (core->bound <= core->cursor && enter_window(core) < 0) {
            return -1;
        }
        Entry *head = run_head(core);
        HeapEntry *top = core->heap_count > 0 ? &core->heap[0] : NULL;
        if (head != NULL && (top == NULL || head->due < top->due ||
                             (head->due == top->due && head->timer->order < top->order))) {
            if (head->due > now) {
                return 0;
            }
            if (core->run_next + AHEAD < core->run.count) {
                PREFETCH(core->run.items[core->run_next + AHEAD].timer);
            }
            *timer = head->timer;
            (*timer)->where = NOWHERE;
            head->timer = NULL;
            core->run.live--;
            core->run_next++;
            *value = release(core, *timer, head->due);
            return 1;
        }
        if (top != NULL) {
            if (top->due > now) {
                return 0;
            }
            int64_t due = top->due;
            *timer = top->timer;
            heap_remove(core, 0);
            (*timer)->where = NOWHERE;
            *value = release(core, *timer, due);
            return 1;
        }
        int level = first_level(core, &start, &number);
        core->bound = level < 0 ? INT64_MAX : start;
        if (level < 0 || start > target) {
            if (target > core->cursor) {
                core->cursor = target;
            }
            return 0;
        }
        core->cursor = start;
    }
}

/* The least due of all; there is one. */
static int64_t
soonest(Core *core)
{
    Entry *head = run_head(core);
    int64_t first = head != NULL ? head->due : INT64_MAX;
    if (core->heap_count > 0 && core->heap[0].due < first) {
        first = core->heap[0].due;
    }
    if ((head != NULL || core->heap_count > 0) && core->bound > core->cursor) {
        return first;
    }
    if (core->knows_soonest) {
        return core->soonest < first ? core->soonest : first;
    }
    int64_t least = INT64_MAX;
    for (uint32_t left = core->used; left != 0; left &= left - 1) {
        int level = lowest_bit(left);
        Slot *slot = &core->levels[level].slots[(uint64_t)first_slot(core, level) % SLOTS];
        for (uint32_t i = 0; i < slot->count; i++) {
            if (slot->items[i].timer != NULL && slot->items[i].due < least) {
                least = slot->items[i].due;
            }
        }
    }
    core->soonest = least;
    core->knows_soonest = 1;
    return least < first ? least : first;
}

/* The timer that fires first; there is one. */
static TimerObject *
first_timer(Core *core)
{
    int64_t due = soonest(core);
    TimerObject *first = NULL;
    Entry *head = run_head(core);
    if (head != NULL && head->due == due) {
        first = head->timer;
    }
    if (core->heap_count > 0 && core->heap[0].due == due && (first == NULL || core->heap[0].order < first->order)) {
        first = core->heap[0].timer;
    }
    if (first != NULL && core->bound > core->cursor) {
        return first;
    }
    for (uint32_t left = core->used; left != 0; left &= left - 1) {
        int level = lowest_bit(left);
        Slot *slot = &core->levels[level].slots[(uint64_t)first_slot(core, level) % SLOTS];
        for (uint32_t i = 0; i < slot->count; i++) {
            TimerObject *timer = slot->items[i].timer;
            if (timer != NULL && slot->items[i].due == due && (first == NULL || timer->order < first->order)) {
                first = timer;
            }
        }
    }
    return first;
}

/* Any armed timer; NULL: none is left. */
static TimerObject *
any_armed(Core *core)
{
    Entry *head = run_head(core);
    if (head != NULL) {
        return head->timer;
    }
    if (core->heap_count > 0) {
        return core->heap[core->heap_count - 1].timer;
    }
    if (core->used == 0) {
        return NULL;
    }
    int level = lowest_bit(core->used);
    Slot *slot = &core->levels[level].slots[(uint64_t)first_slot(core, level) % SLOTS];
    uint32_t at = slot->count - 1;
    while (slot->items[at].timer == NULL) {
        at--;
    }
    return slot->items[at].timer;
}

/* ---- numbers that come in */

static int
read_ns(PyObject *number, const char *what, int64_t *ns)
{
    if (!PyLong_Check(number)) {
        PyErr_Format(PyExc_TypeError, "%s is an integer of nanoseconds, not %.100s", what, Py_TYPE(number)->tp_name);
        return -1;
    }
#if PY_VERSION_HEX < 0x030C0000
    /* What has two digits of 30 bits, 36 years, is read here: PyLong_AsLongLong goes over an array of bytes. */
    if (Py_SIZE(number) == 2) {
        const digit *digits = ((PyLongObject *)number)->ob_digit;
        *ns = (int64_t)digits[1] << PyLong_SHIFT | (int64_t)digits[0];
        return 0;
    }
#endif
    long long found = PyLong_AsLongLong(number);
    if (found == -1 && PyErr_Occurred()) {
        return -1;
    }
    *ns = found;
    return 0;
}

/* None is no limit. */
static int
read_limit(PyObject *number, Py_ssize_t *limit)
{
    *limit = PY_SSIZE_T_MAX;
    if (number == Py_None) {
        return 0;
    }
    if (!PyLong_Check(number)) {
        PyErr_Format(PyExc_TypeError, "a limit is an integer or None, not %.100s", Py_TYPE(number)->tp_name);
        return -1;
    }
    *limit = PyLong_AsSsize_t(number);
    if (*limit == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (*limit < 0) {
        PyErr_SetString(PyExc_ValueError, "a limit is not negative");
        return -1;
    }
    return 0;
}

static int
count_arguments(const char *name, Py_ssize_t got, Py_ssize_t least, Py_ssize_t most)
{
    if (got < least || got > most) {
        PyErr_Format(PyExc_TypeError, "%s() takes %zd to %zd positional arguments, not %zd", name, least, most, got);
        return -1;
    }
    return 0;
}

/* ---- Timer */

static PyObject *
timer_refuse_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyErr_SetString(PyExc_TypeError, "a timer is made by arm()");
    return NULL;
}

static void
timer_dealloc(TimerObject *self)
{
    /* It is not armed, or the core would hold it. */
    PyTypeObject *type = Py_TYPE(self);
    core_let_go(self->core);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
timer_disarm(TimerObject *self, PyObject *Py_UNUSED(ignored))
{
    Core *core = self->core;
    PyObject *value = NULL;
    LOCK(core);
    if (self->where != NOWHERE) {
        value = disarm(core, self);
    }
    UNLOCK(core);
    if (value == NULL) {
        Py_RETURN_FALSE;
    }
    Py_DECREF(value);
    Py_DECREF(self); /* the core's; the caller has one too */
    Py_RETURN_TRUE;
}

static PyObject *
timer_rearm(TimerObject *self, PyObject *number)
{
    int64_t due;
    Core *core = self->core;
    if (read_ns(number, "a due", &due) < 0) {
        return NULL;
    }
    int done = 0;
    LOCK(core);
    if (self->where != NOWHERE) {
        int64_t old_due = due_of(core, self), old_order = self->order;
        PyObject *value = self->value;
        take_out(core, self);
        self->order = core->orders;
        done = place(core, self, due) < 0 ? -1 : 1;
        if (done > 0) {
            core->orders++;
        }
        else {
            /* Back to where it was; only growing can fail, and there is room where it just was … */
            self->order = old_order;
            if (place(core, self, old_due) < 0) {
                /* … unless that array was given back. Then it is disarmed, and the error says so. */
                self->where = NOWHERE;
                release(core, self, old_due);
                UNLOCK(core);
                Py_DECREF(value);
                Py_DECREF(self);
                return PyErr_NoMemory();
            }
        }
    }
    UNLOCK(core);
    if (done < 0) {
        return PyErr_NoMemory();
    }
    return PyBool_FromLong(done);
}

static PyObject *
timer_get_due(TimerObject *self, void *Py_UNUSED(closure))
{
    LOCK(self->core);
    int64_t due = due_of(self->core, self);
    UNLOCK(self->core);
    return PyLong_FromLongLong(due);
}

static PyObject *
timer_get_armed(TimerObject *self, void *Py_UNUSED(closure))
{
    LOCK(self->core);
    int armed = self->where != NOWHERE;
    UNLOCK(self->core);
    return PyBool_FromLong(armed);
}

static PyObject *
timer_get_timers(TimerObject *self, void *Py_UNUSED(closure))
{
    PyObject *wheel;
#if PY_VERSION_HEX >= 0x030D0000
    if (PyWeakref_GetRef(self->core->wheel, &wheel) < 0) {
        return NULL;
    }
    if (wheel == NULL) {
        Py_RETURN_NONE;
    }
#else
    wheel = PyWeakref_GetObject(self->core->wheel);
    Py_XINCREF(wheel);
#endif
    return wheel;
}

static PyObject *
timer_repr(TimerObject *self)
{
    LOCK(self->core);
    int armed = self->where != NOWHERE;
    int64_t due = due_of(self->core, self);
    UNLOCK(self->core);
    return PyUnicode_FromFormat("<timer %s %lld ns>", armed ? "armed, due at" : "not armed, last due at",
                                (long long)due);
}

static PyMethodDef timer_methods[] = {
    {"disarm", (PyCFunction)timer_disarm, METH_NOARGS,
     PyDoc_STR("disarm($self, /)\n--\n\nTake the timer out; true exactly if its value will not fire.")},
    {"rearm", (PyCFunction)timer_rearm, METH_O,
     PyDoc_STR("rearm($self, due, /)\n--\n\nGive an armed timer another due; false if it is not armed.")},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef timer_getset[] = {
    {"due", (getter)timer_get_due, NULL, PyDoc_STR("When it fires, or was to fire last."), NULL},
    {"armed", (getter)timer_get_armed, NULL, PyDoc_STR("Whether it may still fire."), NULL},
    {"timers", (getter)timer_get_timers, NULL, PyDoc_STR("What it was armed in; None if that is gone."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot timer_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("The handle of one armed value.")},
    {Py_tp_new, timer_refuse_new},
    {Py_tp_dealloc, timer_dealloc},
    {Py_tp_repr, timer_repr},
    {Py_tp_methods, timer_methods},
    {Py_tp_getset, timer_getset},
    {0, NULL},
};

static PyType_Spec timer_spec = {
    .name = "tarry.timers._wheel.Timer",
    .basicsize = sizeof(TimerObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = timer_slots,
};

/* A subclass written in Python would be known to the garbage collector: hence one for the drivers here. */

static PyObject *
callback_again(PyObject *self, PyObject *delay)
{
    PyObject *wheel = timer_get_timers((TimerObject *)self, NULL);
    if (wheel == NULL) {
        return NULL;
    }
    if (wheel == Py_None) {
        Py_DECREF(wheel);
        Py_RETURN_FALSE;
    }
    PyObject *answer = PyObject_CallMethod(wheel, "move", "OO", self, delay);
    Py_DECREF(wheel);
    return answer;
}

static PyMethodDef callback_methods[] = {
    {"cancel", (PyCFunction)timer_disarm, METH_NOARGS,
     PyDoc_STR("cancel($self, /)\n--\n\nDo not call: true exactly if it was still to come, and now will not.")},
    {"again", callback_again, METH_O,
     PyDoc_STR("again($self, delay, /)\n--\n\nCall *delay* from now instead; false if it was called or cancelled.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot callback_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("One call to come: the timer itself, and nothing else is kept for it.")},
    {Py_tp_new, timer_refuse_new},
    {Py_tp_dealloc, timer_dealloc},
    {Py_tp_methods, callback_methods},
    {0, NULL},
};

static PyType_Spec callback_spec = {
    .name = "tarry.timers._wheel.Callback",
    .basicsize = sizeof(TimerObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = callback_slots,
};

/* Make a timer that is not armed, but holds the value for it. */
static TimerObject *
timer_new(WheelObject *wheel, PyObject *value)
{
    PyTypeObject *type = wheel->timer_type;
    TimerObject *timer;
    if (type->tp_basicsize == sizeof(TimerObject) && !PyType_IS_GC(type)) {
        timer = PyObject_New(TimerObject, type); /* all of it is set below, or by arm_new() */
    }
    else {
        timer = (TimerObject *)type->tp_alloc(type, 0);
    }
    if (timer == NULL) {
        return NULL;
    }
    timer->core = wheel->core;
    HOLD(timer->core);
    timer->value = Py_NewRef(value);
    timer->where = NOWHERE;
    return timer;
}

static void
timer_discard(TimerObject *timer)
{
    Py_CLEAR(timer->value);
    Py_DECREF(timer);
}

/* Arm a new timer, under the lock; the core gets a reference of its own. */
static int
arm_new(Core *core, TimerObject *timer, int64_t due)
{
    timer->order = core->orders;
    if (place(core, timer, due) < 0) {
        return -1;
    }
    core->orders++;
    core->armed++;
    Py_INCREF(timer);
    return 0;
}

/* ---- Wheel */

static PyObject *
wheel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"now", "clock", "timer", NULL};
    PyObject *now_object = NULL, *clock = Py_None, *timer_type = Py_None;
    int64_t now = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O$OO:HierarchicalWheel", names, &now_object, &clock, &timer_type)) {
        return NULL;
    }
    if (now_object != NULL && read_ns(now_object, "now", &now) < 0) {
        return NULL;
    }
    PyObject *module = PyType_GetModuleByDef(type, &module_definition);
    if (module == NULL) {
        return NULL;
    }
    PyTypeObject *made = ((State *)PyModule_GetState(module))->timer_type;
    if (timer_type != Py_None) {
        if (!PyType_Check(timer_type) || !PyType_IsSubtype((PyTypeObject *)timer_type, made)) {
            PyErr_SetString(PyExc_TypeError, "timer is a subclass of Timer");
            return NULL;
        }
        made = (PyTypeObject *)timer_type;
    }
    Py_INCREF(made);
    int clock_id = -1;
    if (PyLong_Check(clock)) {
        clock_id = (int)PyLong_AsLong(clock);
        if (clock_id < 0) {
            Py_DECREF(made);
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "the number of a clock is not negative");
            }
            return NULL;
        }
#ifndef CLOCK_MONOTONIC
        Py_DECREF(made);
        PyErr_SetString(PyExc_ValueError, "clocks have no numbers on this system");
        return NULL;
#endif
        clock = Py_None;
    }
    WheelObject *self = (WheelObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_DECREF(made);
        return NULL;
    }
    self->timer_type = made;
    self->clock_id = clock_id;
    self->clock = clock == Py_None ? NULL : Py_NewRef(clock);
    self->core = core_new(now);
    if (self->core == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->core->wheel = PyWeakref_NewRef((PyObject *)self, NULL);
    if (self->core->wheel == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* Disarm everything, without needing memory: values may run code, so that the core is whole before each. */
static void
disarm_all(Core *core)
{
    for (;;) {
        PyObject *value = NULL;
        LOCK(core);
        TimerObject *timer = any_armed(core);
        if (timer != NULL) {
            value = disarm(core, timer);
        }
        UNLOCK(core);
        if (timer == NULL) {
            return;
        }
        Py_DECREF(value);
        Py_DECREF(timer);
    }
}

static int
wheel_traverse(WheelObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->timer_type);
    Py_VISIT(self->clock);
    return 0;
}

static int
wheel_clear(WheelObject *self)
{
    Py_CLEAR(self->clock);
    return 0;
}

static void
wheel_dealloc(WheelObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    if (self->core != NULL) {
        disarm_all(self->core);
        /* Timers outlive their wheel, and ask for it: the dead weak reference stays for them, and ends with none. */
        core_let_go(self->core);
    }
    Py_CLEAR(self->clock);
    Py_CLEAR(self->timer_type);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
arm(WheelObject *self, int64_t due, PyObject *value, int64_t now, int knows_now)
{
    Core *core = self->core;
    TimerObject *timer = timer_new(self, value);
    if (timer == NULL) {
        return NULL;
    }
    LOCK(core);
    if (knows_now) {
        /* After a long rest the cursor is far behind; while nothing is in between it may follow. */
        int64_t window = window_of(now);
        if (window > core->cursor && window < core->bound && core->heap_count == 0 && core->run.live == 0) {
            core->cursor = window;
        }
    }
    int failed = arm_new(core, timer, due);
    UNLOCK(core);
    if (failed) {
        timer_discard(timer);
        return PyErr_NoMemory();
    }
    return (PyObject *)timer;
}

static PyObject *
wheel_arm(WheelObject *self, PyObject *const *args, Py_ssize_t count)
{
    int64_t due;
    if (count != 2) {
        count_arguments("arm", count, 2, 2);
        return NULL;
    }
    if (read_ns(args[0], "a due", &due) < 0) {
        return NULL;
    }
    return arm(self, due, args[1], 0, 0);
}

static int
read_clock(WheelObject *self, int64_t *now)
{
#ifdef CLOCK_MONOTONIC
    if (self->clock_id >= 0) {
        struct timespec time;
        if (clock_gettime(self->clock_id, &time) < 0) {
            PyErr_SetFromErrno(PyExc_OSError);
            return -1;
        }
        *now = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
        return 0;
    }
#endif
    if (self->clock == NULL) {
        PyErr_SetString(PyExc_TypeError, "these timers were made without a clock: arm(due, value) them");
        return -1;
    }
    PyObject *answer = PyObject_CallNoArgs(self->clock);
    if (answer == NULL) {
        return -1;
    }
    int failed = read_ns(answer, "what a clock says", now);
    Py_DECREF(answer);
    return failed;
}

static PyObject *
wheel_arm_in(WheelObject *self, PyObject *const *args, Py_ssize_t count)
{
    int64_t delay, now;
    if (count_arguments("arm_in", count, 2, 2) < 0 || read_ns(args[0], "a delay", &delay) < 0 ||
        read_clock(self, &now) < 0) {
        return NULL;
    }
    if (delay > 0 && now > INT64_MAX - delay) {
        PyErr_SetString(PyExc_OverflowError, "a due is at most 2**63 - 1");
        return NULL;
    }
    if (delay < 0 && now < INT64_MIN - delay) {
        PyErr_SetString(PyExc_OverflowError, "a due is at least -2**63");
        return NULL;
    }
    return arm(self, now + delay, args[1], now, 1);
}

static PyObject *
wheel_arm_many(WheelObject *self, PyObject *const *args, Py_ssize_t count)
{
    Core *core = self->core;
    PyObject *dues = NULL, *values = NULL, *timers = NULL;
    int64_t *numbers = NULL;
    if (count_arguments("arm_many", count, 2, 2) < 0) {
        return NULL;
    }
    /* Tuples of our own: nobody changes them while timers are made. */
    if ((dues = PySequence_Tuple(args[0])) == NULL || (values = PySequence_Tuple(args[1])) == NULL) {
        goto failed;
    }
    Py_ssize_t total = PyTuple_GET_SIZE(dues);
    if (PyTuple_GET_SIZE(values) != total) {
        PyErr_Format(PyExc_ValueError, "%zd dues, but %zd values", total, PyTuple_GET_SIZE(values));
        goto failed;
    }
    numbers = PyMem_New(int64_t, total ? total : 1);
    timers = PyList_New(total);
    if (numbers == NULL || timers == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    for (Py_ssize_t i = 0; i < total; i++) {
        if (read_ns(PyTuple_GET_ITEM(dues, i), "a due", &numbers[i]) < 0) {
            goto failed;
        }
    }
    for (Py_ssize_t i = 0; i < total; i++) {
        TimerObject *timer = timer_new(self, PyTuple_GET_ITEM(values, i));
        int error = timer == NULL;
        if (!error) {
            LOCK(core);
            error = arm_new(core, timer, numbers[i]) < 0;
            UNLOCK(core);
        }
        if (error) {
            if (timer != NULL) {
                timer_discard(timer);
            }
            PyErr_NoMemory();
            /* All or none: what was armed in this call is disarmed. */
            for (Py_ssize_t done = 0; done < i; done++) {
                TimerObject *armed = (TimerObject *)PyList_GET_ITEM(timers, done);
                PyObject *value = NULL;
                LOCK(core);
                if (armed->where != NOWHERE) {
                    value = disarm(core, armed);
                }
                UNLOCK(core);
                if (value != NULL) {
                    Py_DECREF(value);
                    Py_DECREF(armed);
                }
            }
            goto failed;
        }
        PyList_SET_ITEM(timers, i, (PyObject *)timer);
    }
    PyMem_Free(numbers);
    Py_DECREF(dues);
    Py_DECREF(values);
    return timers;

failed:
    PyMem_Free(numbers);
    Py_XDECREF(dues);
    Py_XDECREF(values);
    Py_XDECREF(timers);
    return NULL;
}

static PyObject *
wheel_disarm_many(WheelObject *self, PyObject *argument)
{
    Core *core = self->core;
#ifdef Py_GIL_DISABLED
    PyObject *timers = PySequence_Tuple(argument);
#else
    /* Nothing in the loop runs Python code, so that a list stays as it is. */
    PyObject *timers = PySequence_Fast(argument, "timers are disarmed from a sequence");
#endif
    if (timers == NULL) {
        return NULL;
    }
    Py_ssize_t total = PySequence_Fast_GET_SIZE(timers), done = 0, held = 0;
    PyObject **items = PySequence_Fast_ITEMS(timers);
    /* What the disarmed held: released after the loop. */
    PyObject **freed = PyMem_New(PyObject *, total ? 2 * total : 1);
    if (freed == NULL) {
        Py_DECREF(timers);
        return PyErr_NoMemory();
    }
    PyObject *wrong = NULL;
    PyTypeObject *mine = self->timer_type;
    for (Py_ssize_t i = 0; i < total; i++) {
        if (i + 2 * AHEAD < total) {
            PREFETCH(items[i + 2 * AHEAD]);
        }
        if (i + AHEAD < total && Py_TYPE(items[i + AHEAD]) == mine) {
            TimerObject *soon = (TimerObject *)items[i + AHEAD];
            if (soon->core == core && soon->where < IN_RUN) {
#ifndef Py_GIL_DISABLED
                Slot *slot = &core->levels[soon->where / SLOTS].slots[soon->where % SLOTS];
                PREFETCH(&slot->items[soon->at]);
#endif
            }
        }
        TimerObject *timer = (TimerObject *)items[i];
        if ((Py_TYPE(timer) != mine && !PyType_IsSubtype(Py_TYPE(timer), mine)) || timer->core != core) {
            wrong = items[i];
            break;
        }
        PyObject *value = NULL;
        LOCK(core);
        if (timer->where != NOWHERE) {
            value = disarm(core, timer);
        }
        UNLOCK(core);
        if (value == NULL) {
            continue;
        }
        done++;
#ifndef Py_GIL_DISABLED
        /* The list holds the timer; and a shared value does not end here. Both lines are still in the cache. */
        Py_DECREF(timer);
        if (Py_REFCNT(value) > 1) {
            Py_DECREF(value);
            continue;
        }
#else
        freed[held++] = (PyObject *)timer;
#endif
        freed[held++] = value;
    }
    if (wrong != NULL) {
        PyErr_Format(PyExc_TypeError, "a timer of these timers is expected, not %.100s; those before it are disarmed",
                     Py_TYPE(wrong)->tp_name);
    }
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    for (Py_ssize_t i = 0; i < held; i++) {
        Py_DECREF(freed[i]);
    }
    PyErr_Restore(type, error, trace);
    PyMem_Free(freed);
    Py_DECREF(timers);
    return wrong != NULL ? NULL : PyLong_FromSsize_t(done);
}

static PyObject *
wheel_advance(WheelObject *self, PyObject *const *args, Py_ssize_t count)
{
    Core *core = self->core;
    int64_t now;
    Py_ssize_t limit;
    if (count_arguments("advance", count, 1, 2) < 0 || read_ns(args[0], "now", &now) < 0 ||
        read_limit(count > 1 ? args[1] : Py_None, &limit) < 0) {
        return NULL;
    }
    PyObject *values = PyList_New(0);
    if (values == NULL) {
        return NULL;
    }
    for (Py_ssize_t fired = 0; fired < limit; fired++) {
        TimerObject *timer = NULL;
        PyObject *value = NULL;
        LOCK(core);
        int found = pop(core, now, &timer, &value);
        UNLOCK(core);
        if (found == 0) {
            break;
        }
        if (found < 0) {
            /* What has fired must reach the caller: the rest is tried by the next call. */
            if (PyList_GET_SIZE(values) > 0) {
                break;
            }
            Py_DECREF(values);
            return PyErr_NoMemory();
        }
        int failed = PyList_Append(values, value);
        Py_DECREF(value);
        Py_DECREF(timer);
        if (failed < 0) {
            Py_DECREF(values);
            return NULL;
        }
    }
    return values;
}

/* Call what fired: a callable, or a tuple of one and its arguments. */
static PyObject *
call(PyObject *value)
{
    if (PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) > 0) {
        PyObject *const *items = ((PyTupleObject *)value)->ob_item;
        return PyObject_Vectorcall(items[0], items + 1, (size_t)PyTuple_GET_SIZE(value) - 1, NULL);
    }
    return PyObject_CallNoArgs(value);
}

/* Hand an Exception to on_error; -1: it is for the caller of fire(). */
static int
tell(PyObject *on_error, PyObject *value)
{
    if (on_error == Py_None || !PyErr_ExceptionMatches(PyExc_Exception)) {
        return -1;
    }
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL) {
        PyException_SetTraceback(error, trace);
    }
    PyObject *answer = PyObject_CallFunctionObjArgs(on_error, value, error, NULL);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

static PyObject *
wheel_fire(WheelObject *self, PyObject *const *args, Py_ssize_t count)
{
    Core *core = self->core;
    int64_t now;
    Py_ssize_t limit, fired = 0;
    if (count_arguments("fire", count, 1, 3) < 0 || read_ns(args[0], "now", &now) < 0 ||
        read_limit(count > 2 ? args[2] : Py_None, &limit) < 0) {
        return NULL;
    }
    PyObject *on_error = count > 1 ? args[1] : Py_None;
    LOCK(core);
    /* A callback that arms itself for the past would be due for ever. */
    if (limit > core->armed) {
        limit = (Py_ssize_t)core->armed;
    }
    UNLOCK(core);
    while (fired < limit) {
        TimerObject *timer = NULL;
        PyObject *value = NULL;
        LOCK(core);
        int found = pop(core, now, &timer, &value);
        UNLOCK(core);
        if (found < 0) {
            return PyErr_NoMemory();
        }
        if (found == 0) {
            break;
        }
        fired++;
        Py_DECREF(timer);
        PyObject *answer = call(value);
        int failed = answer == NULL ? tell(on_error, value) : 0;
        Py_XDECREF(answer);
        if (failed) {
            PyObject *type, *error, *trace;
            PyErr_Fetch(&type, &error, &trace);
            Py_DECREF(value);
            PyErr_Restore(type, error, trace);
            return NULL;
        }
        Py_DECREF(value);
    }
    return PyLong_FromSsize_t(fired);
}

static PyObject *
wheel_clear_armed(WheelObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *last = PyLong_FromLongLong(INT64_MAX);
    if (last == NULL) {
        return NULL;
    }
    PyObject *values = wheel_advance(self, (PyObject *const[]){last}, 1);
    Py_DECREF(last);
    return values;
}

static PyObject *
wheel_peek(WheelObject *self, PyObject *Py_UNUSED(ignored))
{
    Core *core = self->core;
    PyObject *value = NULL;
    LOCK(core);
    if (core->armed > 0) {
        value = Py_NewRef(first_timer(core)->value);
    }
    UNLOCK(core);
    if (value == NULL) {
        PyErr_SetString(PyExc_LookupError, "nothing is armed");
    }
    return value;
}

static PyObject *
wheel_get_next_due(WheelObject *self, void *Py_UNUSED(closure))
{
    Core *core = self->core;
    int64_t due = 0;
    LOCK(core);
    int any = core->armed > 0;
    if (any) {
        due = soonest(core);
    }
    UNLOCK(core);
    if (!any) {
        Py_RETURN_NONE;
    }
    return PyLong_FromLongLong(due);
}

static Py_ssize_t
wheel_length(WheelObject *self)
{
    LOCK(self->core);
    Py_ssize_t armed = (Py_ssize_t)self->core->armed;
    UNLOCK(self->core);
    return armed;
}

static int
wheel_true(WheelObject *Py_UNUSED(self))
{
    return 1; /* timers without an armed one are timers all the same */
}

static PyMethodDef wheel_methods[] = {
    {"arm", (PyCFunction)(void (*)(void))wheel_arm, METH_FASTCALL,
     PyDoc_STR("arm($self, due, value, /)\n--\n\nLet *value* fire at *due*; returns its timer.")},
    {"arm_in", (PyCFunction)(void (*)(void))wheel_arm_in, METH_FASTCALL,
     PyDoc_STR("arm_in($self, delay, value, /)\n--\n\nLet *value* fire *delay* after what the clock says.")},
    {"arm_many", (PyCFunction)(void (*)(void))wheel_arm_many, METH_FASTCALL,
     PyDoc_STR("arm_many($self, dues, values, /)\n--\n\nArm each value at its due: all of them, or none.")},
    {"disarm_many", (PyCFunction)wheel_disarm_many, METH_O,
     PyDoc_STR("disarm_many($self, timers, /)\n--\n\nDisarm timers; returns how many of them were armed.")},
    {"advance", (PyCFunction)(void (*)(void))wheel_advance, METH_FASTCALL,
     PyDoc_STR("advance($self, now, limit=None, /)\n--\n\nTake out what is due, earliest first.")},
    {"fire", (PyCFunction)(void (*)(void))wheel_fire, METH_FASTCALL,
     PyDoc_STR("fire($self, now, on_error=None, limit=None, /)\n--\n\nTake out and call what is due, one by one.")},
    {"clear", (PyCFunction)wheel_clear_armed, METH_NOARGS,
     PyDoc_STR("clear($self, /)\n--\n\nDisarm everything; returns the values, earliest first.")},
    {"peek", (PyCFunction)wheel_peek, METH_NOARGS,
     PyDoc_STR("peek($self, /)\n--\n\nReturn what fires next, and leave it armed.")},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef wheel_getset[] = {
    {"next_due", (getter)wheel_get_next_due, NULL, PyDoc_STR("The earliest due, to the nanosecond; None of none."),
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef wheel_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(WheelObject, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot wheel_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Timers in coarse slots above and an exact order below: the native core.")},
    {Py_tp_new, wheel_new},
    {Py_tp_dealloc, wheel_dealloc},
    {Py_tp_traverse, wheel_traverse},
    {Py_tp_clear, wheel_clear},
    {Py_tp_methods, wheel_methods},
    {Py_tp_getset, wheel_getset},
    {Py_tp_members, wheel_members},
    {Py_sq_length, wheel_length},
    {Py_nb_bool, wheel_true},
    {0, NULL},
};

static PyType_Spec wheel_spec = {
    .name = "tarry.timers._wheel.HierarchicalWheel",
    .basicsize = sizeof(WheelObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = wheel_slots,
};

/* ---- the module */

static int
module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    state->timer_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &timer_spec, NULL);
    if (state->timer_type == NULL || PyModule_AddType(module, state->timer_type) < 0) {
        return -1;
    }
    state->callback_type =
        (PyTypeObject *)PyType_FromModuleAndSpec(module, &callback_spec, (PyObject *)state->timer_type);
    if (state->callback_type == NULL || PyModule_AddType(module, state->callback_type) < 0) {
        return -1;
    }
    state->wheel_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &wheel_spec, NULL);
    if (state->wheel_type == NULL || PyModule_AddType(module, state->wheel_type) < 0) {
        return -1;
    }
    return 0;
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->timer_type);
    Py_VISIT(state->callback_type);
    Py_VISIT(state->wheel_type);
    return 0;
}

static int
module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->timer_type);
    Py_CLEAR(state->callback_type);
    Py_CLEAR(state->wheel_type);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tarry.timers._wheel",
    .m_doc = PyDoc_STR("The native core of HierarchicalWheel."),
    .m_size = sizeof(State),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC
PyInit__wheel(void)
{
    return PyModuleDef_Init(&module_definition);
}
