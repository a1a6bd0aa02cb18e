// SPDX-License-Identifier: Apache-2.0
//
// Names for rules of jobs. Job ids cannot be used as names (dots, length), so names are generated:
// a prefix and a number, w00001. The map from names to jobs is kept on disk and written before a
// name is used: after a crash it shows which rules of a server are ours. A rule is ours if its name
// is in the map and its condition is for the job in the map; any other rule with such a name is
// left unchanged, and its name is not used.
//
//   text of the map        "weir lustre names 1\n" and a line "NAME\tID" for each, ids with \xHH
//
// Pure text; the caller owns the file and its lock. Names are kept while they are used, and the
// least recently used one is replaced. One owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "weir/base/job_id.h"
#include "weir/base/result.h"

namespace weir::lustre {

// Whether a rule can name this id: no space, comma, &, brace, quote, * or control byte.
bool is_expressible(const JobId& job);
// "jobid={ID}"
std::string conds_of(const JobId& job);
// The id in conditions, in the syntax before and since 2.17.5x; none if they contain more.
std::optional<JobId> job_of(std::string_view conds);

class Names {
 public:
  static constexpr std::size_t kMax = 512;
  static constexpr std::size_t kNameMax = 15;
  static constexpr std::size_t kDigits = 5;
  static constexpr std::string_view kPrefixDefault = "weir";
  // Maximum size of print(): every byte of an id may need an escape.
  static constexpr std::size_t kTextMax = (kMax + 1) * (kNameMax + JobId::kSizeMax * 4 + 4);

  // EINVAL for a prefix that is empty, too long or contains other than letters, digits and _, and
  // for text that is not a map.
  static Result<Names> read(std::string_view prefix, std::string_view text);

  std::string print() const;
  // Whether it differs from the text that was read or last printed by keep().
  bool is_changed() const { return changed_; }
  void keep() { changed_ = false; }

  // The job of a rule, if the rule is ours.
  std::optional<JobId> owner(std::string_view name, std::string_view conds) const;
  // The name of a job, if it has one.
  std::optional<std::string> find(const JobId& job) const;
  // A name that is free in the map and not in `taken`; none if all are in use.
  std::optional<std::string> name_for(const JobId& job, const std::set<std::string>& taken,
                                      const std::set<std::string>& in_use);

 private:
  explicit Names(std::string_view prefix) : prefix_(prefix) {}

  std::string prefix_;
  std::map<std::string, JobId> jobs_;
  std::map<JobId, std::string> names_;
  std::map<std::string, std::uint64_t> used_;  // call number of the last use
  std::uint64_t calls_ = 0;
  std::uint64_t next_ = 1;
  bool changed_ = false;
};

}  // namespace weir::lustre
