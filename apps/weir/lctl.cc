// SPDX-License-Identifier: Apache-2.0
//
// weir lctl, and weir when it is called lctl: the parameter commands of Lustre for a Weir server,
// with the same output, the same two lines for an error and the same exit statuses.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "apps/weir/remote.h"
#include "weir/base/nearest.h"
#include "weir/control/params.h"

namespace weir::app {
namespace {

constexpr const char* kLctlFooter = R"(
Commands:
  get_param [-FHnNRrtwy] PARAM...      print values
      -n  without names                  -N  names without values
      -R  all parameters below           -H  the name before each line
      -F  mark names as list_param does  -y  accepted: values that have a YAML form use it always
      -r, -w, -t  only readable, writable or tunable parameters
  set_param [-n] [-t[N]] PARAM=VALUE...  write values; -n prints nothing, -t is accepted
  set_param -P [-d] PARAM[=VALUE]...   also keep the value in the journal; -d removes it
  set_param -F FILE                    write the values in FILE, in the format of llog_print
  list_param [-DFRrtw] PARAM...        print names
      -D  only folders                   -F  mark folders with / and writable parameters with =
      -R  also everything below
  version                              print the version

Examples:
  weir lctl get_param 'ost.OSS.*.nrs_policies'
  weir lctl set_param ost.OSS.ost_io.nrs_tbf_rule="start dd jobid={dd.*} rate=100"
  weir lctl get_param -n 'obdfilter.*.job_stats'
  weir lctl get_param 'obdfilter.*OST*.stats'
  weir lctl list_param -RF obdfilter
  weir lctl set_param 'ldlm.namespaces.*.pool.limit=200000'

Give --control PATH before the command, or set WEIR_SOCKET. The exit status is an errno value, as on
Lustre. Manual: weir-lctl(1).)";

// Parameters that -t leaves out, as Lustre's lctl does.
constexpr std::array<std::string_view, 10> kNotTunable = {
    "console", "debug_", "fail_", "force",      "import",
    "nis",     "panic_", "stats", "srpc_sepol", "target_obd"};

// Options of a command, by its letter. Those without an effect here are accepted, since scripts
// use them: no parameter is a link, and -y and -t of set_param change only how lctl works.
struct Option {
  char letter;
  std::string_view name;
  std::string_view commands;  // the first letters of get_param, set_param and list_param
};
constexpr std::array kOptions = {
    Option{'n', "no-name", "gs"},  Option{'N', "only-name", "g"}, Option{'R', "recursive", "gl"},
    Option{'F', "classify", "gl"}, Option{'F', "file", "s"},      Option{'D', "dir-only", "l"},
    Option{'H', "header", "g"},    Option{'y', "yaml", "g"},      Option{'t', "tunable", "gl"},
    Option{'t', "thread", "s"},    Option{'r', "readable", "gl"}, Option{'w', "writable", "gl"},
    Option{'l', "links", "gl"},    Option{'L', "no-links", "gl"}, Option{'m', "merge", "gl"},
    Option{'M', "no-merge", "gl"}, Option{'P', "permanent", "s"}, Option{'d', "delete", "s"}};

// Arguments of a command: options in any order, then names.
class Words {
 public:
  explicit Words(const std::vector<std::string>& arguments) : command_(arguments[0]) {
    bool has_ended = false;  // by "--"
    for (auto word = arguments.begin() + 1; word != arguments.end(); ++word) {
      if (has_ended || word->size() < 2 || word->front() != '-') {
        names.push_back(*word);
      } else if (*word == "--") {
        has_ended = true;
      } else if (word->starts_with("--")) {
        take_long(word->substr(2));
      } else {
        take_letters(word->substr(1));
      }
    }
    // list_param -R lists the whole tree.
    if (names.empty() && command_ == "list_param" && has('R')) names.emplace_back("*");
    if (names.empty()) {
      throw Failure{Exit::kUsage, has('F') && command_ == "set_param"
                                      ? "set_param -F: name a file"
                                      : fmt::format("{}: name a parameter", command_)};
    }
  }

  bool has(char letter) const { return letters_.find(letter) != std::string::npos; }

  std::vector<std::string> names;

 private:
  bool belongs(const Option& option) const {
    return option.commands.find(command_[0]) != std::string_view::npos;
  }
  void take_long(std::string_view name) {
    name = name.substr(0, name.find('='));
    for (const Option& option : kOptions) {
      if (option.name != name || !belongs(option)) continue;
      letters_ += option.letter;
      return;
    }
    throw Failure{Exit::kUsage,
                  fmt::format("{}: no option --{}; see weir-lctl(1)", command_, name)};
  }
  void take_letters(std::string_view letters) {
    for (std::size_t at = 0; at < letters.size(); ++at) {
      const auto* const found = std::find_if(
          kOptions.begin(), kOptions.end(),
          [&](const Option& option) { return option.letter == letters[at] && belongs(option); });
      if (found == kOptions.end()) {
        throw Failure{Exit::kUsage,
                      fmt::format("{}: no option -{}; see weir-lctl(1)", command_, letters[at])};
      }
      letters_ += letters[at];
      // set_param -t8: the number of threads.
      if (found->name != "thread") continue;
      while (at + 1 < letters.size() && letters[at + 1] >= '0' && letters[at + 1] <= '9') ++at;
    }
  }

