// SPDX-License-Identifier: Apache-2.0
//
// Answers of an etcd in this process, from several threads at once; also run under the thread
// sanitizer. tests/cluster uses a real etcd.
#include "weir/cluster/etcd_client.h"

#include <atomic>
#include <future>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "weir/cluster/etcd.grpc.pb.h"
#include "weir/cluster/listener_for_tests.h"
#include "weir/cluster/membership.h"
#include "weir/host/mutex.h"

namespace weir::cluster {
namespace {

namespace pb = etcdserverpb;

class FakeEtcd {
 public:
  FakeEtcd() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&kv_);
    builder.RegisterService(&lease_);
    builder.RegisterService(&watch_);
    builder.RegisterService(&auth_);
    server_ = builder.BuildAndStart();
  }
  ~FakeEtcd() { server_->Shutdown(std::chrono::system_clock::now()); }
  FakeEtcd(const FakeEtcd&) = delete;
  FakeEtcd& operator=(const FakeEtcd&) = delete;

  EtcdOptions options() const {
    return {.endpoints = {"127.0.0.1:" + std::to_string(port_)},
            .user = {},
            .password = {},
            .tls_directory = {},
            .timeout = std::chrono::seconds{60}};
  }
  std::unique_ptr<EtcdClient> client() const { return EtcdClient::create(options()).value(); }
  // From now on calls need a token, and those given until now have expired.
  void expire_tokens() {
    const host::MutexLock lock(mutex_);
    ++token_;
  }
  std::size_t watchers() {
    const host::MutexLock lock(mutex_);
    return watchers_.size();
  }

 private:
  // One stream of changes. A change while one is being written is reported after it.
  class Watcher : public grpc::ServerBidiReactor<pb::WatchRequest, pb::WatchResponse> {
   public:
    explicit Watcher(FakeEtcd& etcd) : etcd_(etcd) { StartRead(&request_); }

    void tell() {
      const host::MutexLock lock(mutex_);
      if (is_ending_) return;
      if (is_writing_) {
        has_more_ = true;
        return;
      }
      is_writing_ = true;
      StartWrite(&response_);
    }
    void OnReadDone(bool is_done) override {
      if (!is_done) return end();
      etcd_.add(*this);
      tell();  // that it is created
      StartRead(&request_);
    }
    void OnWriteDone(bool is_done) override {
      bool has_more = false;
      bool is_last = false;
      {
        const host::MutexLock lock(mutex_);
        is_writing_ = false;
        has_more = std::exchange(has_more_, false);
        is_last = is_ending_;
      }
      if (is_last) return Finish(grpc::Status::OK);
      if (!is_done) return end();
      if (has_more) tell();
    }
    void OnCancel() override { end(); }
    void OnDone() override {
      mutex_.lock();  // after OnCancel, an order of gRPC that the thread sanitizer does not see
      mutex_.unlock();
      delete this;
    }

   private:
    void end() {
      bool is_writing = false;
      {
        const host::MutexLock lock(mutex_);
        if (std::exchange(is_ending_, true)) return;
        is_writing = is_writing_;
      }
      etcd_.remove(*this);
      if (!is_writing) Finish(grpc::Status::OK);
    }

    FakeEtcd& etcd_;
    pb::WatchRequest request_;
    pb::WatchResponse response_;
    host::Mutex mutex_;
    bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
    bool has_more_ ABSL_GUARDED_BY(mutex_) = false;
    bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  };

