// SPDX-License-Identifier: Apache-2.0
//
// The parameter tree of a server for `lctl get_param`, `set_param` and `list_param`. Each leaf has
// a path and can be read, and most can be written.
//
//   ost.OSS.<service>.nrs_policies           the current policy, and the one to start
//   ost.OSS.<service>.nrs_tbf_rule           rules, and rule commands
//   ost.OSS.<service>.nrs_crrn_quantum
//   obdfilter.<export>.job_stats             job statistics in Lustre's format
//   obdfilter.<export>.job_cleanup_interval
//
// Patterns have a glob for each part between dots (* ? [...]); slashes may be used instead of dots.
// A Params object is created, used and destroyed within one command on the loop; it must not
// outlive its server.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/control/job_stats_text.h"
#include "weir/serve/server.h"

namespace weir::control {

struct Param {
  std::vector<std::string> parts;  // of its path
  std::function<Result<std::string>()> read;
  std::function<Result<void>(std::string_view)> write;
  // Whether a write would succeed now; none: can only be determined by writing.
  std::function<Result<void>(std::string_view)> check = nullptr;

  std::string path() const;     // joined with dots
  std::string slashed() const;  // joined with slashes
};

class Params {
 public:
  void add(Param param) { all_.push_back(std::move(param)); }
  // In the order they were added.
  std::vector<const Param*> find(std::string_view pattern) const;
  // Leaves and folders that match, for list_param.
  std::vector<std::string> list(std::string_view pattern) const;

 private:
  std::vector<Param> all_;
};

// Descriptions of the effect of an nrs_policies write on rules.
using Notes = std::vector<std::string>;

// The leaves of a server. Written rules are kept across policies and restarts, or not; `notes`
// receives those that become inactive. REQUIRES: on its loop.
Params server_params(serve::Server& server, const Moment& moment,
                     serve::KeptRules::Keeping keeping = serve::KeptRules::Keeping::kTemporary,
                     Notes* notes = nullptr);

// The result for one leaf.
struct ParamOutcome {
  std::string path;
  std::string slashed;
  std::string value;      // read; or as it was written
  Error error;            // code 0: none
  std::string note = {};  // other effects of the write
};
// The first error.
std::optional<Error> failure_of(const std::vector<ParamOutcome>& outcomes);
std::vector<ParamOutcome> read_params(const Params& params, std::string_view pattern);
std::vector<ParamOutcome> write_params(const Params& params, std::string_view pattern,
                                       std::string_view value);

// Converts slashes in a pattern to dots.
std::string dotted(std::string_view pattern);

}  // namespace weir::control
