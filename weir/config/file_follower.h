// SPDX-License-Identifier: Apache-2.0
//
// Keeps a running server as its configuration file says: each time it is told to (SIGHUP), the file
// is read again and what was edited in it is carried out.
//
//   FileFollower follower(read, as_read_at_the_start);
//   server.on_reload([&](serve::Server& it) { for (auto& line : follower.follow(it)) say(line); });
//
// Wholly or not at all: everything is tried first, on copies where it has to be, and a file with a
// mistake, a rule that cannot be applied, or a limit that the system has no room for changes
// nothing. What can change only at the next start is named, and the rest is done.
//
// Only what came from the file is touched. A rule that an administrator started is not the file's,
// even if the file had one of the same name that was stopped meanwhile: an edit that would reach it
// is refused. What he changed of the file's rules holds over the edit, as it would after a restart
// (weir/serve/kept_rules.h).
//
// On the server's loop only: the files are read there, once, while clients wait.
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
  // The file as it is now. What the command line set instead of it must be set in the answer too.
  using Read = std::function<Result<serve::ServeOptions>()>;

  // `started_with` is what the answer was when the server was created, just now.
  FileFollower(Read read, serve::ServeOptions started_with);

  // Lines for the operator: what was changed and what waits for the next start, or why nothing was
  // changed. The last one says whether the file is applied now. `more` is done with the changes, or
  // not at all: for what is read again besides the file, and was checked already.
  std::vector<std::string> follow(serve::Server& server, const std::function<void()>& more = {});

 private:
  // What each service whose rules were edited has to be told.
  using RulePlans = std::vector<std::pair<std::string, std::vector<RuleChange>>>;

  static Result<std::vector<RuleChange>> plan_rules(const serve::KeptRules& rules,
                                                    const std::vector<std::string>& file);
  static Result<RulePlans> check(const serve::Server& server, const ServeReload& plan,
                                 const serve::ServeOptions& wanted);

  Read read_;
  serve::ServeOptions applied_;
};

}  // namespace weir::config
