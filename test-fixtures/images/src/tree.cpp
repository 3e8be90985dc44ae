// C++ with templates and nested inlined calls.
namespace trees {
template <typename T> struct Node {
    T key;
    Node *left, *right;
    const Node *next(const T &k) const { return k < key ? left : right; }
    bool is(const T &k) const { return !(k < key) && !(key < k); }
};

template <typename T> __attribute__((noinline)) const Node<T> *find(const Node<T> *node, const T &key) {
    while (node && !node->is(key))
        node = node->next(key);
    return node;
}
} // namespace trees

extern "C" int lookup(const trees::Node<long> *root, long a, long b) {
    return trees::find(root, a) != nullptr && trees::find(root, b) != nullptr;
}