  std::string command_;
  std::string letters_;
};

std::string slashed(std::string path) {
  for (char& c : path) {
    if (c == '.') c = '/';
  }
  return path;
}

int errno_of(const Json& outcome) { return outcome.value("errno", 0); }

// Whether -r, -w and -t leave a parameter. All of them can be read.
bool is_wanted(const Words& words, const Json& one) {
  const bool is_folder = one.value("folder", false);
  if (words.has('w') && !one.value("writable", false)) return false;
  if ((words.has('r') || words.has('t')) && is_folder) return false;
  const auto path = one["path"].get<std::string>();
  return !words.has('t') ||
         std::none_of(kNotTunable.begin(), kNotTunable.end(),
                      [&](std::string_view part) { return path.find(part) != std::string::npos; });
}

// With the mark of -F.
std::string name_of(const Words& words, const Json& one) {
  auto name = one["path"].get<std::string>();
  if (!words.has('F')) return name;
  if (one.value("folder", false)) return name + "/";
  return one.value("writable", false) ? name + "=" : name;
}

Json look_up(const Remote& remote, const Words& words, const std::string& pattern,
             std::string_view more) {
  return remote.get(fmt::format("/v1/params?pattern={}{}{}", control::url_text(pattern),
                                words.has('R') ? "&recursive=1" : "", more));
}

void print_value(const Words& words, const std::string& path, const std::string& value) {
  if (words.has('H')) {
    std::size_t at = 0;
    do {
      const std::size_t end = std::min(value.find('\n', at), value.size());
      fmt::print("{}={}\n", path, value.substr(at, end - at));
      at = end + 1;
    } while (at < value.size());
    return;
  }
  const std::size_t newline = value.find('\n');
  if (words.has('n')) {
    fmt::print("{}", value);
  } else if (value.empty()) {
    fmt::print("{}=\n", path);
  } else if (newline != std::string::npos && newline + 1 < value.size()) {
    fmt::print("{}=\n{}", path, value);
  } else {
    fmt::print("{}={}{}", path, value, value.ends_with('\n') ? "" : "\n");
  }
}

int get_params(const Remote& remote, const Words& words) {
  int status = 0;
  for (const std::string& pattern : words.names) {
    for (const Json& one : look_up(remote, words, pattern, "")) {
      if (const int error = errno_of(one); error != 0) {
        const auto file = one["file"].get<std::string>();
        const bool is_missing = error == ENOENT && file == pattern;
        print_error("error: {}'{}': {}\n",
                    is_missing ? "get_param: param_path " : "read_param: ", slashed(file),
                    std::strerror(error));
        if (status == 0) status = error;
      } else if (!is_wanted(words, one)) {
        continue;
      } else if (words.has('N')) {
        fmt::print("{}\n", name_of(words, one));
      } else {
        print_value(words, name_of(words, one), one["value"].get<std::string>());
      }
    }
  }
  return status;
}

int list_params(const Remote& remote, const Words& words) {
  int status = 0;
  for (const std::string& pattern : words.names) {
    for (const Json& one : look_up(remote, words, pattern, "&list=1")) {
      if (const int error = errno_of(one); error != 0) {
        print_error("error: list_param: param_path '{}': {}\n", slashed(pattern),
                    std::strerror(error));
        status = error;
      } else if (is_wanted(words, one) && (!words.has('D') || one.value("folder", false))) {
        fmt::print("{}\n", name_of(words, one));
      }
    }
  }
  return status;
}

// The two lines of a failure, and its status.
int set_one(const Remote& remote, const Words& words, const std::string& pattern,
            const std::string& value) {
  Json set{{"pattern", pattern}};
  if (!words.has('d') || !value.empty()) set["value"] = value;
  const Json body{
      {"set", Json::array({set})}, {"persist", words.has('P')}, {"delete", words.has('d')}};
  const Json outcomes = Json::parse(remote.ask("POST", "/v1/params", body.dump()), nullptr, false);
  int status = 0;
  std::string hint;
  for (const Json& one : outcomes) {
    const int error = errno_of(one);
    if (error == 0) {
      if (!words.has('n') && !words.has('P')) {
        fmt::print("{}={}\n", one["path"].get<std::string>(), value);
      }
      if (one.contains("note")) {
        print_error("note: {}\n", one["note"].get<std::string>());
      }
      continue;
    }
    const auto what = one["error"].get<std::string>();
    const std::string file = slashed(one["file"].get<std::string>());
    if (error == EACCES) {
      print_error("error: set_param: opening '{}': {}\n", file, std::strerror(error));
    } else {
      print_error("error: set_param: setting {}={}: {}\n", file, value, std::strerror(error));
    }
    if (what.find("nrs_tbf_rule") != std::string::npos && pattern.ends_with("nrs_policies")) {
      hint = "hint: rules are written to nrs_tbf_rule";
    }
    if (status == 0) status = error;
  }
  if (status != 0) {
    print_error("error: set_param: setting '{}'='{}': {}\n", slashed(pattern), value,
                std::strerror(status));
    if (!hint.empty()) print_error("{}\n", hint);
  }
  return status;
}

int set_text(const Remote& remote, const Words& words, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos && !words.has('d')) {
    print_error("error: set_param: no value for '{}': write PARAM=VALUE\n", text);
    return EINVAL;
  }
  return set_one(remote, words, text.substr(0, equals),
                 equals == std::string::npos ? "" : text.substr(equals + 1));
}

