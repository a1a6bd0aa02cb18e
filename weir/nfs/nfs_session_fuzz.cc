// SPDX-License-Identifier: Apache-2.0
//
// No bytes of a client or of a server may make the gateway's session crash, return a request for
// which the server would have to disconnect it, answer a request twice, or leak memory. The first
// byte selects how long a request waits and how much memory there is. Steps follow: a byte with the
// kind of the step and the number of its bytes, and these bytes.
//
//   bits 0-1   0, 1: bytes of the client; 2: bytes of the server; 3: a queued request is performed
//   bits 2-7   length of the bytes in words of 4; 63: all remaining bytes
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "weir/base/assert.h"
#include "weir/nfs/fake_port.h"
#include "weir/nfs/session.h"
#include "weir/serve/session_check.h"

namespace {

using namespace weir;
using Event = serve::Session::Event;

class Connection {
 public:
  explicit Connection(std::uint8_t choice)
      : gateway_(serve::NfsOptions{}, {.address = {}, .size = 0, .text = "server"}) {
    port_.wait = std::chrono::seconds{choice % 16};
    port_.memory = (choice & 16U) != 0 ? std::size_t{1} << 26 : 4096;
    session_ = nfs::begin_session(port_, gateway_);
    std::vector<std::byte> out;
    session_->greet(out);
  }
  ~Connection() {
    session_->closed();
    WEIR_ASSERT(port_.held == 0, port_.held);
  }

  // False when it has ended.
  bool from_client(std::span<const std::byte> in) {
    for (;;) {
      auto request = std::make_unique<serve::IoRequest>();
      request->clear();
      const Event event = session_->next(in, *request);
      if (event == Event::kNeedBytes) {
        WEIR_ASSERT(in.empty());
        return true;
      }
      if (event == Event::kBreak) WEIR_ASSERT(!session_->problem().empty());
      if (event != Event::kRequest) return false;
      const std::string fault = serve::request_fault(*request);
      WEIR_ASSERT(fault.empty());
      request->id = ++ids_;
      const bool is_exempt = request->is_exempt;
      queued_.push_back(std::move(request));
      if (is_exempt) perform(queued_.size() - 1);
    }
  }
  bool from_server(std::span<const std::byte> in) {
    session_->from_server(in);
    drain(*session_->to_client());
    return port_.hang_ups == 0;
  }
  void perform() {
    if (!queued_.empty()) perform(ids_ % queued_.size());
    drain(*session_->to_server());
  }

 private:
  void perform(std::size_t index) {
    session_->perform(*queued_[index], {});
    queued_.erase(queued_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  void drain(serve::ByteQueue& queue) {
    queue.drop(queue.size());
    session_->transferred();
  }

  nfs::FakePort port_;
  nfs::Gateway gateway_;
  std::unique_ptr<serve::Session> session_;
  std::vector<std::unique_ptr<serve::IoRequest>> queued_;
  std::uint64_t ids_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size < 1) return 0;
  std::span<const std::byte> rest = std::as_bytes(std::span(bytes + 1, size - 1));
  Connection connection(bytes[0]);
  while (!rest.empty()) {
    const auto step = static_cast<unsigned>(rest[0]);
    rest = rest.subspan(1);
    const std::size_t wanted = step >> 2U == 63 ? rest.size() : std::size_t{step >> 2U} * 4;
    const auto part = rest.first(std::min(wanted, rest.size()));
    const unsigned what = step & 3U;
    if (what == 3) {
      connection.perform();
      continue;
    }
    rest = rest.subspan(part.size());
    if (what == 2 ? !connection.from_server(part) : !connection.from_client(part)) break;
  }
  return 0;
}
