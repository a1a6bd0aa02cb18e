// SPDX-License-Identifier: Apache-2.0
//
// Handshakes of several loops at once; also run under the thread sanitizer. With real clients:
// tests/clients/tls_test.py.
#include "weir/serve/handshakes.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

namespace weir::serve {
namespace {

using Reached = host::TlsSession::State;

// Only for this test.
constexpr std::string_view kServerKey = R"(-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgFjTtIl/AFOUhGbh7
T67qGyQvcQdzkkNjielt+9NeBYahRANCAAT4zzCcbMq02day8z3X2CUd99OgvKJo
Plx4m1u8FnnZqXXOj1g6EzBrbpPaYDKzNX62l3zcVj+PNkecwJWMyu2i
-----END PRIVATE KEY-----
)";
constexpr std::string_view kServerCertificate = R"(-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUUMNh75jKZd0pKTJliuDBQPB4VTkwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEd2VpcjAgFw0yNjExMTgxMjUzMDRaGA8yMTI2MTAyNTEyNTMw
NFowDzENMAsGA1UEAwwEd2VpcjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABPjP
MJxsyrTZ1rLzPdfYJR3306C8omg+XHibW7wWedmpdc6PWDoTMGtuk9pgMrM1fraX
fNxWP482R5zAlYzK7aKjUzBRMB0GA1UdDgQWBBQuvnaIo41+EbOxyvKtqT0p829E
WzAfBgNVHSMEGDAWgBQuvnaIo41+EbOxyvKtqT0p829EWzAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIQDrULJg6kfnyd2h/xuVRBb/326/e+6Q1/Ld
OD9dW5qNagIgBw3lFos1AZN6mXlULo5qjoFA5MQY//a2SaY/cB9EFCY=
-----END CERTIFICATE-----
)";

// The first message of a client with TLS 1.3. The reply to it contains a signature.
constexpr std::string_view kHello =
    "16030100dc010000d8030369160f46418f1a11736a594aefdf2852742cbaac1ba8bcb496721124be344c2f20"
    "ef6e6071f3a3f5597c1123e05098e33a186dcd7b11d7fe03107da0ad1acc1631000813021303130100ff0100"
    "0087000b000403000102000a00160014001d0017001e00190018010001010102010301040023000000160000"
    "00170000000d001e001c040305030603080708080809080a080b080408050806040105010601002b00030203"
    "04002d00020101003300260024001d0020c127db615877c2b03cb494445b85ef5d98e44de4a49eab142d2934"
    "9c8fd89820";

std::vector<std::byte> from_hex(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(std::byte(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

class HandshakesTest : public testing::Test {
 protected:
  HandshakesTest() {
    std::string folder = std::filesystem::temp_directory_path() / "weir-handshakes-XXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    const auto write = [&](const char* name, std::string_view text) {
      std::ofstream(folder + "/" + name) << text;
    };
    write("ca-cert.pem", kServerCertificate);
    write("server-cert.pem", kServerCertificate);
    write("server-key.pem", kServerKey);
    const auto keys = host::TlsKeys::load(folder, host::TlsKeys::Clients::kAny);
    EXPECT_TRUE(keys) << keys.error().message();
    keys_ = keys.value_or(nullptr);
    std::filesystem::remove_all(folder);
  }

  host::TlsKeys::Ptr keys_;
};

// As a loop uses it: sleeps until the bell rings.
class OneLoop {
 public:
  OneLoop(host::TlsKeys::Ptr keys, std::size_t sessions) : bell_(host::make_wake_fd().value()) {
    for (std::size_t i = 0; i < sessions; ++i) {
      sessions_.emplace_back(keys);
      jobs_.push_back({.connection = nullptr, .session = &sessions_.back(), .input = {}});
    }
  }

  void step(const std::vector<std::byte>& input) {
    for (TlsJob& job : jobs_) {
      job.input = input;
      job.reached = Reached::kDone;
      handshakes_.add(job);
    }
    std::vector<TlsJob*> done;
    while (done.size() < jobs_.size()) {
      bell_.fall_asleep();
      if (!handshakes_.has_done()) await_bell();
      bell_.wake_up();
      for (TlsJob* const job : handshakes_.take_done()) done.push_back(job);
    }
    std::sort(done.begin(), done.end());
    EXPECT_EQ(std::unique(done.begin(), done.end()), done.end()) << "each is returned once";
  }
  // What all jobs have reached, and their sessions have to send.
  void expect(Reached reached, bool has_output) {
    for (TlsJob& job : jobs_) {
      EXPECT_EQ(job.reached, reached) << job.session->error();
      EXPECT_EQ(job.session->has_output(), has_output);
      while (job.session->has_output()) job.session->sent(job.session->output().size());
    }
  }

 private:
  void await_bell() const {
    pollfd waiting{.fd = bell_.fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&waiting, 1, -1), 1);
    std::uint64_t count = 0;
    EXPECT_EQ(read(bell_.fd(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
  }

  Doorbell bell_;
  std::deque<host::TlsSession> sessions_;
  std::deque<TlsJob> jobs_;
  Handshakes handshakes_{bell_};
};

TEST_F(HandshakesTest, ASessionGoesToTheThreadAndBackForEachStep) {
  const std::vector<std::byte> hello = from_hex(kHello);
  OneLoop loop(keys_, 5);
  loop.step({hello.begin(), hello.begin() + 40});
  loop.expect(Reached::kWants, false);
  loop.step({hello.begin() + 40, hello.end()});
  loop.expect(Reached::kWants, true);
  loop.step(std::vector<std::byte>(40, std::byte{'x'}));
  loop.expect(Reached::kFailed, true);
}

TEST_F(HandshakesTest, LoopsWithTheSameCertificateDoNotDisturbEachOther) {
  const std::vector<std::byte> hello = from_hex(kHello);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 3; ++round) {
        OneLoop loop(keys_, 4);
        loop.step(hello);
        loop.expect(Reached::kWants, true);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace weir::serve
