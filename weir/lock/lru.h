// SPDX-License-Identifier: Apache-2.0
//
// The client's side of lock volume: the cache of unused locks, in the order of their last use. A
// lock's own volume is
//
//   CLV = F * locks in the cache * seconds since its last use
//
// and while that of the oldest exceeds the published volume it is dropped, in batches:
//
//   put() -> [ newest ... ... oldest ] -> excess()        take() out of the middle: used again
//
// A client with rate r and a volume V holds about sqrt(r * V) locks: each stays for V / size
// seconds, in which r * V / size others arrive. Example: V = 10,000 and one new lock a second give
// 100 locks, each kept for 100 s; four a second give 200 locks for 50 s.
//
// A volume of 0 means unknown and drops nothing. A server without this feature publishes none: then
// the cache has a fixed size. Locks older than max_age are always dropped. While paused (the
// connection is down, or the server recovers) nothing is dropped.
//
// The volume is as old as the last message. After D = L / size * C seconds without one the client
// asks with an empty message: rarely from a small cache, which matters little to the server, and
// each second from one that holds a tenth of all locks or more.
//
// Intrusive: a lock contains an LruHook; nothing is allocated. One owner; time is an argument.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "weir/base/time.h"

namespace weir::lock {

struct LruOptions {
  std::uint64_t factor_percent = 100;    // F: 50 keeps more, 150 keeps less
  std::uint64_t refresh_permille = 100;  // C
  std::size_t fixed_size = 0;            // 0: the volume decides
  std::size_t fallback_size = 400;       // fixed size for servers that publish no volume
  Nanoseconds max_age = std::chrono::seconds{3900};
  Nanoseconds check_every = std::chrono::seconds{1};
  std::uint64_t pressure_percent = 30;  // dropped when memory is short and no number is given
};

class LruHook : public boost::intrusive::list_base_hook<> {
 public:
  Instant last_used() const { return last_used_; }

 private:
  friend class Lru;
  Instant last_used_{};
};

class Lru {
 public:
  enum class Why : std::uint8_t { kVolume, kAge, kSize, kShrink };

  explicit Lru(const LruOptions& options) : options_(options) {}
  Lru(const Lru&) = delete;
  Lru& operator=(const Lru&) = delete;
  ~Lru() { locks_.clear(); }

  // The lock is no longer in use; and: it is in use again, or was removed.
  void put(LruHook& lock, Instant now);
  void take(LruHook& lock) { locks_.erase(locks_.iterator_to(lock)); }
  void clear() { locks_.clear(); }

  std::size_t size() const { return locks_.size(); }
  // CLV of the oldest, rounded down; 0 for an empty cache.
  std::uint64_t oldest_volume(Instant now) const;

  // From a message. Volume 0: unknown.
  void hear(std::uint64_t volume, std::int64_t limit, Instant now);
  // The server does not support the volume: the cache has a fixed size from now on.
  void fall_back();
  // Settings of the server's administrator for all caches: a fixed size, and a maximum age of
  // locks; 0 for none. The client's own options take precedence, or the stricter value applies.
  void advise(std::size_t fixed_size, Nanoseconds max_age, Instant now);
  void pause() { is_paused_ = true; }
  void resume() { is_paused_ = false; }
  bool is_paused() const { return is_paused_; }
  bool has_fixed_size() const { return fixed_size() != 0; }

  struct Excess {
    LruHook* lock = nullptr;
    Why why = Why::kVolume;
  };
  // Removes and returns the oldest lock if it must be dropped.
  Excess excess(Instant now);
  // Removes and returns the oldest lock, for shrink(); nullptr if the cache is empty.
  LruHook* oldest();
  // How many locks to drop when memory is short and no number is given: the fraction in
  // the options.
  std::size_t pressure_count() const;

  // When to check again for locks to drop: kNever if there is nothing to check.
  Instant next_check() const;
  void checked(Instant now) { next_check_ = now + options_.check_every; }
  // When the volume is too old and must be requested: kNever for an empty cache.
  Instant refresh_at() const;

  const LruOptions& options() const { return options_; }
  void set_options(const LruOptions& options) { options_ = options; }

 private:
  std::size_t fixed_size() const;
  Nanoseconds max_age() const;

  LruOptions options_;
  boost::intrusive::list<LruHook> locks_;  // the oldest is first
  std::uint64_t volume_ = 0;
  std::int64_t limit_ = 0;
  std::size_t advised_size_ = 0;
  Nanoseconds advised_age_{0};
  Instant heard_at_{};
  Instant next_check_{};
  bool knows_no_volume_ = false;
  bool is_paused_ = false;
};

// Divides `nr` drops over namespaces by the size of their caches; none gives more than it has.
std::vector<std::size_t> shrink_shares(std::span<const std::size_t> sizes, std::size_t nr);

}  // namespace weir::lock
