// SPDX-License-Identifier: Apache-2.0

#include <array>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "weir/base/allocations_bench.h"
#include "weir/base/big_endian.h"
#include "weir/nbd/codec/requests.h"

namespace weir::nbd {
namespace {

Session session_of(bool structured) {
  Session session = {.size = std::uint64_t{1} << 32,
                     .flags = kHasFlags | kSendFlush | kSendFua | kSendTrim};
  session.structured = structured;
  if (structured) session.flags |= kSendDf;
  return session;
}

// 4 KiB requests as a client with a deep queue sends them: many in one piece of the stream.
std::vector<std::byte> requests(Command command, std::size_t count, std::size_t payload) {
  std::vector<std::byte> bytes;
  bytes.reserve(count * (kRequestBytes + payload));
  for (std::size_t i = 0; i < count; ++i) {
    bytes.resize(bytes.size() + kRequestBytes + payload);
    std::byte* to = bytes.data() + bytes.size() - kRequestBytes - payload;
    to = store_be(to, kRequestMagic);
    to = store_be<std::uint16_t>(to, 0);
    to = store_be(to, static_cast<std::uint16_t>(command));
    to = store_be<std::uint64_t>(to, i);
    to = store_be<std::uint64_t>(to, i * 7919 % 1'000'000 * 4096);
    store_be<std::uint32_t>(to, 4096);
  }
  return bytes;
}

constexpr std::size_t kBatch = 32;

// Parse, check, and write the reply header.
void BM_Nbd_read(benchmark::State& state) {
  const std::vector<std::byte> bytes = requests(Command::kRead, kBatch, 0);
  RequestReader reader(session_of(state.range(0) != 0));
  std::array<std::byte, kReplyHeadMax> head;
  const std::uint64_t allocated = allocations();
  std::span<const std::byte> in;
  for (auto _ : state) {
    if (in.empty()) in = bytes;
    const RequestEvent event = reader.next(in);
    benchmark::DoNotOptimize(read_reply(head, reader.session(), event.request).data());
    benchmark::ClobberMemory();
  }
  state.counters["allocations"] = static_cast<double>(allocations() - allocated);
}
BENCHMARK(BM_Nbd_read)->ArgName("structured")->Arg(0)->Arg(1);

// Parse, check, skip the payload without copying it, and write the reply.
void BM_Nbd_write(benchmark::State& state) {
  const std::vector<std::byte> bytes = requests(Command::kWrite, kBatch, 4096);
  RequestReader reader(session_of(true));
  std::array<std::byte, kReplyHeadMax> head;
  const std::uint64_t allocated = allocations();
  std::span<const std::byte> in;
  for (auto _ : state) {
    if (in.empty()) in = bytes;
    const RequestEvent event = reader.next(in);
    benchmark::DoNotOptimize(reader.next(in).payload.data());
    benchmark::DoNotOptimize(done_reply(head, reader.session(), {event.request.cookie}).data());
    benchmark::ClobberMemory();
  }
  state.counters["allocations"] = static_cast<double>(allocations() - allocated);
}
BENCHMARK(BM_Nbd_write);

// A header that arrived in two pieces.
void BM_Nbd_split_read(benchmark::State& state) {
  const std::vector<std::byte> bytes = requests(Command::kRead, 1, 0);
  RequestReader reader(session_of(true));
  std::array<std::byte, kReplyHeadMax> head;
  for (auto _ : state) {
    std::span<const std::byte> first = std::span(bytes).first(11);
    std::span<const std::byte> second = std::span(bytes).subspan(11);
    benchmark::DoNotOptimize(reader.next(first).kind);
    const RequestEvent event = reader.next(second);
    benchmark::DoNotOptimize(read_reply(head, reader.session(), event.request).data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_Nbd_split_read);

}  // namespace
}  // namespace weir::nbd