  class KeepAlive
      : public grpc::ServerBidiReactor<pb::LeaseKeepAliveRequest, pb::LeaseKeepAliveResponse> {
   public:
    explicit KeepAlive(FakeEtcd& etcd) : etcd_(etcd) { StartRead(&request_); }
    void OnReadDone(bool is_done) override {
      if (!is_done) return Finish(grpc::Status::OK);
      response_.set_ttl(etcd_.ttl_of(request_.id()));
      StartWrite(&response_);
    }
    void OnWriteDone(bool /*is_done*/) override { StartRead(&request_); }
    void OnDone() override { delete this; }

   private:
    FakeEtcd& etcd_;
    pb::LeaseKeepAliveRequest request_;
    pb::LeaseKeepAliveResponse response_;
  };

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  struct Kv : pb::KV::CallbackService {
    explicit Kv(FakeEtcd& etcd) : etcd_(etcd) {}
    Reactor* Range(Context* context, const pb::RangeRequest* request,
                   pb::RangeResponse* response) override {
      return etcd_.answer(context, [=, this] { etcd_.range(*request, *response); });
    }
    Reactor* Txn(Context* context, const pb::TxnRequest* request,
                 pb::TxnResponse* response) override {
      return etcd_.answer(context, [=, this] { etcd_.commit(*request, *response); });
    }
    FakeEtcd& etcd_;
  };
  struct Leases : pb::Lease::CallbackService {
    explicit Leases(FakeEtcd& etcd) : etcd_(etcd) {}
    Reactor* LeaseGrant(Context* context, const pb::LeaseGrantRequest* request,
                        pb::LeaseGrantResponse* response) override {
      return etcd_.answer(context, [=, this] { etcd_.grant(*request, *response); });
    }
    Reactor* LeaseRevoke(Context* context, const pb::LeaseRevokeRequest* request,
                         pb::LeaseRevokeResponse* /*response*/) override {
      return etcd_.answer(context, [=, this] { etcd_.revoke(request->id()); });
    }
    grpc::ServerBidiReactor<pb::LeaseKeepAliveRequest, pb::LeaseKeepAliveResponse>* LeaseKeepAlive(
        Context* /*context*/) override {
      return new KeepAlive(etcd_);
    }
    FakeEtcd& etcd_;
  };
  struct Watches : pb::Watch::CallbackService {
    explicit Watches(FakeEtcd& etcd) : etcd_(etcd) {}
    grpc::ServerBidiReactor<pb::WatchRequest, pb::WatchResponse>* Watch(
        Context* /*context*/) override {
      return new Watcher(etcd_);
    }
    FakeEtcd& etcd_;
  };
  struct Tokens : pb::Auth::CallbackService {
    explicit Tokens(FakeEtcd& etcd) : etcd_(etcd) {}
    Reactor* Authenticate(Context* context, const pb::AuthenticateRequest* /*request*/,
                          pb::AuthenticateResponse* response) override {
      response->set_token(std::to_string(etcd_.token()));
      Reactor* const reactor = context->DefaultReactor();
      reactor->Finish(grpc::Status::OK);
      return reactor;
    }
    FakeEtcd& etcd_;
  };

  struct Kept {
    std::string value;
    std::int64_t created = 0, modified = 0, lease = 0;
  };

  int token() {
    const host::MutexLock lock(mutex_);
    return token_;
  }
  std::int64_t ttl_of(std::int64_t lease) {
    const host::MutexLock lock(mutex_);
    return leases_.contains(lease) ? 5 : 0;
  }
  void add(Watcher& watcher) {
    const host::MutexLock lock(mutex_);
    watchers_.insert(&watcher);
  }
  void remove(Watcher& watcher) {
    const host::MutexLock lock(mutex_);
    watchers_.erase(&watcher);
  }