// A line of `lctl llog_print`:
//   - { index: 2, event: set_param, device: general, parameter: a.b, value: 1 }
// A value can contain braces and commas, so it ends at the last brace. None: another line.
std::optional<std::string> set_in(std::string_view line) {
  static constexpr std::string_view kParameter = "parameter: ";
  static constexpr std::string_view kValue = ", value: ";
  const std::size_t parameter = line.find(kParameter);
  const std::size_t value = line.find(kValue);
  const std::size_t brace = line.rfind('}');
  if (parameter == std::string_view::npos || value == std::string_view::npos ||
      brace == std::string_view::npos || value < parameter || brace < value + kValue.size()) {
    return std::nullopt;
  }
  const auto trimmed = [](std::string_view text) {
    while (text.ends_with(' ')) text.remove_suffix(1);
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
      text = text.substr(1, text.size() - 2);
    }
    return std::string(text);
  };
  const std::size_t name = parameter + kParameter.size();
  const std::size_t begin = value + kValue.size();
  return trimmed(line.substr(name, value - name)) + "=" +
         trimmed(line.substr(begin, brace - begin));
}

// All lines are checked before the first is written.
int set_from_file(const Remote& remote, const Words& words, const std::string& path) {
  std::ifstream file(path);
  if (const int error = errno; !file) {
    print_error("error: set_param: opening '{}': {}\n", path, std::strerror(error));
    return error;
  }
  std::vector<std::string> all;
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos || line[first] == '#' || line == "---") continue;
    auto set = set_in(line);
    if (!set) {
      print_error("error: set_param: {}:{}: write \"- {{ parameter: NAME, value: VALUE }}\"\n",
                  path, number);
      return EINVAL;
    }
    all.push_back(std::move(*set));
  }
  int status = 0;
  for (const std::string& one : all) {
    if (const int failed = set_text(remote, words, one); failed != 0) status = failed;
  }
  return status;
}

int set_params(const Remote& remote, const Words& words) {
  int status = 0;
  for (const std::string& name : words.names) {
    status = words.has('F') ? set_from_file(remote, words, name) : set_text(remote, words, name);
  }
  return status;
}

}  // namespace

int run_lctl(const std::vector<std::string>& arguments) {
  Remote remote;
  std::vector<std::string> rest = arguments;
  if (rest.size() >= 2 && rest[0] == "--control") {
    remote.socket = rest[1];
    rest.erase(rest.begin(), rest.begin() + 2);
  }
  if (rest.empty())
    throw Failure{Exit::kUsage, "name a command: get_param, set_param, list_param or version"};
  if (rest[0] == "get_param") return get_params(remote, Words(rest));
  if (rest[0] == "set_param") return set_params(remote, Words(rest));
  if (rest[0] == "list_param") return list_params(remote, Words(rest));
  if (rest[0] == "version" || rest[0] == "--version") {
    fmt::print("lctl {}_weir_" WEIR_VERSION "\n", control::kLustreVersion);
    return 0;
  }
  static constexpr std::array<std::string_view, 4> kCommands = {"get_param", "set_param",
                                                                "list_param", "version"};
  const auto meant = nearest(rest[0], kCommands);
  throw Failure{Exit::kUsage,
                fmt::format("no command '{}'; {}", rest[0],
                            meant ? fmt::format("did you mean '{}'?", *meant)
                                  : "use get_param, set_param, list_param or version")};
}

void add_lctl(CLI::App& weir, int& status) {
  CLI::App* const command =
      weir.add_subcommand("lctl", "Read and write parameters of a running server, as on Lustre");
  command->prefix_command();
  command->footer(kLctlFooter);
  command->callback([command, &status] { status = run_lctl(command->remaining()); });
}

}  // namespace weir::app
