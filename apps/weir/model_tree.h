// SPDX-License-Identifier: Apache-2.0
//
// The files of a modelled Lustre server as the driver sees them: model and driver communicate only
// through the text of the files. The owner sets the time. A write that the model refuses fails with
// the errno of a server.
//
//   ModelTree tree(server);
//   tree.set_now(now);    driver.round(now);
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/lustre/tree.h"
#include "weir/sim/lustre_model.h"

namespace weir::app {

class ModelTree final : public lustre::Tree {
 public:
  explicit ModelTree(sim::LustreServer& server) : server_(server) {}

  void set_now(Instant now) { now_ = now; }
  Instant now() const { return now_; }

  Result<std::string> read(const std::string& path) override { return server_.read(path, now_); }
  Result<void> write(const std::string& path, std::string_view text) override {
    return server_.write(path, text, now_);
  }
  Result<std::vector<std::string>> list(const std::string& folder) override {
    std::set<std::string> names;
    for (const std::string& path : server_.paths()) {
      if (!path.starts_with(folder + "/")) continue;
      const std::string rest = path.substr(folder.size() + 1);
      names.insert(rest.substr(0, rest.find('/')));
    }
    if (names.empty()) {
      return fail(std::errc::no_such_file_or_directory, folder, "no such folder");
    }
    return std::vector<std::string>(names.begin(), names.end());
  }

 private:
  sim::LustreServer& server_;
  Instant now_{};
};

}  // namespace weir::app
