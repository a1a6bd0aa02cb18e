// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/progress.h"

#include <algorithm>
#include <cstdio>

#include <fmt/core.h>
#include <unistd.h>

#include "weir/base/units.h"
#include "weir/host/log.h"

namespace weir::app {
namespace {

using Wide = unsigned __int128;
constexpr std::uint64_t kBarWidth = 30;
constexpr Wide kSecondsMax = 3'596'400;  // 999 h: beyond that it is only "long"

std::string clock_text(std::uint64_t seconds) {
  if (seconds < 3600) return fmt::format("{}:{:02}", seconds / 60, seconds % 60);
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::uint64_t in_seconds(Nanoseconds time) {
  return static_cast<std::uint64_t>(std::max(time, Nanoseconds{0}) / std::chrono::seconds{1});
}

// part / whole of `of`, in 128 bits.
std::uint64_t share(std::uint64_t part, std::uint64_t whole, std::uint64_t of) {
  return static_cast<std::uint64_t>(Wide{part} * of / whole);
}

}  // namespace

std::string about_bandwidth(Bytes bytes, Nanoseconds elapsed) {
  const auto ns = static_cast<std::uint64_t>(std::max(elapsed, Nanoseconds{1}).count());
  const Wide per_second = Wide{bytes.count()} * 1'000'000'000 / ns;
  const Wide shown = std::min(per_second, Wide{UINT64_MAX});
  return about_size(Bytes{static_cast<std::uint64_t>(shown)}) + "/s";
}

Progress::Progress(std::optional<Bytes> total, Show show)
    : total_(total), shown_(show == Show::kOnTerminal && isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { erase(); }

std::string Progress::bar(std::uint64_t done, std::uint64_t total) {
  const std::uint64_t filled = share(done, total, kBarWidth);
  std::string bar(kBarWidth, ' ');
  std::fill_n(bar.begin(), filled, '=');
  if (filled < kBarWidth) bar[filled] = '>';
  return fmt::format("[{}] {:>3}%", bar, share(done, total, 100));
}

std::string Progress::line(Bytes done, std::optional<Bytes> total, Nanoseconds elapsed) {
  std::string figures =
      fmt::format("{:>8}  {:>10}  {}", about_size(done), about_bandwidth(done, elapsed),
                  clock_text(in_seconds(elapsed)));
  if (!total || *total == Bytes{0}) return figures;
  // A file may grow while it is read.
  const Bytes end = std::max(*total, done);
  std::string left;
  if (done > Bytes{0}) {
    const Wide ns = Wide{(end - done).count()} * static_cast<std::uint64_t>(elapsed.count());
    const Wide seconds = ns / done.count() / 1'000'000'000;
    left = "  left " + clock_text(static_cast<std::uint64_t>(std::min(seconds, kSecondsMax)));
  }
  return fmt::format("{}  {}{}", bar(done.count(), end.count()), figures, left);
}

void Progress::draw(Bytes done, Nanoseconds elapsed) {
  if (!shown_) return;
  (void)host::write_stderr(fmt::format("\r\x1b[K{}", line(done, total_, elapsed)));
  drawn_ = true;
}

void Progress::erase() {
  if (!drawn_) return;
  (void)host::write_stderr("\r\x1b[K");
  drawn_ = false;
}

}  // namespace weir::app
