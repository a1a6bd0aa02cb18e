// SPDX-License-Identifier: Apache-2.0
//
// The last two hours of a server: what its services and their most delayed classes did in each
// second of the last five minutes, and in each 15 seconds before; and when rules were changed.
//
//   history.begin(now);                               about once a second
//   history.total("ost_io", sums);                    sums since the start, of all requests
//   history.add("ost_io", "default/dd.0", sums);      and of each class
//   history.view("ost_io", Resolution::kSeconds, history.busiest(...))
//
// A step has the difference of two samples. If the second one is late, its difference is divided
// equally among the steps since the first. A sum that has decreased is that of a new class with the
// same name, and counts from 0.
//
// At most kSeriesMax classes of all services are kept. When there are more, a class that has waited
// more than twice as long in total as the least delayed one takes its place, or one that was not
// delayed within the history.
//
// All memory together is at most kMemoryMax, which many classes that are used for two hours take.
// No clock; one owner, no locks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/base/time.h"

namespace weir {

// Requests, their bytes and the sum of their waits.
struct UsageSums {
  std::uint64_t served = 0;
  std::uint64_t bytes = 0;
  std::uint64_t waited_ns = 0;

  bool operator==(const UsageSums&) const = default;
};
// The difference from an earlier sum, or the whole of a sum that started again.
UsageSums difference(const UsageSums& now, const UsageSums& before);

// The same of one step, in 16 bytes: waits in microseconds. Larger numbers are cut to the maximum.
class UsageStep {
 public:
  static constexpr std::uint64_t kServedMax = UINT32_MAX;
  static constexpr std::uint64_t kMax = (std::uint64_t{1} << 48) - 1;  // of bytes, and of waits

  void add(const UsageSums& more);

  std::uint64_t served() const { return served_; }
  std::uint64_t bytes() const { return std::uint64_t{bytes_high_} << 32 | bytes_low_; }
  std::uint64_t waited_us() const { return std::uint64_t{wait_high_} << 32 | wait_low_; }

 private:
  std::uint32_t served_ = 0;
  std::uint32_t bytes_low_ = 0;
  std::uint32_t wait_low_ = 0;
  std::uint16_t bytes_high_ = 0;
  std::uint16_t wait_high_ = 0;
};
static_assert(sizeof(UsageStep) == 16);

// The last N steps by their number, at least 0. In pieces, which take memory once something was
// counted in them: a class that is seldom used takes little.
template <std::size_t N>
class StepRing {
 public:
  void add(std::int64_t number, const UsageSums& more) {
    auto& piece = pieces_[place(number) / kPieceSteps];
    if (piece == nullptr) piece = std::make_unique<Piece>();
    (*piece)[place(number) % kPieceSteps].add(more);
  }
  UsageStep get(std::int64_t number) const {
    const auto& piece = pieces_[place(number) / kPieceSteps];
    return piece == nullptr ? UsageStep{} : (*piece)[place(number) % kPieceSteps];
  }
  // Empties the steps after `before` up to `now`.
  void clear(std::int64_t before, std::int64_t now) {
    for (std::int64_t i = now; i > std::max(before, now - static_cast<std::int64_t>(N)); --i) {
      const auto& piece = pieces_[place(i) / kPieceSteps];
      if (piece != nullptr) (*piece)[place(i) % kPieceSteps] = {};
    }
  }

 private:
  static constexpr std::size_t kPieceSteps = 32;
  static constexpr std::size_t kPieces = (N + kPieceSteps - 1) / kPieceSteps;
  using Piece = std::array<UsageStep, kPieceSteps>;

  static std::size_t place(std::int64_t number) { return static_cast<std::size_t>(number) % N; }

  std::array<std::unique_ptr<Piece>, kPieces> pieces_{};

 public:
  static constexpr std::size_t kPieceBytes = sizeof(Piece) + 16;  // with malloc's
  static constexpr std::size_t kMemoryMax = kPieces * kPieceBytes;

