// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_state.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/lock/lock_table.h"

namespace weir::cluster {
namespace {

using host::StateFile;

constexpr std::string_view kHead = "weir lock state 2\n";
constexpr std::string_view kCount = "incarnation ";
constexpr std::string_view kKey = "key ";
constexpr std::string_view kByHand = " by hand\n";

// For an administrator who has lost both files: more starts than a server can have had that was
// started once a minute for a year.
constexpr std::uint64_t kFarAhead = std::uint64_t{1} << 19;
static_assert(kFarAhead < lock::kIncarnationMax);

std::string print_plain(const LockState& state) {
  return fmt::format("{}{}\nclean {}\n", kCount, state.incarnation, state.is_clean ? 1 : 0);
}

// 0: not valid.
std::uint64_t read_number(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number <= lock::kIncarnationMax ? number : 0;
}

// Quotes a path for a shell.
std::string shell_word(const std::string& path) {
  std::string word = "'";
  for (const char one : path) word += one == '\'' ? std::string("'\\''") : std::string(1, one);
  return word + "'";
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(path, error);
  return error ? path : whole.string();
}

tl::unexpected<Error> damaged(const std::string& path, bool is_missing, bool has_copy) {
  const std::string file = absolute(path);
  const std::string copy = file + ".copy";
  const char* const what = is_missing ? "is missing, but its copy exists" : "is damaged";
  if (has_copy) {
    return fail(
        std::errc::invalid_argument, path, what,
        fmt::format("its copy is intact: run: cp -- {} {}", shell_word(copy), shell_word(file)));
  }
  return fail(
      std::errc::invalid_argument, path, fmt::format("{}, and so is its copy {}.copy", what, path),
      fmt::format("if the server was started fewer than {} times, run: rm -f -- {} && "
                  "echo '{}{}{}' > {}; otherwise use a number larger than the largest fence "
                  "that storage has seen, divided by 2^{}",
                  kFarAhead, shell_word(copy), kCount, kFarAhead,
                  kByHand.substr(0, kByHand.size() - 1), shell_word(file), lock::kFenceCountBits));
}

// The state that the last server wrote. The copy is written first: if both are intact and differ,
// the server died between the two writes.
Result<LockState> last_state(const std::string& path, const StateFile& file,
                             const StateFile& copy) {
  if (file.is_new() && copy.is_new()) return LockState{};
  const auto copied = parse_lock_state(copy.text());
  const auto written = parse_lock_state(file.text());
  if (!written) return damaged(path, file.is_new(), copied.has_value());
  LockState state = *written;
  if (copied && copied->incarnation > state.incarnation) {
    state.incarnation = copied->incarnation;
    state.is_clean = false;
  }
  if (copied && !state.key) state.key = copied->key;
  return state;
}

}  // namespace

Result<LockState> parse_lock_state(std::string_view text) {
  LockState state;
  std::string_view rest = text;
  const bool is_ours = rest.starts_with(kHead);
  if (is_ours) rest.remove_prefix(kHead.size());
  if (rest.starts_with(kCount)) state.incarnation = read_number(rest.substr(kCount.size()));
  if (const auto key = rest.find(kKey); is_ours && key != std::string_view::npos) {
    state.key = parse_key(rest.substr(key + kKey.size(), 2 * sizeof(host::Key)));
  }
  for (const bool is_clean : {false, true}) {
    state.is_clean = is_clean;
    if (state.incarnation == 0 || is_ours != state.key.has_value()) break;
    if (text == (is_ours ? print_lock_state(state) : print_plain(state))) return state;
  }
  state.is_clean = false;
  if (!is_ours && state.incarnation > 0 &&
      text == fmt::format("{}{}{}", kCount, state.incarnation, kByHand)) {
    return state;
  }
  return fail(std::errc::invalid_argument, {}, "is not the state of a lock server");
}

std::string print_lock_state(const LockState& state) {
  WEIR_ASSERT(state.key.has_value());
  return fmt::format("{}{}{}{}\n", kHead, print_plain(state), kKey, print_key(*state.key));
}

std::string print_key(const host::Key& key) {
  std::string text;
  for (const std::byte one : key) text += fmt::format("{:02x}", std::to_integer<unsigned>(one));
  return text;
}

std::optional<host::Key> parse_key(std::string_view text) {
  host::Key key;
  if (text.size() != 2 * key.size()) return std::nullopt;
  for (std::byte& one : key) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + 2, value, 16);
    if (error != std::errc{} || end != text.data() + 2) return std::nullopt;
    one = static_cast<std::byte>(value);
    text.remove_prefix(2);
  }
  return key;
}

Result<LockStateFile> LockStateFile::begin(const std::string& path) {
  auto file = StateFile::open(path, StateFile::Readers::kOwner);
  if (!file) return tl::unexpected(file.error());
  auto copy = StateFile::open(path + ".copy", StateFile::Readers::kOwner);
  if (!copy) return tl::unexpected(copy.error());
  auto state = last_state(path, *file, *copy);
  if (!state) return tl::unexpected(state.error());
  if (state->incarnation == lock::kIncarnationMax) {
    return fail(std::errc::value_too_large, path,
                "this lock server has reached the maximum number of starts",
                "move its clients to a new lock server");
  }
  if (!state->key) {
    const auto key = host::random_key();
    if (!key) return tl::unexpected(key.error());
    state->key = *key;
  }
  const bool was_clean = std::exchange(state->is_clean, false);
  ++state->incarnation;
  LockStateFile begun(*std::move(file), *std::move(copy), *state, was_clean);
  if (auto written = begun.write(); !written) return tl::unexpected(written.error());
  return begun;
}

Result<void> LockStateFile::write() {
  const std::string text = print_lock_state(state_);
  for (StateFile* const one : {&copy_, &file_}) {
    if (auto written = one->replace(text); !written) return written;
  }
  return {};
}

Result<void> LockStateFile::follow(std::uint64_t term, const host::Key& key) {
  if (term <= state_.incarnation && key == *state_.key) return {};
  state_.incarnation = std::max(state_.incarnation, term);
  state_.key = key;
  return write();
}

void LockStateFile::leave() {
  LockState left = state_;
  left.is_clean = true;
  (void)file_.replace(print_lock_state(left));
}

}  // namespace weir::cluster
