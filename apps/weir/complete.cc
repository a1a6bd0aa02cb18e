// SPDX-License-Identifier: Apache-2.0
//
// weir complete: candidates for the last word of a command line, for the completions of shells
// (package/completions). Commands and options come from the tables of the command line itself;
// names of rules and jobs from a running server. Without a server there are no names.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "apps/weir/remote.h"

namespace weir::app {
namespace {

constexpr std::size_t kNamesMax = 200;  // from a server

// Clients choose names: one with a character that a shell might act on is not offered.
bool is_harmless(std::string_view name) {
  constexpr std::string_view kPlain = "._@:/+-";
  return !name.empty() && name.front() != '-' && std::all_of(name.begin(), name.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kPlain.find(c) != std::string_view::npos;
  });
}

// Entries of a list of the server; none if no server answers.
void add_names(std::vector<std::string>& found, const char* list, const char* key) {
  const auto answer = Remote().client().ask("GET", list);
  const Json json = answer ? Json::parse(answer->body, nullptr, false) : Json();
  if (!json.is_array()) return;
  for (const Json& one : json) {
    auto name = one.value(key, "");
    if (is_harmless(name) && found.size() < kNamesMax) found.push_back(std::move(name));
  }
}

// The command that the words before the last one name, and those that are left over.
const CLI::App* command_of(const CLI::App& weir, const std::vector<std::string>& words,
                           std::size_t& rest) {
  const CLI::App* command = &weir;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const auto named = [&](const CLI::App* sub) { return sub->check_name(words[i]); };
    const auto below = command->get_subcommands(named);
    if (!below.empty()) {
      command = below.front();
      rest = 0;
    } else if (!words[i].starts_with('-')) {
      ++rest;
    }
  }
  return command;
}

std::vector<std::string> candidates(const CLI::App& weir, const std::vector<std::string>& words) {
  std::vector<std::string> found;
  std::size_t rest = 0;  // words since the name of the command
  const CLI::App* const command = command_of(weir, words, rest);
  const std::string& last = words.back();
  if (last.starts_with('-')) {
    for (const CLI::App* one = command; one != nullptr; one = one->get_parent()) {
      if (one == &weir && command != &weir) break;
      for (const CLI::Option* option : one->get_options()) {
        for (const std::string& name : option->get_lnames()) found.push_back("--" + name);
      }
    }
    return found;
  }
  const auto all = [](const CLI::App*) { return true; };
  for (const CLI::App* sub : command->get_subcommands(all)) found.push_back(sub->get_name());
  const CLI::App* const parent = command->get_parent();
  const std::string of = parent == nullptr || parent == &weir ? "" : parent->get_name();
  const std::string& name = command->get_name();
  if (rest > 0) return found;
  if (of == "rule") {
    add_names(found, "/v1/services/ost_io/rules", "rule");
  } else if (name == "explain" || (of == "job" && (name == "add" || name == "set"))) {
    add_names(found, "/v1/services/ost_io/jobs?limit=200", "job");
  } else if (of == "job" && name == "rm") {
    add_names(found, "/v1/jobs", "job");
  }
  return found;
}

}  // namespace

int run_complete(const CLI::App& weir, std::vector<std::string> words) {
  if (!words.empty() && words.front() == "--") words.erase(words.begin());
  if (words.empty()) words.emplace_back();
  std::vector<std::string> found = candidates(weir, words);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  for (const std::string& one : found) {
    if (one.starts_with(words.back())) fmt::print("{}\n", one);
  }
  return static_cast<int>(Exit::kOk);
}

}  // namespace weir::app
