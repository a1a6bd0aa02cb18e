// SPDX-License-Identifier: Apache-2.0
//
// A policy outside of Weir: earliest deadline first. A read is due `read_ms` after its arrival, any
// other request `other_ms` after its arrival, and the request with the earliest deadline runs
// first. So a burst of writes does not delay reads for long, and a stream of reads cannot starve a
// write.
//
//   edf-server --export scratch=memory:1GiB --policy edf
//   weir lctl get_param ost.OSS.ost_io.nrs_policies
//
// Everything else is `weir serve`: clients, stores, control, metrics. A policy without rules has no
// limits and no shares; requests for them are refused with this reason.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>

#include "weir/base/heap.h"
#include "weir/schedule/policy_kinds.h"
#include "weir/serve_main.h"

namespace {

class EarliestDeadlineFirst final : public weir::Policy {
 public:
  std::string_view name() const override { return "edf"; }

  void admit(weir::Request& request, weir::Instant now) override {
    const bool reads = request.operation == weir::OperationKind::kRead;
    queue_.push(request, now + std::chrono::milliseconds{reads ? read_ms_ : other_ms_});
  }

  weir::Pick pick(weir::Instant /*now*/, weir::Urge /*urge*/) override {
    return {.request = queue_.empty() ? nullptr : &queue_.pop()};
  }

  void remove(weir::Request& request, weir::Instant /*now*/) override { queue_.erase(request); }

  std::optional<std::uint64_t> tunable(std::string_view name) const override {
    return name == "read_ms" ? std::optional(read_ms_) : std::optional(other_ms_);
  }
  void set_tunable(std::string_view name, std::uint64_t value) override {
    (name == "read_ms" ? read_ms_ : other_ms_) = value;
  }

 private:
  // Requests are linked, not copied; ties are in order of arrival.
  weir::Heap<weir::Request, weir::Instant, &weir::Request::policy_heap> queue_;
  std::uint64_t read_ms_ = 10;
  std::uint64_t other_ms_ = 100;
};

weir::PolicyKind earliest_deadline_first() {
  using Pair = weir::PolicyKind::Pair;
  return {
      .name = "edf",
      .help = "earliest deadline first",
      .tunables = {{.name = "read_ms", .least = 0, .most = 60'000, .help = "until a read is due"},
                   {.name = "other_ms", .least = 0, .most = 60'000, .help = "and all others"}},
      .make = [](std::string_view, const weir::PolicySetup&) -> weir::Result<Pair> {
        return Pair{std::make_unique<EarliestDeadlineFirst>(),
                    std::make_unique<EarliestDeadlineFirst>()};
      }};
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto added = weir::add_policy(earliest_deadline_first()); !added) {
    std::fprintf(stderr, "%s\n", added.error().message().c_str());
    return 70;
  }
  return weir::serve_main(argc, argv);
}
