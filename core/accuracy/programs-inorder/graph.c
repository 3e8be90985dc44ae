/* Pointers and recursion: breadth-first search, union-find, queens, merge sort of a linked list, life, a binary search
 * tree.
 */
#include "random.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 60000, EDGES = 240000, LIST = 60000, SIZE = 128, KEYS = 40000 };

struct item {
    struct item *next, *left, *right;
    uint32_t key;
};

static int first[NODES + 1], to[EDGES], level[NODES], queue[NODES], parent[NODES];
static int from_of[EDGES], to_of[EDGES];
static uint8_t world[2][SIZE][SIZE];

static void make_graph(void)
{
    for (int i = 0; i < EDGES; i++) {
        from_of[i] = (int)(random_word() % NODES);
        to_of[i] = (int)(random_word() % (i % 4 ? NODES : 2000));
        first[from_of[i] + 1]++;
    }
    for (int i = 0; i < NODES; i++)
        first[i + 1] += first[i];
    static int filled[NODES];
    for (int i = 0; i < EDGES; i++)
        to[first[from_of[i]] + filled[from_of[i]]++] = to_of[i];
}

static int search(int start)
{
    int head = 0, tail = 0, deepest = 0;
    memset(level, -1, sizeof level);
    level[start] = 0;
    queue[tail++] = start;
    while (head < tail) {
        int node = queue[head++];
        deepest = level[node];
        for (int i = first[node]; i < first[node + 1]; i++)
            if (level[to[i]] < 0) {
                level[to[i]] = deepest + 1;
                queue[tail++] = to[i];
            }
    }
    return tail * 100 + deepest;
}

static int root(int node)
{
    while (parent[node] != node)
        node = parent[node] = parent[parent[node]];
    return node;
}

static int components(void)
{
    int count = NODES;
    for (int i = 0; i < NODES; i++)
        parent[i] = i;
    for (int i = 0; i < EDGES; i += 3) {
        int a = root(from_of[i]), b = root(to_of[i]);
        if (a != b) {
            parent[a] = b;
            count--;
        }
    }
    return count;
}

static int queens(int n, unsigned columns, unsigned left, unsigned right)
{
    unsigned all = (1u << n) - 1;
    if (columns == all)
        return 1;
    int found = 0;
    for (unsigned free = all & ~(columns | left | right); free; free &= free - 1) {
        unsigned place = free & -free;
        found += queens(n, columns | place, (left | place) << 1 & all, (right | place) >> 1);
    }
    return found;
}

static struct item *merge(struct item *a, struct item *b)
{
    struct item *head = NULL, **tail = &head;
    while (a && b) {
        struct item **less = a->key <= b->key ? &a : &b;
        *tail = *less;
        tail = &(*tail)->next;
        *less = *tail;
    }
    *tail = a ? a : b;
    return head;
}

static struct item *sort(struct item *list)
{
    struct item *bins[32] = {0};
    while (list) {
        struct item *carry = list;
        list = list->next;
        carry->next = NULL;
        int bin = 0;
        for (; bins[bin]; bin++) {
            carry = merge(bins[bin], carry);
            bins[bin] = NULL;
        }
        bins[bin] = carry;
    }
    for (int bin = 0; bin < 32; bin++)
        list = merge(bins[bin], list);
    return list;
}

static int generation(int from)
{
    int alive = 0;
    for (int y = 0; y < SIZE; y++)
        for (int x = 0; x < SIZE; x++) {
            int near = 0;
            for (int dy = -1; dy <= 1; dy++)
                for (int dx = -1; dx <= 1; dx++)
                    near += world[from][(y + dy) & (SIZE - 1)][(x + dx) & (SIZE - 1)];
            int self = world[from][y][x];
            alive += world[!from][y][x] = near == 3 || (self && near == 4);
        }
    return alive;
}

static void insert(struct item **tree, struct item *item)
{
    while (*tree)
        tree = item->key < (*tree)->key ? &(*tree)->left : &(*tree)->right;
    *tree = item;
}

static int height(const struct item *tree)
{
    if (!tree)
        return 0;
    int left = height(tree->left), right = height(tree->right);
    return 1 + (left > right ? left : right);
}

static uint32_t lists(void)
{
    struct item *items = calloc(LIST, sizeof *items), *list = NULL, *tree = NULL;
    uint32_t sum = 0;
    for (int i = 0; i < LIST; i++) {
        struct item *item = &items[random_word() % LIST];
        if (item->key)
            continue;
        item->key = random_word() | 1;
        item->next = list;
        list = item;
    }
    list = sort(list);
    for (struct item *item = list; item; item = item->next)
        sum = sum * 31 + item->key;
    for (int i = 0; i < KEYS; i++) {
        items[i].key = random_word();
        items[i].left = items[i].right = NULL;
        insert(&tree, &items[i]);
    }
    return sum + (uint32_t)height(tree);
}

int main(void)
{
    make_graph();
    int reached = 0, alive = 0;
    for (int i = 0; i < 4; i++)
        reached += search((int)(random_word() % NODES));
    for (int i = 0; i < SIZE * SIZE; i++)
        (&world[0][0][0])[i] = random_word() % 3 == 0;
    for (int i = 0; i < 40; i++)
        alive = generation(i & 1);
    printf("%d %d %d %u %d\n", reached, components(), queens(9, 0, 0, 0) + queens(8, 0, 0, 0), lists(), alive);
}
