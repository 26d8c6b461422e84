/*
 * The block pool of one full-attention group, from docs/semantics.md (T1 to T8, and of T9, T11, T16 to T19 and T0(5) what
 * they need), and not from core/. What is projected and what is left out: docs/referee.md.
 *
 * Sizes come from the command line: spin -a -DN=4 -DR=2 -DL=2 -DT=1 pool.pml
 *   N blocks besides the null block, R requests, L columns of a table, T texts that differ in their last token (0: one text,
 *   whose last column never fills). A block holds two tokens.
 *
 * Blocks are 1..N; 0 stands for none, so that what is unused is 0 and a state has one representation. Keys are 0..NK-1:
 * key k < L-1 is the full entry of column k, key L-1 the boundary inside the last column, key L+t the full last column of
 * text t. Scratch variables are hidden: they are no part of a state, and every action sets them before it reads them.
 *
 * Every action is one deterministic step. An attempt that the semantics refuses (no free block for it, a reset with blocks
 * in use) is a step that changes nothing; what has no meaning in a state or breaks a precondition of a T is no step at all.
 */

#define NK (L + T)

/* Tokens that a key stands for; primaries are stored as key + 1. */
#define TOKENS(key) (((key) < L - 1) -> 2 * (key) + 2 : (((key) == L - 1) -> 2 * L - 1 : 2 * L))
/* Key of the full entry of a column in a text. */
#define FULL(column, t) (((column) < L - 1) -> (column) : L + (t))
#define PARTIAL (L - 1)

#define NB (N + 1)
#define PLACES (NK * N)
#define CELLS (R * L)
#define ENDS (2 * N)

byte ref[NB];       /* references, by block */
byte primary[NB];   /* primary key + 1, by block; 0: none */
byte free_len;      /* the free queue, front (reused first) first */
byte free_at[N];
byte map_len[NK];   /* of every key the blocks that carry it, first inserted first: block i of key k at k * N + i */
byte map_at[PLACES];
byte text[R];       /* text + 1 of an admitted request; 0: idle */
byte table_len[R];  /* of every request its table: column j of request r at r * L + j */
byte table_at[CELLS];
byte copies;        /* copies that wait for the drain: source and destination of copy i at 2 * i and 2 * i + 1 */
byte end_at[ENDS];

hidden byte b;      /* the block at hand */
hidden byte k;      /* the key at hand */
hidden byte i;
hidden byte j;
hidden byte n;
hidden byte hit;    /* whole columns of a hit */
hidden byte inside; /* block of a hit that ends inside the last column; 0: none */
hidden byte need;
hidden byte front_len;
hidden byte front_at[N];
hidden byte back_len;
hidden byte back_at[N];
hidden byte found;

/* Take block b out of the blocks of key k if it is there; the order of the others stays. found: it was. */
inline forget_key() {
    found = 0;
    j = 0;
    do
    :: j < map_len[k] ->
        if
        :: found -> map_at[k * N + j - 1] = map_at[k * N + j]
        :: !found && map_at[k * N + j] == b -> found = 1
        :: else
        fi;
        j++
    :: else -> break
    od;
    if
    :: found -> map_len[k] = map_len[k] - 1; map_at[k * N + map_len[k]] = 0
    :: else
    fi
}

/* T6 remove_all: block b loses its primary and every other key. */
inline remove_all() {
    k = 0;
    do
    :: k < NK -> forget_key(); k++
    :: else -> break
    od;
    primary[b] = 0
}

/* Whether block b carries key k already: found. */
inline look_for_key() {
    found = 0;
    j = 0;
    do
    :: j < map_len[k] ->
        if
        :: map_at[k * N + j] == b -> found = 1
        :: else
        fi;
        j++
    :: else -> break
    od
}

/* T6 insert: nothing if block b carries key k already; else the key's last block, and b's primary if it has none. */
inline insert_key() {
    look_for_key();
    if
    :: !found ->
        map_at[k * N + map_len[k]] = b;
        map_len[k] = map_len[k] + 1;
        if
        :: primary[b] == 0 -> primary[b] = k + 1
        :: else
        fi
    :: else
    fi
}

