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
// A client with rate r and a volume V holds about sqrt(r * V) locks: each stays V / size seconds,
// in which r * V / size others came. Worked: V 10,000, one new lock a second -> 100 locks, each
// kept for 100 s; four a second -> 200 locks for 50 s.
//
// A volume of 0 means unknown and drops nothing. A server without this feature publishes none: then
// the cache has a fixed size. Locks older than max_age are dropped in any case. While paused (the
// connection is down, or the server recovers) nothing is dropped.
//
// The volume is only as fresh as the last message. After D = L / size * C seconds without one the
// client asks with an empty message: rarely from a small cache, which matters little to the server,
// and each second from one that holds a tenth of all locks or more.
//
// Intrusive: a lock carries an LruHook; nothing is allocated. One owner; time is given.
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
  std::uint64_t pressure_percent = 30;  // dropped when memory is short and nobody says how much
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

  // Nobody uses the lock any more; and: somebody does again, or it is gone.
  void put(LruHook& lock, Instant now);
  void take(LruHook& lock) { locks_.erase(locks_.iterator_to(lock)); }
  void clear() { locks_.clear(); }

  std::size_t size() const { return locks_.size(); }
  // CLV of the oldest, rounded down; 0 for an empty cache.
  std::uint64_t oldest_volume(Instant now) const;

  // A message said so. Volume 0: unknown.
  void hear(std::uint64_t volume, std::int64_t limit, Instant now);
  // The server knows no volume: the cache has a fixed size from now on.
  void fall_back();
  // The server's administrator says so of all caches: a fixed size, and an age that no lock shall
  // exceed; 0 for none. What the options say themselves comes first, or is stricter.
  void advise(std::size_t fixed_size, Nanoseconds max_age, Instant now);
  void pause() { is_paused_ = true; }
  void resume() { is_paused_ = false; }
  bool is_paused() const { return is_paused_; }
  bool has_fixed_size() const { return fixed_size() != 0; }

  struct Excess {
    LruHook* lock = nullptr;
    Why why = Why::kVolume;
  };
  // Takes out the oldest if it has to go, else gives none.
  Excess excess(Instant now);
  // Takes out the oldest whatever it is, for shrink(); none of an empty cache.
  LruHook* oldest();
  // How many to drop when memory is short and nobody says how many: the share of the options.
  std::size_t pressure_count() const;

  // When to look again at what has to go: kNever while nothing is kept.
  Instant next_check() const;
  void checked(Instant now) { next_check_ = now + options_.check_every; }
  // When the volume is too old and has to be asked for: kNever for an empty cache.
  Instant refresh_at() const;

  const LruOptions& options() const { return options_; }
  void set_options(const LruOptions& options) { options_ = options; }

 private:
  std::size_t fixed_size() const;
  Nanoseconds max_age() const;

  LruOptions options_;
  boost::intrusive::list<LruHook> locks_;  // the oldest in front
  std::uint64_t volume_ = 0;
  std::int64_t limit_ = 0;
  std::size_t advised_size_ = 0;
  Nanoseconds advised_age_{0};
  Instant heard_at_{};
  Instant next_check_{};
  bool knows_no_volume_ = false;
  bool is_paused_ = false;
};

// Shares `nr` drops out over namespaces by the size of their caches; nobody gives more than it has.
std::vector<std::size_t> shrink_shares(std::span<const std::size_t> sizes, std::size_t nr);

}  // namespace weir::lock
