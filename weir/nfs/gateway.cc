// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/gateway.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include <netdb.h>

#include "weir/base/hash.h"
#include "weir/base/quote.h"
#include "weir/nfs/call_class.h"

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
      absl::erase_if(sessions_, [](const auto& one) { return one.second.parked == 0; });
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
  known->slots = std::max(slots, 1U);
  known->is_learned = true;
}

bool Gateway::park(const SessionId& session, std::uint32_t uid, OperationKind kind) {
  const host::MutexLock lock(mutex_);
  SessionSlots* const slots = slots_of(session);
  if (slots == nullptr) return false;
  const auto found = slots->by_user.find(uid);
  const std::uint32_t own = found == slots->by_user.end() ? 0 : found->second;
  const std::uint32_t quarter = std::max(slots->slots / 4, 1U);
  const std::uint32_t spare = std::max(quarter, kSlotsForOthers);
  const std::uint32_t writes_max = slots->slots > spare ? slots->slots - spare : 1;
  const bool fits = kind == OperationKind::kWrite
                        ? slots->parked < writes_max
                        : own < quarter && slots->parked < std::max(slots->slots / 2, 1U);
  if (!fits) return false;
  ++slots->by_user[uid];
  ++slots->parked;
  return true;
}

void Gateway::unpark(const SessionId& session, std::uint32_t uid) {
  const host::MutexLock lock(mutex_);
  const auto found = sessions_.find(key_of(session));
  if (found == sessions_.end()) return;
  SessionSlots& slots = found->second;
  const auto own = slots.by_user.find(uid);
  if (own == slots.by_user.end()) return;
  if (--own->second == 0) slots.by_user.erase(own);
  if (--slots.parked > 0) return;
  are_all_busy_ = false;
  if (!slots.is_learned) sessions_.erase(found);
}

std::uint32_t Gateway::parked(const SessionId& session) const {
  const host::MutexLock lock(mutex_);
  const auto found = sessions_.find(key_of(session));
  return found == sessions_.end() ? 0 : found->second.parked;
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
