// SPDX-License-Identifier: Apache-2.0
//
// weir top: a table of the classes of a running server, updated continuously. It restores the
// terminal, and with --once prints one table for scripts and slow connections.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <thread>

#include <fmt/core.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "apps/weir/one_of.h"
#include "apps/weir/remote.h"

namespace weir::app {
namespace {

constexpr const char* kFooter = R"(
Examples:
  weir top
  weir top --sort wait --filter ior
  weir top --once --interval 5

Manual: weir-top(1).)";

struct TopArguments {
  Remote remote;
  std::string service = "ost_io";
  std::string sort = "ops";
  std::string filter;
  double interval = 1;
  bool once = false;
};

struct Row {
  std::string name;
  double ops = 0;
  double bytes = 0;
  double wait_ns = 0;  // of a request
  double rate = 0;
  double level = 0;
  double depth = 0;
  const char* unit = "";  // of the rate: operations, or bytes where only these are limited
};

constexpr std::chrono::milliseconds kSnapshotAge{250};  // a little more than the server's

volatile std::sig_atomic_t is_over = 0;

// Reads single keys without echo while this object exists.
class RawTerminal {
 public:
  RawTerminal() {
    if (tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    is_raw_ = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    fmt::print("\x1b[?1049h\x1b[?25l");
  }
  ~RawTerminal() {
    fmt::print("\x1b[?25h\x1b[?1049l");
    std::fflush(stdout);
    if (is_raw_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  termios before_{};
  bool is_raw_ = false;
};

// Rates are differences of two snapshots, divided by the time between them.
class Rates {
 public:
  // The current rows; the previous ones if the snapshot is the same.
  std::vector<Row>& update(const control::ControlAnswer& answer) {
    if (answer.time_ns == time_ns_) return rows_;
    const double since = static_cast<double>(answer.time_ns) - static_cast<double>(time_ns_);
    const double seconds = std::max(since / 1e9, 0.001);
    time_ns_ = answer.time_ns;
    rows_.clear();
    std::map<std::string, std::array<double, 3>> seen;
    for (const Json& one : Json::parse(answer.body)) {
      Row row{.name = one["class"].get<std::string>(),
              .rate = one["rate"].get<double>(),
              .level = one["level"].get<double>(),
              .depth = one["depth"].get<double>()};
      if (row.rate == 0 && one["bps"].get<double>() > 0) {
        row.unit = "B";
        row.rate = one["bps"].get<double>();
        row.level = one["byte_level"].get<double>();
        row.depth = one["byte_depth"].get<double>();
      }
      const std::array<double, 3> now = {one["served"].get<double>(), one["bytes"].get<double>(),
                                         one["waited_ns"].get<double>()};
      const auto before = last_.find(row.name);
      const std::array<double, 3> from = before == last_.end() ? now : before->second;
      row.ops = (now[0] - from[0]) / seconds;
      row.bytes = (now[1] - from[1]) / seconds;
      const bool has_new = now[0] > from[0];
      row.wait_ns = has_new ? (now[2] - from[2]) / (now[0] - from[0]) : 0;
      seen.emplace(row.name, now);
      rows_.push_back(std::move(row));
    }
    last_ = std::move(seen);
    return rows_;
  }

 private:
  std::uint64_t time_ns_ = 0;
  std::map<std::string, std::array<double, 3>> last_;
  std::vector<Row> rows_;
};

void sort_rows(std::vector<Row>& rows, const std::string& by) {
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    if (by == "wait") return a.wait_ns > b.wait_ns;
    if (by == "bytes") return a.bytes > b.bytes;
    if (by == "name") return a.name < b.name;
    return a.ops > b.ops;
  });
}

std::string table(const std::vector<Row>& rows, std::size_t lines) {
  std::string text = fmt::format("{:<34} {:>9} {:>9} {:>9} {:>8} {:>14}\n", "CLASS", "OPS/S",
                                 "BYTES/S", "WAIT", "LIMIT", "BUCKET");
  std::size_t shown = 0;
  for (const Row& row : rows) {
    if (++shown > lines) break;
    text += fmt::format("{:<34.34} {:>9} {:>9} {:>9} {:>8} {:>14}\n", row.name,
                        short_number(row.ops), short_number(row.bytes), short_time(row.wait_ns),
                        row.rate > 0 ? short_number(row.rate) + row.unit : "-",
                        row.rate > 0
                            ? fmt::format("{}/{}", short_number(row.level), short_number(row.depth))
                            : "-");
  }
  return text;
}

std::size_t terminal_lines() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 6) return 20;
  return size.ws_row - 4U;
}

