// SPDX-License-Identifier: Apache-2.0
//
// weir top: the totals of a service and a table of its classes, updated continuously, on screens of
// 60 columns or more. It restores the terminal, and with --once prints one table for scripts and
// slow connections.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

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
  double wait_ns = 0;      // of a request
  std::string cause = {};  // of its waits; empty: none
  std::optional<double> share = {};
  double rate = 0;
  double level = 0;
  double depth = 0;
  const char* unit = "";  // of the rate: operations, or bytes where only these are limited
};

// The service as a whole.
struct Totals {
  double ops = 0;
  double bytes = 0;
  double wait_ns = 0;  // of a request
  std::string policy;
  std::uint64_t queued = 0;
  std::uint64_t running = 0;
  std::uint64_t slots = 0;
  std::string capacity;  // empty: unknown
  bool shares_bytes = false;
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
      if (!one["cause"].is_null()) row.cause = one["cause"].get<std::string>();
      if (!one["share"].is_null()) row.share = one["share"].get<double>();
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

// The server keeps the totals of each second: requests that are in classes of several layers count
// once, and a policy without classes has totals too.
Totals read_totals(const TopArguments& arguments) {
  const std::string path = "/v1/services/" + control::url_text(arguments.service);
  const Json service = arguments.remote.get(path);
  const Json history = arguments.remote.get(path + "/history?step=1&limit=1");
  const Json& all = history["total"];
  const std::size_t points = all["served"].size();
  const std::size_t wanted =
      std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(arguments.interval)));
  const std::size_t from = points - std::min(points, wanted);
  const auto sum = [&](const char* key) {
    double numbers = 0;
    for (std::size_t i = from; i < points; ++i) numbers += all[key][i].get<double>();
    return numbers;
  };
  const double seconds = static_cast<double>(std::max<std::size_t>(1, points - from));
  const double served = sum("served");
  const bool is_bytes = service["capacity_unit"] == "bytes";
  return {
      .ops = served / seconds,
      .bytes = sum("bytes") / seconds,
      .wait_ns = served > 0 ? sum("waited_ns") / served : 0,
      .policy = service["policy"].get<std::string>(),
      .queued = service["queued"].get<std::uint64_t>(),
      .running = service["running"].get<std::uint64_t>(),
      .slots = service["slots"]["count"].get<std::uint64_t>(),
      .capacity = service["capacity"].is_null()
                      ? ""
                      : short_number(service["capacity"].get<double>()) + (is_bytes ? "B/s" : "/s"),
      .shares_bytes = is_bytes};
}

void sort_rows(std::vector<Row>& rows, const std::string& by) {
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    if (by == "wait") return a.wait_ns > b.wait_ns;
    if (by == "bytes") return a.bytes > b.bytes;
    if (by == "share") return a.share.value_or(0) > b.share.value_or(0);
    if (by == "name") return a.name < b.name;
    return a.ops > b.ops;
  });
}

// ---- columns ----

struct Column {
  const char* head;
  std::size_t width;
  std::size_t needed;  // shown on screens of at least this width
  std::string (*text)(const Row& row, const Totals& totals);
};

constexpr std::size_t kNameLeast = 20;
constexpr std::size_t kNameUsual = 34;

constexpr Column kColumns[] = {
    {"OPS/S", 6, 0, [](const Row& row, const Totals&) { return short_number(row.ops); }},
    {"BYTES/S", 7, 0, [](const Row& row, const Totals&) { return short_number(row.bytes); }},
    {"WAIT", 6, 0, [](const Row& row, const Totals&) { return short_time(row.wait_ns); }},
    {"CAUSE", 5, 0, [](const Row& row, const Totals&) { return row.cause; }},
    {"SHARE", 7, 70,
     [](const Row& row, const Totals& totals) {
       if (!row.share) return std::string("-");
       return short_number(*row.share) + (totals.shares_bytes ? "B" : "");
     }},
    {"LIMIT", 7, 0,
     [](const Row& row, const Totals&) {
       return row.rate > 0 ? short_number(row.rate) + row.unit : "-";
     }},
    {"BUCKET", 11, 82,
     [](const Row& row, const Totals&) {
       if (row.rate == 0) return std::string("-");
       return fmt::format("{}/{}", short_number(row.level), short_number(row.depth));
     }},
};

