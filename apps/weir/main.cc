// SPDX-License-Identifier: Apache-2.0
//
// The program weir. Loading the libraries of gRPC takes longer than most commands, so commands that
// use gRPC are in a second program (main_grpc.cc), which this one executes in the same process with
// the same arguments.
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include <unistd.h>

#include "apps/weir/commands.h"
#include "weir/host/log.h"

namespace weir::app {
namespace {

constexpr int kUnavailable = 69;  // as in command.h, which takes seconds to compile

// Its path is relative to this program, both in the build tree and when installed. Returns only
// on failure.
int become_grpc_program(char** argv) {
  std::error_code error;
  auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    host::log_text("weir: cannot read /proc/self/exe: " + error.message() + "; mount /proc\n");
    return kUnavailable;
  }
  path = (path.parent_path() / WEIR_GRPC_PROGRAM).lexically_normal();
  execv(path.c_str(), argv);
  host::log_text(
      "weir: cannot run " + path.string() + ": " + std::generic_category().message(errno) +
      "; install Weir again: 'weir lock', 'weir nfs', 'weir serve' and 'weir lustre --cluster' "
      "need this program\n");
  return kUnavailable;
}

}  // namespace
}  // namespace weir::app

int main(int argc, char** argv) {
  using namespace weir::app;
  return speaks_grpc(argc, argv) ? become_grpc_program(argv) : run(argc, argv, add_listed);
}
