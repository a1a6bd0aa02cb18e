// SPDX-License-Identifier: Apache-2.0
//
// The persistent state of a lock server: the number of starts, which fences depend on; whether the
// last server shut down normally with no lock granted, which saves the grace period; and the key of
// session secrets, so that clients can prove their identity after a restart.
//
//   weir lock state 2
//   incarnation 7          number of the last start
//   clean 0                1: no lock was held at the shutdown
//   key 8d1f...            32 bytes; only the owner may read the file
//
// FILE.copy is a copy, written before the file. Both are always written completely
// (host::StateFile). A file that is missing while its copy exists, is empty or truncated, or was
// not written by a server, is damaged; it is rejected with the command that repairs it, because a
// server that starts counting again would issue fences that storage has already seen. Of two intact
// files the larger number is used.
//
// In a cluster the number is the last term that this server has seen, or larger.
//
// Two more forms are accepted: "incarnation 7\nclean 0\n", which earlier servers wrote, and
// "incarnation 7 by hand\n", for an administrator who has lost both files. Neither has a secret
// key: a new one is created, and clients that held locks lose them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weir/base/result.h"
#include "weir/host/secret.h"
#include "weir/host/state_file.h"

namespace weir::cluster {

struct LockState {
  std::uint64_t incarnation = 0;
  bool is_clean = true;
  std::optional<host::Key> key = {};

  bool operator==(const LockState&) const = default;
};

// EINVAL: not one of the three forms. No proper prefix of a form is a valid form.
Result<LockState> parse_lock_state(std::string_view text);
// REQUIRES: a key.
std::string print_lock_state(const LockState& state);

// 64 hexadecimal digits.
std::string print_key(const host::Key& key);
// None: not a key.
std::optional<host::Key> parse_key(std::string_view text);

// The file and its copy, open as long as the server runs. One owner.
class LockStateFile {
 public:
  // Records a start: takes the next number and saves it before it returns. EBUSY: another server
  // uses the file. EINVAL: it is damaged; the hint is the command that repairs it.
  static Result<LockStateFile> begin(const std::string& path);

  std::uint64_t incarnation() const { return state_.incarnation; }
  const host::Key& key() const { return *state_.key; }
  // The previous server shut down normally, or there was none.
  bool was_clean() const { return was_clean_; }

  // Records the term of the active server of a cluster (weir/lock/term.h) and the key of all
  // servers: if etcd loses its data, the next term is larger anyway. Writes only what is new.
  Result<void> follow(std::uint64_t term, const host::Key& key);

  // Records a normal shutdown. If this cannot be written, the next server uses its grace period,
  // which is always safe.
  void leave();

 private:
  LockStateFile(host::StateFile file, host::StateFile copy, LockState state, bool was_clean)
      : file_(std::move(file)), copy_(std::move(copy)), state_(state), was_clean_(was_clean) {}

  Result<void> write();

  host::StateFile file_;
  host::StateFile copy_;
  LockState state_;
  bool was_clean_;
};

}  // namespace weir::cluster
