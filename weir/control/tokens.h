// SPDX-License-Identifier: Apache-2.0
//
// Bearer tokens of the API over TCP. A file has one token per line, with a name for the log and a
// role; '#' starts a comment:
//
//   # name      role   token
//   prometheus  read   4f1c...
//   deploy      write  93aa...
//
// A file that contains a single word is one token with the role write, named "token".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"

namespace weir::control {

// The access of a caller: clients of the Unix socket may do everything, those of TCP what their
// token allows.
enum class Access : std::uint8_t { kNone, kRead, kWrite };

struct Token {
  static constexpr std::size_t kMax = 64;       // in a file
  static constexpr std::size_t kNameMax = 64;   // bytes
  static constexpr std::size_t kTextMax = 512;  // bytes

  std::string name;
  Access role = Access::kRead;
  std::string text;
};

// EINVAL: lines of another form, too many, or two with the same name. Errors name the line and
// never its token.
Result<std::vector<Token>> parse_tokens(std::string_view file);

// Those of a file, whose name is in errors; none without a name. Also the errors of reading it.
Result<std::vector<Token>> read_tokens(const std::string& path);

// The token with this text, or nullptr. Takes the same time for all texts of one length.
const Token* find_token(const std::vector<Token>& tokens, std::string_view text);
// Compares in constant time, except for the lengths.
bool is_same_secret(std::string_view a, std::string_view b);

}  // namespace weir::control