/* T1: the front of the free queue becomes b; its keys are lost; its one reference is the caller's. */
inline take_block() {
    assert(free_len > 0);
    b = free_at[0];
    i = 1;
    do
    :: i < free_len -> free_at[i - 1] = free_at[i]; i++
    :: else -> break
    od;
    free_len = free_len - 1;
    free_at[free_len] = 0;
    remove_all();
    assert(ref[b] == 0);
    ref[b] = 1
}

/* T2: one more reference for b; without references it leaves the free queue, wherever it stands in it. */
inline touch_block() {
    if
    :: ref[b] == 0 ->
        found = 0;
        i = 0;
        do
        :: i < free_len ->
            if
            :: found -> free_at[i - 1] = free_at[i]
            :: !found && free_at[i] == b -> found = 1
            :: else
            fi;
            i++
        :: else -> break
        od;
        assert(found);
        free_len = free_len - 1;
        free_at[free_len] = 0
    :: else
    fi;
    ref[b] = ref[b] + 1
}

/* T3, part by part: begin, one reference of b after the other, and the queue at the end. */
inline free_begin() {
    front_len = 0;
    back_len = 0
}
inline free_one() {
    assert(ref[b] > 0);
    ref[b] = ref[b] - 1;
    if
    :: ref[b] == 0 && primary[b] == 0 -> front_at[front_len] = b; front_len++
    :: ref[b] == 0 && primary[b] != 0 -> back_at[back_len] = b; back_len++
    :: else
    fi
}
inline free_end() {
    /* without a primary: in front of the queue, in the given order */
    i = free_len;
    do
    :: i > 0 -> i--; free_at[i + front_len] = free_at[i]
    :: else -> break
    od;
    i = 0;
    do
    :: i < front_len -> free_at[i] = front_at[i]; i++
    :: else -> break
    od;
    free_len = free_len + front_len;
    /* with one: behind it, in the given order */
    i = 0;
    do
    :: i < back_len -> free_at[free_len + i] = back_at[i]; i++
    :: else -> break
    od;
    free_len = free_len + back_len
}

/* T19.2: one more block at the end of the table of r. */
inline append_block(r) {
    take_block();
    table_at[r * L + table_len[r]] = b;
    table_len[r] = table_len[r] + 1
}

/*
 * An allocate call of request r, idle so far, with text t, for the token behind its longest hit. It knows one token more
 * than its table has room for, so a hit may cover every column.
 */
inline admit(r, t) {
    /* T11: full entries from the left until the first miss, then the boundary inside the next block */
    hit = 0;
    inside = 0;
    do
    :: hit < L && (hit < L - 1 || T > 0) && map_len[FULL(hit, t)] > 0 -> hit++
    :: else -> break
    od;
    if
    :: hit == L - 1 && map_len[PARTIAL] > 0 -> inside = map_at[PARTIAL * N]
    :: else
    fi;
    /* T17: blocks for the slots behind the hit, adopted blocks that stand in the free queue, one for the copy */
    need = 0;
    i = 0;
    do
    :: i < hit ->
        if
        :: ref[map_at[FULL(i, t) * N]] == 0 -> need++
        :: else
        fi;
        i++
    :: else -> break
    od;
    if
    :: inside != 0 ->
        need++;
        if
        :: ref[inside] == 0 -> need++
        :: else
        fi
    :: inside == 0 && hit < L -> need++
    :: else
    fi;
    /* T17: a block that gets its bytes by a queued copy cannot be the source of another one: more than there is */
    i = 0;
    do
    :: i < copies ->
        if
        :: inside != 0 && end_at[2 * i + 1] == inside -> need = N + 1
        :: else
        fi;
        i++
    :: else -> break
    od;
    if
    :: need > free_len /* T16.4: refused, nothing changes */
    :: else ->
        text[r] = t + 1;
        /* T18: touch the hit, which becomes the table */
        n = 0;
        do
        :: n < hit ->
            b = map_at[FULL(n, t) * N];
            touch_block();
            table_at[r * L + n] = b;
            n++
        :: else -> break
        od;
        table_len[r] = hit;
        if
        :: inside != 0 ->
            b = inside;
            touch_block();
            /* T19.1: a private copy takes the place of the shared block; both ends keep a reference until the drain */
            append_block(r);
            end_at[2 * copies] = inside;
            end_at[2 * copies + 1] = b;
            copies = copies + 1;
            ref[b] = ref[b] + 1
        :: inside == 0 && hit < L -> append_block(r)
        :: else
        fi
    fi
}

