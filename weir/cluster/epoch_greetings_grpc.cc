// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/epoch_greetings_grpc.h"

#include <algorithm>
#include <utility>

namespace weir::cluster {
namespace {

constexpr auto kTimeout = std::chrono::seconds{1};

}  // namespace

struct Greeter::Call {
  std::shared_ptr<Target> target;
  grpc::ClientContext context;
  Greeted reply;
};

Greeter::Greeter(Greeting own, const Credentials& credentials, Letters& letters)
    : own_(std::move(own)), credentials_(credentials), letters_(letters) {}
Greeter::~Greeter() = default;

void Greeter::open_channel(Target& target) const {
  target.stub = Epochs::NewStub(grpc::CreateCustomChannel(
      target.peer.address, credentials_.channel(), peer_channel_arguments()));
}

void Greeter::renew() {
  for (const auto& target : targets_) open_channel(*target);
}

void Greeter::set_peers(const std::vector<Peer>& peers, Instant now) {
  std::vector<std::shared_ptr<Target>> targets;
  targets.reserve(peers.size());
  for (const Peer& peer : peers) {
    const auto found = std::find_if(targets_.begin(), targets_.end(),
                                    [&](const auto& one) { return one->peer == peer; });
    if (found != targets_.end()) {
      targets.push_back(*found);
      continue;
    }
    const auto& target = targets.emplace_back(std::make_shared<Target>());
    target->peer = peer;
    open_channel(*target);
    greet_at_ = now;
  }
  targets_ = std::move(targets);
}

void Greeter::tick(Instant now) {
  if (now < next_wake()) return;
  greet_at_ = now + kEvery;
  for (const auto& target : targets_) {
    if (!target->is_calling) greet(target);
  }
}

void Greeter::greet(const std::shared_ptr<Target>& target) {
  target->is_calling = true;
  Call& call = *calls_.emplace_back(std::make_unique<Call>());
  call.target = target;
  call.context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  const auto ended = [this, &call] {
    call.target->is_calling = false;
    calls_.remove_if([&](const auto& one) { return one.get() == &call; });
  };
  target->stub->async()->Greet(&call.context, &own_, &call.reply,
                               [this, ended](const grpc::Status&) { tell(letters_, ended); });
}

void Greeter::close() {
  targets_.clear();
  for (const auto& call : calls_) call->context.TryCancel();
}

}  // namespace weir::cluster
