// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/gateway.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include <netdb.h>

#include "weir/base/quote.h"

namespace weir::nfs {
namespace {

constexpr std::uint32_t kSlotsForOthers = 8;
constexpr std::size_t kToldMax = 4096;

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

Gateway::SessionSlots& Gateway::slots_of(const SessionId& session) {
  if (sessions_.size() >= kSessionsMax && !sessions_.contains(session)) {
    // Those in use are bounded by the calls that are parked.
    absl::erase_if(sessions_, [](const auto& one) { return one.second.parked == 0; });
  }
  return sessions_[session];
}

void Gateway::set_slots(const SessionId& session, std::uint32_t slots) {
  const host::MutexLock lock(mutex_);
  slots_of(session).slots = std::max(slots, 1U);
}

bool Gateway::park(const SessionId& session, std::uint32_t uid, OperationKind kind) {
  const host::MutexLock lock(mutex_);
  SessionSlots& slots = slots_of(session);
  std::uint32_t& own = slots.by_user[uid];
  const std::uint32_t quarter = std::max(slots.slots / 4, 1U);
  const std::uint32_t spare = std::max(quarter, kSlotsForOthers);
  const std::uint32_t writes_max = slots.slots > spare ? slots.slots - spare : 1;
  const bool fits = kind == OperationKind::kWrite
                        ? slots.parked < writes_max
                        : own < quarter && slots.parked < std::max(slots.slots / 2, 1U);
  if (fits) {
    ++own;
    ++slots.parked;
  } else if (own == 0) {
    slots.by_user.erase(uid);
  }
  return fits;
}

void Gateway::unpark(const SessionId& session, std::uint32_t uid) {
  const host::MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  const auto own = found->second.by_user.find(uid);
  if (own == found->second.by_user.end()) return;
  --found->second.parked;
  if (--own->second == 0) found->second.by_user.erase(own);
}

std::uint32_t Gateway::parked(const SessionId& session) const {
  const host::MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? 0 : found->second.parked;
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

bool Gateway::is_first(Warning warning, const Nid& client) {
  const host::MutexLock lock(mutex_);
  const auto same = [&](const Told& one) { return one.warning == warning && one.client == client; };
  if (std::any_of(told_.begin(), told_.end(), same)) return false;
  if (told_.size() == kToldMax) told_.pop_front();
  told_.push_back({warning, client});
  return true;
}

}  // namespace weir::nfs
