// SPDX-License-Identifier: Apache-2.0
//
// All subcommands of weir on one command line. Called lctl, it is that.
#pragma once

namespace weir::app {

// The exit status.
int run(int argc, char** argv);

}  // namespace weir::app
