// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/gateway.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include <netdb.h>

#include "weir/base/assert.h"
#include "weir/base/hash.h"
#include "weir/base/quote.h"
#include "weir/nfs/call_class.h"
#include "weir/nfs/codec/record.h"

namespace weir::nfs {
namespace {

constexpr std::uint32_t kSlotsForOthers = 8;

std::uint64_t mark_of(Gateway::Mark mark, const Nid& client) {
  return hash_words(client.hash(), static_cast<std::uint64_t>(mark));
}

// HOST, HOST:PORT, [ADDRESS], [ADDRESS]:PORT
struct HostPort {
  std::string host;
  std::string port;
};

HostPort split(const std::string& text) {
  const std::string without = std::to_string(serve::NfsOptions::kPort);
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string::npos) return {};
    const std::string rest = text.substr(end + 1);
    if (!rest.empty() && !rest.starts_with(':')) return {};
    return {text.substr(1, end - 1), rest.empty() ? without : rest.substr(1)};
  }
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return {text, without};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

}  // namespace

Result<serve::ServerAddress> find_server(const std::string& text) {
  const HostPort parts = split(text);
  const std::string where = "server " + quote(text);
  if (parts.host.empty() || parts.port.empty()) {
    return fail(std::errc::invalid_argument, where, "is not HOST[:PORT]",
                "such as 10.0.0.5 or nfs.example.org:2049");
  }
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* all = nullptr;
  const int error = getaddrinfo(parts.host.c_str(), parts.port.c_str(), &wanted, &all);
  if (error != 0) {
    return fail(std::errc::invalid_argument, where, gai_strerror(error),
                "expected HOST[:PORT] of the NFS server");
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(all, freeaddrinfo);
  serve::ServerAddress found;
  std::memcpy(&found.address, list->ai_addr, list->ai_addrlen);
  found.size = list->ai_addrlen;
  found.text = text;
  return found;
}

void Gateway::set_jobs(HostJobs jobs) {
  const host::MutexLock lock(mutex_);
  jobs_ = std::move(jobs);
  ++jobs_version_;
}

std::optional<JobId> Gateway::job_of(const Nid& client) const {
  const host::MutexLock lock(mutex_);
  const auto found = jobs_.find(client);
  return found == jobs_.end() ? std::nullopt : std::optional(found->second);
}

std::shared_ptr<const Exports> Gateway::exports() const {
  const host::MutexLock lock(mutex_);
  return exports_;
}

Exports::Lesson Gateway::learn_export(std::string_view path, Bytes root) {
  const host::MutexLock lock(mutex_);
  const Exports::Lesson lesson = exports_->lesson(path, root);
  if (lesson == Exports::Lesson::kUnknownForm && std::exchange(has_unknown_form_, true)) {
    return Exports::Lesson::kKnown;
  }
  if (lesson != Exports::Lesson::kNew) return lesson;
  auto more = std::make_shared<Exports>(*exports_);
  more->learn(path, root);
  exports_ = std::move(more);
  ++exports_version_;
  return lesson;
}

Gateway::SessionSlots* Gateway::slots_of(const SessionId& session) {
  if (const auto found = sessions_.find(key_of(session)); found != sessions_.end())
    return &found->second;
  if (sessions_.size() >= kSessionsMax) {
    // Searched once; then again only when one of them has become idle.
    if (!are_all_busy_) {
      absl::erase_if(sessions_, [](const auto& one) { return one.second.is_idle(); });
    }
    are_all_busy_ = sessions_.size() >= kSessionsMax;
    if (are_all_busy_) return nullptr;
  }
  return &sessions_[key_of(session)];
}

void Gateway::set_slots(const SessionId& session, std::uint32_t slots) {
  const host::MutexLock lock(mutex_);
  SessionSlots* const known = slots_of(session);
  if (known == nullptr) return;
  known->created = slots;
  known->is_learned = true;
}

void Gateway::set_highest_slot(const SessionId& session, std::uint32_t slot) {
  const host::MutexLock lock(mutex_);
  SessionSlots* const known = slots_of(session);
  if (known == nullptr) return;
  known->wanted = slot + std::uint32_t{slot < ~std::uint32_t{0}};
  known->is_learned = true;
}

bool Gateway::SessionSlots::has_slot_for(std::uint32_t own, OperationKind kind) const {
  const std::uint32_t quarter = std::max(slots() / 4, 1U);
  if (kind != OperationKind::kWrite) return own < quarter && waiting < std::max(slots() / 2, 1U);
  const std::uint32_t spare = std::max(quarter, kSlotsForOthers);
  return waiting < (slots() > spare ? slots() - spare : 1);
}

Parking Gateway::park(ParkedCall& call, Nanoseconds expected) {
  const host::MutexLock lock(mutex_);
  SessionSlots* const slots = slots_of(call.session);
  if (slots == nullptr) {
    return expected > Nanoseconds{0} ? Parking::kRefused : Parking::kNotCounted;
  }
  const auto found = slots->by_user.find(call.uid);
  Nanoseconds wait = expected;
  std::uint32_t own = 0;
  if (found != slots->by_user.end()) {
    own = found->second.parked;
    const Nanoseconds seen = std::max(found->second.last_wait, call.since - found->second.moved_at);
    if (seen >= kLongWait) wait = std::max(wait, seen);
  }
  if (wait > wait_max()) return Parking::kRefused;
  call.waits = wait > Nanoseconds{0};
  const bool may_wait = call.has_memory && slots->has_slot_for(own, call.kind);
  if (call.waits && !may_wait) return Parking::kRefused;
  UserCalls& calls = slots->by_user[call.uid];
  if (calls.parked++ == 0) calls.moved_at = call.since;
  if (call.waits) ++slots->waiting;
  return Parking::kParked;
}

void Gateway::unpark(const ParkedCall& call, Instant now) {
  const host::MutexLock lock(mutex_);
  const auto found = sessions_.find(key_of(call.session));
  WEIR_ASSERT(found != sessions_.end());
  SessionSlots& slots = found->second;
  const auto own = slots.by_user.find(call.uid);
  WEIR_ASSERT(own != slots.by_user.end(), call.uid);
  own->second.last_wait = now - call.since;
  own->second.moved_at = now;
  if (--own->second.parked == 0) slots.by_user.erase(own);
  if (call.waits) {
    --slots.waiting;
    slots.freed_at = now;
    slots.moved += call.payload;
  }
  if (!slots.is_idle()) return;
  are_all_busy_ = false;
  if (!slots.is_learned) sessions_.erase(found);
}

Instant Gateway::refuse_write(const SessionId& session, std::uint64_t payload, Instant now) {
  const host::MutexLock lock(mutex_);
  SessionSlots* const slots = slots_of(session);
  if (slots == nullptr) return now;
  const bool have_others_moved =
      slots->moved / kWritesForARefusal >= std::max<std::uint64_t>(payload, 1);
  const Instant at = slots->freed_at + kSlotEvery;
  if (!have_others_moved && at > now) return at;
  slots->freed_at = now;
  slots->moved = 0;
  return now;
}

std::uint32_t Gateway::waiting(const SessionId& session) const {
  const host::MutexLock lock(mutex_);
  const auto found = sessions_.find(key_of(session));
  return found == sessions_.end() ? 0 : found->second.waiting;
}

std::size_t Gateway::session_count() const {
  const host::MutexLock lock(mutex_);
  return sessions_.size();
}

void Gateway::recall(const Nid& client, Bytes file_handle, Instant until) {
  ++counters_.recalls;
  const host::MutexLock lock(mutex_);
  if (recalls_.size() == kRecallsMax) recalls_.pop_front();
  recalls_.push_back({client, {file_handle.begin(), file_handle.end()}, until});
  recall_count_ = recalls_.size();
}

void Gateway::returned(const Nid& client, Bytes file_handle) {
  if (recall_count_ == 0) return;
  const host::MutexLock lock(mutex_);
  std::erase_if(recalls_, [&](const Recall& one) {
    return one.client == client && std::ranges::equal(one.file_handle, file_handle);
  });
  recall_count_ = recalls_.size();
}

bool Gateway::is_recalled(const Nid& client, Bytes file_handle, Instant now) const {
  if (recall_count_ == 0 || file_handle.empty()) return false;
  const host::MutexLock lock(mutex_);
  return std::any_of(recalls_.begin(), recalls_.end(), [&](const Recall& one) {
    return one.until > now && one.client == client &&
           std::ranges::equal(one.file_handle, file_handle);
  });
}

bool Gateway::mark(Mark mark, const Nid& client) {
  const std::uint64_t key = mark_of(mark, client);
  const host::MutexLock lock(mutex_);
  if (!marks_.insert(key).second) return false;
  marked_.push_back(key);
  if (marked_.size() > kMarksMax) {
    marks_.erase(marked_.front());
    marked_.pop_front();
  }
  return true;
}

bool Gateway::has(Mark mark, const Nid& client) const {
  const host::MutexLock lock(mutex_);
  return marks_.contains(mark_of(mark, client));
}

std::optional<Nid> Gateway::other_user(Bytes client_owner, const Nid& client) {
  const std::uint64_t key = hash_of(client_owner);
  const host::MutexLock lock(mutex_);
  const auto [found, is_new] = owners_.try_emplace(key, client);
  if (!is_new) {
    const Nid before = std::exchange(found->second, client);
    return before == client ? std::nullopt : std::optional(before);
  }
  owned_.push_back(key);
  if (owned_.size() > kOwnersMax) {
    owners_.erase(owned_.front());
    owned_.pop_front();
  }
  return std::nullopt;
}

}  // namespace weir::nfs
