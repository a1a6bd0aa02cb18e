// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_election.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "weir/cluster/lock_record.h"
#include "weir/cluster/lock_state.h"
#include "weir/host/clock.h"
#include "weir/host/mailbox.h"

namespace weir::cluster {

using Ask = lock::Candidate::Ask;

class LockElection::Thread {
 public:
  Thread(const Options& options, Listener listener, std::unique_ptr<EtcdClient> etcd,
         host::Fd wake_fd)
      : options_(options),
        listener_(std::move(listener)),
        etcd_(std::move(etcd)),
        keys_(lock_keys(options.prefix)),
        wake_(std::move(wake_fd)) {}

  EtcdClient& etcd() { return *etcd_; }
  void start() {
    watch_ = std::make_unique<EtcdWatch>(*etcd_, keys_, [this] {
      has_changed_ = true;
      wake_.set();
    });
    thread_ = std::thread([this] { run(); });
  }
  void stop(const lock::Handover* left) {
    if (!thread_.joinable()) return;
    is_ending_ = true;
    wake_.set();
    thread_.join();
    watch_.reset();
    if (candidate_.lease() == 0) return;
    if (left != nullptr && left->term == candidate_.term()) (void)leave(*left);
    (void)etcd_->revoke(candidate_.lease());
  }

 private:
  void run();
  void wait(Instant until);
  Result<void> carry_out(Ask ask);
  Result<void> look();
  Result<void> renew();
  Result<void> campaign();
  Result<void> leave(const lock::Handover& left);
  void tell();
  void note(const Result<void>& done);
  host::Key key() const { return record_.key.value_or(options_.key); }
  std::string name_of(std::string_view rest) const { return keys_ + std::string(rest); }

  const Options options_;
  const Listener listener_;
  const std::unique_ptr<EtcdClient> etcd_;
  const std::string keys_;
  const host::Wake wake_;
  std::atomic<bool> has_changed_ = false;
  std::atomic<bool> is_ending_ = false;
  std::unique_ptr<EtcdWatch> watch_;
  std::thread thread_;

