// SPDX-License-Identifier: Apache-2.0
//
// What the ids of jobs tell about them: their user, group, project, client or nodemap. A Lustre
// server counts by job id alone, so a limit by user can be measured only if the id of a job tells
// whose it is.
//
//   pattern   the codes of jobid_name:   "%e.%u"     dd.500 belongs to uid 500
//             %u user, %g group; %e %h %H %j %p: anything; other characters: themselves
//   table     lines "GLOB KEY=VALUE...":  *.login1 nid=10.0.0.1@tcp nodemap=guests
//             keys: uid, gid, projid, nid, nodemap; # starts a comment; the first line that
//             matches sets a key
//
// The table precedes the pattern. The id of a nodemap is computed from its name, so that it is the
// same on all servers; it is not that of Lustre.
//
// Values only; pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/classify/attributes.h"

namespace weir::lustre {

class JobFacts {
 public:
  static constexpr std::size_t kLinesMax = 10'000;
  static constexpr std::size_t kPiecesMax = 16;

  // EINVAL: a pattern with a single % at its end, or too many codes; a line of the table that is
  // not valid, by its number.
  static Result<JobFacts> parse(std::string_view pattern, std::string_view table);

  // The fields that some id may tell, always with jobid.
  FieldSet fields() const { return fields_; }
  // The id and what it tells; other fields as of a request without them.
  Attributes of(const JobId& job) const;

  // The id of a nodemap of this name.
  static std::uint32_t nodemap_id(std::string_view name);

 private:
  struct Piece {
    enum class Kind : std::uint8_t { kText, kUser, kGroup, kAny };
    Kind kind = Kind::kText;
    std::string text = {};  // of kText
  };
  struct Line {
    std::string glob;
    std::optional<std::uint32_t> uid, gid, projid, nodemap;
    std::optional<Nid> nid;
  };
  struct Found {
    std::optional<std::uint32_t> uid, gid;
  };

  Result<void> read_pattern(std::string_view text);
  Result<void> read_table(std::string_view text);
  Result<void> read_line(std::string_view words, Line& line);
  bool match(std::size_t piece, std::string_view rest, Found& found, int& steps) const;

  FieldSet fields_ = {Field::kJobid};
  std::vector<Piece> pieces_;
  std::vector<Line> lines_;
};

}  // namespace weir::lustre
