// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/relay_role_grpc.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "weir/host/clock.h"

namespace weir::cluster {

Frame frame_of_bytes(const std::string& course, const EpochBytes& message) {
  Frame frame;
  frame.set_course(course);
  frame.set_message(message.data(), message.size());
  return frame;
}

std::vector<Frame> frames_of(EpochBundle bundle, MemberId receiver) {
  std::vector<Frame> frames;
  if (bundle.size() == 1 && bundle.front().member == receiver) {
    frames.push_back(frame_of_bytes(bundle.front().course, bundle.front().message));
    return frames;
  }
  for (const EpochBundle& part : split_bundle(std::move(bundle))) {
    const EpochBytes bytes = pack_bundle(part);
    frames.emplace_back().set_bundle(bytes.data(), bytes.size());
  }
  return frames;
}

RelayRole::RelayRole(Letters& letters, Surroundings surroundings)
    : letters_(letters), surroundings_(std::move(surroundings)) {
  events_ = {.at_once = {},
             .frame =
                 [this](LinkStream& link, const Frame& frame) {
                   if (&link == link_) this->frame(frame);
                 },
             .ended = [this](LinkStream& link, const grpc::Status&) { ended(link); }};
}

void RelayRole::joined(const Hello& own, MemberId member) {
  left();
  own_ = own;
  own_.set_member(member);
  member_ = member;
  relay_ = EpochRelay(member);
}

void RelayRole::left() {
  member_ = 0;
  address_.clear();
  connect_at_ = kNever;
  if (link_ != nullptr) std::exchange(link_, nullptr)->close();
  relay_ = EpochRelay(0);
  ways_.clear();
  for (const auto& [member, child] : std::exchange(children_, {})) {
    child->child = 0;
    child->finish({grpc::StatusCode::UNAVAILABLE, "this server has lost its leader"});
  }
}

void RelayRole::route(const std::string& address, Instant now) {
  if (member_ == 0 || address == address_) return;
  if (link_ != nullptr) std::exchange(link_, nullptr)->close();
  address_ = address;
  for (auto& [course, way] : ways_) way.renew();
  connect_at_ = kNever;
  if (address_.empty()) return;
  stub_ = surroundings_.stub(address_);
  connect_at_ = now;
}

void RelayRole::connect() {
  connect_at_ = kNever;
  links_.push_back(std::make_unique<LinkStream>(*stub_, letters_, own_, events_));
  link_ = links_.back().get();
}

void RelayRole::frame(const Frame& frame) {
  if (!link_->is_joined) {
    if (!frame.has_hello()) return link_->close();
    link_->is_joined = true;
    return;
  }
  if (frame.has_bundle()) {
    if (!down(view_of(frame.bundle()))) link_->close();
    return;
  }
  auto message = decode(view_of(frame.message()));
  if (!message) return link_->close();
  answered(frame.course(), *message, EpochWay::Way::kRelay);
  surroundings_.received(frame.course(), std::move(*message));
}

void RelayRole::answered(const std::string& course, const EpochMessage& message, EpochWay::Way by) {
  // For one without a relay, that of the leader is the only way.
  if (address_.empty()) by = EpochWay::Way::kRelay;
  if (const auto way = ways_.find(course); way != ways_.end()) way->second.answered(message, by);
}

void RelayRole::ended(const LinkStream& link) {
  if (&link == link_) {
    link_ = nullptr;
    if (!address_.empty()) connect_at_ = host::now() + kRetry;
  }
  links_.remove_if([&](const auto& one) { return one.get() == &link; });
}

bool RelayRole::send(const std::string& course, const EpochMessage& message, Instant now) {
  const bool is_carried = relay_.has_children() || has_relay();
  if (ways_[course].of(message, is_carried) == EpochWay::Way::kLeader) return false;
  if (relay_.has_children()) {
    return relay_.up(EpochRelay::kOwn, {member_, course, encode(message)}, now).has_value();
  }
  link_->send(frame_of_bytes(course, encode(message)));
  return true;
}

bool RelayRole::down(EpochView bytes) {
  auto bundle = read_bundle(bytes);
  if (!bundle) return false;
  relay_.down(std::move(*bundle));
  hand_down();
  return true;
}

void RelayRole::hand_down() {
  for (EpochRelay::Down& down : relay_.take_down()) {
    if (down.to == EpochRelay::kOwn) {
      for (const CarriedMessage& one : down.bundle) {
        if (auto message = decode(one.message)) {
          answered(one.course, *message, EpochWay::Way::kRelay);
          surroundings_.received(one.course, std::move(*message));
        }
      }
      continue;
    }
    const auto child = children_.find(down.to);
    if (child == children_.end()) continue;
    for (Frame& frame : frames_of(std::move(down.bundle), down.to)) {
      child->second->send(std::move(frame));
    }
  }
}

// ---- children ----

void RelayRole::accept(PeerStream& child, const Hello& hello) {
  if (member_ == 0 || hello.term() != own_.term() || hello.protocol() != own_.protocol()) {
    return child.finish({grpc::StatusCode::UNAVAILABLE, "this server follows another leader"});
  }
  if (hello.member() == member_ || children_.size() >= kEpochMembersMax) {
    return child.finish({grpc::StatusCode::INVALID_ARGUMENT, "this server is not its relay"});
  }
  if (const auto before = children_.find(hello.member()); before != children_.end()) {
    PeerStream& old = *before->second;
    child_ended(old);
    old.finish({grpc::StatusCode::ABORTED, "the member has connected again"});
  }
  child.child = hello.member();
  children_[child.child] = &child;
  Frame answer;
  *answer.mutable_hello() = own_;
  child.send(std::move(answer));
}

void RelayRole::child_frame(PeerStream& child, const Frame& frame, Instant now) {
  std::optional<EpochBundle> bundle;
  if (frame.has_bundle()) {
    bundle = read_bundle(view_of(frame.bundle()));
  } else {
    const EpochView view = view_of(frame.message());
    bundle = EpochBundle{{child.child, frame.course(), EpochBytes(view.begin(), view.end())}};
  }
  Result<void> taken;
  if (!bundle) taken = fail(std::errc::bad_message, "bundle", "it is truncated or not valid");
  if (bundle) {
    for (CarriedMessage& one : *bundle) {
      if (taken) taken = relay_.up(child.child, std::move(one), now);
    }
  }
  if (taken) return;
  surroundings_.say(fmt::format("cluster: member {} below this server sent a malformed message: {}",
                                child.child, taken.error().message()));
  child_ended(child);
  child.finish({grpc::StatusCode::INVALID_ARGUMENT, taken.error().message()});
}

void RelayRole::child_ended(PeerStream& child) {
  const MemberId member = std::exchange(child.child, 0);
  relay_.ended(member);
  const auto found = children_.find(member);
  if (found != children_.end() && found->second == &child) children_.erase(found);
}

void RelayRole::tick(Instant now) {
  if (now >= connect_at_) connect();
  EpochBundle bundle = relay_.take_up(now);
  if (bundle.empty()) return;
  const bool is_below = has_relay() && ways_[{}].last() == EpochWay::Way::kRelay;
  for (Frame& frame : frames_of(std::move(bundle), member_)) {
    if (is_below) {
      link_->send(std::move(frame));
    } else {
      surroundings_.upwards(std::move(frame));
    }
  }
}

// Nothing is sent any more; is_over() when all streams have ended.
void RelayRole::close() {
  left();
  for (const auto& link : links_) link->close();
}

}  // namespace weir::cluster