// Waits for the next turn or a key. False: quit.
bool wait_for_key(TopArguments& arguments) {
  pollfd in{STDIN_FILENO, POLLIN, 0};
  const int ready = poll(&in, 1, static_cast<int>(arguments.interval * 1000));
  if (is_over != 0) return false;
  if (ready <= 0) return true;
  char key = 0;
  if (read(STDIN_FILENO, &key, 1) != 1) return false;
  if (key == 'q' || key == 3 || key == 4) return false;
  if (key == 'o') arguments.sort = "ops";
  if (key == 'b') arguments.sort = "bytes";
  if (key == 'w') arguments.sort = "wait";
  if (key == 'n') arguments.sort = "name";
  return true;
}

int run_top(TopArguments arguments) {
  const std::string target =
      fmt::format("/v1/services/{}/classes?limit=10000&sort=served&filter={}",
                  control::url_text(arguments.service), control::url_text(arguments.filter));
  const Remote& remote = arguments.remote;
  Rates rates;
  rates.update(remote.answer("GET", target));
  if (arguments.once || isatty(STDOUT_FILENO) == 0) {
    // At least the age of a snapshot, otherwise there would be no difference.
    const std::chrono::duration<double> pause(arguments.interval);
    std::this_thread::sleep_for(std::max<std::chrono::duration<double>>(pause, kSnapshotAge));
    const auto answer = remote.answer("GET", target);
    if (remote.json) {
      fmt::print("{}", answer.body);
    } else {
      auto& rows = rates.update(answer);
      sort_rows(rows, arguments.sort);
      fmt::print("{}", table(rows, rows.size()));
    }
    check_output();
    return static_cast<int>(Exit::kOk);
  }
  std::signal(SIGINT, [](int) { is_over = 1; });
  std::signal(SIGTERM, [](int) { is_over = 1; });
  const RawTerminal terminal;
  while (wait_for_key(arguments)) {
    auto& rows = rates.update(remote.answer("GET", target));
    sort_rows(rows, arguments.sort);
    fmt::print(
        "\x1b[H\x1b[2Jweir top  {}  {} classes, by {}   o ops  b bytes  w wait  n name  q "
        "quit\n\n{}",
        arguments.service, rows.size(), arguments.sort, table(rows, terminal_lines()));
    std::fflush(stdout);
  }
  return static_cast<int>(Exit::kOk);
}

}  // namespace

void add_top(CLI::App& weir, int& status) {
  auto arguments = std::make_shared<TopArguments>();
  CLI::App* const command =
      weir.add_subcommand("top", "Show the classes of a running server, updated continuously");
  arguments->remote.add_to(*command);
  command->add_option("--service", arguments->service, "Use this service (default ost_io)")
      ->type_name("NAME");
  command->add_option("--sort", arguments->sort, "Sort by ops, bytes, wait or name (default ops)")
      ->type_name("KEY")
      ->check(one_of({"ops", "bytes", "wait", "name"}));
  command->add_option("--filter", arguments->filter, "Show only classes whose names contain TEXT")
      ->type_name("TEXT");
  command->add_option("--interval", arguments->interval, "Update every SECONDS (default 1)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 3600.0));
  command->add_flag("--once", arguments->once, "Print one table and exit");
  command->footer(kFooter);
  command->callback([arguments, &status] { status = run_top(*arguments); });
}

}  // namespace weir::app
