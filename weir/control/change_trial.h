// SPDX-License-Identifier: Apache-2.0
//
// The two steps of a change on the loop: trying it, and applying it. The journal is written in
// between, so that every active change survives a restart.
//
//   ChangeTrial trial(server, moment);
//   Tried one = trial.apply(item);       whether it would succeed after those before it
//   ... its records are written and synced ...
//   carry_out(server, item, moment);     succeeds, unless something else has changed meanwhile
//
// A group of changes is tried together and shares one sync. A change of policy forms a separate
// group, because it determines which later changes are possible.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weir/control/change.h"
#include "weir/control/params.h"
#include "weir/serve/server.h"

namespace weir::control {

struct ChangeItem {
  Change change;
  bool is_kept = true;        // survives changes of policy, and restarts if there is a journal
  bool is_for_locks = false;  // the lock service has parameters of that name
};

struct Tried {
  std::vector<ParamOutcome> outcomes;
  std::vector<Change> records;  // for the journal

  bool is_done() const { return !failure_of(outcomes); }
};

class ChangeTrial {
 public:
  // REQUIRES: on the loop; the server's rules and policies do not change meanwhile.
  ChangeTrial(serve::Server& server, const Moment& moment)
      : server_(server), params_(server_params(server, moment)) {}
  Tried apply(const ChangeItem& item);

 private:
  Result<void> try_param(const Param& param, const ChangeItem& item);

  serve::Server& server_;
  Params params_;
  bool is_needed_ = false;  // whether the next start needs the change being tried
  std::map<std::string, std::unique_ptr<serve::KeptRules::Trial>> rules_;  // by service
};

// REQUIRES: on the loop, or before it runs.
std::vector<ParamOutcome> carry_out(serve::Server& server, const ChangeItem& item,
                                    const Moment& moment);

// Applies the changes of a journal at the start of a server. Changes that can no longer be applied
// are reported and skipped. Returns records for the journal that revoke starts of rules that the
// file or the command line now has, which take precedence. REQUIRES: before the loop runs.
std::vector<std::string> replay(serve::Server& server, const std::vector<Change>& changes,
                                std::vector<std::string>& mistakes);

}  // namespace weir::control
