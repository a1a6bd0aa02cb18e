// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "apps/weir/command.h"
#include "apps/weir/commands.h"
#include "apps/weir/lustre_cluster.h"
#include "weir/serve_main.h"

namespace weir {

int app::run_grpc(int argc, char** argv) {
  return run(argc, argv, [](CLI::App& weir, int& status) {
    add_lock(weir, status);
    add_lustre_with_cluster(weir, status);
    add_nfs(weir, status);
    add_serve(weir, status);
  });
}

int serve_main(int argc, char** argv) {
  std::string serve = "serve";
  std::vector<char*> arguments(argv, argv + argc);
  arguments.insert(arguments.begin() + (argc > 0 ? 1 : 0), serve.data());
  arguments.push_back(nullptr);
  return app::run_grpc(static_cast<int>(arguments.size()) - 1, arguments.data());
}

}  // namespace weir
