// SPDX-License-Identifier: Apache-2.0
//
// Compares the table with a simple model: one list of locks in order of arrival and one of
// conversions, both searched from the front each time.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/lock/lock_table.h"

namespace weir::lock {
namespace {

using State = LockTable::State;
using Outcome = LockTable::Converted::Outcome;

struct ModelLock {
  std::uint64_t cookie;
  LockTable::Session session;
  std::string name;
  Mode mode;
  State state;
  std::optional<Mode> wanted = std::nullopt;  // while it waits to be converted
  std::uint64_t turn = 0;                     // order of conversions
};

// The modes that may be held together, written as sentences rather than as a table.
bool excludes(Mode a, Mode b) {
  if (a == Mode::kNull || b == Mode::kNull) return false;
  if (a == Mode::kExclusive || b == Mode::kExclusive) return true;
  if (a == Mode::kConcurrentRead || b == Mode::kConcurrentRead) return false;
  return a != b || a == Mode::kProtectedWrite;  // two writers, or two readers
}

// What is broken on purpose.
enum class Fault { kNone, kReadersPass, kConversionsAreForgotten };

struct Model {
  std::vector<ModelLock> locks;  // in order of arrival
  std::map<std::uint64_t, std::pair<std::string, Mode>> watches;
  std::size_t room = SIZE_MAX;
  Fault fault = Fault::kNone;
  std::uint64_t turns = 0;

  std::size_t inside() const {
    return static_cast<std::size_t>(std::count_if(
        locks.begin(), locks.end(), [](const auto& lock) { return lock.state != State::kParked; }));
  }
  bool is_free(const std::string& name, Mode mode, const ModelLock* except) const {
    return std::none_of(locks.begin(), locks.end(), [&](const ModelLock& other) {
      return &other != except && other.name == name && other.state == State::kGranted &&
             excludes(other.mode, mode);
    });
  }
  bool has_line(const std::string& name) const {
    return std::any_of(locks.begin(), locks.end(), [&](const ModelLock& other) {
      return other.name == name && (other.state == State::kWaiting || other.wanted);
    });
  }
  bool can_grant(std::size_t at) const {
    for (std::size_t i = 0; i < locks.size(); ++i) {
      const ModelLock& other = locks[i];
      if (i == at || other.name != locks[at].name) continue;
      if (other.wanted && fault != Fault::kConversionsAreForgotten) return false;
      if (other.state == State::kWaiting && i < at && fault != Fault::kReadersPass) return false;
    }
    return is_free(locks[at].name, locks[at].mode, nullptr);
  }
  // Whether the first waits for the second because of its mode; and: because it came first.
  static bool is_blocked_by(const ModelLock& one, const ModelLock& other) {
    return &one != &other && one.name == other.name && other.state == State::kGranted &&
           excludes(*one.wanted, other.mode);
  }
  static bool is_behind(const ModelLock& one, const ModelLock& other) {
    return other.wanted && one.name == other.name && other.turn < one.turn &&
           !is_blocked_by(other, one);
  }
  bool can_convert(const ModelLock& lock) const {
    return room > 0 && is_free(lock.name, *lock.wanted, &lock) &&
           std::none_of(locks.begin(), locks.end(),
                        [&](const ModelLock& other) { return is_behind(lock, other); });
  }
  // Whether the conversion would wait for itself: follows all ways.
  bool is_in_circle(const ModelLock& lock) const {
    std::set<const ModelLock*> reached;
    std::vector<const ModelLock*> todo{&lock};
    while (!todo.empty()) {
      const ModelLock* const one = todo.back();
      todo.pop_back();
      for (const ModelLock& other : locks) {
        if (!other.wanted || !(is_blocked_by(*one, other) || is_behind(*one, other))) continue;
        if (&other == &lock) return true;
        if (reached.insert(&other).second) todo.push_back(&other);
      }
    }
    return false;
  }
  bool convert_one() {
    ModelLock* first = nullptr;
    for (ModelLock& lock : locks) {
      if (lock.wanted && can_convert(lock) && (first == nullptr || lock.turn < first->turn)) {
        first = &lock;
      }
    }
    if (first == nullptr) return false;
    first->mode = *std::exchange(first->wanted, std::nullopt);
    return true;
  }
  bool grant_one() {
    for (std::size_t i = 0; i < locks.size(); ++i) {
      if (locks[i].state != State::kWaiting || !can_grant(i)) continue;
      locks[i].state = State::kGranted;
      return true;
    }
    return false;
  }
  bool admit_one() {
    for (ModelLock& lock : locks) {
      if (lock.state != State::kParked) continue;
      if (inside() >= room) return false;
      lock.state = State::kWaiting;
      return true;
    }
    return false;
  }
  void settle() {
    while (convert_one() || grant_one() || admit_one()) {
    }
  }
  std::set<std::uint64_t> take_free() {
    std::set<std::uint64_t> free;
    std::erase_if(watches, [&](const auto& each) {
      const auto& [name, mode] = each.second;
      if (has_line(name) || !is_free(name, mode, nullptr)) return false;
      free.insert(each.first);
      return true;
    });
    return free;
  }
};

class Twins {
 public:
  explicit Twins(Fault fault) { model_.fault = fault; }

