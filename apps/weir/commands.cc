// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/commands.h"

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "apps/weir/command.h"
#include "apps/weir/remote.h"
#include "weir/base/nearest.h"
#include "weir/base/quote.h"
#include "weir/nbd/session.h"
#include "weir/serve/protocol.h"

namespace weir::app {
namespace {

constexpr const char* kFooter = R"(
Examples:
  weir serve --export scratch=file:scratch.img,size=4GiB
  weir limit --bps 50MiB -- backup.tar | ssh archive 'cat > backup.tar'
  weir rules --type jobid site.rules
  weir alloc --rate 20k --period 20ms --explain periods.jsonl
  weir sim redistribution --out report
  weir bench nbd://localhost/scratch --job vm1
  weir explain ior.17
  weir lctl set_param ost.OSS.ost_io.nrs_tbf_rule="start dd jobid={dd.*} rate=100"
  weir cluster rule start dd 'jobid={dd.*}' rate=1000 by=rule
  weir lock run nightly -- rsync -a /data backup:
  weir lustre check
  weir nfs --listen :2049 --server nfs.example.org --rule 'start r uid={1002} rate=500'
  weir limit --help

Manual: weir(1). Exit statuses follow sysexits(3).)";

// The words of a command line that come after this one, as CLI11 names them.
std::vector<std::string> names_below(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// "; did you mean '--export'?" or nothing.
std::string suggestion(const CLI::App& command, std::string_view word) {
  word = word.substr(0, word.find('='));
  const std::vector<std::string> names = names_below(command);
  std::vector<std::string_view> alike;  // an option for an option, a command for a command
  for (const std::string& name : names) {
    if (name.starts_with("--") == word.starts_with("--")) alike.push_back(name);
  }
  const auto best = nearest(word, alike);
  return best ? "; did you mean " + quote(*best) + "?" : "";
}

int report_misuse(const CLI::App& weir, const CLI::ParseError& error) {
  std::string name = weir.get_name();
  const CLI::App* command = &weir;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  std::string hint;
  for (const std::string& word : weir.remaining(true)) {
    if (hint.empty()) hint = suggestion(*command, word);
  }
  print_error("{}: {}{}; try '{} --help'\n", name, visible(error.what()), hint, name);
  return static_cast<int>(Exit::kUsage);
}

// If the program is called lctl, it behaves as weir lctl.
bool is_lctl(const char* name) {
  const std::string_view path(name);
  return path.substr(path.rfind('/') + 1) == "lctl";
}

int run_as_lctl(int argc, char** argv) {
  try {
    return run_lctl(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const Failure& failure) {
    print_error("lctl: {}\n", visible(failure.message));
    return static_cast<int>(failure.status);
  }
}

int run_command(int argc, char** argv, AddCommands add_commands) {
  if (argc > 0 && is_lctl(argv[0])) return run_as_lctl(argc, argv);
  CLI::App weir("I/O flow control for shared storage", "weir");
  weir.set_version_flag("--version", "weir " WEIR_VERSION, "Print the version and exit");
  weir.set_help_flag("-h,--help", "Print this help and exit");
  weir.require_subcommand(1);
  int status = 0;
  add_commands(weir, status);
  weir.footer(kFooter);  // last: subcommands inherit the footer that is set when they are added
  if (argc > 1 && std::string_view(argv[1]) == "complete") {
    return run_complete(weir, std::vector<std::string>(argv + 2, argv + argc));
  }
  const auto named = [&](const CLI::App* sub) { return sub->check_name(argv[1]); };
  if (argc > 1 && argv[1][0] != '-' && weir.get_subcommands(named).empty()) {
    print_error("weir: unknown subcommand {}{}; try 'weir --help'\n", quote(argv[1]),
                suggestion(weir, argv[1]));
    return static_cast<int>(Exit::kUsage);
  }
  if (argc == 1) return weir.exit(CLI::CallForHelp());
  try {
    weir.parse(argc, argv);
    if (status == static_cast<int>(Exit::kOk)) check_output();
  } catch (const CLI::Success& success) {
    return weir.exit(success);
  } catch (const CLI::ParseError& error) {
    return report_misuse(weir, error);
  } catch (const Failure& failure) {
    print_error("weir {}: {}\n", weir.get_subcommands().front()->get_name(),
                visible(failure.message));
    return static_cast<int>(failure.status);
  }
  return status;
}

// Where an option ends and its value begins.
std::size_t word_end(std::string_view word) { return std::min(word.find('='), word.size()); }

bool uses_grpc(std::string_view command) {
  return command == "lock" || command == "nfs" || command == "serve";
}

}  // namespace

bool speaks_grpc(int argc, char** argv) {
  if (argc < 2 || is_lctl(argv[0])) return false;
  const std::string_view command(argv[1]);
  if (command == "complete") {
    const int first = argc > 2 && std::string_view(argv[2]) == "--" ? 3 : 2;
    return argc > first && (uses_grpc(argv[first]) || std::string_view(argv[first]) == "lustre");
  }
  const bool joins =
      command == "lustre" && std::any_of(argv + 2, argv + argc, [](const char* word) {
        return std::string_view(word).substr(0, word_end(word)) == "--cluster";
      });
  return joins || uses_grpc(command);
}

void add_listed(CLI::App& weir, int& status) {
  add_alloc(weir, status);
  add_bench(weir, status);
  add_limit(weir, status);
  weir.add_subcommand("lock", kLockHelp);
  add_lustre(weir, status);
  weir.add_subcommand("nfs", kNfsHelp);
  add_rules(weir, status);
  weir.add_subcommand("serve", kServeHelp);
  add_sim(weir, status);
  add_remote_commands(weir, status);
  add_cluster(weir, status);
  add_top(weir, status);
  add_lctl(weir, status);
}

int run(int argc, char** argv, AddCommands add_commands) {
  auto added = serve::add_protocol(nbd::protocol(), serve::Standard::kYes);
  if (added) added = serve::add_protocol(nbd::extended_protocol());
  if (!added) {
    print_error("weir: {}\n", added.error().message());
    return static_cast<int>(Exit::kSoftware);
  }
  try {
    return run_command(argc, argv, add_commands);
  } catch (const std::exception& error) {  // out of memory, or a bug
    print_error("weir: {}\n", error.what());
    return static_cast<int>(Exit::kSoftware);
  }
}

}  // namespace weir::app
