// SPDX-License-Identifier: Apache-2.0
//
// No bytes of a client may make the session return results for which the server has to disconnect
// it: requests outside the export, empty replies, unsolicited answers. The first byte selects TLS
// and how many bytes are fed at a time; the rest is the client's bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "weir/base/assert.h"
#include "weir/nbd/fake_port.h"
#include "weir/nbd/session.h"
#include "weir/serve/session_check.h"

namespace {

using namespace weir;
using Step = serve::Session::Step;
using Event = serve::Session::Event;

class Connection {
 public:
  explicit Connection(std::uint8_t choice) {
    using Mode = serve::TlsOptions::Mode;
    port_.tls_mode = (choice & 1U) != 0 ? Mode::kOn : Mode::kOff;
    session_ =
        (choice & 128U) != 0 ? nbd::begin_extended_session(port_) : nbd::begin_session(port_);
    session_->greet(out_);
  }

  // False when it has ended.
  bool feed(std::span<const std::byte> in) {
    while (!is_open_) {
      const Step step = session_->negotiate(in, out_);
      if (step == Step::kNeedBytes) {
        WEIR_ASSERT(in.empty());
        return true;
      }
      if (step == Step::kBreak) WEIR_ASSERT(!session_->problem().empty());
      if (step == Step::kEnd || step == Step::kBreak) return false;
      if (step == Step::kOpen) is_open_ = true;  // kStartTls: as if the rest arrived within TLS
    }
    for (;;) {
      const std::size_t payload = std::min(payload_left_, in.size());
      payload_left_ -= payload;
      in = in.subspan(payload);
      if (payload_left_ > 0) return true;
      request_.clear();
      const Event event = session_->next(in, request_);
      if (event == Event::kEnd || event == Event::kBreak) return false;
      if (event == Event::kRefused) WEIR_ASSERT(serve::reply_fault(request_).empty());
      if (event == Event::kRequest) serve();
      if (event == Event::kNeedBytes) {
        WEIR_ASSERT(in.empty());
        return true;
      }
    }
  }

 private:
  void serve() {
    const std::string fault = serve::request_fault(request_);
    WEIR_ASSERT(fault.empty());
    request_.id = ++requests_;
    if (request_.is_own) {
      std::vector<std::byte> room(request_.reply_room);
      session_->perform(request_, room);
      WEIR_ASSERT(port_.answered && port_.answered_id == requests_);
      WEIR_ASSERT(port_.answered->size > 0 && port_.answered->size <= room.size());
      return;
    }
    if (request_.command == serve::StoreCommand::kWrite) payload_left_ = request_.length;
    session_->reply(request_, {.error = requests_ % 2 == 0 ? 5 : 0,
                               .text = "text",
                               .is_hole = request_.takes_hole && requests_ % 3 == 0});
    WEIR_ASSERT(serve::reply_fault(request_).empty());
  }

  nbd::FakePort port_;
  std::unique_ptr<serve::Session> session_;
  serve::Session::Output out_;
  serve::IoRequest request_;
  bool is_open_ = false;
  std::size_t payload_left_ = 0;
  std::uint64_t requests_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size < 1) return 0;
  std::span<const std::byte> client = std::as_bytes(std::span(bytes + 1, size - 1));
  Connection connection(bytes[0]);
  const std::size_t piece = (bytes[0] >> 1U) + std::size_t{1};
  while (!client.empty()) {
    const auto first = client.first(std::min(piece, client.size()));
    client = client.subspan(first.size());
    if (!connection.feed(first)) break;
  }
  return 0;
}
