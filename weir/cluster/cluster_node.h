// SPDX-License-Identifier: Apache-2.0
//
// The server that a Cluster is part of, as far as it needs to know it: a thread that schedules, the
// services on which limits act, and what else takes part in epochs.
//
//   ServeNode (serve_node.h)   weir serve: Targets, on the server's first loop
//   weir lustre run            drivers of Lustre servers, in their own loop
//
// order(), post() and ask() are thread-safe; everything else is called on the node's thread, or
// before it runs. Commands run on that thread, between other work, and must not block.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/coordinate/epoch.h"
#include "weir/coordinate/slice_sink.h"
#include "weir/serve/loop_component.h"

namespace weir::cluster {

class ClusterNode {
 public:
  // Called exactly once: with the time, or with the reason why the node does not run any more.
  using Command = std::function<void(const Result<Instant>& now)>;

  struct Service {
    std::string name;
    SliceSink* sink = nullptr;
  };
  // Epochs of their own, beside those of slices; servers with a course of the same name take part.
  struct Course {
    std::string name;
    Nanoseconds longest{0};  // its epochs
    std::function<void(EpochHandler& handler, Instant now)> join;
  };

  ClusterNode() = default;
  ClusterNode(const ClusterNode&) = delete;
  ClusterNode& operator=(const ClusterNode&) = delete;
  virtual ~ClusterNode() = default;

  // The same in every call.
  virtual std::vector<Service> services() = 0;
  virtual std::vector<Course> courses() = 0;
  virtual Instant now() const = 0;
  // Its wake() is called at its wakes_at(), and stopping() once. REQUIRES: the node does not run.
  virtual void set_component(serve::LoopComponent* component) = 0;
  // Accepts no clients until open_entrance(). REQUIRES: the node does not run.
  virtual void hold_entrance() = 0;
  // Accepts clients; `pace` limits the whole server to so many operations a second.
  virtual void open_entrance(std::optional<std::uint32_t> pace) = 0;

  // ECANCELED: it stops; then the command is not called.
  virtual Result<void> order(Command command) = 0;
  // The same, and EAGAIN: too many commands wait.
  virtual Result<void> post(Command command) = 0;
};

// Waits for the result of the function, which is called with the time and returns a Result. Never
// call it on the node's thread.
template <class Function>
std::invoke_result_t<Function, Instant> ask(ClusterNode& node, Function function) {
  using Answer = std::invoke_result_t<Function, Instant>;
  const auto promise = std::make_shared<std::promise<Answer>>();
  std::future<Answer> answer = promise->get_future();
  // The function is called before there is a result, so it need not be copied.
  auto ordered = node.order([promise, &function](const Result<Instant>& now) {
    promise->set_value(now ? function(*now) : Answer(tl::unexpected(now.error())));
  });
  if (!ordered) return tl::unexpected(ordered.error());
  return answer.get();
}

}  // namespace weir::cluster
