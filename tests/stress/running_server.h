// SPDX-License-Identifier: Apache-2.0
//
// A server in memory, on its own thread, for tests that send it commands from other threads.
//
//   Running running;                 it runs
//   Running running(beside);         with an object that exists beside it, such as its control
//   Running running(change);         with other options
//   running.server().ask(...)        from any thread
//   running.stop()                   ends it; the destructor does so too
//
// The server lives until the destructor, so that other threads may still use it after it has
// stopped.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "weir/serve/protocol.h"
#include "weir/serve/server.h"

namespace weir::serve {

class Running {
 public:
  // Creates an object on the server's thread before the server runs; it is destroyed when the
  // server has stopped.
  using Beside = std::function<std::shared_ptr<void>(Server& server, const std::string& folder)>;

  using Change = std::function<void(ServeOptions& options, const std::string& folder)>;

  explicit Running(const Change& change)
      : Running([](Server&, const std::string&) { return nullptr; }, change) {}
  explicit Running(
      const Beside& beside = [](Server&, const std::string&) { return nullptr; },
      const Change& change = [](ServeOptions&, const std::string&) {}) {
    std::array<char, 32> name{"/tmp/weir-stress-XXXXXX"};
    folder_ = mkdtemp(name.data());
    // No client connects; an earlier server may have added the protocol.
    (void)add_protocol({.name = "none", .help = "", .begin = [](SessionPort&) { return nullptr; }},
                       Standard::kYes);
    thread_ = std::thread([this, beside, change] {
      ServeOptions options;
      options.listen = {*parse_listen("unix:" + folder_ + "/s")};
      options.exports = {*parse_export("a=shaped:iops=100:memory:1MiB")};
      change(options, folder_);
      auto server = Server::create(std::move(options));
      ASSERT_TRUE(server) << server.error().message();
      loop_ = std::this_thread::get_id();
      auto neighbour = beside(**server, folder_);
      EXPECT_TRUE((*server)->run([&] { ready_.set_value(server->get()); }));
      neighbour.reset();
      over_.get_future().wait();  // other threads may still use it
    });
    server_ = ready_.get_future().get();
  }
  ~Running() {
    static_cast<void>(stop());
    over_.set_value();
    thread_.join();
    std::filesystem::remove_all(folder_);
  }

  Result<void> stop() {
    return server_->ask([](Server& it) -> Result<void> {
      it.stop();
      return {};
    });
  }
  Server& server() { return *server_; }
  const std::string& folder() const { return folder_; }
  bool is_on_loop() const { return std::this_thread::get_id() == loop_; }

 private:
  std::string folder_;
  std::promise<Server*> ready_;
  std::promise<void> over_;
  std::thread::id loop_;
  std::thread thread_;
  Server* server_ = nullptr;
};

}  // namespace weir::serve