/* An allocate call of a running request for the first token of its next block. */
inline append(r) {
    if
    :: free_len > 0 -> append_block(r)
    :: else /* T16.4 */
    fi
}

/* T7 of one column: what the block stood for, always less, gives way. */
inline register_full(r, column) {
    b = table_at[r * L + column];
    if
    :: primary[b] != 0 -> remove_all()
    :: else
    fi;
    k = FULL(column, text[r] - 1);
    insert_key()
}

/* T8 without replace mode, of the boundary inside the last column. */
inline register_partial(r) {
    b = table_at[r * L + L - 1];
    k = PARTIAL;
    look_for_key();
    if
    :: !found && primary[b] != 0 && TOKENS(primary[b] - 1) < TOKENS(PARTIAL) -> remove_all()
    :: else
    fi;
    k = PARTIAL;
    insert_key()
}

/* T3 by a request: the tail first. */
inline free_request(r) {
    free_begin();
    do
    :: table_len[r] > 0 ->
        table_len[r] = table_len[r] - 1;
        b = table_at[r * L + table_len[r]];
        table_at[r * L + table_len[r]] = 0;
        free_one()
    :: else -> break
    od;
    free_end();
    text[r] = 0
}

/* T0(5): the copies run; all ends are given back in one T3 call, copy by copy, the source before the destination. */
inline drain() {
    free_begin();
    n = 0;
    do
    :: n < 2 * copies -> b = end_at[n]; end_at[n] = 0; free_one(); n++
    :: else -> break
    od;
    copies = 0;
    free_end()
}

/* T5: only if nothing but the null block is in use. */
inline reset() {
    if
    :: free_len == N ->
        b = 1;
        do
        :: b <= N -> remove_all(); b++
        :: else -> break
        od
    :: else
    fi
}

/* With CHECK every state is asserted to be consistent. */
inline check() {
#ifdef CHECK
    /* PC-1: the queue holds exactly the blocks without references, each once */
    b = 1;
    do
    :: b <= N ->
        n = 0;
        i = 0;
        do
        :: i < free_len -> if :: free_at[i] == b -> n++ :: else fi; i++
        :: else -> break
        od;
        assert(n == (ref[b] == 0 -> 1 : 0));
        /* PC-3: references are table entries and ends of copies */
        n = 0;
        i = 0;
        do
        :: i < CELLS -> if :: table_at[i] == b -> n++ :: else fi; i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < ENDS -> if :: end_at[i] == b -> n++ :: else fi; i++
        :: else -> break
        od;
        assert(n == ref[b]);
        /* a block with keys has a primary among them, and no block carries a key twice */
        found = 0;
        k = 0;
        do
        :: k < NK ->
            n = 0;
            i = 0;
            do
            :: i < map_len[k] -> if :: map_at[k * N + i] == b -> n++ :: else fi; i++
            :: else -> break
            od;
            assert(n <= 1);
            assert(n == 0 || primary[b] != 0);
            if :: n == 1 && primary[b] == k + 1 -> found = 1 :: else fi;
            k++
        :: else -> break
        od;
        assert(primary[b] == 0 || found);
        b++
    :: else -> break
    od;
    /* COW-3, COW-7: no two copies have the same destination, and no destination is a source */
    i = 0;
    do
    :: i < copies ->
        j = 0;
        do
        :: j < copies ->
            assert(i == j || end_at[2 * i + 1] != end_at[2 * j + 1]);
            assert(end_at[2 * i + 1] != end_at[2 * j]);
            j++
        :: else -> break
        od;
        i++
    :: else -> break
    od;
    skip
#else
    skip
#endif
}

