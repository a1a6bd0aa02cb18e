// SPDX-License-Identifier: Apache-2.0
//
// weir lctl, and weir when it is called lctl: the parameter commands of Lustre for a Weir server,
// with the same output, the same two lines for an error and the same exit statuses.
#include <cerrno>
#include <cstring>
#include <memory>

#include <fmt/core.h>

#include "apps/weir/remote.h"

namespace weir::app {
namespace {

constexpr const char* kLctlFooter = R"(
Commands:
  get_param [-n|-N] PARAM...           print values; -n without names, -N only names
  set_param [-n] PARAM=VALUE...        write values; -n prints nothing
  set_param -P [-d] PARAM[=VALUE]...   also keep the value in the journal; -d removes it
  list_param PARAM...                  print names

Examples:
  weir lctl get_param 'ost.OSS.*.nrs_policies'
  weir lctl set_param ost.OSS.ost_io.nrs_tbf_rule="start dd jobid={dd.*} rate=100"
  weir lctl get_param -n 'obdfilter.*.job_stats'
  weir lctl set_param 'ldlm.namespaces.*.pool.limit=200000'

Give --control PATH before the command, or set WEIR_SOCKET. The exit status is an errno value, as on
Lustre. Manual: weir-lctl(1).)";

// Arguments of a command: flags in any order, then names.
struct Words {
  bool no_names = false;    // -n
  bool only_names = false;  // -N
  bool persists = false;    // -P
  bool deletes = false;     // -d
  std::vector<std::string> names;
};

Words read_words(const std::vector<std::string>& arguments) {
  Words words;
  for (auto word = arguments.begin() + 1; word != arguments.end(); ++word) {
    if (word->size() < 2 || word->front() != '-') {
      words.names.push_back(*word);
      continue;
    }
    for (const char flag : word->substr(1)) {
      switch (flag) {
        case 'n':
          words.no_names = true;
          break;
        case 'N':
          words.only_names = true;
          break;
        case 'P':
          words.persists = true;
          break;
        case 'd':
          words.deletes = true;
          break;
        case 'R':
        case 'F':
          break;  // no deeper level and no other kind here
        default:
          throw Failure{Exit::kUsage, fmt::format("{}: no option -{}", arguments[0], flag)};
      }
    }
  }
  if (words.names.empty()) {
    throw Failure{Exit::kUsage, fmt::format("{}: name a parameter", arguments[0])};
  }
  return words;
}

std::string slashed(std::string path) {
  for (char& c : path) {
    if (c == '.') c = '/';
  }
  return path;
}

int errno_of(const Json& outcome) { return outcome.value("errno", 0); }

int get_params(const Remote& remote, const Words& words) {
  int status = 0;
  for (const std::string& pattern : words.names) {
    const Json outcomes = remote.get("/v1/params?pattern=" + control::url_text(pattern));
    for (const Json& one : outcomes) {
      const auto path = one["path"].get<std::string>();
      if (const int error = errno_of(one); error != 0) {
        const auto file = one["file"].get<std::string>();
        const bool is_missing = error == ENOENT && file == pattern;
        print_error("error: {}'{}': {}\n",
                    is_missing ? "get_param: param_path " : "read_param: ", slashed(file),
                    std::strerror(error));
        if (status == 0) status = error;
        continue;
      }
      const auto value = one["value"].get<std::string>();
      const std::size_t newline = value.find('\n');
      if (words.only_names) {
        fmt::print("{}\n", path);
      } else if (words.no_names) {
        fmt::print("{}", value);
      } else if (value.empty()) {
        fmt::print("{}=\n", path);
      } else if (newline + 1 < value.size() && newline != std::string::npos) {
        fmt::print("{}=\n{}", path, value);
      } else {
        fmt::print("{}={}{}", path, value, value.ends_with('\n') ? "" : "\n");
      }
    }
  }
  return status;
}

int list_params(const Remote& remote, const Words& words) {
  int status = 0;
  for (const std::string& pattern : words.names) {
    const Json outcomes = remote.get("/v1/params?list=1&pattern=" + control::url_text(pattern));
    for (const Json& one : outcomes) {
      if (const int error = errno_of(one); error != 0) {
        print_error("error: list_param: param_path '{}': {}\n", slashed(pattern),
                    std::strerror(error));
        status = error;
      } else {
        fmt::print("{}\n", one["path"].get<std::string>());
      }
    }
  }
  return status;
}

// The two lines of a failure, and its status.
int set_one(const Remote& remote, const Words& words, const std::string& pattern,
            const std::string& value) {
  Json set{{"pattern", pattern}};
  if (!words.deletes || !value.empty()) set["value"] = value;
  const Json body{
      {"set", Json::array({set})}, {"persist", words.persists}, {"delete", words.deletes}};
  const Json outcomes = Json::parse(remote.ask("POST", "/v1/params", body.dump()), nullptr, false);
  int status = 0;
  std::string hint;
  for (const Json& one : outcomes) {
    const int error = errno_of(one);
    if (error == 0) {
      if (!words.no_names && !words.persists) {
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

int set_params(const Remote& remote, const Words& words) {
  int status = 0;
  for (const std::string& name : words.names) {
    const std::size_t equals = name.find('=');
    if (equals == std::string::npos && !words.deletes) {
      print_error("error: set_param: no value for '{}': write PARAM=VALUE\n", name);
      status = EINVAL;
      continue;
    }
    const std::string value = equals == std::string::npos ? "" : name.substr(equals + 1);
    status = set_one(remote, words, name.substr(0, equals), value);
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
  if (rest.empty()) throw Failure{Exit::kUsage, "name a command: get_param, set_param, list_param"};
  if (rest[0] == "get_param") return get_params(remote, read_words(rest));
  if (rest[0] == "set_param") return set_params(remote, read_words(rest));
  if (rest[0] == "list_param") return list_params(remote, read_words(rest));
  throw Failure{Exit::kUsage,
                fmt::format("no command '{}'; use get_param, set_param or list_param", rest[0])};
}

void add_lctl(CLI::App& weir, int& status) {
  CLI::App* const command =
      weir.add_subcommand("lctl", "Read and write parameters of a running server, as on Lustre");
  command->prefix_command();
  command->footer(kLctlFooter);
  command->callback([command, &status] { status = run_lctl(command->remaining()); });
}

}  // namespace weir::app
