// SPDX-License-Identifier: Apache-2.0
//
// Compares the table with a simple model: one list of locks in order of arrival, searched from the
// front each time.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/lock/lock_table.h"

namespace weir::lock {
namespace {

using State = LockTable::State;

struct ModelLock {
  std::uint64_t cookie;
  LockTable::Session session;
  std::string name;
  Mode mode;
  State state;
};

// `is_unfair` breaks it on purpose: readers pass waiting writers.
struct Model {
  std::vector<ModelLock> locks;  // in order of arrival
  std::size_t room = SIZE_MAX;
  bool is_unfair = false;

  std::size_t inside() const {
    return static_cast<std::size_t>(std::count_if(
        locks.begin(), locks.end(), [](const auto& lock) { return lock.state != State::kParked; }));
  }
  bool can_grant(std::size_t at) const {
    for (std::size_t i = 0; i < locks.size(); ++i) {
      const ModelLock& other = locks[i];
      if (i == at || other.name != locks[at].name || other.state == State::kParked) continue;
      const bool is_ahead = other.state == State::kWaiting && i < at && !is_unfair;
      const bool holds = other.state == State::kGranted && conflict(other.mode, locks[at].mode);
      if (is_ahead || holds) return false;
    }
    return true;
  }
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = 0; i < locks.size() && !moved; ++i) {
        if (locks[i].state == State::kWaiting && can_grant(i)) {
          locks[i].state = State::kGranted;
          moved = true;
        }
      }
      for (std::size_t i = 0; i < locks.size() && !moved; ++i) {
        if (locks[i].state != State::kParked) continue;
        if (inside() >= room) break;
        locks[i].state = State::kWaiting;
        moved = true;
      }
    }
  }
};

class Twins {
 public:
  explicit Twins(bool is_unfair) { model_.is_unfair = is_unfair; }

  void open() { sessions_.push_back(table_.open()); }
  void enqueue() {
    const auto session = *rc::gen::elementOf(sessions_);
    const std::string name(1, *rc::gen::element('a', 'b', 'c'));
    const Mode mode = *rc::gen::weightedElement<Mode>({{2, Mode::kShared}, {1, Mode::kExclusive}});
    const std::uint64_t cookie = ++cookies_;
    handles_[cookie] = table_.enqueue(session, cookie, name, mode, LockTable::OrWait::kWait).handle;
    model_.locks.push_back({cookie, session, name, mode, State::kParked});
  }
  void cancel() {
    if (model_.locks.empty()) return;
    const auto at = *rc::gen::inRange<std::size_t>(0, model_.locks.size());
    const ModelLock lock = model_.locks[at];
    table_.cancel(lock.session, handles_[lock.cookie]);
    model_.locks.erase(model_.locks.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void close() {
    const auto session = *rc::gen::elementOf(sessions_);
    table_.close(session);
    std::erase(sessions_, session);
    std::erase_if(model_.locks, [&](const ModelLock& lock) { return lock.session == session; });
  }
  void room() {
    model_.room = *rc::gen::element<std::size_t>(0, 3, 6, SIZE_MAX);
    table_.set_room(model_.room);
  }
  bool agree() {
    table_.events().clear();
    model_.settle();
    if (!table_.is_valid()) return false;
    return std::all_of(model_.locks.begin(), model_.locks.end(), [&](const ModelLock& lock) {
      return table_.state(handles_[lock.cookie]) == lock.state;
    });
  }
  bool has_sessions() const { return !sessions_.empty(); }

 private:
  LockTable table_{1};
  Model model_;
  std::vector<LockTable::Session> sessions_;
  std::map<std::uint64_t, LockTable::Handle> handles_;
  std::uint64_t cookies_ = 0;
};

bool agrees_for(int steps, bool is_unfair) {
  Twins twins(is_unfair);
  for (int i = 0; i < steps; ++i) {
    const int what = *rc::gen::inRange(0, 20);
    if (!twins.has_sessions() || what == 0) {
      twins.open();
    } else if (what < 11) {
      twins.enqueue();
    } else if (what < 18) {
      twins.cancel();
    } else if (what == 18) {
      twins.room();
    } else {
      twins.close();
    }
    if (!twins.agree()) return false;
  }
  return true;
}

RC_GTEST_PROP(LockTableProperty, DoesWhatALookThroughAllLocksWouldDo, ()) {
  RC_ASSERT(agrees_for(60, false));
}

TEST(LockTableProperty, TheModelBites) {
  EXPECT_FALSE(rc::check([] { RC_ASSERT(agrees_for(60, true)); }));
}

}  // namespace
}  // namespace weir::lock