  void open() { sessions_.push_back(table_.open()); }
  void enqueue() {
    const auto session = *rc::gen::elementOf(sessions_);
    const std::string name(1, *rc::gen::element('a', 'b'));
    const Mode mode = *rc::gen::elementOf(kAllModes);
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
  bool convert() {
    if (model_.locks.empty()) return true;
    ModelLock& lock =
        *(model_.locks.begin() + *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(model_.locks)));
    const Mode mode = *rc::gen::elementOf(kAllModes);
    const bool is_try = *rc::gen::inRange(0, 4) == 0;
    const auto done = table_.convert(lock.session, handles_[lock.cookie], mode,
                                     is_try ? LockTable::OrWait::kTry : LockTable::OrWait::kWait);
    if (lock.state != State::kGranted) return done.outcome == Outcome::kUnknown;
    lock.wanted = mode;
    lock.turn = ++model_.turns;
    const bool is_down = std::none_of(kAllModes.begin(), kAllModes.end(), [&](Mode other) {
      return excludes(mode, other) && !excludes(lock.mode, other);
    });
    Outcome expected = Outcome::kWaits;
    if (is_down || model_.can_convert(lock)) {
      expected = Outcome::kDone;
      lock.mode = mode;
    } else if (is_try) {
      expected = Outcome::kWouldWait;
    } else if (model_.is_in_circle(lock)) {
      expected = Outcome::kDeadlock;
    }
    if (expected != Outcome::kWaits) lock.wanted.reset();
    return done.outcome == expected && is_a_circle(done.cycle, lock.session, expected);
  }
  bool watch() {
    const auto session = *rc::gen::elementOf(sessions_);
    const std::string name(1, *rc::gen::element('a', 'b'));
    const Mode mode = *rc::gen::elementOf(kAllModes);
    const std::uint64_t cookie = ++cookies_;
    const bool is_free = table_.watch(session, cookie, name, mode);
    watchers_[cookie] = session;
    if (!is_free) model_.watches[cookie] = {name, mode};
    return is_free == (!model_.has_line(name) && model_.is_free(name, mode, nullptr));
  }
  void unwatch() {
    if (model_.watches.empty()) return;
    const std::uint64_t cookie = model_.watches.begin()->first;
    RC_ASSERT(table_.unwatch(watchers_[cookie], cookie));
    model_.watches.erase(cookie);
  }
  void close() {
    const auto session = *rc::gen::elementOf(sessions_);
    table_.close(session);
    std::erase(sessions_, session);
    std::erase_if(model_.locks, [&](const ModelLock& lock) { return lock.session == session; });
    std::erase_if(model_.watches,
                  [&](const auto& each) { return watchers_[each.first] == session; });
  }
  void room() {
    model_.room = *rc::gen::element<std::size_t>(0, 3, 6, SIZE_MAX);
    table_.set_room(model_.room);
  }
  bool agree() {
    model_.settle();
    for (const auto& event : table_.events()) {
      if (event.kind == LockTable::Event::Kind::kFree) told_.insert(event.cookie);
    }
    table_.events().clear();
    // A resource can be free for a moment within a call: those watches were told, too.
    for (const std::uint64_t cookie : model_.take_free()) {
      if (!told_.contains(cookie)) return false;
    }
    std::erase_if(model_.watches, [&](const auto& each) { return told_.contains(each.first); });
    if (table_.watches() != model_.watches.size() || !table_.is_valid()) return false;
    std::size_t converting = 0;
    for (const ModelLock& lock : model_.locks) converting += lock.wanted ? 1 : 0;
    return table_.converting() == converting && modes() == model_modes();
  }
  bool has_sessions() const { return !sessions_.empty(); }