// What fits; '~' shows that more was cut off.
std::string cut(std::string_view text, std::size_t width) {
  if (text.size() <= width) return std::string(text);
  return std::string(text.substr(0, width - 1)) + "~";
}

// Lines of at most this width, the first one with the heads; 0: as wide as needed.
std::vector<std::string> table(const std::vector<Row>& rows, const Totals& totals,
                               std::size_t lines, std::size_t width) {
  std::vector<const Column*> columns;
  std::size_t name = kNameUsual;
  std::size_t others = 0;
  for (const Column& column : kColumns) {
    if (width != 0 && width < column.needed) continue;
    columns.push_back(&column);
    others += 1 + column.width;
  }
  if (width == 0) {
    for (const Row& row : rows) name = std::max(name, row.name.size());
  } else {
    name = width > others + kNameLeast ? width - others : kNameLeast;
  }
  std::vector<std::string> text(1, fmt::format("{:<{}}", "CLASS", name));
  for (const Column* const one : columns) {
    text[0] += fmt::format(" {:>{}}", one->head, one->width);
  }
  for (const Row& row : rows) {
    if (text.size() > lines) break;
    std::string line = fmt::format("{:<{}}", cut(row.name, name), name);
    for (const Column* const one : columns) {
      line += fmt::format(" {:>{}}", one->text(row, totals), one->width);
    }
    text.push_back(std::move(line));
  }
  return text;
}

// With the capacity if there is room; 0: any width.
std::string totals_line(const Totals& all, std::size_t width) {
  std::string line =
      fmt::format("{} ops/s, {}B/s, wait {}, {} queued, {} of {} slots", short_number(all.ops),
                  short_number(all.bytes), short_time(all.wait_ns),
                  short_number(static_cast<double>(all.queued)), all.running, all.slots);
  if (all.capacity.empty()) return line;
  const std::string whole = line + ", capacity " + all.capacity;
  return width == 0 || whole.size() <= width ? whole : line;
}

// ---- the screen ----

struct Screen {
  std::size_t width = 80;
  std::size_t lines = 24;
};

Screen screen_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 6 || size.ws_col < 20) {
    return {};
  }
  return {size.ws_col, size.ws_row};
}

// Lines that are overwritten, so that nothing flickers.
void paint(const std::vector<std::string>& lines, const Screen& screen) {
  std::string text = "\x1b[H";
  for (std::size_t i = 0; i < lines.size() && i < screen.lines; ++i) {
    if (i > 0) text += "\r\n";
    text += cut(lines[i], screen.width) + "\x1b[K";
  }
  fmt::print("{}\x1b[J", text);
  std::fflush(stdout);
}

std::vector<std::string> help_lines() {
  return {"Keys",
          "  o b w s n  sort by operations, bytes, wait, share, name",
          "  /          show only classes whose names contain a text",
          "  ?          this help, and back",
          "  q          quit",
          "",
          "Columns",
          "  OPS/S BYTES/S  since the last update",
          "  WAIT       of a request, on average",
          "  CAUSE      limit: of its rule; share: of the capacity;",
          "             root: the whole target; slot: the device;",
          "             order: requests of others go first",
          "  SHARE      of the capacity, per second (70 columns)",
          "  LIMIT      per second; B: bytes",
          "  BUCKET     level and depth (82 columns)"};
}

// What the keys change.
struct View {
  bool has_help = false;
  std::optional<std::string> typed = {};  // a filter that is not applied yet
};

void type(View& view, TopArguments& arguments, char key) {
  constexpr char kEscape = 0x1b;
  constexpr char kErase = 0x7f;
  if (key == '\n' || key == '\r') {
    arguments.filter = *std::exchange(view.typed, std::nullopt);
  } else if (key == kEscape) {
    view.typed.reset();
  } else if (key == kErase || key == '\b') {
    if (!view.typed->empty()) view.typed->pop_back();
  } else if (key >= ' ') {
    *view.typed += key;
  }
}