  std::size_t memory() const {
    return kPieceBytes *
           static_cast<std::size_t>(std::count_if(
               pieces_.begin(), pieces_.end(), [](const auto& piece) { return piece != nullptr; }));
  }
};

class UsageHistory {
 public:
  static constexpr Nanoseconds kFineStep = std::chrono::seconds{1};
  static constexpr Nanoseconds kCoarseStep = std::chrono::seconds{15};
  static constexpr std::size_t kFineSteps = 300;        // five minutes
  static constexpr std::size_t kCoarseSteps = 480 + 1;  // two hours, and the one in progress
  static constexpr std::size_t kSeriesMax = 1024;
  static constexpr std::size_t kServicesMax = 64;
  static constexpr std::size_t kNameMax = 256;  // bytes; classes with longer names are not kept
  static constexpr std::size_t kMarksMax = 256;
  static constexpr std::size_t kMarkMax = 256;  // bytes; longer texts are cut
  static constexpr std::size_t kMemoryMax = std::size_t{16} << 20;

  enum class Resolution : std::uint8_t { kSeconds, kQuarters };  // of a minute
  enum class Order : std::uint8_t { kServed, kBytes, kWait };

  struct Mark {
    Instant at{};
    std::string text;
  };
  struct Line {
    std::string name;
    std::vector<UsageStep> steps;  // oldest first, all lines of a view the same number
  };
  struct View {
    Nanoseconds step{};
    Instant end{};  // of the last step
    std::vector<UsageStep> total;
    std::vector<Line> classes;
  };

  // A sample starts. A time before the last sample counts as the same.
  void begin(Instant now);
  // Services beyond kServicesMax are ignored.
  void total(std::string_view service, const UsageSums& sums);
  void add(std::string_view service, std::string_view name, const UsageSums& sums);
  // A change of rules; the oldest is dropped when there are kMarksMax.
  void mark(Instant now, std::string_view text);

  // Complete steps. Of these classes, without those that are not kept; none: no such service.
  std::optional<View> view(std::string_view service, Resolution resolution,
                           const std::vector<std::string>& names) const;
  // Names of up to `count` classes with the largest sums in that time, largest first.
  std::vector<std::string> busiest(std::string_view service, Resolution resolution, Order order,
                                   std::size_t count) const;
  // Of a class in the second before the last sample; none: it is not kept, or too new.
  std::optional<UsageSums> last_second(std::string_view service, std::string_view name) const;
  const std::deque<Mark>& marks() const { return marks_; }
  std::size_t size() const { return series_.size(); }
  std::size_t memory() const;  // bytes, at most kMemoryMax

 private:
  struct Service;
  struct Series {
    std::string name;
    Service* of = nullptr;
    UsageSums last{};
    std::int64_t delayed_at = 0;  // the second in which its requests last waited
    StepRing<kFineSteps> fine{};
    StepRing<kCoarseSteps> coarse{};
  };
  struct Service {
    std::string name;
    Series total{};
    bool has_total = false;
    absl::flat_hash_map<std::string_view, Series*> classes = {};  // views of Series::name
  };
  static constexpr std::size_t kIndexEntry = 64;  // bytes in the index, at its lowest load
  static constexpr std::size_t kSeriesOwn = sizeof(Series) + kNameMax + kIndexEntry;
  static constexpr std::size_t kSeriesBytes =
      kSeriesOwn + StepRing<kFineSteps>::kMemoryMax + StepRing<kCoarseSteps>::kMemoryMax;
  static_assert((kSeriesMax + kServicesMax) * kSeriesBytes + kServicesMax * sizeof(Service) +
                    kMarksMax * (sizeof(Mark) + kMarkMax) <=
                kMemoryMax);

  Service* service_for(std::string_view name);
  const Service* find(std::string_view name) const;
  Series* series_for(Service& service, std::string_view name, const UsageSums& sums);
  Series* least_delayed();
  bool was_delayed(const Series& one) const;
  void take(Series& one, const UsageSums& sums, bool starts_here) const;
  std::vector<UsageStep> steps_of(const Series& one, Resolution resolution) const;
  std::size_t complete(Resolution resolution) const;

  std::int64_t first_ = 0;  // second of the first sample
  std::int64_t before_ = 0;
  std::int64_t now_ = 0;
  bool has_begun_ = false;
  bool is_first_ = true;  // this sample
  std::vector<std::unique_ptr<Service>> services_;
  std::vector<std::unique_ptr<Series>> series_;
  std::vector<Series*> victims_;  // of this sample, the least delayed last
  bool has_victims_ = false;
  std::deque<Mark> marks_;
};

}  // namespace weir
