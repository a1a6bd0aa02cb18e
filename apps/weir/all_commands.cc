// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "apps/weir/command.h"
#include "apps/weir/commands.h"
#include "apps/weir/lustre_cluster.h"
#include "weir/serve_main.h"

namespace weir {

int app::run_all(int argc, char** argv) {
  return run(argc, argv,
             {.add_lock = add_lock,
              .add_serve = add_serve,
              .add_nfs = add_nfs,
              .add_lustre = add_lustre_with_cluster});
}

int serve_main(int argc, char** argv) {
  std::string serve = "serve";
  std::vector<char*> arguments(argv, argv + argc);
  arguments.insert(arguments.begin() + (argc > 0 ? 1 : 0), serve.data());
  arguments.push_back(nullptr);
  return app::run_all(static_cast<int>(arguments.size()) - 1, arguments.data());
}

}  // namespace weir
