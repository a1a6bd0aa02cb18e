// SPDX-License-Identifier: Apache-2.0
//
// A second protocol, to prove that the server does not depend on NBD. This file is the protocol,
// and `toy-server` is `weir serve` that uses it on addresses toy+ADDRESS. A request is 16 bytes
// (big-endian), a reply 8 bytes and data:
//
//   letter, argument, tag (2), length (4), offset (8)        [payload of a write]
//   status, 0, tag (2), size (4)                             [data]
//
//   R read     W write     T try: a read that is refused (status 'B') if it is expected to wait for
//                             longer than `argument` milliseconds
//   S size of the export: performed by the session, and exempt: charged, never queued
//   G guess: pays for `length` bytes before it runs, and turns out to have moved `offset`
//   X nonsense, by argument: a read outside of the export (1), of more than it allows (2), an
//     answer to a request that is not there (3), an answer twice (4), one larger than its room (5),
//     an exception (6), which must not happen and ends the process
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "weir/base/big_endian.h"
#include "weir/serve/protocol.h"
#include "weir/serve/session.h"
#include "weir/serve_main.h"

namespace {

using namespace weir;
using namespace weir::serve;

constexpr std::size_t kHeadBytes = 16;

class ToySession final : public Session {
 public:
  explicit ToySession(SessionPort& port) : port_(port) {
    if (const auto identity = port.identify({})) identity_ = *identity;
    port_.open(port_.export_at(0), opened_);
  }

  Event next(Input& in, IoRequest& request) override {
    while (filled_ < kHeadBytes && !in.empty()) {
      head_[filled_++] = in.front();
      in = in.subspan(1);
    }
    if (filled_ < kHeadBytes) return Event::kNeedBytes;
    filled_ = 0;
    return begin(request);
  }

  void reply(IoRequest& request, const IoResult& result) override {
    if (result.error != 0) return put_head(request, 'E', 0);
    const bool reads = request.command == StoreCommand::kRead;
    put_head(request, 'K', reads ? static_cast<std::uint32_t>(request.length) : 0);
  }

  void perform(IoRequest& request, std::span<std::byte> room) override {
    const auto letter = static_cast<char>(request.flags);
    const std::uint64_t id = request.id;
    OwnResult result{.size = 8};
    store_be(room.data(), opened_.facts->size);
    if (letter == 'G') result.moved = Bytes{request.offset};
    if (letter == 5) result.size = room.size() + 1;
    put_head(request, 'K', 8);
    port_.answer(letter == 3 ? id + 1 : id, result);
    if (letter == 4) port_.answer(id, result);
  }

  std::string_view problem() const override { return "a letter that is not a toy request"; }

 private:
  Event begin(IoRequest& request) {
    const auto letter = static_cast<char>(head_[0]);
    const auto argument = static_cast<std::uint8_t>(head_[1]);
    request.tag = load_be<std::uint16_t>(&head_[2]);
    request.length = load_be<std::uint32_t>(&head_[4]);
    request.offset = load_be<std::uint64_t>(&head_[8]);
    request.opened = &opened_;
    request.attributes = identity_;
    request.bytes = Bytes{request.length};
    switch (letter) {
      case 'R':
        return ask(request, OperationKind::kRead, "ost_read", StoreCommand::kRead);
      case 'W':
        return ask(request, OperationKind::kWrite, "ost_write", StoreCommand::kWrite);
      case 'T': {
        const Event event = ask(request, OperationKind::kRead, "ost_read", StoreCommand::kRead);
        if (port_.expected_wait(request) <= std::chrono::milliseconds{argument}) return event;
        put_head(request, 'B', 0);
        return Event::kRefused;
      }
      case 'S':
        request.is_exempt = true;
        return ask_own(request, letter);
      case 'G':
        return ask_own(request, letter);
      case 'X':
        if (argument == 6) throw std::runtime_error("planted");
        if (argument > 2) return ask_own(request, static_cast<char>(argument));
        request.offset = argument == 1 ? opened_.facts->size : 0;
        request.length = argument == 1 ? 4096 : opened_.facts->blocks.maximum + 1;
        return ask(request, OperationKind::kRead, "ost_read", StoreCommand::kRead);
      default:
        return Event::kBreak;
    }
  }

  static Event ask(IoRequest& request, OperationKind kind, std::string_view opcode,
                   StoreCommand command) {
    request.operation = kind;
    request.attributes.opcode = opcode_number(opcode).value();
    request.command = command;
    return Event::kRequest;
  }

  static Event ask_own(IoRequest& request, char what) {
    request.is_own = true;
    request.reply_room = 8;
    request.flags = static_cast<std::uint8_t>(what);
    return ask(request, OperationKind::kMetadataRead, "mds_getattr", StoreCommand::kRead);
  }

  static void put_head(IoRequest& request, char status, std::uint32_t size) {
    request.head[0] = static_cast<std::byte>(status);
    request.head[1] = std::byte{0};
    store_be(&request.head[2], static_cast<std::uint16_t>(request.tag));
    store_be(&request.head[4], size);
    request.head_size = 8;
  }

  SessionPort& port_;
  OpenedExport opened_;
  Attributes identity_;
  std::array<std::byte, kHeadBytes> head_{};
  std::size_t filled_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const auto added =
      add_protocol({.name = "toy", .help = "the smallest there is", .begin = [](SessionPort& port) {
                      return std::make_unique<ToySession>(port);
                    }});
  if (!added) {
    std::fprintf(stderr, "%s\n", added.error().message().c_str());
    return 70;
  }
  return serve_main(argc, argv);
}
