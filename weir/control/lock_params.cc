// SPDX-License-Identifier: Apache-2.0
#include "weir/control/lock_params.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/base/units.h"

namespace weir::control {
namespace {

using lock::Console;
using lock::NamespaceView;
using lock::Tunable;
using Parts = std::vector<std::string>;

// Parses a number as the kernel does: digits, and optionally one newline.
Result<std::int64_t> read_number(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range) {
    return fail(std::errc::result_out_of_range, quote(text), "is too large");
  }
  if (error != std::errc{} || end != text.data() + text.size() || number < 0) {
    return fail(std::errc::invalid_argument, quote(text), "is not a number");
  }
  return number;
}

// A plain number is in `unit`; "5s" and "500ms" have their own.
Result<std::int64_t> read_time(std::string_view text, Nanoseconds unit) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.ends_with('s')) {
    const auto time = parse_duration(text);
    if (!time) return tl::unexpected(time.error());
    return time->count();
  }
  auto number = read_number(text);
  if (!number) return number;
  if (*number > INT64_MAX / unit.count()) {
    return fail(std::errc::result_out_of_range, quote(text), "is too long");
  }
  return *number * unit.count();
}

// Whole seconds as in Lustre, anything else with its unit.
std::string print_period(Nanoseconds period) {
  const bool is_whole = period % std::chrono::seconds{1} == Nanoseconds{0};
  return is_whole ? fmt::format("{}\n", period / std::chrono::seconds{1})
                  : print_duration(period) + "\n";
}

class Leaves {
 public:
  Leaves(Params& params, Console& console, const NamespaceView& view)
      : params_(params), console_(console), view_(view) {}

  void shown(Parts path, std::string value) {
    params_.add_read_only(std::move(path),
                          [value = std::move(value)]() -> Result<std::string> { return value; });
  }
  void number(Parts path, std::int64_t value) {
    shown(std::move(path), fmt::format("{}\n", value));
  }

  using Read = std::function<Result<std::int64_t>(std::string_view)>;
  void tunable(Parts path, std::string value, Tunable tunable, Read read) {
    const auto write = [&console = console_, name = view_.name, tunable,
                        read = std::move(read)](std::string_view text) -> Result<void> {
      const auto wanted = read(text);
      if (!wanted) return tl::unexpected(wanted.error());
      return console.set(name, tunable, *wanted);
    };
    params_.add({std::move(path),
                 [value = std::move(value)]() -> Result<std::string> { return value; }, write});
  }

  void pool(const Parts& folder) {
    const auto at = [&](const char* leaf) {
      Parts path = folder;
      path.emplace_back(leaf);
      return path;
    };
    number(at("cancel_rate"), view_.cancel_rate);
    number(at("grant_plan"), view_.grant_plan);
    number(at("grant_rate"), view_.grant_rate);
    number(at("grant_speed"), view_.grant_speed);
    number(at("granted"), view_.granted);
    tunable(at("limit"), fmt::format("{}\n", view_.limit), Tunable::kLimit, read_number);
    shown(at("lock_volume_factor"), lock::factor_text(view_) + "\n");
    tunable(at("recalc_period"), print_period(view_.recalc_period), Tunable::kRecalcPeriod,
            [](std::string_view text) { return read_time(text, std::chrono::seconds{1}); });
    shown(at("server_lock_volume"), fmt::format("{}\n", view_.server_lock_volume));
    shown(at("state"), view_.state);
  }

  void of_namespace() {
    const auto at = [&](const char* leaf) { return Parts{"ldlm", "namespaces", view_.name, leaf}; };
    shown(at("lock_count"),
          fmt::format("{}\n", static_cast<std::uint64_t>(std::max<std::int64_t>(0, view_.granted)) +
                                  view_.waiting + view_.parked));
    tunable(at("lru_max_age"),
            fmt::format("{}\n", view_.lru_max_age / std::chrono::milliseconds{1}),
            Tunable::kLruMaxAge,
            [](std::string_view text) { return read_time(text, std::chrono::milliseconds{1}); });
    tunable(at("lru_size"), fmt::format("{}\n", view_.lru_size), Tunable::kLruSize, read_number);
    pool(at("pool"));
    shown(at("resource_count"), fmt::format("{}\n", view_.resources));
  }

 private:
  Params& params_;
  Console& console_;
  const NamespaceView& view_;
};

}  // namespace

Params lock_params(Console& console) {
  Params params;
  bool is_first = true;
  for (const NamespaceView& one : console.view()) {
    Leaves leaves(params, console, one);
    leaves.of_namespace();
    if (std::exchange(is_first, false)) leaves.pool({"ldlm", "server_pool"});
  }
  return params;
}

std::string lock_pool_path(std::string_view name, std::string_view leaf) {
  return fmt::format("ldlm.namespaces.{}.pool.{}", name, leaf);
}
std::string lock_namespace_path(std::string_view name, std::string_view leaf) {
  return fmt::format("ldlm.namespaces.{}.{}", name, leaf);
}

}  // namespace weir::control
