// SPDX-License-Identifier: Apache-2.0
//
// The queue of changes to a server: no change takes effect before it is durable, and none is
// confirmed before it has taken effect.
//
//   wait ---> try on the loop ---> write and sync ---> apply on the loop ---> confirm
//                  |                    |                   |
//                  refused              |                   refused: its record is revoked
//                                       refused: nothing was changed
//
// One group of changes is processed at a time, so a change that was tried can be applied, and
// readers see what a restart would show. Only the cluster does not wait: it may start a rule of a
// name that was free when a change was tried. Then the change is rejected, and another record of
// the journal revokes the one that was written. All changes that wait meanwhile form the next group
// and share its sync, up to a change of policy, which is a separate group.
//
// Each applied change and each reload of the file increases a number, the generation. A request may
// expect a generation and is rejected if it has changed.
//
// Functions marked "loop" run on the server's loop, all others on the owner's thread; Host passes
// calls between the two. With a Host that calls directly there are no threads.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/control/change_request.h"
#include "weir/control/change_trial.h"
#include "weir/control/params.h"
#include "weir/serve/server.h"

namespace weir::control {

// Whether it may be for the lock service, which is asked separately and later than the server.
bool may_be_for_locks(const Change& change);

class ChangeQueue {
 public:
  static constexpr std::size_t kWaitingMax = 10'000;  // requests
  static constexpr std::size_t kGroupMax = 1024;      // changes with one sync

  enum class Journalling : std::uint8_t { kNone, kFirst };

  struct Host {
    // Runs the first function on the loop and the second one here, with an error if the loop
    // is closed.
    std::function<void(std::function<void(serve::Server&)> on_loop,
                       std::function<void(const Result<void>&)> then)>
        ask;
    // Makes all records durable, or none.
    std::function<void(const std::vector<std::string>& records,
                       std::function<void(const Result<void>&)> then)>
        write;
    std::function<Params()> locks;
  };

  struct Answer {
    bool is_stale = false;  // nothing was done: the generation is not the expected one
    std::vector<ParamOutcome> outcomes = {};
    std::uint64_t number = 0;
    std::string generation = {};  // name of the generation
  };
  using Done = std::function<void(const Result<Answer>&)>;

  // Generations are named BOOT-NUMBER.
  ChangeQueue(Host host, std::string boot) : host_(std::move(host)), boot_(std::move(boot)) {}

  // `done` is called exactly once. EAGAIN: too many changes wait.
  void add(ChangeRequest request, std::string expected, Journalling journalling, const Done& done);

  // Loop: makes a change from another source. At once, or after the group in progress.
  void change_elsewhere(const std::function<void()>& change);
  // Loop.
  std::uint64_t generation() const { return generation_; }
  std::string name_of(std::uint64_t generation) const;

 private:
  // A request; its changes may be in several groups.
  struct Waiting {
    ChangeRequest request;
    std::string expected;
    Journalling journalling = Journalling::kNone;
    Done done;
    Params locks = {};
    std::vector<bool> is_for_locks = {};  // of each change
    std::size_t next = 0;                 // change
    Answer answer = {};
  };
  struct Item {
    std::shared_ptr<Waiting> of;
    ChangeItem item;
    bool is_first = false;  // first change of its request
    Tried tried = {};
    bool is_refused = false;
    bool has_failed = false;  // was written, but could not be applied
    std::string before = {};  // the state that it concerns, for the audit log
    std::string after = {};

    bool is_off() const { return is_refused || of->answer.is_stale; }
  };
  struct Group {
    std::vector<Item> items;
    std::vector<ParamOutcome> locks_before = {};  // values of lock parameters before the change
    std::uint64_t generation = 0;
  };
  using GroupPtr = std::shared_ptr<Group>;

  void start_next();
  GroupPtr take_group() const;
  void try_group(serve::Server& server, Group& group);  // loop
  void set_locks(Group& group) const;
  void write_group(const GroupPtr& group);
  void refuse_unwritten(Group& group, const Error& error) const;
  void carry_out_group(const GroupPtr& group);
  void take_back(const GroupPtr& group);
  void finish_group(Group& group);
  void note(const Item& one, std::uint64_t generation) const;
  void give_up(const Error& error);

  Host host_;
  std::string boot_;
  std::deque<std::shared_ptr<Waiting>> waiting_;  // the first ones are in the group
  bool is_busy_ = false;

  std::uint64_t generation_ = 1;                     // loop
  bool is_unsettled_ = false;                        // loop: tried, and not applied yet
  std::vector<std::function<void()>> when_settled_;  // loop
};

}  // namespace weir::control
