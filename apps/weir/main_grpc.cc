// SPDX-License-Identifier: Apache-2.0
//
// The program that main.cc becomes for commands that speak gRPC. It has all commands.
#include "apps/weir/commands.h"

int main(int argc, char** argv) { return weir::app::run_all(argc, argv); }
