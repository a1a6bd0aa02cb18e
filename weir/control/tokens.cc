// SPDX-License-Identifier: Apache-2.0
#include "weir/control/tokens.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/host/files.h"

namespace weir::control {
namespace {

// The words of a line in front of a comment.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  line = line.substr(0, line.find('#'));
  constexpr std::string_view kBlank = " \t\r";
  while (true) {
    const std::size_t begin = line.find_first_not_of(kBlank);
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const std::size_t end = std::min(line.find_first_of(kBlank), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

tl::unexpected<Error> refuse(std::size_t line, std::string what, std::string hint = {}) {
  return fail(std::errc::invalid_argument, fmt::format("line {}", line), std::move(what),
              std::move(hint));
}

Result<Token> parse_token(const std::vector<std::string_view>& words, std::size_t line) {
  if (words.size() != 3) {
    return refuse(line, "is not NAME ROLE TOKEN", "for example: prometheus read 4f1c93aa");
  }
  Token token{std::string(words[0]), Access::kRead, std::string(words[2])};
  if (words[1] == "write") {
    token.role = Access::kWrite;
  } else if (words[1] != "read") {
    return refuse(line, quote(words[1]) + " is not a role", "use read or write");
  }
  if (token.name.size() > Token::kNameMax || token.text.size() > Token::kTextMax) {
    return refuse(line, fmt::format("a name has at most {} bytes and a token {}", Token::kNameMax,
                                    Token::kTextMax));
  }
  return token;
}

}  // namespace

Result<std::vector<Token>> parse_tokens(std::string_view file) {
  std::vector<Token> tokens;
  std::vector<std::string_view> lone;  // the single word of a file
  std::size_t number = 0;
  while (!file.empty()) {
    const std::string_view line = file.substr(0, file.find('\n'));
    file.remove_prefix(std::min(line.size() + 1, file.size()));
    ++number;
    const auto words = words_of(line);
    if (words.empty()) continue;
    if (words.size() == 1 && tokens.empty() && lone.empty()) {
      lone = words;
      continue;
    }
    if (!lone.empty()) return refuse(number, "follows a token without a name and a role");
    auto token = parse_token(words, number);
    if (!token) return tl::unexpected(token.error());
    const auto has_name = [&](const Token& one) { return one.name == token->name; };
    if (std::any_of(tokens.begin(), tokens.end(), has_name)) {
      return refuse(number, quote(token->name) + " is the name of another token");
    }
    if (tokens.size() == Token::kMax) {
      return refuse(number, fmt::format("there are more than {} tokens", Token::kMax));
    }
    tokens.push_back(std::move(*token));
  }
  if (!lone.empty()) {
    auto token = parse_token({"token", "write", lone.front()}, number);
    if (!token) return tl::unexpected(token.error());
    tokens.push_back(std::move(*token));
  }
  if (tokens.empty()) {
    return fail(std::errc::invalid_argument, "the file", "contains no token",
                "write one per line: NAME ROLE TOKEN");
  }
  return tokens;
}

Result<std::vector<Token>> read_tokens(const std::string& path) {
  if (path.empty()) return std::vector<Token>{};
  const auto text = host::read_file(path);
  if (!text) return tl::unexpected(text.error());
  auto tokens = parse_tokens(*text);
  if (!tokens) tokens.error().where = quote(path) + ": " + tokens.error().where;
  return tokens;
}

const Token* find_token(const std::vector<Token>& tokens, std::string_view text) {
  const Token* found = nullptr;
  for (const Token& one : tokens) {
    if (is_same_secret(text, one.text)) found = &one;
  }
  return found;
}

bool is_same_secret(std::string_view a, std::string_view b) {
  unsigned differs = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    differs |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(other);
  }
  return differs == 0;
}

}  // namespace weir::control
