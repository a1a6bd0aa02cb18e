// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <string>
#include <string_view>

#include <benchmark/benchmark.h>

#include "weir/base/allocations_bench.h"
#include "weir/nfs/codec/call.h"
#include "weir/nfs/codec/message_writer.h"

namespace weir::nfs {
namespace {

constexpr std::string_view kHandle = "the handle of a file, 48 bytes like those of NFS";

XdrWriter getattr3() { return sys_call(7, kNfsVersion3, 1, 1000).opaque(kHandle); }

XdrWriter read41() {
  CompoundWriter compound(1);
  compound.sequence(3, 55).put_handle(kHandle).op(Op::kRead).zeros(16).u64(0).u32(4096);
  return compound.call(7, 1000);
}

XdrWriter open41() {
  CompoundWriter compound(1);
  compound.sequence(3, 55).put_handle(kHandle);
  compound.op(Op::kOpen).u32(0).u32(1).u32(0).u64(7).opaque("owner").u32(0).u32(0).opaque("name");
  compound.op(Op::kGetFh);
  compound.op(Op::kGetAttr).u32(2).u64(0);
  return compound.call(7, 1000);
}

// From the record of a call to its PendingCall.
void read_and_keep(benchmark::State& state, const XdrWriter& message) {
  const std::uint64_t allocated = allocations();
  for (auto _ : state) {
    const Call call = read_call(whole(message.bytes()));
    benchmark::DoNotOptimize(pending_of(call).cost.bytes);
  }
  state.counters["allocations"] = static_cast<double>(allocations() - allocated);
}
void BM_Nfs_getattr3(benchmark::State& state) { read_and_keep(state, getattr3()); }
void BM_Nfs_read41(benchmark::State& state) { read_and_keep(state, read41()); }
void BM_Nfs_open41(benchmark::State& state) { read_and_keep(state, open41()); }
BENCHMARK(BM_Nfs_getattr3);
BENCHMARK(BM_Nfs_read41);
BENCHMARK(BM_Nfs_open41);

void BM_Nfs_read41_reply(benchmark::State& state) {
  const XdrWriter message = read41();
  const PendingCall pending = pending_of(read_call(whole(message.bytes())));
  CompoundWriter results(1);
  results.sequence_result(3, 55).result(Op::kPutFh);
  results.result(Op::kRead).u32(1).opaque(std::string(4096, 'r'));
  const XdrWriter reply = results.reply(7);
  const std::uint64_t allocated = allocations();
  for (auto _ : state) {
    benchmark::DoNotOptimize(read_reply(whole(reply.bytes()), pending).moved.bytes);
  }
  state.counters["allocations"] = static_cast<double>(allocations() - allocated);
}
BENCHMARK(BM_Nfs_read41_reply);

}  // namespace
}  // namespace weir::nfs
