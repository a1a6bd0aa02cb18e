// SPDX-License-Identifier: Apache-2.0
//
// The console of a LockServer that lives in the caller's own thread: nothing has to be carried
// anywhere. For tests, and for whoever drives a lock service in one thread.
//
//   LocalConsole console("locks", server);
//   server.tick(now);
//   console.set_now(now);
//   console.view()                  what there is at `now`
//
// One thread. The server outlives it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weir/lock/view.h"

namespace weir::lock {

class LocalConsole final : public Console {
 public:
  LocalConsole(std::string name, LockServer& server) : name_(std::move(name)), server_(server) {}

  void set_now(Instant now) { now_ = now; }

  std::vector<NamespaceView> view() override { return {look(server_, name_, now_)}; }
  Result<LockList> list(std::string_view name, const ListOptions& options) override {
    if (name != name_) return no_such(name);
    return list_locks(server_, options);
  }
  Result<void> set(std::string_view name, Tunable tunable, std::int64_t value) override {
    if (name != name_) return no_such(name);
    return turn(server_, tunable, value);
  }

 private:
  static tl::unexpected<Error> no_such(std::string_view name) {
    return fail(std::errc::no_such_file_or_directory, name, "is no namespace of locks");
  }

  std::string name_;
  LockServer& server_;
  Instant now_{};
};

}  // namespace weir::lock
