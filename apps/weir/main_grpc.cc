// SPDX-License-Identifier: Apache-2.0
//
// The program that main.cc executes for commands that use gRPC.
#include "apps/weir/commands.h"

int main(int argc, char** argv) { return weir::app::run_grpc(argc, argv); }
