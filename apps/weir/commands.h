// SPDX-License-Identifier: Apache-2.0
//
// All subcommands of weir on one command line: the whole program but for main(), so that other
// programs can be made of it (weir/serve_main.h). Called lctl, it is that.
//
//   return run(argc, argv);
#pragma once

namespace weir::app {

// The exit status. Nothing is thrown.
int run(int argc, char** argv);

}  // namespace weir::app
