// SPDX-License-Identifier: Apache-2.0
//
// The subcommands of weir, in two programs that share one command line. Commands that use gRPC are
// in a separate library and program, because it takes 10 ms to load: the program weir lists them,
// and executes the other one, which contains nothing else, to run them.
//
//   return run(argc, argv, add_listed);      main.cc; as lctl it behaves as weir lctl
//   return run_grpc(argc, argv);             main_grpc.cc, and other programs (weir/serve_main.h)
#pragma once

namespace CLI {
class App;
}

namespace weir::app {

// Descriptions of the commands that use gRPC, for the list of commands of both programs.
inline constexpr const char* kLockHelp = "Run a command under a lock that holds across machines";
inline constexpr const char* kServeHelp =
    "Export files, block devices and memory over NBD, and schedule every request";
inline constexpr const char* kNfsHelp =
    "Limit and share an NFS server between users: a gateway in front of it";

// Whether these arguments call one of them, or complete such a command line.
bool speaks_grpc(int argc, char** argv);

// Adds commands to the command line; they set the exit status.
using AddCommands = void (*)(CLI::App& weir, int& status);
// All commands; those that use gRPC are only listed.
void add_listed(CLI::App& weir, int& status);

// Returns the exit status. Does not throw.
int run(int argc, char** argv, AddCommands add_commands);
// With the commands that use gRPC, and no others.
int run_grpc(int argc, char** argv);

}  // namespace weir::app
