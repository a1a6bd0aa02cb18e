// SPDX-License-Identifier: Apache-2.0
//
// All subcommands of weir on one command line: the whole program but for main(), so that other
// programs can be made of it (weir/serve_main.h). Called lctl, it is that.
//
//   return run_all(argc, argv);
//
// Commands that speak gRPC are in a library of their own, because its libraries take 10 ms to load:
// a program without them lists them, and leaves running them to another.
#pragma once

namespace CLI {
class App;
}

namespace weir::app {

// What the list of commands says of those that speak gRPC, whether they are in this program or not.
inline constexpr const char* kLockHelp = "Run a command under a lock that holds across machines";
inline constexpr const char* kServeHelp =
    "Export files, block devices and memory over NBD, and schedule every request";

// How they are added to the command line.
struct GrpcCommands {
  void (*add_lock)(CLI::App& weir, int& status);
  void (*add_serve)(CLI::App& weir, int& status);
};
inline constexpr GrpcCommands kOnlyListed = {nullptr, nullptr};

// Whether these arguments call one of them.
bool speaks_grpc(int argc, char** argv);

// The exit status. Nothing is thrown.
int run(int argc, char** argv, const GrpcCommands& grpc);
// With gRPC.
int run_all(int argc, char** argv);

}  // namespace weir::app
