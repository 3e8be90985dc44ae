// SLEEPY's benchmark `btree` (section 3.1): three million iterations, of which a fifth insert a random key into a B-tree and the others
// look one up. Look-ups are a loop, insertions are recursive, and nodes do not point to their parents. The functions are those
// of the paper's Figure 8; as there, random numbers come from the C library.
#include "workload.h"
#pragma GCC optimize("O0") // The paper's listings show code that was not optimized.

enum { KEYS_MAX = 31, KEYS = 1 << 24 };

struct node {
  int count; // Keys in use.
  int keys[KEYS_MAX];
  struct node *children[KEYS_MAX + 1]; // All NULL in a leaf.
};

static struct node *new_node(void) {
  struct node *node = calloc(1, sizeof *node);
  if (!node) exit(1);
  return node;
}

// Returns the number of keys that are smaller.
static int find_index(const struct node *node, int key) {
  int index = 0;
  while (index < node->count && node->keys[index] < key) {
    index++; // HOT
  }
  return index;
}

static int lookup(const struct node *node, int key) {
  while (node) {
    int index = find_index(node, key);
    if (index < node->count && node->keys[index] == key) return 1;
    node = node->children[index];
  }
  return 0;
}

static struct node *find_child(const struct node *node, int key) {
  return node->children[find_index(node, key)];
}

// Returns the key that moves to the parent when a node is split.
static int get_parent_key(const struct node *node) {
  return node->keys[KEYS_MAX / 2];
}

// Moves the upper half of a full node, without the key for the parent, to a new node.
static struct node *split(struct node *node) {
  struct node *right = new_node();
  int from = KEYS_MAX / 2 + 1;
  right->count = KEYS_MAX - from;
  for (int i = 0; i < right->count; i++) right->keys[i] = node->keys[from + i];
  for (int i = 0; i <= right->count; i++) right->children[i] = node->children[from + i];
  node->count = KEYS_MAX / 2;
  return right;
}

static void put(struct node *node, int index, int key, struct node *right) {
  for (int i = node->count; i > index; i--) {
    node->keys[i] = node->keys[i - 1];
    node->children[i + 1] = node->children[i];
  }
  node->keys[index] = key;
  node->children[index + 1] = right;
  node->count++;
}

// Inserts a key below a node that is not full.
static void insert_below(struct node *node, int key) {
  int index = find_index(node, key);
  if (index < node->count && node->keys[index] == key) return;
  struct node *child = find_child(node, key);
  if (!child) {
    put(node, index, key, NULL);
    return;
  }
  if (child->count == KEYS_MAX) {
    int parent_key = get_parent_key(child);
    put(node, index, parent_key, split(child));
    if (key == parent_key) return;
    child = find_child(node, key);
  }
  insert_below(child, key);
}

static struct node *insert(struct node *root, int key) {
  if (root->count == KEYS_MAX) {
    struct node *above = new_node();
    above->children[0] = root;
    put(above, 0, get_parent_key(root), split(root));
    root = above;
  }
  insert_below(root, key);
  return root;
}

int main(int argc, char **argv) {
  uint64_t iterations = repetitions(argc, argv, 3000000), found = 0;
  struct node *root = new_node();
  for (uint64_t i = 0; i < iterations; i++) {
    int key = rand() % KEYS;
    if (rand() % 5 == 0) {
      root = insert(root, key);
    } else {
      found += lookup(root, key);
    }
  }
  printf("btree %lu\n", found);
}
