// SPDX-License-Identifier: Apache-2.0
#include "weir/pace/limiter_text.h"

#include <charconv>
#include <cstdint>

#include <fmt/format.h>

namespace weir {
namespace {

constexpr std::string_view kFirstLine = "weir-limiter 1\n";
constexpr std::string_view kLastLine = "end\n";

void append_bucket(std::string& text, std::string_view name, const LimiterBucket::State& bucket) {
  fmt::format_to(std::back_inserter(text), "{} size={} burst={}/{} rate={}/{} zero={}+{}\n", name,
                 bucket.spec.size.count(), bucket.one_time_burst_left.count(),
                 bucket.spec.one_time_burst.count(), bucket.spec.rate.tokens(),
                 bucket.spec.rate.time_ns(), bucket.zero_age.count(), bucket.zero_part);
}

// Parses fixed text and numbers from the front of a string; once one is missing, all later
// ones fail.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  bool skip(std::string_view expected) {
    if (!ok_ || rest_.substr(0, expected.size()) != expected) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }
  Reader& text(std::string_view expected) {
    if (!skip(expected)) ok_ = false;
    return *this;
  }
  template <class Integer>
  Reader& number(Integer& value) {
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc{}) ok_ = false;
    if (ok_) rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return *this;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

std::optional<LimiterBucket::State> read_bucket(Reader& reader) {
  std::uint64_t size = 0, left = 0, burst = 0, tokens = 0, time_ns = 0, part = 0;
  std::int64_t age = 0;
  reader.text("size=").number(size).text(" burst=").number(left).text("/").number(burst);
  reader.text(" rate=").number(tokens).text("/").number(time_ns);
  reader.text(" zero=").number(age).text("+").number(part).text("\n");
  if (!reader.ok() || tokens == 0 || time_ns == 0 || time_ns > INT64_MAX) return std::nullopt;
  const Rate rate(Tokens{tokens}, Nanoseconds{static_cast<std::int64_t>(time_ns)});
  // The fraction is in units of the rate as written, so the rate must be reduced already.
  if (rate.tokens() != tokens) return std::nullopt;
  return LimiterBucket::State{
      {Tokens{size}, Tokens{burst}, rate}, Tokens{left}, Nanoseconds{age}, part};
}

std::optional<RateLimiter::State> read_state(Reader& reader) {
  RateLimiter::State state;
  reader.text(kFirstLine);
  if (reader.skip("bytes ") && !(state.bytes = read_bucket(reader))) return std::nullopt;
  if (reader.skip("ops ") && !(state.ops = read_bucket(reader))) return std::nullopt;
  if (reader.skip("block ")) {
    const TokenKind kind = reader.skip("bytes ") ? TokenKind::kBytes : TokenKind::kOps;
    if (kind == TokenKind::kOps) reader.text("ops ");
    std::uint64_t need = 0;
    reader.number(need).text("\n");
    state.block = {kind, Tokens{need}};
  }
  reader.text(kLastLine);
  if (!reader.at_end()) return std::nullopt;
  return state;
}

}  // namespace

std::string limiter_text(const RateLimiter::State& state) {
  std::string text(kFirstLine);
  if (state.bytes) append_bucket(text, "bytes", *state.bytes);
  if (state.ops) append_bucket(text, "ops", *state.ops);
  if (state.block) {
    fmt::format_to(std::back_inserter(text), "block {} {}\n",
                   state.block->kind == TokenKind::kBytes ? "bytes" : "ops",
                   state.block->need.count());
  }
  text += kLastLine;
  return text;
}

Result<RateLimiter::State> parse_limiter_text(std::string_view text, std::string_view where) {
  Reader reader(text);
  const auto state = read_state(reader);
  // Printing it must give the same text, which rejects other spellings of the same numbers.
  if (state && limiter_text(*state) == text) return *state;
  return fail(std::errc::invalid_argument, where, "is not the saved state of a limiter",
              "remove it to start with full buckets");
}

}  // namespace weir
