// SPDX-License-Identifier: Apache-2.0
//
// The parameter tree of a server for `lctl get_param`, `set_param` and `list_param`. Each leaf has
// a path and can be read, and most can be written.
//
//   ost.OSS.<service>.nrs_policies           the current policy, and the one to start
//   ost.OSS.<service>.nrs_tbf_rule           rules, and rule commands
//   ost.OSS.<service>.nrs_<policy>_<tunable>   such as nrs_crrn_quantum
//   obdfilter.<export>.job_stats             job statistics in Lustre's format
//   obdfilter.<export>.job_cleanup_interval
//   obdfilter.<export>.stats, .brw_stats     all operations
//   version, jobid_var, jobid_name           as on a Lustre server with default settings
//
// Exporters for Lustre ask for obdfilter.*OST*. So each export has a second name, <export>-OST0000
// with its number among the exports in hexadecimal. A pattern finds an export under this name only
// if it does not match the first one: no pattern finds an export twice.
//
// Patterns have a glob for each part between dots (* ? [...]); slashes may be used instead of dots.
// A Params object is created, used and destroyed within one command on the loop; it must not
// outlive its server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/control/job_stats_text.h"
#include "weir/serve/server.h"

namespace weir::control {

// The version of Lustre whose formats and names these are; Weir's own follows as a suffix, as those
// of vendors do.
inline constexpr std::string_view kLustreVersion = "2.17.57";

struct Param {
  std::vector<std::string> parts;  // of its path
  std::function<Result<std::string>()> read;
  std::function<Result<void>(std::string_view)> write;  // none for rules
  // Whether a write would succeed now; none: can only be determined by writing.
  std::function<Result<void>(std::string_view)> check = nullptr;
  bool is_writable = true;
  // The parameter of which this is another name.
  std::optional<std::size_t> alias_of = std::nullopt;

  std::string path() const;     // joined with dots
  std::string slashed() const;  // joined with slashes
};

// What a pattern finds: parameters that match it, or also all below folders that match.
enum class Depth : std::uint8_t { kExact, kBelow };

// A folder or a leaf of the tree.
struct ParamName {
  std::string path;
  bool is_folder = false;
  bool is_writable = false;

  bool operator==(const ParamName&) const = default;
};

class Params {
 public:
  void add(Param param) { all_.push_back(std::move(param)); }
  // Readable, and not writable. `value` is called for each read.
  void add_read_only(std::vector<std::string> path, std::function<Result<std::string>()> value);
  // The parameters added since `first` have another name: `name` instead of part `part`.
  void add_aliases(std::size_t first, std::size_t part, const std::string& name);
  std::size_t size() const { return all_.size(); }

  // In the order they were added.
  std::vector<const Param*> find(std::string_view pattern, Depth depth = Depth::kExact) const;
  // Leaves and folders that match, for list_param.
  std::vector<ParamName> list(std::string_view pattern, Depth depth = Depth::kExact) const;

 private:
  // The number of its parts from which on it matches; 0: none.
  std::size_t match(const Param& param, const std::string& glob, Depth depth) const;

  std::vector<Param> all_;
};

// Descriptions of the effect of an nrs_policies write on rules.
using Notes = std::vector<std::string>;

// The leaves of a server; `notes` receives the rules that become inactive. Rules are changed as
// values, not written (change_trial.h). REQUIRES: on its loop.
Params server_params(serve::Server& server, const Moment& moment, Notes* notes = nullptr);

// The result for one leaf.
struct ParamOutcome {
  std::string path;
  std::string slashed;
  std::string value;      // read; or as it was written
  Error error;            // code 0: none
  std::string note = {};  // other effects of the write
  bool is_writable = false;
  bool is_folder = false;
};
// The first error.
std::optional<Error> failure_of(const std::vector<ParamOutcome>& outcomes);
std::vector<ParamOutcome> read_params(const Params& params, std::string_view pattern,
                                      Depth depth = Depth::kExact);
std::vector<ParamOutcome> write_params(const Params& params, std::string_view pattern,
                                       std::string_view value);

// Converts slashes in a pattern to dots.
std::string dotted(std::string_view pattern);

}  // namespace weir::control
