// SPDX-License-Identifier: Apache-2.0
//
// weir nfs check SERVER: prints the findings of weir/nfs/server_check.h about an NFS server, one
// line each, after "ok:", "warning:" or "problem:". The exit status shows whether there is a
// problem. It is a subcommand of weir nfs, whose own callback runs after it and must do nothing in
// this case.
#pragma once

#include <CLI/CLI.hpp>

namespace weir::app {

// Adds it to weir nfs; its callback sets the exit status.
CLI::App* add_nfs_check(CLI::App& command, int& status);

}  // namespace weir::app