 private:
  using Modes = std::multiset<std::tuple<std::string, LockTable::Session, Mode, State, Mode>>;

  Modes modes() const {
    Modes found;
    table_.visit(0, UINT32_MAX, [&](const LockTable::Seen& seen) {
      found.emplace(std::string(seen.name), seen.session, seen.mode, seen.state, seen.wanted);
    });
    return found;
  }
  Modes model_modes() const {
    Modes found;
    for (const ModelLock& lock : model_.locks) {
      if (table_.state(handles_.at(lock.cookie)) != lock.state) return {};
      found.emplace(lock.name, lock.session, lock.mode, lock.state,
                    lock.wanted.value_or(lock.mode));
    }
    return found;
  }
  // Each step waits for the next, and the last for the first, which is the refused one.
  static bool is_a_circle(const std::vector<LockTable::Step>& cycle, LockTable::Session refused,
                          Outcome outcome) {
    if (outcome != Outcome::kDeadlock) return cycle.empty();
    return cycle.size() >= 2 && cycle.front().session == refused &&
           excludes(cycle.back().wanted, cycle.front().held);
  }

  LockTable table_{1};
  Model model_;
  std::vector<LockTable::Session> sessions_;
  std::map<std::uint64_t, LockTable::Handle> handles_;
  std::map<std::uint64_t, LockTable::Session> watchers_;
  std::set<std::uint64_t> told_;
  std::uint64_t cookies_ = 0;
};

bool agrees_for(int steps, Fault fault) {
  Twins twins(fault);
  for (int i = 0; i < steps; ++i) {
    const int what = *rc::gen::inRange(0, 30);
    if (!twins.has_sessions() || what == 0) {
      twins.open();
    } else if (what < 11) {
      twins.enqueue();
    } else if (what < 16) {
      twins.cancel();
    } else if (what < 25) {
      if (!twins.convert()) return false;
    } else if (what < 27) {
      if (!twins.watch()) return false;
    } else if (what == 27) {
      twins.unwatch();
    } else if (what == 28) {
      twins.room();
    } else {
      twins.close();
    }
    if (!twins.agree()) return false;
  }
  return true;
}

RC_GTEST_PROP(LockTableProperty, DoesWhatALookThroughAllLocksWouldDo, ()) {
  RC_ASSERT(agrees_for(60, Fault::kNone));
}

TEST(LockTableProperty, TheModelBites) {
  EXPECT_FALSE(rc::check([] { RC_ASSERT(agrees_for(60, Fault::kReadersPass)); }));
  EXPECT_FALSE(rc::check([] { RC_ASSERT(agrees_for(60, Fault::kConversionsAreForgotten)); }));
}

}  // namespace
}  // namespace weir::lock
