// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/epoch_relay.h"

#include <algorithm>
#include <optional>
#include <variant>

namespace weir {

Result<void> EpochRelay::up(Link from, CarriedMessage one, Instant now) {
  const auto message = decode(one.message);
  if (!message) return tl::unexpected(message.error());
  const auto* const ready = std::get_if<Ready>(&*message);
  if (std::holds_alternative<Start>(*message) || std::holds_alternative<Refuse>(*message)) {
    return fail(std::errc::bad_message, "message", "only a leader may send this message");
  }
  if (links_.size() >= kEpochMembersMax && !links_.contains(one.member)) {
    return fail(std::errc::no_space_on_device, "relay", "carries too many members");
  }
  links_[one.member] = from;
  if (ready != nullptr && one.course.empty()) signalled_.insert(one.member);
  bytes_ += one.message.size();
  pending_.push_back(std::move(one));
  const bool is_complete =
      std::includes(signalled_.begin(), signalled_.end(), started_.begin(), started_.end());
  flush_at_ = is_complete || bytes_ >= kBundleFull ? now : std::min(flush_at_, now + hold_);
  return {};
}

EpochBundle EpochRelay::take_up(Instant now) {
  if (now < flush_at_) return {};
  flush_at_ = kNever;
  bytes_ = 0;
  signalled_.clear();
  return std::exchange(pending_, {});
}

// Members that are started are expected to signal.
void EpochRelay::down(EpochBundle bundle) {
  std::map<Link, EpochBundle> by_link;
  for (CarriedMessage& one : bundle) {
    const auto link = links_.find(one.member);
    if (link == links_.end()) continue;
    const auto epoch = one.course.empty() ? started_epoch(one.message) : std::nullopt;
    if (epoch && *epoch > epoch_) {
      epoch_ = *epoch;
      started_.clear();
    }
    if (epoch && *epoch == epoch_) started_.insert(one.member);
    by_link[link->second].push_back(std::move(one));
  }
  for (auto& [link, messages] : by_link) down_.push_back({link, std::move(messages)});
}

void EpochRelay::ended(Link link) {
  std::erase_if(links_, [&](const auto& one) {
    if (one.second != link) return false;
    started_.erase(one.first);
    return true;
  });
}

bool EpochRelay::has_children() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const auto& one) { return one.second != kOwn; });
}

EpochWay::Way EpochWay::of(const EpochMessage& message, bool has_relay) {
  if (!has_relay) last_ = Way::kLeader;
  const auto* const ready = std::get_if<Ready>(&message);
  if (ready == nullptr) return std::holds_alternative<Leave>(message) ? Way::kLeader : last_;
  if (ready->serial == serial_) return Way::kLeader;
  serial_ = ready->serial;
  if (avoid_ > 0) --avoid_;
  last_ = has_relay && avoid_ == 0 ? Way::kRelay : Way::kLeader;
  return last_;
}

void EpochWay::answered(const EpochMessage& message, Way by) {
  const auto* const start = std::get_if<Start>(&message);
  if (start == nullptr || start->serial != serial_) return;
  if (by == Way::kLeader && last_ == Way::kRelay) avoid_ = kAvoidCalls;
  if (by == Way::kLeader) last_ = Way::kLeader;
}

}  // namespace weir
