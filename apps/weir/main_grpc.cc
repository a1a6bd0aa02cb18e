// SPDX-License-Identifier: Apache-2.0
//
// The program that main.cc executes for commands that use gRPC. It contains all commands.
#include "apps/weir/commands.h"

int main(int argc, char** argv) { return weir::app::run_all(argc, argv); }