  template <class Function>
  Reactor* answer(Context* context, Function function) {
    Reactor* const reactor = context->DefaultReactor();
    const auto found = context->client_metadata().find("token");
    const bool has_one = found != context->client_metadata().end();
    const std::string given =
        has_one ? std::string(found->second.data(), found->second.size()) : "";
    if (const int wanted = token(); wanted != 0 && given != std::to_string(wanted)) {
      reactor->Finish({grpc::StatusCode::UNAUTHENTICATED, "invalid auth token"});
      return reactor;
    }
    function();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  void range(const pb::RangeRequest& request, pb::RangeResponse& response) {
    const host::MutexLock lock(mutex_);
    response.mutable_header()->set_revision(revision_);
    for (auto it = kept_.lower_bound(request.key());
         it != kept_.end() && it->first < request.range_end(); ++it) {
      pb::KeyValue& one = *response.add_kvs();
      one.set_key(it->first);
      one.set_value(it->second.value);
      one.set_create_revision(it->second.created);
      one.set_mod_revision(it->second.modified);
      one.set_lease(it->second.lease);
    }
  }
  void commit(const pb::TxnRequest& request, pb::TxnResponse& response) {
    const host::MutexLock lock(mutex_);
    for (const pb::Compare& one : request.compare()) {
      const auto found = kept_.find(one.key());
      const std::int64_t modified = found == kept_.end() ? 0 : found->second.modified;
      if (modified != one.mod_revision()) return;
    }
    response.set_succeeded(true);
    ++revision_;
    for (const pb::RequestOp& one : request.success()) {
      if (one.has_request_delete_range()) {
        kept_.erase(one.request_delete_range().key());
        continue;
      }
      Kept& kept = kept_[one.request_put().key()];
      if (kept.created == 0) kept.created = revision_;
      kept.value = one.request_put().value();
      kept.lease = one.request_put().lease();
      kept.modified = revision_;
    }
    for (Watcher* const watcher : watchers_) watcher->tell();
  }
  void grant(const pb::LeaseGrantRequest& request, pb::LeaseGrantResponse& response) {
    const host::MutexLock lock(mutex_);
    leases_.insert(++last_lease_);
    response.set_id(last_lease_);
    response.set_ttl(request.ttl());
  }
  void revoke(std::int64_t lease) {
    const host::MutexLock lock(mutex_);
    leases_.erase(lease);
    ++revision_;
    std::erase_if(kept_, [&](const auto& one) { return one.second.lease == lease; });
  }

  host::Mutex mutex_;
  std::map<std::string, Kept> kept_ ABSL_GUARDED_BY(mutex_);
  std::int64_t revision_ ABSL_GUARDED_BY(mutex_) = 1;
  std::set<std::int64_t> leases_ ABSL_GUARDED_BY(mutex_);
  std::int64_t last_lease_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<Watcher*> watchers_ ABSL_GUARDED_BY(mutex_);
  int token_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: none is needed
  Kv kv_{*this};
  Leases lease_{*this};
  Watches watch_{*this};
  Tokens auth_{*this};
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

constexpr int kEtcdThreads = 4;

template <class Function>
void in_threads(Function function) {
  std::vector<std::thread> threads;
  threads.reserve(kEtcdThreads);
  for (int i = 0; i < kEtcdThreads; ++i) threads.emplace_back([&, i] { function(i); });
  for (std::thread& thread : threads) thread.join();
}

// Adds 1 to a number in etcd. Returns how often another thread was first.
int increase(EtcdClient& etcd, const std::string& key) {
  for (int lost = 0;; ++lost) {
    const auto entries = etcd.list(key);
    if (!entries) {
      ADD_FAILURE() << entries.error().message();
      return lost;
    }
    const int value = entries->empty() ? 0 : std::stoi(entries->front().value);
    const std::int64_t modified = entries->empty() ? 0 : entries->front().modified;
    const auto done = etcd.commit({{key, modified}}, {{key, std::to_string(value + 1), 0}});
    EXPECT_TRUE(done);
    if (!done || *done) return lost;
  }
}

TEST(EtcdClient, OneOfSeveralConcurrentCommitsSucceeds) {
  constexpr int kEach = 10;
  const FakeEtcd etcd;
  const auto client = etcd.client();
  in_threads([&](int /*number*/) {
    for (int i = 0; i < kEach; ++i) increase(*client, "/n");
  });
  const auto entries = client->list("/n");
  ASSERT_TRUE(entries);
  ASSERT_EQ(entries->size(), 1U);
  EXPECT_EQ(entries->front().value, std::to_string(kEtcdThreads * kEach));
}

TEST(EtcdClient, LeasesOfSeveralThreadsAreIndependent) {
  const FakeEtcd etcd;
  const auto client = etcd.client();
  in_threads([&](int number) {
    const std::string key = "/held/" + std::to_string(number);
    for (int i = 0; i < 5; ++i) {
      const auto lease = client->grant(std::chrono::seconds{5});
      ASSERT_TRUE(lease);
      EXPECT_TRUE(client->commit({}, {{key, "x", lease->id}}).value_or(false));
      EXPECT_TRUE(client->keep_alive(lease->id));
      EXPECT_EQ(client->list(key).value().size(), 1U);
      EXPECT_TRUE(client->revoke(lease->id));
      EXPECT_EQ(client->keep_alive(lease->id).error().code, std::errc::no_such_file_or_directory);
      EXPECT_TRUE(client->list(key).value().empty());
    }
  });
}

TEST(EtcdClient, AnExpiredTokenIsRenewedWhicheverThreadSeesIt) {
  FakeEtcd etcd;
  EtcdOptions options = etcd.options();
  options.user = "weir";
  const auto client = EtcdClient::create(options).value();
  etcd.expire_tokens();
  in_threads([&](int number) {
    for (int i = 0; i < 5; ++i) {
      if (number == 0) etcd.expire_tokens();
      const auto listed = client->list("/");
      // Another thread may have let it expire again since the renewal.
      EXPECT_TRUE(listed || listed.error().code == std::errc::permission_denied);
    }
  });
  EXPECT_TRUE(client->list("/"));
}

TEST(EtcdWatch, ReportsChangesUntilItEndsAndNoneAfterwards) {
  FakeEtcd etcd;
  const auto client = etcd.client();
  std::atomic<bool> is_over = false;
  std::thread writer([&] {
    while (!is_over) increase(*client, "/w");
  });
  for (int i = 0; i < 5; ++i) {
    std::atomic<int> changes = 0;
    std::promise<void> is_reported;
    {
      const EtcdWatch watch(*client, "/", [&] {
        if (++changes == 3) is_reported.set_value();
      });
      is_reported.get_future().get();
    }
    const int before = changes;
    increase(*client, "/w");
    EXPECT_EQ(changes, before);
  }
  is_over = true;
  writer.join();
}

TEST(EtcdMembership, HearsItsOwnAnswersOnItsThread) {
  const FakeEtcd etcd;
  std::promise<void> leads;
  std::atomic<bool> has_led = false;
  std::atomic<std::size_t> rules = 0;
  Membership::Listener listener = alone_listener();
  listener.heard = [&](const MembershipView& view) {
    rules = view.rules.size();
    if (view.leads && !has_led.exchange(true)) leads.set_value();
  };
  listener.unheard = [](const Error& why) { ADD_FAILURE() << why.message(); };
  auto made = Membership::create({.name = "a",
                                  .incarnation = 1,
                                  .address = "127.0.0.1:1",
                                  .prefix = "/weir",
                                  .etcd = etcd.options()},
                                 std::move(listener));
  ASSERT_TRUE(made);
  Membership& membership = **made;
  membership.start();
  leads.get_future().get();
  std::atomic<int> started = 0;
  std::atomic<int> answered = 0;
  in_threads([&](int number) {
    std::promise<void> all;
    for (const char* const name : {"one", "two"}) {
      RuleChange change = start_of({.name = name, .conds = conds_for_all_jobs()});
      change.keys.scope = Scope::kCluster;
      membership.change_rule("ost_io", change, [&, name](const Result<void>& done) {
        started += done.has_value();
        ++answered;
        if (name == std::string_view("two")) all.set_value();
      });
      membership.look_again();
      EXPECT_EQ(membership.trouble(), "") << number;
    }
    all.get_future().get();
  });
  EXPECT_EQ(answered, 2 * kEtcdThreads);
  EXPECT_EQ(started, 2) << "others were second";
  EXPECT_EQ(rules, 2U) << "an answered change is in effect";
  membership.stop();
  EXPECT_TRUE(etcd.client()->list("/weir/members").value().empty());
}

}  // namespace
}  // namespace weir::cluster
