// SPDX-License-Identifier: Apache-2.0
//
// All subcommands of weir on one command line: the whole program except main(), so that other
// programs can be built from it (weir/serve_main.h). If it is called lctl, it behaves as weir lctl.
//
//   return run_all(argc, argv);
//
// Commands that use gRPC are in a separate library, because it takes 10 ms to load: a program
// without them lists them, and executes another program to run them.
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

// Functions that add them to the command line.
struct GrpcCommands {
  void (*add_lock)(CLI::App& weir, int& status);
  void (*add_serve)(CLI::App& weir, int& status);
  void (*add_nfs)(CLI::App& weir, int& status);
  void (*add_lustre)(CLI::App& weir, int& status);  // with --cluster
};
inline constexpr GrpcCommands kOnlyListed = {nullptr, nullptr, nullptr, nullptr};

// Whether these arguments call one of them.
bool speaks_grpc(int argc, char** argv);

// Returns the exit status. Does not throw.
int run(int argc, char** argv, const GrpcCommands& grpc);
// Including gRPC.
int run_all(int argc, char** argv);

}  // namespace weir::app
