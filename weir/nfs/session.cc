// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/session.h"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/nfs/nfs_session.h"

namespace weir::nfs {
namespace {

// Beyond this size nothing more is read from the server until the client has read some.
constexpr std::size_t kToClientMax = std::size_t{1} << 20;

}  // namespace

// The server gets the address of the client before anything else.
void NfsSession::connect() {
  const serve::Ends ends = port_.ends();
  if (sends_proxy_) to_server_.append(serve::write_proxy_header(ends));
  port_.connect(server_, {gateway_.options().source, ends.client, &gateway_.source_ports()});
}

NfsSession::Step NfsSession::negotiate(Input& in, Output& /*out*/) {
  if (!awaits_header_) return Step::kOpen;
  const std::size_t had = header_.size();
  header_.insert(header_.end(), in.begin(), in.end());
  const serve::ProxyHeader header = serve::read_proxy_header(header_);
  if (header.state == serve::ProxyHeader::State::kNeedBytes) {
    in = {};
    return Step::kNeedBytes;
  }
  if (header.state == serve::ProxyHeader::State::kBad) {
    problem_ = header.problem;
    return Step::kBreak;
  }
  in = in.subspan(header.size - had);
  header_ = {};
  awaits_header_ = false;
  port_.wake_at(kNever);
  ++gateway_.counters().proxy_headers;
  if (header.ends) {
    port_.set_ends(*header.ends);
    identify();
  }
  connect();
  return Step::kOpen;
}
// ---- memory and time ----

bool NfsSession::make_room(std::size_t more) {
  const std::size_t needed = held_ + call_head_.size() + to_server_.size() + more;
  const std::size_t charge = needed - std::min(needed, SessionPort::kHeldFree);
  if (charge > charged_) {
    if (!port_.hold(charge - charged_)) {
      if (!stalled_since_) stalled_since_ = port_.now();
      return false;
    }
    charged_ = charge;
  }
  if (stalled_since_) {
    const Nanoseconds stalled = port_.now() - *std::exchange(stalled_since_, std::nullopt);
    gateway_.counters().stalled_ns += static_cast<std::uint64_t>(stalled.count());
  }
  return true;
}

void NfsSession::give_back_room() {
  const std::size_t needed = held_ + call_head_.size() + to_server_.size();
  const std::size_t charge = needed - std::min(needed, SessionPort::kHeldFree);
  // A connection that waits for room tries again whenever memory is released.
  if (charge >= charged_ && !stalled_since_) return;
  port_.release(charged_ - std::min(charge, charged_));
  charged_ = std::min(charge, charged_);
}

void NfsSession::account_replies() {
  const std::size_t size = to_client_.size();
  const std::size_t charge = size - std::min(size, SessionPort::kHeldFree);
  if (charge < charged_replies_) {
    port_.release(charged_replies_ - charge);
    charged_replies_ = charge;
  }
  bool is_full = size >= kToClientMax;
  if (charge > charged_replies_) {
    if (port_.hold(charge - charged_replies_)) {
      charged_replies_ = charge;
    } else {
      is_full = true;  // until the client has read some
    }
  }
  is_full_ = is_full;
}

// A message or call is not complete: checks it every kWatchEvery.
void NfsSession::watch() {
  if (watch_at_ != kNever) return;
  watch_at_ = port_.now() + kWatchEvery;
  set_alarm();
}

void NfsSession::set_alarm() {
  port_.wake_at(refusals_.empty() ? watch_at_ : std::min(watch_at_, refuse_at_));
}

void NfsSession::wake() {
  if (awaits_header_) {
    port_.note("disconnected: it has to send a PROXY header first (accept_proxy), and has not");
    return port_.hang_up();
  }
  if (has_server_ended_) return port_.hang_up();
  const Instant now = port_.now();
  refuse_due();
  // It may also be the gateway that does not read.
  const bool is_read = !stalled_since_ && port_.has_room(0) && takes_from_client();
  if (from_client_.is_inside() && is_read && now - last_input_ >= kStallMax) {
    port_.note("disconnected: it has stopped within a message");
    has_server_ended_ = true;
    return port_.hang_up();
  }
  if (now >= watch_at_) {
    watch_at_ = kNever;
    look_for_late_calls();
    if (is_closed_) return;
    if (!calls_.empty() || from_client_.is_inside()) return watch();
    spares_.clear();
  }
  if (!is_closed_) set_alarm();
}

// Calls that the server does not answer no longer occupy it.
void NfsSession::look_for_late_calls() {
  const Instant now = port_.now();
  std::vector<HeldCall*> held;  // with a slot
  Instant since = now;
  std::size_t unanswered = 0;
  for (const auto& [xid, call] : calls_) {
    if (call->state != HeldCall::State::kSent) continue;
    ++unanswered;
    since = std::min(since, call->sent_at);
    if (call->request_id != 0) held.push_back(call.get());
  }
  std::ranges::sort(held, {}, &HeldCall::request_id);  // in the order of arrival
  std::erase_if(held, [&](HeldCall* call) {
    const bool is_late = now - call->sent_at >= kLate;
    if (is_late) give_up_slot(*call);
    return is_late;
  });
  since = std::max(since, heard_at_);
  silent_since_.reset();
  if (now - since < kSilent) return;
  silent_since_ = since;
  if (now - since >= kSilentNote && !is_full_ && !std::exchange(is_silence_noted_, true)) {
    port_.note(fmt::format("server {} has answered none of its {} calls for {} s", server_.text,
                           unanswered,
                           std::chrono::duration_cast<std::chrono::seconds>(now - since).count()));
  }
  std::size_t kept = kSilentSlots;
  if (gateway_.heard_at() <= since) kept = std::max(kept, held.size() - held.size() / 4);
  for (std::size_t i = kept; i < held.size(); ++i) give_up_slot(*held[i]);
}

// Other calls get its slot. What the call has moved is not counted any more.
void NfsSession::give_up_slot(HeldCall& call) {
  ++gateway_.counters().slots_given_up;
  --slots_held_;
  port_.answer(std::exchange(call.request_id, 0), {.error = ETIMEDOUT, .is_forwarded = true});
}

void NfsSession::closed() {
  if (!std::exchange(is_closed_, true)) look_for_bypass();
  for (auto& [xid, call] : calls_) unpark(*call);
  calls_.clear();
  spares_.clear();
  piece_.clear();
  ready_.clear();
  refusals_.clear();
  arriving_ = nullptr;
  passed_ = {};
  rest_ = Rest::kNowhere;
  held_ = slots_held_ = 0;
  port_.release(std::exchange(charged_, 0) + std::exchange(charged_replies_, 0));
}
serve::ProtocolKind protocol(std::string name, Gateway& gateway) {
  return {.name = std::move(name),
          .help = "NFS, forwarded to another server",
          .begin = [&gateway](SessionPort& port) { return begin_session(port, gateway); },
          .is_gateway = true,
          .counts = [&gateway] { return counts_of(gateway.counters(), gateway.options().name); }};
}

serve::ProtocolKind relay(std::string name, Gateway& gateway, std::uint16_t port, RelayKind kind) {
  auto server = std::make_shared<serve::ServerAddress>(gateway.server());
  serve::set_port(server->address, port);
  server->text = fmt::format("{}, port {}", gateway.server().text, port);
  const bool sends_proxy = kind == RelayKind::kOfServer && gateway.options().sends_proxy;
  return {.name = std::move(name),
          .help = "a protocol beside NFS, forwarded to another server",
          .begin =
              [&gateway, server, sends_proxy](SessionPort& of) {
                return std::make_unique<NfsSession>(of, gateway, *server, sends_proxy);
              },
          .is_gateway = true};
}

std::unique_ptr<serve::Session> begin_session(SessionPort& port, Gateway& gateway) {
  return std::make_unique<NfsSession>(port, gateway, gateway.server(),
                                      gateway.options().sends_proxy);
}

}  // namespace weir::nfs
