// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "weir/base/heap.h"
#include "weir/base/rng.h"

namespace weir {
namespace {

// About as large as a real node, so that accessing it has a realistic cost.
struct Node {
  HeapHook hook;
  std::uint64_t rest[7] = {};
};
using NodeHeap = Heap<Node, std::uint64_t, &Node::hook>;

// Random steps drawn beforehand, so many that a branch predictor cannot learn their order.
class Steps {
 public:
  explicit Steps(std::uint64_t seed) : steps_(std::size_t{1} << 16) {
    Rng rng(seed);
    for (std::uint64_t& step : steps_) step = 1 + rng.below(1000);
  }
  std::uint64_t next() { return steps_[turn_++ % steps_.size()]; }

 private:
  std::vector<std::uint64_t> steps_;
  std::size_t turn_ = 0;
};

void fill(NodeHeap& heap, std::vector<Node>& nodes, Steps& steps) {
  heap.reserve(nodes.size());
  for (Node& node : nodes) heap.push(node, steps.next());
}

// Changes the key of the top as a scheduler does: to the smallest key plus the cost of a request.
void BM_HeapReplaceTop(benchmark::State& state) {
  std::vector<Node> nodes(static_cast<std::size_t>(state.range(0)));
  NodeHeap heap;
  Steps steps(1);
  fill(heap, nodes, steps);
  for (auto _ : state) heap.replace_top(heap.top_key() + steps.next());
}
BENCHMARK(BM_HeapReplaceTop)->Arg(10)->Arg(1000)->Arg(100000);

// Removes and inserts a node, like a queue that becomes empty and fills again.
void BM_HeapPopPush(benchmark::State& state) {
  std::vector<Node> nodes(static_cast<std::size_t>(state.range(0)));
  NodeHeap heap;
  Steps steps(2);
  fill(heap, nodes, steps);
  for (auto _ : state) {
    const std::uint64_t key = heap.top_key();
    heap.push(heap.pop(), key + steps.next());
  }
}
BENCHMARK(BM_HeapPopPush)->Arg(10)->Arg(1000)->Arg(100000);

// A change of rate changes the key of a class in the middle of the heap.
void BM_HeapUpdate(benchmark::State& state) {
  std::vector<Node> nodes(static_cast<std::size_t>(state.range(0)));
  NodeHeap heap;
  Steps steps(3);
  fill(heap, nodes, steps);
  Rng rng(4);
  for (auto _ : state) heap.update(nodes[rng.below(nodes.size())], steps.next());
}
BENCHMARK(BM_HeapUpdate)->Arg(10)->Arg(1000)->Arg(100000);

}  // namespace
}  // namespace weir