  // Members of its thread, and of stop() after it.
  lock::Candidate candidate_;
  LockRecord record_;
  bool has_led_ = false;
  Instant told_until_{};
  Seen told_;
  std::string trouble_;
};

void LockElection::Thread::run() {
  while (!is_ending_) {
    if (has_changed_.exchange(false)) candidate_.changed();
    const Ask ask = candidate_.next(host::boot_now());
    if (ask == Ask::kNothing) {
      tell();
      wait(candidate_.wakes_at());
      continue;
    }
    const auto done = carry_out(ask);
    if (!done) candidate_.failed(host::boot_now());
    note(done);
    tell();
  }
}

void LockElection::Thread::wait(Instant until) {
  if (wake_.wait(host::now() + (until - host::boot_now()))) wake_.clear();
}

Result<void> LockElection::Thread::carry_out(Ask ask) {
  const Instant asked = host::boot_now();
  switch (ask) {
    case Ask::kLook:
      return look();
    case Ask::kGrant: {
      const auto lease = etcd_->grant(lock::Candidate::kLength);
      if (!lease) return tl::unexpected(lease.error());
      candidate_.granted(lease->id, lease->length, asked);
      return {};
    }
    case Ask::kRenew:
      return renew();
    case Ask::kCampaign:
      return campaign();
    case Ask::kNothing:
      break;
  }
  return {};
}

Result<void> LockElection::Thread::look() {
  const auto entries = etcd_->list(keys_);
  if (!entries) return tl::unexpected(entries.error());
  auto record = read_lock_record(keys_, *entries);
  if (!record) return tl::unexpected(record.error());
  record_ = *std::move(record);
  candidate_.looked(record_.terms, host::boot_now());
  return {};
}

Result<void> LockElection::Thread::renew() {
  const Instant asked = host::boot_now();
  const auto left = etcd_->keep_alive(candidate_.lease());
  if (left) {
    candidate_.renewed(*left, asked);
  } else if (left.error().code == std::errc::no_such_file_or_directory) {
    candidate_.lease_is_gone();
  } else {
    return tl::unexpected(left.error());
  }
  return {};
}

Result<void> LockElection::Thread::campaign() {
  const std::uint64_t term = candidate_.campaign_term(options_.incarnation);
  if (term > lock::kIncarnationMax) {
    return fail(std::errc::value_too_large, "lock service", "has used up all terms",
                "move its clients to a cluster with another prefix");
  }
  const lock::TermRecord& terms = candidate_.record();
  std::vector<EtcdClient::Condition> conditions = {EtcdClient::absent(name_of("active")),
                                                   {name_of("term"), terms.term_modified}};
  std::vector<EtcdClient::Write> writes = {
      {name_of("active"), print_active(term, options_.name, options_.address), candidate_.lease()},
      {name_of("term"), std::to_string(term)}};
  if (!record_.key) {
    conditions.push_back(EtcdClient::absent(name_of("key")));
    writes.push_back({name_of("key"), print_key(options_.key)});
  }
  const auto won = etcd_->commit(conditions, writes);
  if (!won) return tl::unexpected(won.error());
  candidate_.campaigned(*won, term);
  return {};
}

// In one transaction, so that the next server finds both or neither.
Result<void> LockElection::Thread::leave(const lock::Handover& left) {
  if (auto looked = look(); !looked) return looked;
  if (!candidate_.leads()) return {};
  const auto done =
      etcd_->commit({{name_of("active"), record_.active_modified}},
                    {{name_of("left"), print_handover(left)}, {name_of("active"), std::nullopt}});
  if (!done) return tl::unexpected(done.error());
  return {};
}

void LockElection::Thread::tell() {
  if (candidate_.leads() != has_led_) {
    has_led_ = candidate_.leads();
    if (!has_led_) {
      listener_.deposed();
    } else {
      told_until_ = candidate_.proven_until();
      listener_.lead(
          {.next = lock::succession_of(candidate_.before(), candidate_.term(), options_.own,
                                       options_.lease, candidate_.length()),
           .key = key(),
           .proven_until = told_until_});
    }
  } else if (has_led_ && candidate_.proven_until() > told_until_) {
    told_until_ = candidate_.proven_until();
    listener_.proven(told_until_);
  }
  Seen seen{.term = record_.terms.term, .active = {}, .address = {}, .key = key()};
  if (const auto& active = record_.terms.active) {
    seen.active = active->name;
    seen.address = active->address;
  }
  if (seen == told_) return;
  told_ = std::move(seen);
  listener_.seen(told_);
}

// Logs once that etcd is not available, and once that it is available again.
void LockElection::Thread::note(const Result<void>& done) {
  std::string trouble = done ? "" : done.error().message();
  if (trouble.empty() == trouble_.empty()) return;
  trouble_ = std::move(trouble);
  listener_.say(trouble_.empty() ? "locks: etcd is available"
                                 : "locks: no term can be proven: " + trouble_);
}

Result<std::unique_ptr<LockElection>> LockElection::create(const Options& options,
                                                           Listener listener) {
  auto etcd = EtcdClient::create(options.etcd);
  if (!etcd) return tl::unexpected(etcd.error());
  auto wake_fd = host::make_wake_fd();
  if (!wake_fd) return tl::unexpected(wake_fd.error());
  return std::unique_ptr<LockElection>(new LockElection(std::make_unique<Thread>(
      options, std::move(listener), *std::move(etcd), *std::move(wake_fd))));
}

LockElection::LockElection(std::unique_ptr<Thread> thread) : thread_(std::move(thread)) {}
LockElection::~LockElection() { stop(nullptr); }

void LockElection::start() { thread_->start(); }
void LockElection::stop(const lock::Handover* left) { thread_->stop(left); }
Result<std::function<void()>> LockElection::read_certificates() {
  return thread_->etcd().read_certificates();
}

}  // namespace weir::cluster