// False: quit.
bool press(View& view, TopArguments& arguments, char key) {
  static constexpr std::pair<char, const char*> kSorts[] = {
      {'o', "ops"}, {'b', "bytes"}, {'w', "wait"}, {'s', "share"}, {'n', "name"}};
  if (view.typed) {
    type(view, arguments, key);
    return true;
  }
  if (key == 'q' || key == 3 || key == 4) return false;
  view.has_help = key == '?' && !view.has_help;
  if (key == '/') view.typed = "";
  for (const auto& [letter, sort] : kSorts) {
    if (key == letter) arguments.sort = sort;
  }
  return true;
}

// Waits for the next turn or keys. False: quit.
bool wait_for_key(View& view, TopArguments& arguments, double seconds) {
  pollfd in{STDIN_FILENO, POLLIN, 0};
  const int ready = poll(&in, 1, static_cast<int>(seconds * 1000));
  if (is_over != 0) return false;
  if (ready <= 0) return true;
  char keys[64];
  const ssize_t count = read(STDIN_FILENO, keys, sizeof keys);
  if (count <= 0) return false;
  for (ssize_t i = 0; i < count; ++i) {
    if (!press(view, arguments, keys[i])) return false;
  }
  return true;
}

std::string head_line(const TopArguments& arguments, const View& view, const Totals& totals,
                      std::size_t classes) {
  if (view.typed) return "filter: " + *view.typed + "_  (Enter: apply, Esc: cancel)";
  std::string text = fmt::format("{}  {}  {} classes by {}", arguments.service, totals.policy,
                                 short_number(static_cast<double>(classes)), arguments.sort);
  if (!arguments.filter.empty()) text += fmt::format("  with '{}'", arguments.filter);
  return text + "  ? help";
}

std::string classes_path(const TopArguments& arguments) {
  return fmt::format("/v1/services/{}/classes?limit=10000&sort=served&filter={}",
                     control::url_text(arguments.service), control::url_text(arguments.filter));
}

int print_once(const TopArguments& arguments) {
  const std::string path = classes_path(arguments);
  Rates rates;
  rates.update(arguments.remote.answer("GET", path));
  // At least the age of a snapshot, otherwise there would be no difference.
  const std::chrono::duration<double> pause(arguments.interval);
  std::this_thread::sleep_for(std::max<std::chrono::duration<double>>(pause, kSnapshotAge));
  const auto answer = arguments.remote.answer("GET", path);
  if (arguments.remote.json) {
    fmt::print("{}", answer.body);
  } else {
    auto& rows = rates.update(answer);
    sort_rows(rows, arguments.sort);
    const Totals totals = read_totals(arguments);
    fmt::print("{}\n", totals_line(totals, 0));
    for (const std::string& line : table(rows, totals, rows.size(), 0)) fmt::print("{}\n", line);
  }
  check_output();
  return static_cast<int>(Exit::kOk);
}

int run_top(TopArguments arguments) {
  if (arguments.once || isatty(STDOUT_FILENO) == 0) return print_once(arguments);
  for (const int number : {SIGINT, SIGTERM}) std::signal(number, [](int) { is_over = 1; });
  std::signal(SIGWINCH, [](int) {});  // ends poll()
  Rates rates;
  rates.update(arguments.remote.answer("GET", classes_path(arguments)));
  View view;
  std::string shown = arguments.filter;
  const RawTerminal terminal;
  double pause = std::chrono::duration<double>(kSnapshotAge).count();  // until the first rates
  while (wait_for_key(view, arguments, pause)) {
    pause = arguments.interval;
    const Screen screen = screen_size();
    if (view.has_help) {
      paint(help_lines(), screen);
      continue;
    }
    if (std::exchange(shown, arguments.filter) != arguments.filter) {
      rates = Rates();  // other classes
      pause = std::chrono::duration<double>(kSnapshotAge).count();
    }
    auto& rows = rates.update(arguments.remote.answer("GET", classes_path(arguments)));
    sort_rows(rows, arguments.sort);
    const Totals totals = read_totals(arguments);
    std::vector<std::string> lines = {head_line(arguments, view, totals, rows.size()),
                                      totals_line(totals, screen.width), ""};
    for (std::string& line : table(rows, totals, screen.lines - 4, screen.width)) {
      lines.push_back(std::move(line));
    }
    paint(lines, screen);
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
  command
      ->add_option("--sort", arguments->sort,
                   "Sort by ops, bytes, wait, share or name (default ops)")
      ->type_name("KEY")
      ->check(one_of({"ops", "bytes", "wait", "share", "name"}));
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
