// SPDX-License-Identifier: Apache-2.0
#include "weir/control/http.h"

#include <array>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "weir/control/client.h"
#include "weir/host/mailbox.h"

namespace weir::control {
namespace {

TEST(Http, SplitsATargetIntoPathAndQuery) {
  HttpRequest request;
  ASSERT_TRUE(split_target("/v1/a%20b?name=x%2Fy+z&flag&name=2", request));
  EXPECT_EQ(request.path, "/v1/a b");
  EXPECT_EQ(request.find("name"), "x/y z");
  EXPECT_EQ(request.find("flag"), "");
  EXPECT_EQ(request.find("none"), std::nullopt);
}

TEST(Http, RefusesTargetsThatAreNone) {
  for (const char* const bad : {"", "v1", "*", "/%", "/%2", "/%zz", "/?a=%f"}) {
    HttpRequest request;
    EXPECT_FALSE(split_target(bad, request)) << bad;
  }
}

TEST(Http, ComparesSecrets) {
  EXPECT_TRUE(is_same_secret("token", "token"));
  EXPECT_FALSE(is_same_secret("token", "tokem"));
  EXPECT_FALSE(is_same_secret("token", "toke"));
  EXPECT_FALSE(is_same_secret("toke", "token"));
  EXPECT_FALSE(is_same_secret("", "token"));
  EXPECT_FALSE(is_same_secret("aa", "a")) << "a repetition is not the same";
}

TEST(Http, RefusesTcpWithoutATokenAndBeyondLoopback) {
  const auto none = [](const HttpRequest&, const HttpServer::Reply&) {};
  EXPECT_FALSE(HttpServer::create({.socket_path = "", .tcp = "127.0.0.1:0", .token = ""}, none));
  for (const char* const bad : {"0.0.0.0:0", "192.0.2.1:80", "nonsense", "127.0.0.1", ":80",
                                "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:80x", "unix:/tmp/s"}) {
    EXPECT_FALSE(HttpServer::create({.socket_path = "", .tcp = bad, .token = "t"}, none)) << bad;
  }
  const auto bound =
      HttpServer::create({.socket_path = "", .tcp = "127.0.0.1:0", .token = "t"}, none);
  ASSERT_TRUE(bound);
  EXPECT_NE((*bound)->tcp_port(), 0);
}

// Answers come from a thread of another, as from a server's loop, while readers come and go.
TEST(Http, AnswersOfOtherThreadsReachWhoAsked) {
  constexpr int kReaders = 4;
  constexpr int kEach = 20;
  std::array<char, 32> folder{"/tmp/weir-http-XXXXXX"};
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = std::string(folder.data()) + "/s";
  HttpServer* server = nullptr;
  host::Mailbox<std::function<void()>> loop(std::move(*host::make_wake_fd()));
  auto made =
      HttpServer::create({.socket_path = path, .tcp = "", .token = ""},
                         [&](const HttpRequest& request, const HttpServer::Reply& reply) {
                           (void)loop.put_always([&, reply, body = request.path] {
                             server->post([reply, body] { reply({.status = 200, .body = body}); });
                           });
                         });
  ASSERT_TRUE(made) << made.error().message();
  server = made->get();
  bool is_over = false;
  std::thread looping([&] {
    while (!is_over) {
      loop.wait(kNever);
      for (const auto& letter : loop.take()) letter();
    }
  });
  std::thread serving([&] { server->run(); });
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&path, i] {
      const ControlClient client(path);
      for (int each = 0; each < kEach; ++each) {
        const std::string target = "/" + std::to_string(i) + "/" + std::to_string(each);
        const auto answer = client.send("GET", target);
        ASSERT_TRUE(answer) << answer.error().message();
        EXPECT_EQ(answer->body, target);
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  server->stop();
  serving.join();
  (void)loop.put_always([&] { is_over = true; });
  looping.join();
  made->reset();
  EXPECT_EQ(rmdir(folder.data()), 0);
}

// An answer that comes when nobody reads letters any more is dropped with them, connections and
// all.
TEST(Http, AnswersThatComeTooLateAreDropped) {
  std::array<char, 32> folder{"/tmp/weir-http-XXXXXX"};
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = std::string(folder.data()) + "/s";
  HttpServer::Reply kept;
  std::promise<void> asked;
  auto server = *HttpServer::create({.socket_path = path, .tcp = "", .token = ""},
                                    [&](const HttpRequest&, const HttpServer::Reply& reply) {
                                      kept = reply;
                                      asked.set_value();
                                    });
  std::thread serving([&] { server->run(); });
  std::thread reader([&] { EXPECT_FALSE(ControlClient(path).send("GET", "/")); });
  asked.get_future().wait();
  server->stop();
  serving.join();
  server->post([reply = std::move(kept)] { reply({}); });
  kept = nullptr;
  server.reset();
  reader.join();
  EXPECT_EQ(rmdir(folder.data()), 0);
}

}  // namespace
}  // namespace weir::control
