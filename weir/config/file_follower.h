// SPDX-License-Identifier: Apache-2.0
//
// Reloads the configuration file of a running server: on SIGHUP the file is read again and its
// edits are applied.
//
//   FileFollower follower(read, as_read_at_the_start);
//   server.on_reload([&](serve::Server& it) { for (auto& line : follower.follow(it)) say(line); });
//
// Edits are applied completely or not at all: everything is checked first, on copies where
// necessary, and a file with an error, a rule that cannot be applied, or a limit that the system
// cannot provide changes nothing. Keys that need a restart are reported, and the rest is applied.
//
// Only rules from the file are changed. A rule that an administrator started is not part of the
// file, even if the file had one of the same name that was stopped: an edit that would affect it is
// rejected. Changes by administrators to rules of the file survive the edit, as they survive a
// restart (weir/serve/kept_rules.h).
//
// Used on the server's loop only: the files are read there, once, while clients wait.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "weir/base/result.h"
#include "weir/config/serve_reload.h"
#include "weir/serve/options.h"
#include "weir/serve/server.h"

namespace weir::config {

class FileFollower {
 public:
  // Reads the current file. Settings from the command line must be included in the result.
  using Read = std::function<Result<serve::ServeOptions>()>;

  // `started_with` is the result of `read` when the server was created.
  FileFollower(Read read, serve::ServeOptions started_with);

  // Log lines for the operator: what was changed and what needs a restart, or why nothing was
  // changed. The last line states whether the file is applied. `more` is called together with the
  // changes, or not at all: for anything else that is reloaded and was already checked.
  std::vector<std::string> follow(serve::Server& server, const std::function<void()>& more = {});

 private:
  // The changes for each service whose rules were edited.
  using RulePlans = std::vector<std::pair<std::string, std::vector<RuleChange>>>;

  static Result<std::vector<RuleChange>> plan_rules(const serve::KeptRules& rules,
                                                    const std::vector<RuleChange>& file);
  static Result<RulePlans> check(const serve::Server& server, const ServeReload& plan,
                                 const serve::ServeOptions& wanted);

  Read read_;
  serve::ServeOptions applied_;
};

}  // namespace weir::config
