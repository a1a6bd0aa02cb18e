// SPDX-License-Identifier: Apache-2.0
#include "weir/control/http.h"

#include <algorithm>
#include <array>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "weir/control/client.h"
#include "weir/host/fd.h"
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

TEST(Http, KnowsItselfByAddressOnly) {
  for (const char* host : {"localhost", "LOCALHOST:9810", "127.0.0.1:9810", "10.0.0.7",
                           "[::1]:9810", "[fe80::1]", "::1"}) {
    EXPECT_TRUE(is_local_host(host)) << host;
  }
  for (const char* host : {"", "evil.example", "evil.example:9810", "localhost.evil.example",
                           "127.0.0.1.evil.example", "[evil]", "a:b:c"}) {
    EXPECT_FALSE(is_local_host(host)) << host;
  }
}

TEST(Http, RefusesTcpWithoutATokenAndBeyondLoopback) {
  const auto none = [](const HttpRequest&, const HttpServer::Reply&) {};
  EXPECT_FALSE(HttpServer::create({.socket_path = "", .tcp = "127.0.0.1:0", .tokens = {}}, none));
  for (const char* const bad : {"0.0.0.0:0", "192.0.2.1:80", "nonsense", "127.0.0.1", ":80",
                                "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:80x", "unix:/tmp/s"}) {
    EXPECT_FALSE(HttpServer::create(
        {.socket_path = "", .tcp = bad, .tokens = {{"t", Access::kWrite, "t"}}}, none))
        << bad;
  }
  for (const char* const good : {"127.0.0.1:0", "localhost:0"}) {
    const auto bound = HttpServer::create(
        {.socket_path = "", .tcp = good, .tokens = {{"t", Access::kWrite, "t"}}}, none);
    ASSERT_TRUE(bound) << good;
    EXPECT_NE((*bound)->tcp_port(), 0);
  }
}

// Answers come from another thread, as from a server's loop, while readers connect and disconnect.
TEST(Http, AnswersOfOtherThreadsReachWhoAsked) {
  constexpr int kReaders = 4;
  constexpr int kEach = 20;
  std::array<char, 32> folder{"/tmp/weir-http-XXXXXX"};
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = std::string(folder.data()) + "/s";
  HttpServer* server = nullptr;
  host::Mailbox<std::function<void()>> loop(std::move(*host::make_wake_fd()));
  auto made =
      HttpServer::create({.socket_path = path, .tcp = "", .tokens = {}},
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

// ---- clients that announce or request much, and then wait ----

// A raw connection that can violate the protocol.
class Raw {
 public:
  explicit Raw(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    connect(address);
  }
  explicit Raw(std::uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(address);
  }
  void send(const std::string& text) const {
    EXPECT_GT(::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
  }
  bool has_answer() const {
    pollfd waits{fd_.get(), POLLIN, 0};
    return poll(&waits, 1, 0) == 1;
  }
  // Waits for the answer and returns its status; 0: there is none.
  int status() const {
    std::array<char, 12> line{};
    if (recv(fd_.get(), line.data(), line.size(), MSG_WAITALL) != std::ssize(line)) return 0;
    return std::stoi(std::string(line.data() + 9, 3));
  }

 private:
  template <class Address>
  void connect(const Address& address) {
    const auto& there = reinterpret_cast<const sockaddr&>(address);
    EXPECT_EQ(::connect(fd_.get(), &there, sizeof address), 0);
    const timeval patience{60, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }

  host::Fd fd_;
};

class Crowded : public testing::Test {
 protected:
  static constexpr std::size_t kAnswer = HttpServer::kRepliesMax / 8;

  Crowded() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    path_ = std::string(folder_.data()) + "/s";
    server_ = *HttpServer::create(
        {.socket_path = path_, .tcp = "127.0.0.1:0", .tokens = {{"t", Access::kWrite, "t"}}},
        [](const HttpRequest& request, const HttpServer::Reply& reply) {
          const bool asks = request.path == "/much";
          reply({.body = std::string(asks ? kAnswer : 1, 'x')});
        });
    thread_ = std::thread([this] { server_->run(); });
  }
  ~Crowded() override {
    server_->stop();
    thread_.join();
    server_.reset();
    rmdir(folder_.data());
  }
  static std::string post(std::size_t size) {
    return "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(size) +
           "\r\n\r\n";
  }
  // How many of `count` clients that send the text are refused at once; `waits` of them get no
  // answer.
  std::size_t refused(std::size_t count, std::size_t waits, const std::string& text) {
    std::vector<Raw> all;
    for (std::size_t i = 0; i < count; ++i) all.emplace_back(path_).send(text);
    const auto answered = [&] {
      return static_cast<std::size_t>(
          std::count_if(all.begin(), all.end(), [](const Raw& one) { return one.has_answer(); }));
    };
    for (int i = 0; i < 6000 && answered() < count - waits; ++i) poll(nullptr, 0, 10);
    return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [](const Raw& one) {
      return one.has_answer() && one.status() == 503;
    }));
  }
  // As soon as the server has noticed that the others have disconnected.
  int status_in_the_end(const std::string& text) {
    int status = 0;
    for (int i = 0; i < 6000 && status != 200; ++i) {
      const Raw one(path_);
      one.send(text);
      status = one.status();
      if (status != 200) poll(nullptr, 0, 10);
    }
    return status;
  }

  std::array<char, 32> folder_{"/tmp/weir-http-XXXXXX"};
  std::string path_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(Crowded, ABodyWithoutTheTokenIsNotWaitedFor) {
  const Raw stranger(server_->tcp_port());
  stranger.send(post(HttpServer::kBodyMax));
  EXPECT_EQ(stranger.status(), 401);
}

TEST_F(Crowded, BodiesThatAreAnnouncedAreBounded) {
  constexpr std::size_t kFit = HttpServer::kBodiesMax / HttpServer::kBodyMax;
  EXPECT_EQ(refused(kFit + 10, kFit, post(HttpServer::kBodyMax)), 10U);
  EXPECT_EQ(status_in_the_end(post(HttpServer::kBodyMax) + std::string(HttpServer::kBodyMax, 'x')),
            200);
}

TEST_F(Crowded, AnswersThatNobodyReadsAreBounded) {
  const std::string ask = "GET /much HTTP/1.1\r\nHost: w\r\n\r\n";
  EXPECT_EQ(refused(8 + 10, 0, ask), 10U);
  EXPECT_EQ(status_in_the_end(ask), 200);
}

// An answer that arrives when letters are no longer read is dropped, together with its connection.
TEST(Http, AnswersThatComeTooLateAreDropped) {
  std::array<char, 32> folder{"/tmp/weir-http-XXXXXX"};
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = std::string(folder.data()) + "/s";
  HttpServer::Reply kept;
  std::promise<void> asked;
  auto server = *HttpServer::create({.socket_path = path, .tcp = "", .tokens = {}},
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
