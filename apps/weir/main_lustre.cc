// SPDX-License-Identifier: Apache-2.0
//
// The program weir-lustre: `weir lustre` alone, for Lustre servers on which nothing else of Weir is
// installed. It is linked statically (cmake/WeirLibrary.cmake).
#include <exception>
#include <string_view>
#include <vector>

#include "apps/weir/command.h"
#include "weir/base/quote.h"

namespace weir::app {
namespace {

int run_lustre(int argc, char** argv) {
  CLI::App weir("Adjust the rules of a Lustre server to its jobs", "weir");
  weir.set_version_flag("--version", lustre_version(), "Print the version and exit");
  weir.require_subcommand(1);
  int status = 0;
  add_lustre(weir, status);
  // The arguments of `weir lustre`, except for options of weir.
  std::vector<const char*> words(argv, argv + argc);
  if (argc < 2 || std::string_view(argv[1]) != "--version") {
    words.insert(words.begin() + 1, "lustre");
  }
  if (argc < 2) words.push_back("--help");
  try {
    weir.parse(static_cast<int>(words.size()), words.data());
    if (status == static_cast<int>(Exit::kOk)) check_output();
  } catch (const CLI::Success& success) {
    return weir.exit(success);
  } catch (const CLI::ParseError& error) {
    print_error("weir lustre: {}; try 'weir-lustre --help'\n", visible(error.what()));
    return static_cast<int>(Exit::kUsage);
  } catch (const Failure& failure) {
    print_error("weir lustre: {}\n", visible(failure.message));
    return static_cast<int>(failure.status);
  }
  return status;
}

}  // namespace
}  // namespace weir::app

int main(int argc, char** argv) {
  using namespace weir::app;
  try {
    return run_lustre(argc, argv);
  } catch (const std::exception& error) {  // out of memory, or a bug
    print_error("weir lustre: {}\n", error.what());
    return static_cast<int>(Exit::kSoftware);
  }
}
