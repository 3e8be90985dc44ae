// C++: virtual calls over a scene, a ray caster, Dijkstra with a priority queue, big integers, variants, memoized recursion.
#include "random.h"
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <queue>
#include <unordered_map>
#include <variant>
#include <vector>

struct Vector {
    double x, y, z;
    Vector operator-(const Vector &o) const { return {x - o.x, y - o.y, z - o.z}; }
    double dot(const Vector &o) const { return x * o.x + y * o.y + z * o.z; }
};

struct Shape {
    virtual ~Shape() = default;
    virtual double distance(const Vector &from, const Vector &along) const = 0; // negative: missed
};

struct Sphere : Shape {
    Vector centre;
    double radius;
    Sphere(Vector c, double r) : centre(c), radius(r) {}
    double distance(const Vector &from, const Vector &along) const override
    {
        Vector to = centre - from;
        double near = to.dot(along), square = radius * radius - (to.dot(to) - near * near);
        return square < 0 ? -1 : near - std::sqrt(square);
    }
};

struct Plane : Shape {
    double height;
    explicit Plane(double h) : height(h) {}
    double distance(const Vector &from, const Vector &along) const override { return along.y == 0 ? -1 : (height - from.y) / along.y; }
};

struct Box : Shape {
    Vector low, high;
    Box(Vector l, Vector h) : low(l), high(h) {}
    double distance(const Vector &from, const Vector &along) const override
    {
        double enter = -1e9, leave = 1e9;
        const double *l = &low.x, *h = &high.x, *f = &from.x, *a = &along.x;
        for (int axis = 0; axis < 3; axis++) {
            double one = (l[axis] - f[axis]) / a[axis], two = (h[axis] - f[axis]) / a[axis];
            enter = std::fmax(enter, std::fmin(one, two));
            leave = std::fmin(leave, std::fmax(one, two));
        }
        return enter <= leave ? enter : -1;
    }
};

static double any() { return random_word() / 4294967296.0; }

static long render()
{
    std::vector<std::unique_ptr<Shape>> scene;
    for (int i = 0; i < 24; i++) {
        Vector at{any() * 10 - 5, any() * 10 - 5, 5 + any() * 10};
        if (i % 3 == 0)
            scene.push_back(std::make_unique<Sphere>(at, 0.3 + any()));
        else if (i % 3 == 1)
            scene.push_back(std::make_unique<Box>(at, Vector{at.x + any(), at.y + any(), at.z + any()}));
        else
            scene.push_back(std::make_unique<Plane>(-5 - any()));
    }
    long sum = 0;
    for (int y = 0; y < 90; y++)
        for (int x = 0; x < 120; x++) {
            Vector along{(x - 60) / 60.0 + 1e-6, (45 - y) / 45.0 + 1e-6, 1};
            double length = std::sqrt(along.dot(along)), nearest = 1e9;
            along = {along.x / length, along.y / length, along.z / length};
            for (const auto &shape : scene) {
                double d = shape->distance({0, 0, 0}, along);
                if (d > 0 && d < nearest)
                    nearest = d;
            }
            sum += long(nearest < 1e9 ? nearest * 100 : 0);
        }
    return sum;
}

static long shortest(int nodes)
{
    struct Road {
        int to, cost;
    };
    std::vector<std::vector<Road>> roads(nodes);
    for (int i = 0; i < nodes * 5; i++)
        roads[random_word() % nodes].push_back({int(random_word() % nodes), int(1 + random_word() % 100)});
    std::vector<int> best(nodes, 1 << 30);
    std::priority_queue<std::pair<int, int>, std::vector<std::pair<int, int>>, std::greater<>> open;
    open.push({best[0] = 0, 0});
    long sum = 0;
    while (!open.empty()) {
        auto [cost, node] = open.top();
        open.pop();
        if (cost > best[node])
            continue;
        sum += cost;
        for (const Road &road : roads[node])
            if (cost + road.cost < best[road.to])
                open.push({best[road.to] = cost + road.cost, road.to});
    }
    return sum;
}

static unsigned factorial_digits(unsigned n)
{
    std::vector<uint32_t> digits{1}; // base 10^9
    for (unsigned factor = 2; factor <= n; factor++) {
        uint64_t carry = 0;
        for (uint32_t &digit : digits) {
            carry += uint64_t(digit) * factor;
            digit = uint32_t(carry % 1000000000);
            carry /= 1000000000;
        }
        if (carry)
            digits.push_back(uint32_t(carry));
    }
    return unsigned(digits.size()) + digits.back() + digits[digits.size() / 2];
}

static long tokens(int count)
{
    using Token = std::variant<long, double, char>;
    std::vector<Token> list;
    for (int i = 0; i < count; i++) {
        if (i % 3 == 0)
            list.emplace_back(long(random_word() % 100));
        else if (i % 3 == 1)
            list.emplace_back(any());
        else
            list.emplace_back("+-*"[random_word() % 3]);
    }
    double total = 0;
    for (int round = 0; round < 20; round++)
        for (const Token &token : list)
            total += std::visit([](auto value) { return double(value) * 0.5; }, token);
    return long(total);
}

static long steps(long n, std::unordered_map<long, long> &known)
{
    if (n == 1)
        return 0;
    auto found = known.find(n);
    if (found != known.end())
        return found->second;
    long result = 1 + steps(n % 2 ? 3 * n + 1 : n / 2, known);
    return known[n] = result;
}

int main()
{
    long picture = 0;
    for (int i = 0; i < 3; i++)
        picture += render();
    std::unordered_map<long, long> known;
    long longest = 0;
    for (long n = 1; n < 30000; n++)
        longest = std::max(longest, steps(n, known));
    std::printf("%ld %ld %u %ld %ld\n", picture, shortest(12000), factorial_digits(1200), tokens(30000), longest);
}