#ifdef EDGES
/* Every step is printed as it is made: the state before it and the state behind it, in the order of the declarations. */
c_code {
    static unsigned char before[256];
    static int cells(unsigned char *to) {
        int size = 0, at;
#define CELLS_OF(array, first, count) for (at = first; at < count; at++) to[size++] = now.array[at]
        CELLS_OF(ref, 1, NB);
        CELLS_OF(primary, 1, NB);
        to[size++] = now.free_len;
        CELLS_OF(free_at, 0, N);
        CELLS_OF(map_len, 0, NK);
        CELLS_OF(map_at, 0, PLACES);
        CELLS_OF(text, 0, R);
        CELLS_OF(table_len, 0, R);
        CELLS_OF(table_at, 0, CELLS);
        to[size++] = now.copies;
        CELLS_OF(end_at, 0, ENDS);
        return size;
    }
    static void show(unsigned char *cell, int size) {
        while (size--) printf("%02x", *cell++);
    }
    static void shown(const char *name, int what, int with) {
        unsigned char after[256];
        int size = cells(after);
        printf("EDGE %s %d %d ", name, what, with);
        show(before, size);
        printf(" ");
        show(after, size);
        printf("\n");
    }
};
#define BEFORE c_code { cells(before); };
#define AFTER(name, what, with) c_code { shown(name, what, with); };
#else
#define BEFORE
#define AFTER(name, what, with)
#endif

#define ADMIT(r, t) \
    :: d_step { text[r] == 0 -> BEFORE admit(r, t); check(); AFTER("admit", r, t) }
#define REGISTER(r, column) \
    :: d_step { table_len[r] > column && (column < L - 1 || T > 0) && \
        (primary[table_at[r * L + column]] == 0 || TOKENS(primary[table_at[r * L + column]] - 1) < 2 * column + 2) -> \
        BEFORE register_full(r, column); check(); AFTER("register", r, column) }
#define OF_REQUEST(r) \
    :: d_step { text[r] != 0 -> BEFORE free_request(r); check(); AFTER("free", r, 0) } \
    :: d_step { text[r] != 0 && table_len[r] < L -> BEFORE append(r); check(); AFTER("append", r, 0) } \
    :: d_step { table_len[r] == L -> BEFORE register_partial(r); check(); AFTER("partial", r, 0) } \
    ADMIT(r, 0) SECOND_TEXT(r) \
    REGISTER(r, 0) SECOND_COLUMN(r) THIRD_COLUMN(r)
#define EVICT(block) \
    :: d_step { true -> BEFORE b = block; remove_all(); check(); AFTER("evict", block, 0) }

#if T > 1
#define SECOND_TEXT(r) ADMIT(r, 1)
#else
#define SECOND_TEXT(r)
#endif
#if L > 1
#define SECOND_COLUMN(r) REGISTER(r, 1)
#else
#define SECOND_COLUMN(r)
#endif
#if L > 2
#define THIRD_COLUMN(r) REGISTER(r, 2)
#else
#define THIRD_COLUMN(r)
#endif

active proctype pool() {
    /* 3.2: blocks stand in the free queue in ascending order */
    d_step {
        i = 0;
        do
        :: i < N -> free_at[i] = i + 1; i++
        :: else -> break
        od;
        free_len = N
    };
end:
    do
    OF_REQUEST(0)
#if R > 1
    OF_REQUEST(1)
#endif
#if R > 2
    OF_REQUEST(2)
#endif
    EVICT(1)
    EVICT(2)
#if N > 2
    EVICT(3)
#endif
#if N > 3
    EVICT(4)
#endif
#if N > 4
    EVICT(5)
#endif
#if N > 5
    EVICT(6)
#endif
    :: d_step { copies > 0 -> BEFORE drain(); check(); AFTER("drain", 0, 0) }
    :: d_step { true -> BEFORE reset(); check(); AFTER("reset", 0, 0) }
    od
}
